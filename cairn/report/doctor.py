"""What 'cairn doctor' found, as terminal text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cairn.model import SCHEMA, Check, Examined, State
from cairn.report.words import printable

WIDTH = 120


SIGNS: dict[State, str] = {"fine": "✔", "warning": "▲", "obstacle": "✘", "unknown": "?"}


_STYLES: dict[State, str] = {
    "fine": "green",
    "warning": "yellow",
    "obstacle": "red",
    "unknown": "yellow",
}


def render(groups: Sequence[Examined], *, color: bool, width: int = WIDTH) -> str:
    """A block per group; under each line that is not fine, what to do about it."""
    file = StringIO()
    console = Console(
        file=file, width=width, force_terminal=color, no_color=not color, color_system="standard" if color else None,
        highlight=False, markup=False, emoji=False,
    )  # fmt: skip
    subjects = max((len(check.subject) for group in groups for check in group.checks), default=0)
    for place, group in enumerate(groups):
        if place:
            console.print()
        console.print(Text(printable(group.title), style="bold"))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=3, justify="right")
        table.add_column(width=subjects)
        table.add_column(overflow="fold")
        for check in group.checks:
            table.add_row(
                Text(SIGNS[check.state], style=_STYLES[check.state]),
                printable(check.subject),
                _text(check),
            )
        console.print(table)
    console.print()
    console.print(Text(summary(groups)))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _text(check: Check) -> Text:
    text = Text(printable(check.says))
    if check.next_step is not None:
        text.append(f"\n→ {printable(check.next_step)}", style="cyan")
    return text


def summary(groups: Sequence[Examined]) -> str:
    """The answer in one line."""
    states = [check.state for group in groups for check in group.checks]
    if "obstacle" in states:
        return "✘ No preloaded allocator can work in this program; the line above says what would help."
    count = sum(state != "fine" for state in states)
    if count:
        return f"▲ {count} {'thing' if count == 1 else 'things'} to know before believing numbers from here."
    return "✔ Nothing stands in the way."


def document(groups: Sequence[Examined], *, cairn: str) -> str:
    """The same as one JSON document; text stays as it is, since JSON escapes what steers a terminal."""
    parts = {
        "schema": SCHEMA,
        "cairn": cairn,
        "obstacle": any(check.state == "obstacle" for group in groups for check in group.checks),
        "groups": [
            {
                "key": group.key,
                "title": group.title,
                "checks": [
                    {
                        "subject": c.subject,
                        "state": c.state,
                        "says": c.says,
                        "next_step": c.next_step,
                    }
                    for c in group.checks
                ],
            }
            for group in groups
        ],
    }
    return json.dumps(parts, ensure_ascii=True, indent=1)
