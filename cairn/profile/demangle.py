"""C++ and Rust names of functions, for symbols as compilers write them into files.

The C++ runtime of the system translates a symbol (__cxa_demangle of libstdc++). On a system without
this library, symbols are shortened by `function_names.readable`. Symbols of Rust's newer form (_R…)
stay as they are.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache

_SYMBOL_MAX = 2048
"""Longer symbols are not translated: their names would be of no use."""
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")


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
    if not symbol.startswith("_Z"):
        return symbol
    found = _runtime()
    if found is None or len(symbol) > _SYMBOL_MAX or not symbol.isascii():
        return None
    runtime, libc = found
    status = ctypes.c_int(0)
    text = runtime.__cxa_demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return None
    try:
        name = ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        libc.free(text)
    return _RUST_HASH.sub("", name)


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


def without_arguments(name: str) -> str:
    """The name with "<…>" in place of template arguments."""
    if "operator<" in name or "operator>" in name or "operator-" in name:
        return name
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
