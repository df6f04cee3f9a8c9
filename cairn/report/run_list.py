"""The list of stored runs: for each its date, command, contenders, state and verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from cairn import units
from cairn.compare import ranking, standings
from cairn.model import INTERRUPTED, SCHEMA
from cairn.report import standings as boards
from cairn.report.formatting import command, message, shortened
from cairn.report.run import Measured, comparisons
from cairn.report.terminal import Screen
from cairn.report.verdict import says
from cairn.report.view import View

_NAMED_MOST = 3
"""The most workloads whose names and verdicts are shown."""
_HEAD = 12
"""The width of the heads of an entry, in columns."""


class Listed(Struct, frozen=True):
    """A run in the list."""

    id: str
    path: str
    created_at: float | None
    """Seconds since the epoch; None if the run is damaged."""
    commands: tuple[str, ...]
    contenders: tuple[str, ...]
    baseline: str | None
    state: str
    """"complete", "interrupted", "ended early", "failed", "cut short", "being measured" or
    "damaged"."""
    verdict: str
    """The first sentences of the report, or the reason why the run cannot be read."""


def damaged(name: str, path: str, why: str) -> Listed:
    """Returns the entry of a run that cannot be read."""
    return Listed(name, path, None, (), (), None, "damaged", why)


def listed(measured: Measured, path: str, *, runs_now: bool) -> Listed:
    """Returns the entry of a run. `runs_now`: whether a process is measuring it."""
    run = measured.run
    state = (
        "being measured"
        if runs_now
        else "interrupted"
        if INTERRUPTED in measured.stopped
        else "ended early"
        if measured.refused is not None
        else "complete"
        if measured.stopped
        else "failed"
        if any(sample.failure for sample in measured.samples)
        else "cut short"
    )
    names = tuple(workload.name for workload in run.settings.workloads)
    return Listed(
        id=run.id,
        path=path,
        created_at=run.created_at,
        commands=(f"cairn bench {measured.bench}",) if measured.bench else names,
        contenders=tuple(one.name for one in run.competing),
        baseline=run.baseline,
        state=state,
        verdict=" ".join(filter(None, (measured.ended_early, _verdict(measured)))),
    )


def _verdict(measured: Measured) -> str:
    run, samples = measured.run, measured.samples
    if run.settings.instructions:
        return "Instructions per operation were counted."
    match measured.kind:
        case "scenarios":
            return _first(boards.scenarios(run, ranking.ranking(run, samples)).says)
        case "standings":
            return _first(boards.standings(run, standings.standings(run, samples)).says)
        case "calibration":
            return "The costs of each allocator were measured, for predictions of 'cairn profile'."
        case "founding":
            return "The founding cases were measured."
        case "findings":
            return "The causes of known illnesses were looked for."
        case "soak":
            from cairn.report import soak  # it loads numpy

            return soak.headline(run, samples)
        case "predictions":
            return "Predicted savings were compared with measured ones."
    found = [" ".join(says(one.judged).advice) for one in comparisons(measured)]
    if len(found) == 1:
        return found[0]
    names = [shortened(workload.name, 40) for workload in run.settings.workloads]
    told = [
        f"{name}: {verdict}"
        for name, verdict in zip(names[:_NAMED_MOST], found[:_NAMED_MOST], strict=True)
    ]
    return " ".join(told + [_others(len(found))] * (len(found) > _NAMED_MOST))


def _first(sentences: Sequence[str]) -> str:
    return sentences[0] if sentences else "No verdict: no round is complete."


def _others(count: int) -> str:
    return f"The other {units.counted(count - _NAMED_MOST, 'workload')}: see the report."


def render(runs: Sequence[Listed], dates: Sequence[str], view: View) -> str:
    """Returns the list as text. `dates` has the date of each run as text."""
    screen = Screen(view)
    for place, (one, date) in enumerate(zip(runs, dates, strict=True)):
        if place:
            screen.line()
        state = "" if one.state == "complete" else f" · {one.state}"
        screen.line(message(f"{one.id}  {date}{state}"), "bold")
        shown = [command(name) for name in one.commands[:_NAMED_MOST]]
        if len(one.commands) > _NAMED_MOST:
            shown.append(f"and {len(one.commands) - _NAMED_MOST} more")
        for head, text in (
            ("command", " · ".join(shown)),
            ("contenders", message(", ".join(one.contenders))),
            ("problem" if one.state == "damaged" else "verdict", message(one.verdict)),
        ):
            if text:
                screen.entry(((f"  {head}", _HEAD, ""),), text)
    return screen.text()


def document(runs: Sequence[Listed]) -> str:
    """Returns the list as JSON."""
    return json.dumps({"schema": SCHEMA, "runs": [asdict(one) for one in runs]}, indent=1) + "\n"
