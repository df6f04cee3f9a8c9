"""The part of 'cairn profile' that watches a running process (--pid)."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

import cairn
from cairn.cli.console import check_out, emit, given, refuse_one_file, wants_color, width_of
from cairn.errors import CairnError, UsageError
from cairn.report.formatting import printable
from cairn.report.view import View

if TYPE_CHECKING:
    from cairn.inspect.sampled import Sampled

PERMITTED = frozenset(
    {"pid", "length", "shows", "full", "as_json", "as_csv", "collapsed", "force", "color"}
)
"""The parameters of 'cairn profile' that have a meaning with --pid."""
DEFAULT_S = 10.0


def report(
    pid: int, length: float | None, shows: bool, full: bool, as_json: str | None,
    as_csv: str | None, collapsed: str | None, force: bool, color: str,
) -> None:  # fmt: skip
    """Samples the process and prints the report.

    shows: whether a screen is drawn while the process is sampled (--live).

    Raises UsageError for other options, and CairnError if the kernel permits no samples.
    """
    for name in given(PERMITTED):
        raise UsageError(
            f"--pid watches a process that runs already, by clock samples; leave out {name}"
        )
    from cairn.inspect.attached import LONGEST_S

    seconds = (LONGEST_S if shows else DEFAULT_S) if length is None else length
    if seconds > LONGEST_S:
        raise UsageError("--for is at most 10 minutes; a share of CPU time needs no more samples")
    if (as_json, as_csv, collapsed).count("-") > 1:
        raise UsageError("two outputs would be mixed on standard output; give one of them a file")
    for out in (as_json, as_csv, collapsed):
        check_out(_path(out), force)
    refuse_one_file(*map(_path, (as_json, as_csv, collapsed)))
    from cairn.inspect.attached import attached
    from cairn.inspect.sampled import sample
    from cairn.report import attached as reports

    found = attached(_watched(pid, seconds, color) if shows else sample(pid, seconds))
    if found.scope is not None:
        is_screen = "-" not in (as_json, as_csv, collapsed)
        stream = sys.stdout if is_screen else sys.stderr
        view = View("text", full, wants_color(color, stream), width_of(stream))
        click.echo(reports.render(found, view), nl=False, err=not is_screen, color=True)
    if as_json:
        emit(reports.document(found, cairn=cairn.__version__), _path(as_json), force)
    if as_csv:
        emit(reports.rows(found), _path(as_csv), force)
    if collapsed:
        emit(reports.collapsed(found), _path(collapsed), force)
    if found.scope is None:
        raise CairnError(f"nothing is known of process {pid} ({found.name}). {found.why_not}")


def _watched(pid: int, seconds: float, color: str) -> Sampled:
    """Samples the process and shows its numbers each second.

    Ctrl-C, SIGTERM or SIGHUP ends the sampling early. A second such signal interrupts Cairn.
    """
    from cairn.cli import live_screen
    from cairn.inspect import moment
    from cairn.inspect.attached import attached
    from cairn.inspect.process import ProcessEnded, find
    from cairn.inspect.sampled import Onlooker, sample
    from cairn.report import attached_screen

    live_screen.check()
    target = find(pid)
    title = f"{printable(target.name)} ({pid})"
    moments = [moment.now(target)]
    live = live_screen.drawing(color)
    asked: list[int] = []

    def look(found: Sampled) -> None:
        with contextlib.suppress(ProcessEnded):
            moments.append(moment.now(target))
            share = attached(found)
            live.start()
            width, height = live.console.size
            named = f"{title} · {printable(share.allocator.name)}"
            live_screen.draw(live, attached_screen.lines(share, moments, named, width, height))

    def note(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    # A signal that is ignored stays ignored: under nohup, SIGHUP still has no effect.
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [one for one in signals if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heeded}
    try:
        return sample(pid, seconds, Onlooker(look, lambda: bool(asked)))
    finally:
        live.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _path(out: str | None) -> Path | None:
    return None if out in (None, "-") else Path(str(out))
