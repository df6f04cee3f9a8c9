"""C++ and Rust names of functions, for symbols as compilers write them into files.

The C++ runtime of the system translates symbols of C++ (__cxa_demangle of libstdc++). On a system
without this library, they are shortened by `function_names.readable`. `rust_names` translates those
of Rust.
"""

from __future__ import annotations

import ctypes
from functools import cache

from cairn.profile.rust_names import rust_name

_NESTED_MOST = 16
_SYMBOL_MAX = 2048
"""Longer symbols are not translated: their names would be of no use."""


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
    """The name with its parameters; None if it is not known. Other symbols stay as they are."""
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

    A return type, which templates have in their names, is left out, too.
    """
    if not name.endswith((")", "const")):
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
    """The name after the last space that is not within brackets, but not within "operator new"."""
    depth, start = 0, 0
    for place, character in enumerate(text):
        if text.startswith("operator", place) and depth == 0:
            break
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == " " and depth == 0:
            start = place + 1
    return text[start:] or text


def without_arguments(name: str, depth: int = 0) -> str:
    """The name with "<…>" in place of template arguments. `depth` counts calls of itself."""
    if "operator<" in name or "operator>" in name or "operator-" in name:
        return name
    if name.startswith("<") and depth < _NESTED_MOST:
        # Rust's "<Vec<u8> as Write>::flush": a type, and not arguments
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
    """The place of the bracket that ends the one at the start; the end of a name without it."""
    depth = 0
    for place, character in enumerate(name):
        if character == ">" and name[place - 1] == "-":  # "->" of a function's type
            continue
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0:
            return place
    return len(name)
