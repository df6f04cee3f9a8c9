"""The allocator's share of the CPU time of a running process, from its clock samples. Pure.

The share is that of `profile.cpu_share`, with one difference. A processor works on instructions of
the allocator and of the program at the same time. So without the allocator, the program would not
save exactly the time that the clock shows for it. The two times differ by at most OVERLAP_NS for
each operation (docs/decisions/0031-share-from-the-kernel-clock.md). `profile.cpu_share` knows the
number of operations from the probe. Here the number is not known, since samples do not count
operations. So the interval is that of the clock's share, and the report says what each million
operations adds to it (docs/decisions/0047-share-from-outside.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from cairn import units
from cairn.inspect.clock import PERIOD_NS
from cairn.inspect.facts import Serving
from cairn.inspect.sampled import Sampled
from cairn.model import Interval
from cairn.profile.cpu_share import OVERLAP_NS, SAMPLES_LEAST, sampled
from cairn.profile.estimates import LEVEL, Estimate, wilson
from cairn.profile.hot_functions import HotFunction
from cairn.profile.tally import ClockRun, Scope

LONGEST_S = 600.0
"""The longest time for which a process is sampled."""
OVERLAP_OF_MILLION = OVERLAP_NS * 1e6 / 1e9
"""The part of the share that is uncertain if the process makes a million operations in each second
of CPU time. Each operation adds OVERLAP_NS."""
UNSAMPLED_MAX, UNSAMPLED_LEAST_NS = 0.02, 30e6
"""Limits of the CPU time that has no samples: as a share of all CPU time, and in nanoseconds. Up to
the larger limit, this time is ignored: it comes from rounding, because the kernel gives CPU time in
ticks of 10 ms. Above this limit, all CPU time without samples counts as unknown."""
NOT_KNOWN = ""
"""Stands in place of the name of the caller if the stacks of the samples show no caller."""


class SampledCaller(Struct, frozen=True):
    """A function of the program that called the allocator."""

    name: str
    """NOT_KNOWN for all samples without a known caller."""
    share: Estimate
    """The share of the allocator's time that this caller caused."""
    samples: int


class SampledStack(Struct, frozen=True):
    """A call stack that led to the allocator."""

    functions: tuple[str, ...]
    """The innermost first."""
    samples: int


class AttachedShare(Struct, frozen=True):
    """The result of 'cairn profile --pid'. None means not known."""

    pid: int
    name: str
    allocator: Serving
    seconds: float
    """The seconds for which the process was watched."""
    cpu_s: float
    """The CPU time of the process in these seconds."""
    scope: Scope | None
    samples: int
    share: Estimate | None
    why_not: str
    """Why there is no share, as a whole sentence."""
    own: float = 0.0
    """The part of the share in the allocator's code. The next three fields are the parts in its
    system calls, in its page faults, and in interrupts that came while it ran."""
    calls: float = 0.0
    faults: float = 0.0
    interrupts: float | None = None
    interrupts_unseen: str = ""
    unknown: float = 0.0
    """The share of CPU time that cannot be attributed."""
    overlap_of_million: float = OVERLAP_OF_MILLION
    """The time that the program would save without the allocator may differ from the share. This is
    the largest difference for each million operations in a second of CPU time. The interval does
    not contain it."""
    functions: tuple[HotFunction, ...] = ()
    callers: tuple[SampledCaller, ...] = ()
    stacks: tuple[SampledStack, ...] = ()
    unwatched: int = 0
    """The number of threads that had no clock (a perf event), so they have no samples."""
    is_ended: bool = False
    without_stack: int = 0
    """The number of samples in the allocator whose callers are not known, because they came after
    the first 200,000 such samples, or after 512 MiB of samples."""
    unwatched_refused: int = 0
    """The number of threads of `unwatched` to which the kernel refused a clock. For the others,
    there were more threads than clocks."""
    clock_refused: str = ""
    """Why the kernel refused these clocks, as a clause. Empty if no clock was refused."""


def attached(found: Sampled) -> AttachedShare:
    """The share, with its interval, and its parts."""
    target, serving = found.target, found.program.serving
    run = found.run
    plain = AttachedShare(
        target.pid, target.name, serving, found.seconds, found.cpu_ns / 1e9, found.scope,
        0 if run is None else run.samples, None, "", unwatched=found.unwatched,
        is_ended=found.is_ended, unwatched_refused=found.unwatched_refused,
        clock_refused=found.refused,
    )  # fmt: skip
    if run is None:
        return _without(plain, f"The share is not known: {found.why_not}.")
    known = run.inside_ns + run.program_ns
    if run.samples < SAMPLES_LEAST or not known:
        return _without(plain, _too_few(found, run.samples))
    share = run.inside_ns / known
    # The samples that the kernel lost may belong to any process, so their time does not count. The
    # CPU time of this process shows how much of it has no samples.
    unknown = run.unknown_ns - found.lost_ns
    unsampled = max(0.0, found.cpu_ns - (run.whole_ns - found.lost_ns))
    # A clock of user mode takes no samples in the kernel. The allocator may have caused that time.
    is_rounding = not found.lost_ns and found.scope != "threads in user mode"
    if not is_rounding or unsampled > max(UNSAMPLED_LEAST_NS, UNSAMPLED_MAX * found.cpu_ns):
        unknown += unsampled
    whole = known + unknown
    ends = sampled(share, [(run.inside_ns, run.inside_squares, known, run.squares)])
    low = ends.low * known / whole
    high = (ends.high * known + unknown) / whole
    return AttachedShare(
        target.pid, target.name, serving, found.seconds, found.cpu_ns / 1e9, found.scope,
        run.samples, Estimate(share, Interval(min(low, share), max(high, share), LEVEL)), "",
        own=run.own_ns / known,
        calls=run.calls_ns / known,
        faults=run.faults_ns / known,
        interrupts=None if run.interrupts_ns is None else run.interrupts_ns / known,
        interrupts_unseen=run.interrupts_unseen,
        unknown=unknown / whole,
        functions=_functions(run, known),
        callers=_callers(found.stacks),
        stacks=tuple(SampledStack(functions, count) for functions, count in found.stacks),
        unwatched=found.unwatched,
        is_ended=found.is_ended,
        without_stack=found.without_stack,
        unwatched_refused=found.unwatched_refused,
        clock_refused=found.refused,
    )  # fmt: skip


def _without(plain: AttachedShare, why_not: str) -> AttachedShare:
    return AttachedShare(
        plain.pid, plain.name, plain.allocator, plain.seconds, plain.cpu_s, plain.scope,
        plain.samples, None, why_not, unwatched=plain.unwatched, is_ended=plain.is_ended,
        unwatched_refused=plain.unwatched_refused, clock_refused=plain.clock_refused,
    )  # fmt: skip


def _too_few(found: Sampled, samples: int) -> str:
    there = f"are only {samples:,} clock samples"
    if samples <= 1:
        there = "is only 1 clock sample" if samples else "is no clock sample"
    text = f"The share is not known: there {there} of its CPU time, and {SAMPLES_LEAST} are needed."
    if found.is_ended:
        return f"{text} The process ended."
    text += f" It used {units.time(found.cpu_ns)} of CPU time in {units.about(found.seconds)}."
    if not samples:
        return f"{text} Watch it while it works."
    longer = found.seconds * SAMPLES_LEAST / samples * 1.5
    if found.run is not None and found.run.whole_ns:
        # A short measurement has a shorter period than a long one.
        longer *= max(1.0, PERIOD_NS * samples / found.run.whole_ns)
    if longer > LONGEST_S:
        return f"{text} That is too little for a share within {LONGEST_S / 60:.0f} minutes."
    return f"{text} Watch it longer: --for {max(1, round(longer))}s."


def _functions(run: ClockRun, known: float) -> tuple[HotFunction, ...]:
    found = [
        HotFunction(
            one.name, one.library,
            Estimate(
                one.ns / known,
                sampled(one.ns / known, [(one.ns, one.squares, known, run.squares)]),
            ),
            one.samples,
        )
        for one in run.functions
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.share.value, one.name)))


def _callers(stacks: Sequence[tuple[tuple[str, ...], int]]) -> tuple[SampledCaller, ...]:
    """The functions that called the allocator. Those for which it took the most time come first."""
    counts: Counter[str] = Counter()
    for functions, count in stacks:
        counts[functions[0] if functions else NOT_KNOWN] += count
    whole = counts.total()
    found = []
    for name, count in counts.items():
        ends = wilson(count, whole)
        if name != NOT_KNOWN:
            # Each of the samples without a known caller may belong to this caller.
            most = min(1.0, ends.high + counts[NOT_KNOWN] / whole)
            ends = Interval(ends.low, most, ends.level)
        found.append(SampledCaller(name, Estimate(count / whole, ends), count))
    return tuple(sorted(found, key=lambda one: (one.name == NOT_KNOWN, -one.samples, one.name)))
