"""The report of 'cairn doctor', as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cairn.model import SCHEMA, Examined, State
from cairn.report.formatting import printable
from cairn.report.terminal import Screen
from cairn.report.view import View

SIGNS: dict[State, str] = {"fine": "✔", "warning": "▲", "obstacle": "✘", "unknown": "?"}


_STYLES: dict[State, str] = {
    "fine": "green",
    "warning": "yellow",
    "obstacle": "red",
    "unknown": "yellow",
}


def render(groups: Sequence[Examined], view: View) -> str:
    """Returns the checks of each group as text, each with its next step if it is not fine."""
    screen = Screen(view)
    subjects = max((len(check.subject) for group in groups for check in group.checks), default=0)
    for place, group in enumerate(groups):
        if place:
            screen.line()
        screen.line(printable(group.title), "bold")
        for check in group.checks:
            sign = (f"  {SIGNS[check.state]}", 3, _STYLES[check.state])
            subject = (printable(check.subject), subjects, "")
            screen.entry((sign, subject), printable(check.says))
            if check.next_step is not None:
                blank = (("", 3, ""), ("", subjects, ""))
                screen.entry(blank, f"→ {printable(check.next_step)}", "cyan")
    screen.line()
    screen.line(summary(groups))
    return screen.text()


def summary(groups: Sequence[Examined]) -> str:
    """Returns the answer in one line."""
    states = [check.state for group in groups for check in group.checks]
    if "obstacle" in states:
        return (
            "✘ No preloaded allocator can work in this program. The arrow below the line with ✘ "
            "says what would help."
        )
    count = sum(state != "fine" for state in states)
    if count:
        return (
            f"▲ {count} {'thing' if count == 1 else 'things'} to know before you trust results "
            "from this machine."
        )
    return "✔ Nothing stands in the way."


def document(groups: Sequence[Examined], *, cairn: str) -> str:
    """Returns the checks as one JSON document. JSON itself escapes control characters in texts."""
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
