"""Reads the counts of a program that still runs, for the screen of 'cairn profile --live'."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from cairn.cli import share_runs
from cairn.errors import CairnError
from cairn.profile import callers, window
from cairn.profile.call_stacks import stacks_of
from cairn.profile.cpu_samples import GrowingSamples
from cairn.profile.function_names import Names
from cairn.profile.reader import NoProfile
from cairn.profile.spare import Spare
from cairn.profile.tally import KernelClock
from cairn.report.live_screen import Seen


class Looking(Struct, frozen=True):
    """The sources of the counts of one run."""

    folder: Path
    """The folder of the probe's files."""
    spare: Spare | None
    samples: GrowingSamples
    started_ns: int
    names: Names = field(default_factory=Names)

    def look(self, is_over: Callable[[], bool]) -> Seen:
        """Returns all counts until now. Raises CairnError if a file cannot be read.

        is_over: returns whether the screen has ended. The result then lacks some counts.
        """
        at_ns = time.monotonic_ns()
        begin = window.Snapshot(self.started_ns, {}, frozenset(), {}, {})
        try:
            found = window.since(self.folder, begin, self.started_ns, self.spare)
        except NoProfile:
            return Seen(at_ns, None)
        run, why_not = self.samples.look(share_runs.dispatched(found), is_over)
        found = replace(found, clock=KernelClock((run,) if run is not None else (), why_not))
        if is_over():
            return Seen(at_ns, found)
        programs = {(one.pid, one.begin_ns): one.program for one in found.processes}
        stacks: tuple[callers.Stack, ...] = ()
        with contextlib.suppress(CairnError):
            # A file of stacks may be incomplete for a moment.
            stacks = callers.stacks(stacks_of(self.folder, programs), self.names.function_at)
        return Seen(at_ns, found, stacks)
