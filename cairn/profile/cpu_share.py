"""The share of a program's CPU time that its allocator takes. All functions are pure.

The share comes from clock samples: after each period of CPU time, the kernel notes the address at
which a processor is. The samples come from the best source that the kernel permits (`tally.Scope`).
A sample counts for its period. Time in the probe, and in the kernel because of the probe, is left
out. If A is the time of the samples in the allocator, P the time of the samples in the program, and
U the time that cannot be attributed, then

    share      A / (A + P)
    low, high  A / (A + P + U) and (A + U) / (A + P + U)

U has samples at unknown addresses, samples that the kernel lost, and CPU time without samples. The
interval is then wider at both ends by two further errors:

    sampling   Wilson's interval. Its number of samples is that of equal samples with the same
               variance. If there are RUNS_LEAST runs or more, the interval is at least that of
               their mean by Student's t
    overlap    OVERLAP_NS for each operation. A processor works on hundreds of instructions at once,
               so the allocator's instructions and the program's run at the same time. The clock
               gives such time to one of them. So the share can be larger or smaller than the time
               that the program would save without the allocator
               (docs/decisions/0031-share-from-the-kernel-clock.md)

The timed operations are not used: if a processor overlaps operations with other work, the sum of
their times is not the time that they cost (docs/decisions/0012-cpu-timers-not-timed-operations.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.model import Interval
from cairn.profile.early_ends import cpu_total_ns
from cairn.profile.estimates import LEVEL, Estimate, cpu_ns, way_out_ns, wilson
from cairn.profile.tables import kernel_cpu_ns, kernel_lines
from cairn.profile.tally import ClockRun, KernelClock, Profile, Scope

SAMPLES_LEAST = 200
"""With fewer samples, no share is reported. With this many, a share of 10 % is known to within ± 4
percentage points."""
OVERLAP_NS, OVERLAP_PROBED_NS = 2.0, 2.5
"""The error of the time in the allocator, for each operation, without and with the probe.

They were measured with programs that also ran without the allocator. The difference of the two CPU
times is the true time in the allocator (docs/decisions/0031-share-from-the-kernel-clock.md).
"""
UNSAMPLED_MAX = 0.01
"""Up to this share, CPU time without samples is ignored. It comes from the time until the program
begins, and from the rounding of periods. A larger share counts as unknown time."""
PERIOD_MOST_NS = 1.2e6
"""A sample of a processor's clock has no longer period (src/launch/cpu_samples.h). A sample that
counts for more time also stands for samples that the launcher left out at random."""
THINNED_DEVIATIONS = 3.0
"""If samples were left out, the sum of the others differs from the CPU time by chance. A difference
up to this many standard deviations is no CPU time without samples."""
LOST_DEVIATIONS = 4.0
"""The timers lost samples if they gave fewer than one for each tick of CPU time by this many
standard deviations. A thread that often sleeps gets a random number of samples, whose variance is
its mean."""
WIDTH_POINTS, WIDTH_RELATIVE = 0.03, 0.10
"""An interval is narrow if neither end is further from the share than the larger of two distances:
WIDTH_POINTS (3 percentage points), and WIDTH_RELATIVE times the share."""
RUNS_LEAST = 5
"""From this many runs on, the interval also covers the differences between the runs."""
_T = (2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120)
"""Student's t at 95 %, for RUNS_LEAST runs, for one run more, and so on. The last value serves for
all larger numbers of runs."""


class CpuShare(Struct, frozen=True):
    """The allocator's share of CPU time, without the probe's own time."""

    share: Estimate | None
    """The share; None if it is not known."""
    why_not: str = ""
    """Why `share` is None, as the end of a sentence."""
    scope: Scope | None = None
    """The source of the clock samples."""
    samples: int = 0
    """The number of samples outside the probe, over all runs."""
    runs: int = 0
    """The number of runs whose samples were used."""
    probed: bool = True
    """Whether the probe was loaded in the runs whose samples were used."""
    own: float = 0.0
    """The part of the share that was spent in the allocator's own code."""
    calls: float = 0.0
    """The part of the share that was spent in system calls of the allocator."""
    faults: float = 0.0
    """The part of the share that was spent in page faults within the allocator."""
    interrupts: float | None = None
    """The part of the share that was spent in interrupts while the allocator ran. It is None if
    interrupts cannot be told from other kernel code. The other parts then contain them, mostly
    `faults`."""
    interrupts_unseen: str = ""
    """Why `interrupts` is None, as the end of a sentence; empty if it is not None."""
    probe: float = 0.0
    """The probe's share of the CPU time of the profiled run. All other shares leave it out."""
    unknown: float = 0.0
    """The share of CPU time that cannot be attributed."""
    sampling: float = 0.0
    """Half the width that the interval would have with the sampling error alone."""
    overlap: float = 0.0
    """The amount by which the overlap of instructions widens the interval on each side."""
    contradicted: Estimate | None = None
    """The share by the probe's CPU timers, if it contradicts the share by perf events. The interval
    of `share` then contains both shares."""

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is narrow enough for a report: see WIDTH_POINTS."""
        if self.share is None:
            return False
        return _half(self.share) <= _wanted(self.share.value)

    @property
    def may_narrow(self) -> bool:
        """Whether further runs without the probe can make the interval notably better.

        The first such run always can, because the probe disturbs a program whose operations are
        frequent. Later runs only reduce the sampling error.
        """
        if self.share is None or (self.probed and self.scope in ("processors", "threads")):
            return True
        return self.sampling > max(self.overlap / 4, _wanted(self.share.value) - self.overlap)


def _half(share: Estimate) -> float:
    return max(share.interval.high - share.value, share.value - share.interval.low)


def _wanted(share: float) -> float:
    return max(WIDTH_POINTS, WIDTH_RELATIVE * share)


def by_timers(profile: Profile) -> ClockRun | None:
    """The samples of the probe's timers of CPU time, as a run; None if there are none.

    All samples together stand for the whole CPU time. But if there are clearly fewer samples than
    the CPU time has ticks, the kernel lost some. Each sample then stands for one tick, and the rest
    of the CPU time counts as time without samples.
    """
    tally, n = profile.tally, profile.tally.cpu_samples
    tick = max((one.timer_ns for one in profile.processes), default=0)
    cpu = _counted_ns(profile, n * tick)
    if not n or cpu is None:
        return None
    inside, probe = (
        min(int(number), n) for number in (tally.cpu_samples_inside.sum(), tally.cpu_samples_probe)
    )
    due = cpu / tick if tick else 0.0
    each = tick if due - n > LOST_DEVIATIONS * math.sqrt(due) else cpu / n
    way_out = min(way_out_ns(tally), inside * each)
    return ClockRun(
        probed=True,
        scope="timers",
        samples=n - probe,
        own_ns=inside * each - way_out,
        program_ns=max(0, n - inside - probe) * each,
        probe_ns=probe * each + way_out,
        inside_squares=inside * each * each,
        squares=(n - probe) * each * each,
        cpu_ns=cpu,
    )


def _counted_ns(profile: Profile, sampled_ns: int) -> int | None:
    """The CPU time for which the timers gave samples; None if it is not known.

    sampled_ns: the CPU time that the samples stand for if none was lost. It is used if the CPU time
        has only limits, because some process did not end normally.
    """
    total = cpu_total_ns(profile)
    if total.low == total.high:
        return cpu_ns(profile)
    most = sampled_ns if total.high is None else min(total.high, sampled_ns)
    return max(total.low, most) or None


def used(profile: Profile) -> KernelClock:
    """The runs with samples of perf events, or else the samples of the probe's CPU timers."""
    known = profile.clock or KernelClock()
    if known.runs:
        return known
    timers = by_timers(profile)
    return known if timers is None else replace(known, runs=(timers,))


def cpu_share(profile: Profile) -> CpuShare:
    """The allocator's share of CPU time, from the best clock samples that the profile has."""
    clock = used(profile)
    if not profile.operations:
        return CpuShare(None, "it allocated nothing")
    if not clock.runs:
        return CpuShare(None, clock.why_not or "the program's CPU time has no clock samples")
    runs = counted_runs(clock)
    found = _of(runs, profile)
    first = clock.runs[0]
    found = replace(found, probe=first.probe_ns / max(1.0, first.probe_ns + first.whole_ns))
    return _checked(found, first, profile)


def counted_runs(clock: KernelClock) -> list[ClockRun]:
    """The runs that the share comes from: those without the probe if there are any."""
    return [run for run in clock.runs if not run.probed] or list(clock.runs)


def _of(runs: Sequence[ClockRun], profile: Profile) -> CpuShare:
    """The share by the clock samples of `runs`, which are runs of the profile's program."""
    samples, scope, probed = sum(run.samples for run in runs), runs[0].scope, runs[0].probed
    about = CpuShare(None, scope=scope, samples=samples, runs=len(runs), probed=probed)
    if scope == "threads in user mode":
        runs = [_with_kernel(run, profile) for run in runs]
    inside, unknown = sum(run.inside_ns for run in runs), sum(_unknown_ns(run) for run in runs)
    known = inside + sum(run.program_ns for run in runs)
    if samples < SAMPLES_LEAST or not known:
        return replace(about, why_not=_too_few(samples))
    share = inside / known
    unseen = next((run.interrupts_unseen for run in runs if run.interrupts_ns is None), None)
    whole = known + unknown
    ends = _sampled(share, runs)
    overlap = (OVERLAP_PROBED_NS if probed else OVERLAP_NS) * profile.operations * len(runs) / known
    low = max(0.0, (ends.low - overlap) * known / whole)
    high = min(1.0, ((ends.high + overlap) * known + unknown) / whole)
    return replace(
        about,
        share=Estimate(share, Interval(min(low, share), max(high, share), LEVEL)),
        own=sum(run.own_ns for run in runs) / known,
        calls=sum(run.calls_ns for run in runs) / known,
        faults=sum(run.faults_ns for run in runs) / known,
        interrupts=None
        if unseen is not None
        else sum(run.interrupts_ns or 0.0 for run in runs) / known,
        interrupts_unseen=unseen or "",
        unknown=unknown / whole,
        sampling=(ends.high - ends.low) / 2,
        overlap=overlap,
    )


def page_fault_share(profile: Profile) -> Estimate | None:
    """The share of CPU time in page faults of the allocator and of the program.

    Returns None if the clock samples do not show page faults, or if there are fewer than
    SAMPLES_LEAST. If no sample came in a page fault, the share is 0, and its interval shows how
    large the share may be nevertheless.
    """
    runs = counted_runs(used(profile))
    known = sum(run.inside_ns + run.program_ns for run in runs)
    squares = sum(run.squares for run in runs)
    in_faults = [run.page_faults_ns for run in runs if run.page_faults_ns is not None]
    samples = sum(run.samples for run in runs)
    if len(in_faults) < len(runs) or samples < SAMPLES_LEAST or not known or not squares:
        return None
    share, alike = min(1.0, sum(in_faults) / known), known * known / squares
    return Estimate(share, wilson(share * alike, alike))


def _too_few(samples: int) -> str:
    return (
        f"there {'is' if samples == 1 else 'are'} only {samples:,} clock "
        f"sample{'' if samples == 1 else 's'} of the program's CPU time, and {SAMPLES_LEAST} are "
        "needed"
    )


def _unknown_ns(run: ClockRun) -> float:
    """The CPU time of a run that cannot be attributed, including CPU time without samples."""
    if not run.cpu_ns:
        return run.unknown_ns
    unsampled = run.cpu_ns - run.whole_ns - run.probe_ns
    most = UNSAMPLED_MAX * run.cpu_ns + THINNED_DEVIATIONS * _thinning_ns(run)
    return run.unknown_ns + (unsampled if unsampled > most else 0.0)


def _thinning_ns(run: ClockRun) -> float:
    """The standard deviation of the run's CPU time that comes from samples left out at random.

    A kept sample of period p that stands for n samples has the variance p^2 * n * (n - 1). Only the
    clock of processors also sees other programs, whose samples may leave few of the run's own.
    """
    if run.scope != "processors":
        return 0.0
    return math.sqrt(max(0.0, run.squares - PERIOD_MOST_NS * run.whole_ns))


def _sampled(share: float, runs: Sequence[ClockRun]) -> Interval:
    """The interval of a share by the samples of these runs alone."""
    return sampled(
        share,
        [
            (run.inside_ns, run.inside_squares, run.inside_ns + run.program_ns, run.squares)
            for run in runs
        ],
    )


def sampled(share: float, runs: Sequence[tuple[float, float, float, float]]) -> Interval:
    """The interval of the share of a part, such as the allocator, by the samples of some runs.

    share: the time in the part divided by the whole time, both summed over all runs.
    runs: for each run, the time in the part, the sum of the squared periods of its samples, the
        whole time, and the sum of the squared periods of all samples.
    """
    known = sum(whole for _, _, whole, _ in runs)
    inside2, all2 = sum(run[1] for run in runs), sum(run[3] for run in runs)
    variance = max(0.0, (1 - 2 * share) * inside2 + share * share * all2) / known**2
    alike = known**2 / all2 if all2 else 0.0
    if 0 < share < 1 and variance > 0:
        alike = min(alike, share * (1 - share) / variance)
    ends = wilson(share * alike, alike)
    if len(runs) < RUNS_LEAST:
        return ends
    squares = sum((inside - share * whole) ** 2 for inside, _, whole, _ in runs)
    t = _T[min(len(runs) - RUNS_LEAST, len(_T) - 1)]
    half = t * math.sqrt(squares * len(runs) / (len(runs) - 1)) / known
    return Interval(
        max(0.0, min(ends.low, share - half)), min(1.0, max(ends.high, share + half)), LEVEL
    )


def _with_kernel(run: ClockRun, profile: Profile) -> ClockRun:
    """A run whose clock samples leave out the kernel, completed by the probe's own times.

    The probe timed every system call of the allocator. The rest of the time in the kernel cannot be
    attributed. It is in page faults and in the program's system calls.
    """
    kernel_ns = max(0.0, run.cpu_ns - run.whole_ns - run.probe_ns)
    ticks = profile.tally.detour_ticks
    detours_ns = ticks * profile.tally.span_ns / max(1, profile.tally.span_ticks)
    rest_ns = max(0.0, kernel_ns - (detours_ns if run.probed else 0.0))
    calls_ns = min(rest_ns, kernel_cpu_ns(kernel_lines(profile)) or 0.0)
    return replace(
        run,
        calls_ns=run.calls_ns + calls_ns,
        unknown_ns=run.unknown_ns + rest_ns - calls_ns,
        cpu_ns=0.0,
    )


def _checked(found: CpuShare, first: ClockRun, profile: Profile) -> CpuShare:
    """The share `found`, after a check by the probe's CPU timers in the profiled run.

    If the timers and the perf events of this run contradict each other, the interval of the share
    is extended to contain the share by the timers.
    """
    timers = by_timers(profile)
    if found.share is None or timers is None or first.scope == "timers" or not first.probed:
        return found
    one, other = _of([first], profile).share, _of([timers], profile).share
    if one is None or other is None:
        return found
    if one.interval.low <= other.interval.high and other.interval.low <= one.interval.high:
        return found
    low, high = found.share.interval.low, found.share.interval.high
    wider = Interval(min(low, other.value), max(high, other.value), LEVEL)
    return replace(found, share=Estimate(found.share.value, wider), contradicted=other)
