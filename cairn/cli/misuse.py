"""cairn bench misuse: what each allocator does when a program misuses its memory."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console

import cairn
from cairn.bench import misuse as benching
from cairn.cli.console import Output, end_like_ctrl_c, given, say
from cairn.errors import UsageError
from cairn.report import misuse as reporting
from cairn.report import terminal

TIMES = 1
"""Times that each attack runs, if the user does not say otherwise."""
_TAKEN = {"names", "specs", "runs", "form", "full", "out", "force", "color"}
"""The parameters of `cairn bench` that this experiment has, too."""


def bench(
    console: Console, names: Sequence[str], specs: Sequence[str], times: int | None, output: Output
) -> None:
    """Measures the table and writes it.

    Raises UsageError for options that this experiment does not have.
    """
    if set(names) != {benching.NAME}:
        raise UsageError(
            f"{benching.NAME} measures no time and is not part of a run; name it by itself"
        )
    for option in given(_TAKEN):
        raise UsageError(f"'cairn bench {benching.NAME}' measures no time; leave out {option}")
    end_like_ctrl_c()
    contenders = benching.resolved(specs or benching.default_contenders())
    found = benching.measure(contenders, times or TIMES, lambda text: say(console, "misuse", text))
    view = output.view
    machine = os.uname()
    origin = f"cairn {cairn.__version__} on {machine.sysname} {machine.release} {machine.machine}"
    match view.form:
        case "json":
            text = reporting.as_json(found, origin=origin)
        case "csv":
            text = reporting.as_csv(found)
        case "md":
            text = reporting.as_markdown(found, full=view.full, origin=origin)
        case "text":
            text = terminal.drawn(reporting.board(found, full=view.full), view, answer_first=True)
    output.write(text)
