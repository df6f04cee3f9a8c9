"""The sentences about what a profile does not know, and what would help, the gravest first."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator

from cairn import units
from cairn.clock_samples import NO_ROOM
from cairn.findings import find
from cairn.profile.cpu_samples import TOO_MANY
from cairn.profile.cpu_share import CpuShare, counted_runs, cpu_share
from cairn.profile.early_ends import cpu_total_ns
from cairn.profile.missing import process_counts
from cairn.profile.tables import sees_all_calls
from cairn.profile.tally import Profile, Seen, cut_short, lasting, one_or_more
from cairn.report.profile_notes import not_recorded, refusal, used_libraries
from cairn.report.profile_numbers import about

_UNKNOWN_LEAST = 0.01
"""A sentence says that CPU time cannot be attributed only if its share is larger than this."""


def gaps(profile: Profile) -> Iterator[str]:
    """Yields whole sentences: first missing processes, then what makes numbers uncertain."""
    yield from _missing(profile)
    yield from _unseen(profile)
    yield from _uncertain(profile, cpu_share(profile))
    if short := cut_short(profile.processes, profile.missing):
        yield (
            f"{units.counted(len(short), 'process', 'processes')} ended without a normal exit, or "
            "executed a program that allocates nothing "
            f"({one_or_more([process.program for process in short])}). Calls and live bytes were "
            "counted until then, and other memory until shortly before." + _unseen_time(profile)
        )
    if len(used := used_libraries(profile)) > 1:
        yield (
            "The processes called different allocators: "
            f"{', '.join(path or 'unknown' for path in used[:4])}."
        )


def _unseen_time(profile: Profile) -> str:
    """Returns the sentence about the CPU time of processes that did not end normally.

    It is empty if this time is known.
    """
    total = cpu_total_ns(profile)
    if total.high is None:
        return (
            " Their CPU time after the probe's last look is not known, so there can be no finding "
            "about CPU time."
        )
    if total.low != total.high:
        return (
            " Their CPU time after the probe's last look is known only together with that of the "
            "missing processes."
        )
    return ""


def _missing(profile: Profile) -> Iterator[str]:
    if missing := profile.missing:
        number = process_counts(profile)
        of = units.counted(number.together, "process", "processes")
        are = "is" if number.missing == 1 else "are"
        yield f"{number.missing:,} of {of} {are} missing: {not_recorded(missing)}."
    if profile.empty:
        ended = units.counted(profile.empty, "process", "processes")
        yield f"{ended} left no counts (ended too early, or could not write a file)."
    if lost := sum(process.threads_lost for process in profile.processes):
        yield (
            f"{units.counted(lost, 'thread')} could not be counted, because the probe could not "
            "lengthen its file: the disk is full, or the program has a filter of system calls "
            "(seccomp)."
        )


_UNSEEN: dict[Seen, str] = {
    "interpose": "the probe saw only the allocator's calls of libc's mmap, munmap, madvise, "
    "mprotect and sbrk",
    "unseen": "the allocator's system calls were not counted",
}


def _unseen(profile: Profile) -> Iterator[str]:
    """Yields sentences on the system calls that were not seen.

    They say why syscall user dispatch, which sees all system calls, was refused.
    """
    images = Counter(process.seen for process in profile.processes)
    for way, says in _UNSEEN.items():
        if not images[way]:
            continue
        if len(images) > 1:
            told = f"In {images[way]:,} of {_images(profile)}, {says}"
        else:
            told = f"{says[0].upper()}{says[1:]}"
        reasons = {one.seen_errno for one in profile.processes if one.seen == way} - {0}
        why = " or ".join(_dispatch_refusal(reason) for reason in sorted(reasons)[:3])
        because = f", because syscall user dispatch was refused ({why})" if why else ""
        helps = _HELP if reasons & _TOO_OLD else "" if why else "--kernel-calls auto sees more."
        yield f"{told}{because}. {helps}".rstrip()
    if partly := sum(one.seen == "dispatch" for one in profile.processes) - sum(
        map(sees_all_calls, profile.processes)
    ):
        those = f"In {partly:,} of {_images(profile)}, the" if len(profile.processes) > 1 else "The"
        yield (
            f"{those} system calls of some threads were not counted, because the program itself "
            "dispatches them (syscall user dispatch)."
        )


def _dispatch_refusal(reason: int) -> str:
    return "the program uses it itself" if reason == errno.EBUSY else refusal(reason)


def _images(profile: Profile) -> str:
    """Returns the number of programs that were recorded; a process that called exec ran several."""
    recorded = "recorded " if profile.missing else ""
    programs, processes = len(profile.processes), len(lasting(profile.processes))
    if programs == processes:
        return f"{processes:,} {recorded}processes"
    ran = units.counted(processes, f"{recorded}process", f"{recorded}processes")
    return f"{programs:,} programs that {ran} ran"


_HELP = "It needs Linux 5.11 or later on x86-64."
_TOO_OLD = {errno.EINVAL, errno.ENOSYS}
"""The errno values of a kernel or processor without syscall user dispatch. Only against these
reasons, _HELP helps."""


def _uncertain(profile: Profile, found: CpuShare) -> Iterator[str]:
    """Yields sentences on the reasons why the share of CPU time is uncertain."""
    if found.scope in ("threads", "threads in user mode"):
        yield (
            "Threads and processes that live for less than a millisecond have too few of the clock "
            "samples, because the clock begins anew with each thread. Root may use the clock of "
            "each processor, and all users may if kernel.perf_event_paranoid is 0 or less."
        )
    if found.contradicted is not None:
        yield (
            f"The probe's timers of CPU time found {about(found.contradicted)} in this run, "
            "which contradicts the kernel's clock. The interval contains both."
        )
    if profile.clock is not None and profile.clock.is_unlike:
        yield (
            "When the program ran again, it ended with another status, or used much more or much "
            "less CPU time. So only its first run counts."
        )
    if profile.clock is not None and profile.clock.unsampled:
        why, runs = profile.clock.unsampled, len(counted_runs(profile.clock))
        step = _remedy(why)
        yield (
            f"When the program ran again, no clock samples were taken, because {why}. So the clock "
            f"samples of only {units.counted(runs, 'run')} count.{f' {step}' if step else ''}"
        )
    most = max((one.effect for one in find(profile) if one.of == "CPU"), default=1.0)
    if found.share is not None and found.unknown > max(_UNKNOWN_LEAST, most):
        yield (
            f"{100 * found.unknown:.0f} % of the CPU time cannot be attributed. That is more than "
            "any finding explains."
        )
    refused = sum(process.timers_refused for process in profile.processes)
    if refused and found.scope == "timers":
        reasons = {process.timer_errno for process in profile.processes if process.timers_refused}
        why = " or ".join(
            errno.errorcode.get(reason, f"error {reason}") for reason in sorted(reasons)[:3]
        )
        yield f"{units.counted(refused, 'thread', 'threads')} got no timer of CPU time ({why})."


def next_step(why_not: str) -> str:
    """Returns a sentence that says how perf events can take the clock samples.

    `why_not` is the reason why they could not. If the folder of the samples is full, no right is
    missing.

    The kernel refuses perf events with EACCES if the user lacks the right.
    """
    return _remedy(why_not) or (
        "Root may take clock samples, and all users may if kernel.perf_event_paranoid is 2 or less."
    )


def _remedy(why_not: str) -> str:
    """Returns what helps against this reason. Returns "" for a missing right and other reasons.

    EPERM and ENOSYS come from a filter of system calls.
    """
    if any(os.strerror(error) in why_not for error in NO_ROOM):
        return "Free space there, or set TMPDIR to another folder."
    if os.strerror(errno.EFBIG) in why_not:
        return "Profile a shorter run, or raise the limit of file sizes (ulimit -f)."
    if TOO_MANY in why_not:
        return "Profile a shorter run, or one that starts fewer processes."
    if any(os.strerror(error) in why_not for error in (errno.EPERM, errno.ENOSYS)):
        return (
            "Outside this container, or with a seccomp filter that permits perf_event_open, the "
            "kernel's clock is used."
        )
    return ""
