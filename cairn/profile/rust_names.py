"""Rust's names of functions, for both forms of symbols that its compiler writes.

    _ZN4core3fmt5write17h0123456789abcdefE    legacy: the form of C++ with a hash at its end
    _RNvNtC4core3fmt5write                    v0, RFC 2603: paths with types and constants

Hashes and crate numbers are left out, so that both forms give one name. Names are written as the
crate rustc-demangle writes them with the format `{:#}`. A symbol may be forged, so nesting and
length are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_LEGACY = re.compile(r"_ZN([^@]+)E(\.[\w.]+)?", re.ASCII)
_SIZED = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)
_HASH = re.compile(r"h[0-9a-f]{16}")
_ESCAPES = {
    "SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ",",
}  # fmt: skip
_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.")
_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8",
    "i": "isize", "j": "usize", "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_",
    "s": "i16", "t": "u16", "u": "()", "v": "...", "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_SIGNED, _UNSIGNED = "asilxn", "htjmyo"
_SPECIAL = {"C": "closure", "S": "shim"}
_DEPTH_MOST, _LENGTH_MOST = 64, 4000
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _Bad(Exception):
    """The symbol does not have the form that the reader expects."""


def rust_name(symbol: str) -> str | None:
    """The name of a function of Rust; None if the symbol is of neither form."""
    if symbol.startswith("_R"):
        return _of_v0(symbol)
    return _of_legacy(symbol)


# --- legacy ---------------------------------------------------------------------------------------


def _of_legacy(symbol: str) -> str | None:
    found = _LEGACY.fullmatch(symbol)
    if found is None:
        return None
    rest, parts = found[1], []
    while rest:
        sized = _SIZED.match(rest)
        if sized is None:
            return None
        end = sized.end() + int(sized[0])
        if end > len(rest):
            return None
        parts.append(rest[sized.end() : end])
        rest = rest[end:]
    if len(parts) < 2 or not _HASH.fullmatch(parts[-1]):
        return None
    return "::".join(map(_unescaped, parts[:-1]))


def _unescaped(part: str) -> str:
    # An underscore precedes a part that begins with an escape.
    return _ESCAPE.sub(_meant, part[1:] if part.startswith("_$") else part)


def _meant(found: re.Match[str]) -> str:
    code = found[1]
    if code is None:
        return "::"
    if code in _ESCAPES:
        return _ESCAPES[code]
    number = int(code[1:], 16)
    is_shown = number < 0x110000 and chr(number).isprintable()
    return chr(number) if is_shown else found[0]


# --- v0 -------------------------------------------------------------------------------------------


def _of_v0(symbol: str) -> str | None:
    text = symbol[2:]
    if not text or not text[0].isupper() or not text.isascii():
        return None
    reader = _SymbolReader(text)
    try:
        name = reader.path(in_value=True)
    except (_Bad, IndexError, ValueError, OverflowError):
        return None
    return name if reader.ended() else None


class _SymbolReader:
    """Reads a symbol from its start to its end. `_at` is the place of the next character."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._lifetimes = 0
        """The number of lifetimes that binders (for<'a>) around this place declare."""
        self._made = 0
        """The total length of the names that were made so far. It is bounded, because a short
        symbol can refer to its own parts so often that its name would be endless."""

    def ended(self) -> bool:
        """Whether the symbol ends here.

        Two things may still follow: the path of the crate that made this copy of a generic
        function, and a suffix of the compiler such as ".llvm.123".
        """
        rest = self._text[self._at :]
        if rest and rest[0].isupper():
            try:
                self.path(in_value=False)
            except (_Bad, IndexError, ValueError, OverflowError):
                return False
            rest = self._text[self._at :]
        return not rest or rest[0] in ".$"

    def path(self, in_value: bool) -> str:
        """Reads a path. In an expression, "::" precedes generic arguments: "size_of::<u8>"."""
        with_depth = self._deeper
        kind = self._next()
        if kind == "C":
            self._disambiguator()
            return self._identifier()[0]
        if kind == "N":
            space = self._next()
            if not space.isalpha():
                raise _Bad
            outer = with_depth(lambda: self.path(in_value))
            number = self._disambiguator()
            name, _ = self._identifier()
            if space.isupper():
                what = _SPECIAL.get(space, space)
                return f"{outer}::{{{what}{':' + name if name else ''}#{number}}}"
            return f"{outer}::{name}" if name else outer
        if kind in "MX":
            self._disambiguator()
            # The path of the module with the "impl" is not part of the name.
            with_depth(lambda: self.path(in_value=False))
        if kind in "MXY":
            own = with_depth(self._type)
            if kind == "M":
                return f"<{own}>"
            trait = with_depth(lambda: self.path(in_value=False))
            return f"<{own} as {trait}>"
        if kind == "I":
            name = with_depth(lambda: self.path(in_value))
            arguments = self._list(lambda: with_depth(self._argument))
            return self._said(f"{name}{'::' if in_value else ''}<{', '.join(arguments)}>")
        if kind == "B":
            return self._again(lambda: self.path(in_value))
        raise _Bad

    def _argument(self) -> str:
        if self._taken("L"):
            return self._lifetime(self._number())
        if self._taken("K"):
            return self._constant()
        return self._type()

    def _type(self) -> str:
        kind = self._next()
        if kind in _BASIC:
            return _BASIC[kind]
        deeper = self._deeper
        if kind == "A":
            return f"[{deeper(self._type)}; {deeper(self._constant)}]"
        if kind == "S":
            return f"[{deeper(self._type)}]"
        if kind == "T":
            parts = self._list(lambda: deeper(self._type))
            return self._said(f"({', '.join(parts)}{',' if len(parts) == 1 else ''})")
        if kind in "RQ":
            life = ""
            if self._taken("L"):
                number = self._number()
                life = f"{self._lifetime(number)} " if number else ""
            return self._said(f"&{life}{'mut ' if kind == 'Q' else ''}{deeper(self._type)}")
        if kind in "PO":
            return f"*{'const' if kind == 'P' else 'mut'} {deeper(self._type)}"
        if kind == "F":
            return self._within_binder(self._function)
        if kind == "D":
            traits = self._within_binder(lambda: " + ".join(self._list(self._dynamic)))
            if not self._taken("L"):
                raise _Bad
            number = self._number()
            return f"dyn {traits}" + (f" + {self._lifetime(number)}" if number else "")
        if kind == "B":
            return self._again(self._type)
        self._at -= 1
        return deeper(lambda: self.path(in_value=False))

    def _function(self) -> str:
        text = "unsafe " if self._taken("U") else ""
        if self._taken("K"):
            name = "C" if self._taken("C") else self._identifier()[0].replace("_", "-")
            text += f'extern "{name}" '
        parameters = self._list(lambda: self._deeper(self._type))
        result = "" if self._taken("u") else f" -> {self._deeper(self._type)}"
        return self._said(f"{text}fn({', '.join(parameters)}){result}")

    def _dynamic(self) -> str:
        """A trait with its arguments and associated types: "Iterator<Item = u8>"."""
        name = self._deeper(lambda: self.path(in_value=False))
        bound = []
        while self._taken("p"):
            what = self._identifier()[0]
            bound.append(f"{what} = {self._deeper(self._type)}")
        if not bound:
            return name
        return (
            f"{name[:-1]}, {', '.join(bound)}>"
            if name.endswith(">")
            else (f"{name}<{', '.join(bound)}>")
        )

    def _constant(self) -> str:
        kind = self._next()
        if kind == "p":
            return "_"
        if kind == "B":
            return self._again(self._constant)
        if kind not in (*_SIGNED, *_UNSIGNED, "b", "c"):
            raise _Bad
        sign = "-" if kind in _SIGNED and self._taken("n") else ""
        digits = ""
        while not self._taken("_"):
            digits += self._next()
        if digits.strip("0123456789abcdef") or len(digits) > 32:
            raise _Bad
        number = int(digits or "0", 16)
        if kind == "b":
            return {0: "false", 1: "true"}[number] if number < 2 else self._fail()
        if kind == "c":
            return _quoted(number)
        return f"{sign}{number}" if number < 1 << 64 else f"{sign}0x{digits}"

    # --- parts ------------------------------------------------------------------------------------

    def _fail(self) -> str:
        raise _Bad

    def _said(self, text: str) -> str:
        self._made += len(text)
        if self._made > 100 * _LENGTH_MOST or len(text) > _LENGTH_MOST:
            raise _Bad
        return text

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _taken(self, wanted: str) -> bool:
        """Whether the next character is `wanted`, which is then read."""
        if self._text[self._at : self._at + 1] != wanted:
            return False
        self._at += 1
        return True

    def _deeper(self, read: Callable[[], str]) -> str:
        if self._depth >= _DEPTH_MOST:
            raise _Bad
        self._depth += 1
        try:
            return self._said(read())
        finally:
            self._depth -= 1

    def _again(self, read: Callable[[], str]) -> str:
        """Reads a number, and then again the part of the symbol that begins at this place."""
        here = self._at - 1
        place = self._number()
        if place >= here:
            raise _Bad
        back, self._at = self._at, place
        try:
            return self._deeper(read)
        finally:
            self._at = back

    def _list(self, read: Callable[[], str]) -> list[str]:
        found = []
        while not self._taken("E"):
            found.append(read())
        return found

    def _number(self) -> int:
        """Reads a number: digits in base 62, and then "_".

        "_" without digits is 0. Digits stand for their value plus 1, so "0_" is 1.
        """
        if self._taken("_"):
            return 0
        value = 0
        while not self._taken("_"):
            value = value * 62 + _DIGITS.index(self._next())
            if value > 1 << 64:
                raise _Bad
        return value + 1

    def _disambiguator(self) -> int:
        return self._number() + 1 if self._taken("s") else 0

    def _identifier(self) -> tuple[str, bool]:
        is_encoded = self._taken("u")
        found = _SIZED.match(self._text, self._at)
        if found is None:
            if not self._taken("0"):
                raise _Bad
            size = 0
        else:
            self._at, size = found.end(), int(found[0])
        self._taken("_")
        name = self._text[self._at : self._at + size]
        if len(name) != size:
            raise _Bad
        self._at += size
        return (_decoded(name) if is_encoded else name), is_encoded

    def _within_binder(self, read: Callable[[], str]) -> str:
        """Reads a type that may begin with a binder, which declares lifetimes: "for<'a, 'b>"."""
        if not self._taken("G"):
            return read()
        count = self._number() + 1
        if count > 50:
            raise _Bad
        self._lifetimes += count
        try:
            names = [self._lifetime(count - place) for place in range(count)]
            return f"for<{', '.join(names)}> {read()}"
        finally:
            self._lifetimes -= count

    def _lifetime(self, number: int) -> str:
        """The name of a declared lifetime. Number 1 is the one that was declared last.

        Number 0 is a lifetime without a name.
        """
        if number == 0:
            return "'_"
        place = self._lifetimes - number
        if place < 0:
            raise _Bad
        return f"'{chr(ord('a') + place)}" if place < 26 else f"'_{place}"


def _quoted(number: int) -> str:
    """The character with the code `number`, as Rust writes it in source code."""
    known = {0: "\\0", 9: "\\t", 10: "\\n", 13: "\\r", 39: "\\'", 92: "\\\\"}
    if number in known:
        return f"'{known[number]}'"
    character = chr(number)
    return f"'{character}'" if character.isprintable() else f"'\\u{{{number:x}}}'"


def _decoded(name: str) -> str:
    """Decodes an identifier from Punycode (RFC 3492). Rust writes "_" where Punycode has "-"."""
    plain, _, coded = name.rpartition("_")
    text = (f"{plain}-" if plain else "") + coded
    if not coded:
        raise _Bad
    return text.encode("ascii").decode("punycode")
