"""Faults for C: small changes of one line.

Regular expressions find the places in the code without comments and strings. They rely on the
layout of clang-format: a binary operator has a space on either side, and the star of a pointer does
not.
Weaker memory orders are not among the faults, because they make no difference on x86. tests/model
covers them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

Change = tuple[int, int, str]
"""A change of a line: its first column, the column after its last one, and the new text, in which
{} stands for the old text."""

BINARY = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "/",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "^": "&",
    "+=": "-=",
    "-=": "+=",
    "|=": "&=",
    "&=": "|=",
    "<<=": ">>=",
    ">>=": "<<=",
}
PLACE = r"(?:\*+)?\w+(?:->\w+|\.\w+|\[[^\]]*\])*"
STATEMENT = re.compile(
    rf"^\s+((?:{PLACE} (?:[-+|&^*]|<<|>>)?= .*|{PLACE}(?:\+\+|--)|(?:\(void\))?\w+\(.*\)));$"
)
NOT_CALLS = ("if", "while", "for", "switch", "return", "sizeof")
CONTRACTS = re.compile(r"\b(?:_Static_assert|static_assert|assert|CHECK_THAT)\s*\(")


def masked(text: str) -> str:
    """Replaces comments, strings, characters, preprocessor lines and assertions by spaces."""

    def spaces(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    words = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    text = re.sub(words, spaces, text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", spaces, text, flags=re.MULTILINE)
    return re.sub(CONTRACTS.pattern + r"[^;]*;", spaces, text)


def relations(line: str) -> Iterator[Change]:
    """Changes operators that stand between two spaces."""
    for match in re.finditer(
        r"(?<= )(?:<<=|>>=|[-+|&]=|<<|>>|[<>=!]=|&&|\|\||[-<>+*/%&|^])(?= |$)", line
    ):
        yield match.start(), match.end(), BINARY[match[0]]


def numbers(line: str) -> Iterator[Change]:
    """Changes n to n + 1, and n to 0; not in `sizeof x[n]`, because all elements have one size."""
    for match in re.finditer(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)(?![\w.])", line):
        if re.search(r"\bsizeof ?\(?\w+\[$", line[: match.start()]):
            continue
        octal = match[1].startswith("0") and match[1].isdigit()
        value = int(match[1], 8 if octal else 0)
        yield match.start(), match.end(), f"{value + 1}{match[2]}"
        if value != 0:
            yield match.start(), match.end(), f"0{match[2]}"


def truths(line: str) -> Iterator[Change]:
    """Exchanges `true` and `false`."""
    for match in re.finditer(r"\b(?:true|false)\b", line):
        yield match.start(), match.end(), "false" if match[0] == "true" else "true"


def conditions(line: str) -> Iterator[Change]:
    """Changes `if (x)` to `if (!(x))`, if the condition ends on its line."""
    for match in re.finditer(r"\bif \(", line):
        depth = 1
        for column in range(match.end(), len(line)):
            depth += {"(": 1, ")": -1}.get(line[column], 0)
            if depth == 0:
                yield match.end(), column, "!({})"
                break


def steps(line: str) -> Iterator[Change]:
    """Exchanges `x++` and `x--`."""
    for match in re.finditer(r"\+\+|--", line):
        yield match.start(), match.end(), "--" if match[0] == "++" else "++"


def dropped(line: str) -> Iterator[Change]:
    """Removes an assignment or a call that has a line of its own."""
    match = STATEMENT.match(line.rstrip())
    if match and not match[1].startswith(NOT_CALLS) and line.count("(") == line.count(")"):
        yield match.start(1), match.end(1), "(void)0"


def returns(line: str) -> Iterator[Change]:
    """Changes `return x;` to `return 0;`."""
    match = re.match(r"^\s+return ([^;]+);$", line.rstrip())
    if match and match[1] not in ("0", "NULL", "true", "false"):
        yield match.start(1), match.end(1), "0"


KINDS: dict[str, Callable[[str], Iterator[Change]]] = {
    "operator": relations,
    "number": numbers,
    "truth": truths,
    "condition": conditions,
    "step": steps,
    "dropped": dropped,
    "return": returns,
}


def replaced(lines: list[str], index: int, change: Change) -> str:
    """Returns the text with one line changed."""
    start, end, instead = change
    old = lines[index]
    new = old[:start] + instead.replace("{}", old[start:end]) + old[end:]
    return "".join([*lines[:index], new, *lines[index + 1 :]])


def candidates(text: str) -> dict[int, dict[str, list[Callable[[], str]]]]:
    """Returns every fault that a file can have, by line and kind of fault."""
    result: dict[int, dict[str, list[Callable[[], str]]]] = defaultdict(lambda: defaultdict(list))
    lines = text.splitlines(keepends=True)
    for index, line in enumerate(masked(text).splitlines()):
        for kind, changes in KINDS.items():
            for change in changes(line):
                result[index + 1][kind].append(partial(replaced, lines, index, change))
    return result
