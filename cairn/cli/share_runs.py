"""Runs a profiled program again, so that its allocator's share of CPU time is known well enough."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cairn.cli.console import say, stderr
from cairn.errors import CairnError, UsageError
from cairn.run import stop_request

if TYPE_CHECKING:
    from cairn.model import Contender
    from cairn.profile.cpu_share import CpuShare
    from cairn.profile.spare import Spare
    from cairn.profile.tally import ClockRun, KernelClock, Profile
    from cairn.run.foreground import Ended

BUDGET_S = 10.0
"""The further runs of the program take at most this long together, unless the user fixes their
number."""
RUNS_MOST = 200
BLIND = ("threads in user mode", "timers")
"""The kinds of clock samples (`Scope`) that need the probe. Samples of threads in user mode show
nothing of the kernel, so the probe times the allocator's system calls. The timers are the probe's
own."""
USED_LEAST, USED_MOST = 0.5, 1.5
"""A further run counts only if its CPU time lies between these multiples of the CPU time of the
profiled run (see `_program_ns`). Otherwise the program did other work, such as a build that finds
everything built."""


class GivenInput(Struct, frozen=True):
    """The program's standard input, and whether a further run can read the same input again."""

    offset: int | None
    """The file offset of standard input before the first run; None if it is not a regular file."""
    is_read_once: bool
    """Whether standard input is a pipe or a socket."""

    @staticmethod
    def now() -> GivenInput:
        """Standard input as it is before the first run."""
        try:
            kind = os.fstat(0).st_mode
            offset = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(kind) else None
        except OSError:
            return GivenInput(None, is_read_once=False)
        return GivenInput(offset, is_read_once=stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))

    def rewind(self) -> None:
        """Prepares standard input for the next run."""
        if self.offset is not None:
            os.lseek(0, self.offset, os.SEEK_SET)


def refuse(runs: int | None, given: GivenInput) -> None:
    """Raises UsageError if further runs are requested, but cannot read the same input."""
    if runs is not None and runs > 1 and given.is_read_once:
        raise UsageError(
            "--runs needs an input that can be read again, and standard input is a pipe; redirect "
            "a file with '<', or use --runs 1"
        )


def dispatched(found: Profile) -> frozenset[int]:
    """The ids of the processes whose system calls the probe dispatched."""
    return frozenset(one.pid for one in found.processes if one.seen == "dispatch")


def sampled(
    found: Profile, contender: Contender, file: Path, between: tuple[int, int] | None = None
) -> KernelClock:
    """The clock samples of the profiled run, from the launcher's file.

    between: the begin and the end of the part of the run that counts; None for the whole run.
    """
    from cairn.profile import code_owners, cpu_samples
    from cairn.profile.tally import KernelClock

    run, why = cpu_samples.clocked(
        file,
        code_owners.AllocatorCode.of(contender),
        probed=True,
        dispatched=dispatched(found),
        between=between,
    )
    return KernelClock((run,) if run is not None else (), why)


class Again(Struct, frozen=True):
    """Further runs of a program after its profiled run."""

    contender: Contender
    """The contender with the probe."""
    command: Sequence[str]
    runs: int | None
    """The number of all runs, the profiled one included. If None, Cairn chooses the number."""
    given: GivenInput
    file: Path
    """The file of the clock samples."""
    run_probed: Callable[[Path, Spare | None], Ended]
    """Runs the program with a probe that writes into a folder, or into the spare memory."""

    def clock(self, found: Profile, ended: Ended) -> KernelClock:
        """The clock samples of the profiled run, and of as many further runs as are needed."""
        from cairn.profile.cpu_share import cpu_share, used

        clock = _with_cpu_time(sampled(found, self.contender, self.file), ended)
        found = replace(found, clock=clock)
        clock = used(found)
        if not clock.runs or self.runs == 1 or self._is_unrepeatable(ended):
            return clock
        started, ran = time.monotonic(), 1
        longest_s, first = _wall_s(ended), clock.runs[0]
        while self._goes_on(cpu_share(replace(found, clock=clock)), ran):
            now = time.monotonic()
            if self.runs is None and longest_s > BUDGET_S - (now - started):
                break
            stop_request.check()
            if ran == 1:
                say(stderr(), "note", _announcement(self.runs))
            try:
                (again, unsampled), ran = self._once(first, ended), ran + 1
            except CairnError as error:
                # The samples of the runs before it still count.
                return replace(clock, unsampled=f"the program could not be run again: {error}")
            longest_s = max(longest_s, time.monotonic() - now)
            if unsampled:
                return replace(clock, unsampled=unsampled)
            if again is None:
                return replace(clock, runs=(first,), is_unlike=True)
            if again.samples:
                clock = replace(clock, runs=(*clock.runs, again))
        return clock

    def _is_unrepeatable(self, ended: Ended) -> bool:
        """Whether the program ended badly, or read an input that is gone.

        False if the user fixed the number of runs.
        """
        wrong = ended.exit_code != 0 or ended.left_behind or ended.crashes is not None
        return self.runs is None and (bool(wrong) or self.given.is_read_once)

    def _goes_on(self, share: CpuShare, ran: int) -> bool:
        if self.runs is not None:
            return ran < self.runs
        return ran < RUNS_MOST and not share.is_narrow and share.may_narrow

    def _once(self, first: ClockRun, before: Ended) -> tuple[ClockRun | None, str]:
        """Runs the program once more. Returns (the run, why it could not be sampled).

        The reason is empty if the run was sampled or did other work. The run is None if it could
        not be sampled, or if it did other work than the profiled run. If no sample was taken in the
        further run, the result has 0 as its number of samples.
        """
        self.given.rewind()
        ended, clock = self._probed() if first.scope in BLIND else self._plain()
        if ended.exit_code != before.exit_code:
            return None, ""
        # With the probe's timers, `why_not` only says why the kernel took no samples.
        if clock.why_not and first.scope != "timers":
            return None, clock.why_not
        if not clock.runs:
            # The program can end before the timers' first tick.
            return (replace(first, samples=0) if first.scope == "timers" else None), ""
        run = clock.runs[0]
        ratio = _program_ns(run, first) / max(1.0, _program_ns(first, run))
        return (run if USED_LEAST <= ratio <= USED_MOST else None), ""

    def _plain(self) -> tuple[Ended, KernelClock]:
        from cairn.profile import code_owners, cpu_samples
        from cairn.profile.tally import KernelClock
        from cairn.run import foreground

        plain = replace(self.contender, probed=False)
        ended = foreground.run(plain, self.command, cpu_samples=self.file, quiet=True)
        run, why = cpu_samples.clocked(self.file, code_owners.AllocatorCode.of(plain), probed=False)
        return ended, _with_cpu_time(KernelClock((run,) if run is not None else (), why), ended)

    def _probed(self) -> tuple[Ended, KernelClock]:
        from cairn.profile.cpu_share import used
        from cairn.profile.reader import gather
        from cairn.run.runner import private_folder
        from cairn.run.spare_memory import spare_memory

        with private_folder() as folder, spare_memory() as spare:
            ended = self.run_probed(folder, spare)
            found = gather(folder, spare.profiles() if spare is not None else ())
        clock = _with_cpu_time(sampled(found, self.contender, self.file), ended)
        return ended, used(replace(found, clock=clock))


def _with_cpu_time(clock: KernelClock, ended: Ended) -> KernelClock:
    """Adds the CPU time of the run, as the launcher measured it, to the clock samples."""
    told = ended.launched
    if told is None:
        return clock
    cpu_ns = float(told.user_ns + told.system_ns)
    return replace(clock, runs=tuple(replace(run, cpu_ns=cpu_ns) for run in clock.runs))


def _program_ns(run: ClockRun, other: ClockRun) -> float:
    """The CPU time of `run`, for a comparison with that of `other`.

    If only one of the two runs had the probe, the time comes from the clock samples, without those
    in the probe. Otherwise it is the kernel's account of the CPU time, which does not depend on the
    number of samples.
    """
    both = run.probed == other.probed and run.cpu_ns and other.cpu_ns
    return run.cpu_ns if both else run.whole_ns


def _wall_s(ended: Ended) -> float:
    told = ended.launched
    return (told.wall_ns or 0) / 1e9 if told is not None else 0.0


def _announcement(runs: int | None) -> str:
    if runs is not None:
        return f"the program runs {runs} times, and only the first time with its output"
    return (
        f"the program runs again without its output, for at most {BUDGET_S:.0f} s, for a precise "
        "share of CPU time; --runs 1 prevents that"
    )
