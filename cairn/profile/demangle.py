"""C++ and Rust names of functions, for symbols as compilers write them into files.

The C++ runtime of the system translates symbols of C++ (__cxa_demangle of libstdc++). On a system
without this library, `function_names.readable` shortens symbols of C++ instead. `rust_names`
translates symbols of Rust.
"""

from __future__ import annotations

import ctypes
from functools import cache

from cairn.profile.rust_names import rust_name

_NESTED_MOST = 16
_SYMBOL_MAX = 2048
"""Longer symbols are not translated, because their names would be too long to read."""


@cache
def _runtime() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    """libstdc++ and libc; None if there is no libstdc++."""
    try:
        runtime, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
        runtime.__cxa_demangle.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return runtime, libc


def demangled(symbol: str) -> str | None:
    """Translates a symbol of C++ or Rust into a name with parameters; None if that fails.

    A symbol of another language, such as "malloc", is returned as it is.
    """
    if not symbol.startswith(("_Z", "_R")):
        return symbol
    if len(symbol) > _SYMBOL_MAX or not symbol.isascii():
        return None
    if (name := rust_name(symbol)) is not None:
        return name
    found = _runtime()
    if found is None or symbol.startswith("_R"):
        return None
    runtime, libc = found
    status = ctypes.c_int(0)
    text = runtime.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return None
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        libc.free(text)


def plain(name: str) -> str:
    """The name without its parameters: "Parser::node<int>" for "Parser::node<int>(char const*)".

    The name of a template also contains its return type, which is left out, too.
    """
    if not name.endswith((")", ") const")):
        return name
    end = name.rfind(")")
    depth = 0
    for place in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if depth == 0:
            break
    text = name[:place]
    if not text or text.endswith("operator"):
        return name
    return _without_type(text)


def _without_type(text: str) -> str:
    """The text after its last space: "f<int>" for "void f<int>".

    Spaces within brackets do not count, and neither do spaces from the word "operator" on.
    """
    depth, start = 0, 0
    for place, character in enumerate(text):
        if text.startswith("operator", place) and depth == 0:
            break
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == " " and depth == 0:
            start = place + 1
    return text[start:] or text


def without_arguments(name: str, depth: int = 0) -> str:
    """The name with "<…>" in place of template arguments.

    `depth` is the depth of the recursion, which is bounded. Other callers leave it at 0.
    """
    if "operator<" in name or "operator>" in name or "operator-" in name:
        return name
    if name.startswith("<") and depth < _NESTED_MOST:
        # The brackets at the start of Rust's "<Vec<u8> as Write>::flush" hold no arguments.
        end = _closing(name)
        own, rest = name[1:end], name[end + 1 :]
        return (
            f"<{without_arguments(own, depth + 1)}{name[end : end + 1]}"
            f"{without_arguments(rest, depth + 1)}"
        )
    text, depth = [], 0
    for character in name:
        if character == "<":
            depth += 1
            if depth == 1:
                text.append("<…>")
        elif character == ">":
            depth -= 1
        elif depth == 0:
            text.append(character)
    return "".join(text)


def _closing(name: str) -> int:
    """The place of the ">" that closes the "<" at the start of `name`.

    If `name` has no such ">", the result is the length of `name`.
    """
    depth = 0
    for place, character in enumerate(name):
        if character == ">" and name[place - 1] == "-":  # a part of "->"
            continue
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0:
            return place
    return len(name)
