"""The parts of CPU time by the CPU timers of the probed runs, where there are no clock samples.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.profile.estimates import WAY_OUT
from cairn.why.parts import (
    FAULTS,
    INTERRUPTS,
    KERNEL,
    OWN,
    PROGRAM,
    Pairs,
    Part,
    Side,
    cpu_ns,
    faults_of,
    part_of,
)

SAMPLES_LEAST = 200
"""CPU timer samples that all trials of a contender need together to separate allocator and
program."""


def kernel_ns(side: Side) -> float | None:
    """CPU time of the allocator's system calls; None if not all of them were seen.

    The probe times system calls by the wall clock. Waiting for a processor, or for the kernel's
    lock of the address space, makes the measured time longer than the CPU time. So the result is
    limited to the system time of the probed run, and to that of the plain run.
    """
    ns = side.summary.kernel_ns
    return None if ns is None else min(ns, side.probed.system_ns, side.plain.system_ns)


def fault_ns(side: Side) -> float | None:
    """System time of the plain run outside the allocator's system calls."""
    kernel = kernel_ns(side)
    return None if kernel is None else side.plain.system_ns - kernel


class _Shares(Struct, frozen=True):
    """The shares of allocator and probe in the CPU time of one contender's probed processes.

    They come from the probe's CPU timers.
    """

    inside: float
    """Share in the allocator."""
    probe: float
    """Share in the probe."""
    reading_faults: float = 0.0
    """The share of `_probed_rest_ns` that the probe spent on reading page fault counts. This time
    is not measured. It has two upper bounds, and the smaller one is used: the increase of this
    system time from plain to probed runs, and the CPU time in the probe outside its detours."""

    @staticmethod
    def of(sides: Sequence[Side]) -> _Shares | None:
        """The shares over all trials of a contender; None below SAMPLES_LEAST samples."""
        samples = sum(side.summary.samples for side in sides)
        if samples < SAMPLES_LEAST:
            return None
        each = (
            sum(s.summary.samples_inside for s in sides),
            sum(s.summary.samples_probe for s in sides),
        )
        found = _Shares(each[0] / samples, each[1] / samples)
        rest = sum(_probed_rest_ns(side) for side in sides)
        more = rest - sum(fault_ns(side) or 0.0 for side in sides)
        in_probe = sum(found.split(side)[1] - _detours_ns(side) * (1 - WAY_OUT) for side in sides)
        reading_faults = max(0.0, min(more, in_probe))
        return replace(found, reading_faults=min(1.0, reading_faults / rest) if rest else 0.0)

    def split(self, side: Side) -> tuple[float, float]:
        """Nanoseconds of one trial in allocator and probe.

        If the trial has no samples of its own, the shares over all trials are used.
        """
        a = side.summary
        if not a.samples:
            return self.inside * a.cpu_ns, self.probe * a.cpu_ns
        return a.samples_inside / a.samples * a.cpu_ns, a.samples_probe / a.samples * a.cpu_ns


def _in_faults_ns(side: Side, shares: _Shares | None) -> float | None:
    """The allocator's part of `_rest_ns`: `_rest_ns` times the allocator's share of page faults."""
    rest, inside = _rest_ns(side, shares), side.summary.faults_inside
    faults = faults_of(side.probed)
    if rest is None or inside is None:
        return None
    return rest * min(1.0, inside / faults) if faults else 0.0


def _probed_rest_ns(side: Side) -> float:
    """System time of a probed run outside the allocator's system calls and the probe's detours."""
    detours = _detours_ns(side)
    return (
        side.probed.system_ns
        - detours
        - min(side.summary.kernel_ns or 0.0, side.probed.system_ns - detours)
    )


def _rest_ns(side: Side, shares: _Shares | None) -> float | None:
    """`_probed_rest_ns` without the time in which the probe read page fault counts."""
    if shares is None or side.summary.kernel_ns is None:
        return None
    return _probed_rest_ns(side) * (1 - shares.reading_faults)


def _own_ns(side: Side, shares: _Shares | None) -> float | None:
    """CPU time in the allocator outside the kernel."""
    kernel, in_faults = side.summary.kernel_ns, _in_faults_ns(side, shares)
    if shares is None or kernel is None or in_faults is None:
        return None
    detours = _detours_ns(side)
    # The timer samples come from the probed run. So `kernel` may not exceed the system time of the
    # probed run. The system time of the plain run does not matter here.
    kernel = min(kernel, side.probed.system_ns - detours)
    return max(0.0, shares.split(side)[0] - kernel - in_faults - detours * WAY_OUT)


def _detours_ns(side: Side) -> float:
    """System time that the probed run spends on detours.

    A detour is what the probe adds to a system call that it intercepts: the way from the allocator
    into the probe and back. Of the CPU timer samples in detours, the share WAY_OUT lies in the
    allocator and the rest in the probe.
    """
    return min(side.summary.detours_ns, float(side.probed.system_ns))


def _program_ns(side: Side, shares: _Shares | None) -> float | None:
    """CPU time outside allocator and probe, and outside the kernel."""
    rest, in_faults = _rest_ns(side, shares), _in_faults_ns(side, shares)
    if shares is None or rest is None or in_faults is None:
        return None
    inside, probe = shares.split(side)
    return max(0.0, cpu_ns(side.probed) - inside - probe - (rest - in_faults))


def by_probe(pairs: Pairs) -> list[Part]:
    """The parts of CPU time in allocator, kernel and program."""
    shares = {id(side): _Shares.of(sides) for sides in zip(*pairs, strict=True) for side in sides}
    return [
        part_of(OWN, pairs, lambda side: _own_ns(side, shares[id(side)])),
        part_of(KERNEL, pairs, kernel_ns),
        part_of(FAULTS, pairs, fault_ns),
        Part(INTERRUPTS, None, None, None, None),
        part_of(PROGRAM, pairs, lambda side: _program_ns(side, shares[id(side)])),
    ]
