"""Finds the line of each key of a TOML document, which `tomllib` does not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

KeyPath = tuple[str, ...]

_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(
    r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]{}]',
)


def lines_of(text: str) -> Mapping[KeyPath, int]:
    """The number of the line on which each table or key begins, by its path of keys.

    The first line is 1. The text must be valid TOML. Keys of inline tables are not listed; their
    line is that of the key that holds the table.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    depth, quote = 0, ""
    for number, line in enumerate(text.split("\n"), start=1):
        key = None
        if not depth and not quote:
            header, key = _HEADER.fullmatch(line), _KEY.match(line)
            if header is not None and key is None:
                table = _parts(header[1])
                for length in range(1, len(table) + 1):
                    found.setdefault(table[:length], number)
                continue
            if key is not None:
                path = (*table, *_parts(key[1]))
                for length in range(len(table) + 1, len(path) + 1):
                    found.setdefault(path[:length], number)
        rest = line[key.end() :] if key is not None else line
        depth, quote = _after(rest, depth, quote)
    return found


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of the key, or of the closest table around it; 1 if there is none."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return 1


def _parts(text: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """The depth of brackets and the open quote of a multi-line string after this line."""
    at = 0
    while at < len(line):
        if quote:
            end = line.find(quote, at)
            if end < 0:
                return depth, quote
            at, quote = end + 3, ""
            continue
        token = _TOKEN.search(line, at)
        if token is None:
            break
        at = token.end()
        if token[0] in ('"""', "'''"):
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
    return depth, quote
