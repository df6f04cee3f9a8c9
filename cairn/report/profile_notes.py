"""The notes below the tables of a profile: how numbers were measured, and what they leave out."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.profile.block_samples import SAMPLED_LEAST, has_enough, sampled, size_below
from cairn.profile.cpu_share import CpuShare, cpu_share
from cairn.profile.estimates import (
    BEYOND_LEAST,
    QUANTILES,
    Estimate,
    Line,
    clock,
    cpu_ns,
    lines,
    probe_ns,
)
from cairn.profile.system_calls import call_name
from cairn.profile.tables import (
    event_lines,
    events_refused,
    kernel_lines,
    kernel_ns,
    lock_lines,
    sees_all_calls,
    some_threads_uncounted,
)
from cairn.profile.tally import (
    ALLOCATING,
    CALLS,
    WAITING,
    Missing,
    Profile,
    Scope,
    Tally,
    Tree,
    one_or_more,
)
from cairn.report.formatting import NOT_MEASURED, printable
from cairn.report.layout_table import watched
from cairn.report.profile_numbers import points, short_time
from cairn.report.standings import UNKNOWN

_COUNTERS = ("cycles", "instructions", "branch-misses", "cache-misses", "dTLB-load-misses")
_SHORT_NS = 100
"""If an operation is shorter than this, the processor executes much of it at the same time as the
instructions around it."""
_UNTIMED_LEAST = 0.01
"""A sentence says that the times of some operations are not included. It is a warning (▲) if these
are more than this share of all operations."""
_NEEDS = ("a median needs", "P95", "P99", "P99.9")
"""The words before the number of timed operations that each of QUANTILES needs."""
_PIDS_MOST = 5
"""The most process numbers that a sentence names for one program."""
_PROGRAMS_MOST = 4
"""The most missing programs that a sentence names."""
_UNREACHED = {
    "static": "is linked statically",
    "setuid": "gains privileges, so the loader ignores LD_PRELOAD",
    "other class": "is built for another kind of processor",
    "own allocator": "has a malloc of its own",
    "environment": "was started with a cleared environment",
    "unknown": "is neither a program of this machine nor a script",
    "silent": "was executed, but the probe did not start in it",
}
"""By reason of model.Unreached: why the probe was not in a program, as the program's predicate."""


def used_libraries(profile: Profile) -> list[str]:
    """Returns the paths of the libraries that owned malloc, the most frequent first."""
    return [
        path
        for path, _ in Counter(process.allocator for process in profile.processes).most_common()
    ]


def notes(profile: Profile) -> Iterator[str]:
    """Yields how the numbers were measured, and warnings (▲) about parts that they leave out."""
    if profile.window:
        yield (
            f"counted for {units.time(profile.wall_ns)}, beginning "
            f"{units.time(profile.window.after_ns)} after the program's start; {UNKNOWN} for a "
            "longest time means that a longer operation had come before this period"
        )
    if profile.layout_problem is not None:
        yield f"▲ where blocks lie is not shown: {printable(profile.layout_problem)}"
    if profile.layout_missing is not None:
        yield f"▲ where blocks lie is not known, because {printable(profile.layout_missing)}"
    if profile.layout is not None and (told := watched(profile.layout)):
        yield told
    if profile.stacks_problem is not None:
        yield f"▲ who allocates is not shown: {printable(profile.stacks_problem)}"
    tally, processes = profile.tally, profile.processes
    total = lines(profile)[-1]
    gaps = sorted({process.gap for process in processes})
    one_in = " or ".join(units.count(gap) for gap in gaps[:3])
    if total.timed:
        yield (
            f"{units.count(total.timed)} of {units.counted(round(total.operations), 'operation')} "
            f"{'was' if total.timed == 1 else 'were'} timed: one in {one_in} on small and medium "
            "blocks, all on large blocks"
        )
    yield from _sizes(tally)
    if total.mean_ns is not None and total.alone_ns is not None and total.mean_ns < _SHORT_NS:
        yield (
            "times: operations overlap with the program's other instructions; an operation that "
            f"overlaps with nothing takes {short_time(total.alone_ns, 0.0)} on average"
        )
    yield from _clocks(cpu_share(profile))
    yield from _seen(profile)
    yield from _counters(profile)
    yield from _waits(profile)
    if other := _other(profile):
        yield other
    if profile.tree is not None:
        yield _whole(profile.tree)
    own = probe_ns(profile)
    if own and cpu_ns(profile):
        yield f"the probe's own CPU time is left out: {units.time(own)}"
    if total.timed and clock(tally) is None:
        yield f"▲ Times are {NOT_MEASURED}: the processes ended before the clock was calibrated."
    waited = kernel_ns(kernel_lines(profile), waiting=True)
    if waited and total.total_ns and waited > total.total_ns.value / 100:
        yield (
            f"▲ The times above contain {units.time(waited)} of waiting in system calls, "
            "which takes no CPU time."
        )
    switched, ticking = int(tally.timed.switched.sum()), clock(tally)
    if switched and ticking:
        time = units.time(float(tally.timed.switched_ticks.sum()) * ticking.ns_per_tick)
        yield (
            f"times: {units.counted(switched, 'timed operation was', 'timed operations were')} "
            f"preempted ({time} in total) and {'is' if switched == 1 else 'are'} left out"
        )
    yield from _untimed(profile, total)


def _sizes(tally: Tally) -> Iterator[str]:
    """Yields below which sizes most blocks are, or why this is not known."""
    if not tally.sizes.any():
        return
    if not has_enough(tally):
        n = sampled(tally)
        yield (
            f"the sizes of most blocks are not known: {units.counted(n, 'block')} "
            f"{'was' if n == 1 else 'were'} sampled, and {SAMPLED_LEAST} are needed; use a smaller "
            "--gap"
        )
        return
    told = [
        f"{share} are smaller than {_size(found)}"
        for share, q in (("half of all blocks", 0.5), ("95 %", 0.95))
        if (found := size_below(tally, q)) is not None
    ]
    if told:
        yield ", ".join(told)


def _size(found: Estimate) -> str:
    """Returns a size with its interval, unless the ends are the same number."""
    low, high = units.size(found.interval.low), units.size(found.interval.high)
    return units.size(found.value) + (f" ({low} to {high})" if low != high else "")


def not_recorded(missing: Sequence[Missing]) -> str:
    """Returns the names of the processes that could not be recorded, and the reasons.

    The result is a clause without its end. It is empty if no process is missing.
    """
    named: dict[tuple[str, str], list[int]] = {}
    for one in missing:
        pids = named.setdefault((one.program, one.why), [])
        # A process may have executed a program twice.
        if not one.pid or one.pid not in pids:
            pids.append(one.pid)
    unnamed = sum(len(pids) for (program, _), pids in named.items() if not program)
    programs = sorted(((key, pids) for key, pids in named.items() if key[0]), key=_by_number)
    unnamed += sum(len(pids) for _, pids in programs[_PROGRAMS_MOST:])
    clauses = []
    for (program, why), pids in programs[:_PROGRAMS_MOST]:
        shown = [str(pid) for pid in pids[:_PIDS_MOST]]
        more = f" and {len(pids) - len(shown):,} more" if len(pids) > len(shown) else ""
        clauses.append(f"{printable(program)} ({', '.join(shown)}{more}) {why_missing(why)}")
    if unnamed:
        clauses.append(units.counted(unnamed, "other process", "other processes"))
    return "; ".join(clauses)


def _by_number(entry: tuple[tuple[str, str], list[int]]) -> int:
    """Orders programs by their number of missing processes, the largest first."""
    return -len(entry[1])


def why_missing(why: str) -> str:
    """Returns why a process is missing, as the predicate of its program: "is linked statically".

    `why` is `Missing.why`.
    """
    if why in _UNREACHED:
        return _UNREACHED[why]
    code = getattr(errno, why, None)
    reason = f"{os.strerror(code)} ({why})" if code is not None else why
    return f"could not write a profile: {reason}"


def _untimed(profile: Profile, total: Line) -> Iterator[str]:
    """Yields which calls were not timed, and which calls failed."""
    tally = profile.tally
    if total.untimed:
        kinds = one_or_more(
            [one.name for one in lines(profile) if one.untimed and one.name != total.name]
            or ["free"]
        )
        sign = "▲ " if total.untimed > _UNTIMED_LEAST * total.operations else ""
        yield (
            f"{sign}The times do not include {units.counted(total.untimed, 'operation')}, because "
            f"no operation of {'its' if total.untimed == 1 else 'their'} kind was timed ({kinds})."
        )
    if any(line.timed and None in line.quantiles for line in lines(profile)):
        needed = [
            f"{name} {units.count(round(BEYOND_LEAST / (1 - share)))}"
            for name, share in zip(_NEEDS, QUANTILES, strict=True)
        ]
        yield f"A time is – if too few operations were timed: {', '.join(needed)}."
    if late := int(tally.late_calls.sum()):
        yield (
            f"▲ {units.counted(late, 'call')} by ending threads {'is' if late == 1 else 'are'} not "
            f"timed, and {'its' if late == 1 else 'their'} phase (serial or parallel) and block "
            "size are not known. So the numbers of calls by phase and size are bounds (≥, ≤) or "
            "not known (–)."
        )
    if failed := [
        (name, int(count)) for name, count in zip(ALLOCATING, tally.failed, strict=True) if count
    ]:
        yield (
            "▲ Failed calls: "
            + ", ".join(f"{units.count(count)} of {name}" for name, count in failed)
            + "."
        )


def _seen(profile: Profile) -> Iterator[str]:
    """Yields how all system calls were seen. If some were not, `profile_gaps` says so instead."""
    if all(map(sees_all_calls, profile.processes)):
        yield "system calls: all were seen, by syscall user dispatch"


def _counters(profile: Profile) -> Iterator[str]:
    """Yields the counters that the kernel refused, and how the other counters were read."""
    refused = events_refused(profile)
    if refused:
        names = ", ".join(
            f"{event} ({' or '.join(map(refusal, errors))})" for event, errors in refused.items()
        )
        yield f"▲ Counters within the allocator are not available here: {names}"
    if some_threads_uncounted(profile):
        yield (
            "▲ Some threads had no counters, because no descriptor was free (EMFILE). The counts "
            "come from the other threads. To count in all, raise the limit of open files (ulimit "
            "-n)."
        )
    if event_lines(profile):
        yield (
            "counters: in user mode, in a part of the timed operations; the cost of reading them "
            "is subtracted"
        )
    elif {event for one in profile.processes for event in one.events if event} - refused.keys():
        yield (
            "▲ No event was counted within the allocator: too few operations were timed, or the "
            "processor's counters were in use by others"
        )


def refusal(reason: int) -> str:
    """Returns why the kernel refused something, by its errno value."""
    return (
        "valgrind cannot"
        if reason == errno.EOPNOTSUPP
        else errno.errorcode.get(reason, f"error {reason}")
    )


def _clocks(found: CpuShare) -> Iterator[str]:
    """Yields how the share of CPU time was measured."""
    if found.share is not None:
        runs = (
            "of this run"
            if found.probed and found.runs == 1
            else f"of {units.counted(found.runs, 'run')}"
            f"{'' if found.probed else ' without the probe'}"
        )
        yield (
            f"CPU time: from {units.counted(found.samples, 'clock sample')} {runs}, "
            f"{_CLOCKS[found.scope or 'timers']} · 95 %: sampling ± {points(found.sampling)}, "
            f"instructions that overlap ± {points(found.overlap)}"
            + (f", not attributed {points(found.unknown)}" if found.unknown >= 0.0005 else "")
        )
        if found.interrupts_unseen and found.scope != "timers":
            yield f"interrupts: {NOT_MEASURED} ({found.interrupts_unseen})"


_CLOCKS: dict[Scope, str] = {
    "processors": "by the kernel's clock of each processor",
    "threads": "by the kernel's clock of each thread",
    "threads in user mode": "by the kernel's clock of each thread, which does not see the kernel; "
    "the probe timed the allocator's system calls",
    "timers": "by timers that the kernel looks at about every 4 ms",
}


def _whole(tree: Tree) -> str:
    """Returns the figures of the process tree: times, context switches and hardware counters."""
    counted = {
        name: value
        for name, value in tree.counters.items()
        if value is not None and name in _COUNTERS
    }
    missing = [name for name in _COUNTERS if name not in counted]
    texts = [f"{units.count(value)} {name}" for name, value in counted.items()]
    if (cycles := counted.get("cycles")) and "instructions" in counted:
        texts.append(f"{counted['instructions'] / cycles:.2f} instructions per cycle")
    where = " in user mode" if tree.user_mode_only and counted else ""
    if tree.scaled and counted:
        where += ", estimated from a part of the time"
    lacking = f"{'; ' if texts else ''}not available here: {', '.join(missing)}" if missing else ""
    return (
        f"the whole program: user {units.time(tree.user_ns)}, system {units.time(tree.system_ns)}, "
        f"{units.count(tree.voluntary_switches)} voluntary and "
        f"{units.count(tree.involuntary_switches)} "
        f"involuntary context switches · counters{where}: {', '.join(texts)}{lacking}"
    )


def _waits(profile: Profile) -> Iterator[str]:
    """Yields the number of contended locks, how sections were timed, and waiting system calls."""
    if lock_lines(profile):
        sections = int(profile.tally.locks.sections.sum())
        yield (
            "locks: threads waited for "
            f"{units.counted(profile.tally.contended_locks, 'lock', 'different locks')} · "
            f"mean hold time: from lock to unlock, in {units.count(sections)} timed cases"
        )
    in_kernel = [
        f"{one.name} {units.count(one.count)}"
        for one in kernel_lines(profile)
        if one.name in WAITING
    ]
    if in_kernel:
        yield f"waiting system calls: {', '.join(in_kernel)}; libc's own locks show only here"


def _other(profile: Profile) -> str:
    """Returns the most frequent system calls in the row "other", by name; "" if there are none."""
    known = profile.tally.other_calls.most_common(8)
    told = [f"{call_name(number, profile.machine)} {units.count(count)}" for number, count in known]
    rest = int(profile.tally.kernel.count[CALLS.index("other")]) - sum(count for _, count in known)
    return (
        ("other system calls: " + ", ".join(told) + (f", {rest:,} more" if rest > 0 else ""))
        if told
        else ""
    )
