"""Completes the numbers of processes that did not end normally. All functions are pure.

The probe counts calls at once. But it reads the CPU time, the page faults and the clock only now
and then, and at a normal end. A process that was killed, or that executed another program, may have
gone on for a long time after the last reading. Its file then has too little CPU time, too few page
faults and too short a life. The launcher knows the CPU time and the page faults of the whole
program, and the program's end. In a window, the kernel's clock samples show the CPU time.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from cairn.profile.tally import Process, Profile, cut_short, lasting


class Total(Struct, frozen=True):
    """The limits of a sum over all recorded processes. They are equal if the sum is exact."""

    low: int
    high: int | None
    """None if there is no upper limit."""


def cpu_total_ns(profile: Profile) -> Total:
    """User and system time of all recorded processes, by the kernel's account."""
    recorded = sum(process.cpu_ns for process in lasting(profile.processes))
    tree = profile.tree
    whole = _sampled_ns(profile) if tree is None else tree.user_ns + tree.system_ns
    return _completed(profile, recorded, whole)


def faults_total(profile: Profile) -> Total:
    """The page faults of all recorded processes."""
    alive = lasting(profile.processes)
    recorded = sum(process.minor_faults + process.major_faults for process in alive)
    tree = profile.tree
    whole = None if tree is None else tree.minor_faults + tree.major_faults
    return _completed(profile, recorded, whole)


def _completed(profile: Profile, recorded: int, whole: int | None) -> Total:
    """The limits of a sum that is `recorded` by the files of the processes.

    whole: the sum over all processes of the program, recorded or not; None if it is not known.
    """
    if not cut_short(profile.processes):
        return Total(recorded, recorded)
    if whole is None:
        return Total(recorded, None)
    whole = max(recorded, whole)
    # A process that executed a program without the probe is recorded, too.
    known = {process.pid for process in profile.processes}
    has_others = profile.empty or any(one.pid not in known for one in profile.missing)
    return Total(recorded if has_others else whole, whole)


def _sampled_ns(profile: Profile) -> int | None:
    """The CPU time of a window by the kernel's clock samples; None without such samples."""
    runs = profile.clock.runs if profile.clock is not None else ()
    if profile.window is None or not runs or runs[0].scope not in ("processors", "threads"):
        return None
    return round(runs[0].whole_ns + runs[0].probe_ns)


def lived_to_the_end(profile: Profile) -> Profile:
    """The profile of a whole run, with the life times of processes that did not end normally.

    An image that another one replaced lived until the next image of its process began. The last
    image of a process is taken to have lived until the program ended. So the true shares of thread
    time are at least those that are reported. If the program's end is not known, neither are the
    life times, which are then 0.
    """
    tally, end_ns = profile.tally, _end_ns(profile)
    ends = _replaced(profile)
    if short := cut_short(profile.processes):
        if end_ns is None:
            return replace(profile, tally=replace(tally, lived_ns=0, threads_ticks=0))
        ends += [(process, end_ns) for process in short]
    unseen_ns = [max(0, end_ns - process.end_ns) for process, end_ns in ends]
    threads_ns = sum(
        ns * process.threads_most for ns, (process, _) in zip(unseen_ns, ends, strict=True)
    )
    return replace(
        profile,
        tally=replace(
            tally,
            lived_ns=tally.lived_ns + sum(unseen_ns),
            threads_ticks=tally.threads_ticks
            + threads_ns * tally.span_ticks // max(1, tally.span_ns),
        ),
    )


def _end_ns(profile: Profile) -> int | None:
    """A time shortly after the program's end, by the clock of `Process.end_ns`; None if unknown.

    The program begins shortly before its first process is recorded.
    """
    tree = profile.tree
    if tree is None or tree.wall_ns is None:
        return None
    return profile.processes[0].begin_ns + tree.wall_ns


def _replaced(profile: Profile) -> list[tuple[Process, int]]:
    """The images that another one replaced, each with the time at which the other one began."""
    of: dict[int, list[Process]] = {}
    for process in profile.processes:
        of.setdefault(process.pid, []).append(process)
    return [
        (image, later.begin_ns)
        for images in of.values()
        for image, later in pairwise(images)
        if image.state == "running"
    ]
