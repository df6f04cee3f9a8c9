"""Reads the counts of a program that still runs, for the screen of 'cairn profile --live'."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from cairn.cli import share_runs
from cairn.errors import CairnError
from cairn.model import Contender
from cairn.profile import callers, window
from cairn.profile.call_stacks import stacks_of
from cairn.profile.function_names import Names
from cairn.profile.reader import NoProfile
from cairn.profile.spare import Spare
from cairn.report.live_screen import Seen


class Looking(Struct, frozen=True):
    """The sources of the counts of one run."""

    contender: Contender
    folder: Path
    """The folder of the probe's files."""
    spare: Spare | None
    samples: Path
    """The launcher's file of clock samples."""
    started_ns: int
    names: Names = field(default_factory=Names)

    def look(self) -> Seen:
        """Returns all counts until now. Raises CairnError if a file cannot be read."""
        at_ns = time.monotonic_ns()
        begin = window.Snapshot(self.started_ns, {}, frozenset(), {}, {})
        try:
            found = window.since(self.folder, begin, self.started_ns, self.spare)
        except NoProfile:
            return Seen(at_ns, None)
        found = replace(found, clock=share_runs.sampled(found, self.contender, self.samples))
        programs = {(one.pid, one.begin_ns): one.program for one in found.processes}
        stacks: tuple[callers.Stack, ...] = ()
        with contextlib.suppress(CairnError):
            # A file of stacks may be incomplete for a moment.
            stacks = callers.stacks(stacks_of(self.folder, programs), self.names.function_at)
        return Seen(at_ns, found, stacks)
