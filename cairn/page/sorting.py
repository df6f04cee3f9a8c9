"""The sort key of a cell of a table, from its text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cairn.report.tables import Table

_FACTORS = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "%": 0.01,
    "B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "TiB": 1024.0**4,
    "k": 1e3, "M": 1e6, "G": 1e9,
}  # fmt: skip
_SIGNS = ("▼", "▲", "≈", "?")
_NUMBER = re.compile(
    r"^[▸▼▲≈?~<>±\s]*(?P<multiple>[×÷])?\s*(?P<number>[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?P<rest>.*)$"
)
_UNIT = re.compile(
    r"\s(?P<unit>ns|µs|ms|s|min|h|%|B|KiB|MiB|GiB|TiB|M|G)(?:/(?P<per>s|min|h))?(?=[\s\])/]|$)"
)


def key(text: str) -> float | None:
    """Returns the first number of a cell, in its base unit (seconds, bytes); None without a number.

    A rate counts by the second. The key of a change is relative: "▼ −20 %" is −0.2, "▲ × 3" is 2,
    and "÷ 10" is −0.9.
    """
    match = _NUMBER.match(text.strip())
    if match is None:
        return None
    number = float(match["number"].replace(",", "").replace("−", "-"))
    if match["multiple"] == "×":
        return number - 1
    if match["multiple"] == "÷":
        return 1 / number - 1 if number else None
    unit = _UNIT.search(match["rest"])
    return number * _FACTORS[unit["unit"]] / _FACTORS[unit["per"] or "s"] if unit else number


def keys(table: Table) -> list[list[float | None]]:
    """Returns the keys of all cells. They are None in the first column.

    In a column of changes, the cell of the baseline may have a plain number. It then counts as a
    change of 0.
    """
    found = [[None, *(key(cell.text) for cell in row[1:])] for row in table.rows]
    for column in range(1, len(table.heads)):
        texts = [row[column].text for row in table.rows]
        changes = [_is_change(text) for text in texts]
        if any(changes) and not all(changes):
            for place, is_change in enumerate(changes):
                if not is_change and found[place][column] is not None:
                    found[place][column] = 0.0
    return found


def _is_change(text: str) -> bool:
    return text.strip()[:1] in _SIGNS and any(sign in text for sign in "%×÷")


def has_numbers(keys_of: Sequence[Sequence[float | None]], column: int) -> bool:
    """Whether a column is sorted as numbers."""
    return any(row[column] is not None for row in keys_of)
