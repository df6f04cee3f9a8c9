"""Draws one report at several widths, as one text for a golden file."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

from cairn.report.view import View

WIDTHS = (60, 80, 100, 120, 200)
UNBOUNDED = 2000


def words_of(text: str) -> set[str]:
    return set(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def at_all_widths(render: Callable[[View], str], *, full: bool = False) -> str:
    """Returns the report at each width, and once in colour.

    Checks that no line is wider than the width, that every word of the report is whole at every
    width, and that colour does not change the text.
    """
    whole = words_of(render(View(full=True, width=UNBOUNDED)))
    parts = []
    for width in WIDTHS:
        everything = render(View(full=True, width=width))
        assert whole <= words_of(everything), sorted(whole - words_of(everything))
        text = render(View(full=full, width=width))
        colored = render(View(full=full, color=True, width=width))
        assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text
        for line in (*everything.splitlines(), *text.splitlines()):
            assert cell_len(line) <= width or " " not in line.strip(), (width, line)
        parts.append(f"== {width} columns\n{text}")
    colored = render(View(full=full, color=True, width=100)).replace("\x1b", "\\e")
    return "\n".join([*parts, f"== 100 columns, in colour\n{colored}"])
