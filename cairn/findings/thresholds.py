"""The smallest effect that is reported as a finding, and the thresholds of findings about layout.

docs/decisions/0048-thresholds-of-layout-findings.md says how the thresholds about layout were
chosen. Most of them compare two allocators.
"""

from __future__ import annotations

from cairn.model import Finding

LEAST_CPU, LEAST_MEMORY = 0.01, 0.05
"""Shares of CPU time (or thread time) and of memory. Smaller effects are not worth acting on."""


def is_likely(finding: Finding) -> bool:
    """Whether the finding is only likely: no effect is known, and it is stored as 0."""
    return not finding.measured and not finding.effect


def least_effect(of: str) -> float:
    """LEAST_MEMORY or LEAST_CPU, whichever applies to effects of this unit."""
    return LEAST_MEMORY if of == "memory" else LEAST_CPU


def large_enough(finding: Finding) -> bool:
    """Whether the effect reaches `least_effect`. True if the effect is not known."""
    return is_likely(finding) or finding.effect >= least_effect(finding.of)


def of_threads(of: str, effect: float, busy: float) -> float:
    """An effect in the unit of effects in thread time, if it is a share of CPU time.

    busy: CPU time as a share of the life times of all threads, or of the time of the processors if
        that is less.
    """
    return effect * busy if of == "CPU" else effect


LIVE_BYTES = 1 << 20
"""With fewer live bytes, it does not matter where small blocks lie, because all of them fit into a
cache."""
SCATTERED_BYTES, SCATTERED_RATIO, FURTHER_LEAST = 256 << 10, 8.0, 0.4
"""Blocks are scattered if the distance between consecutive blocks of like size is at least
SCATTERED_BYTES, and SCATTERED_RATIO times that under the other allocator. Also, the share of such
blocks on different pages must be larger than there by FURTHER_LEAST."""
PAGES_LEAST, LINES_LEAST = 0.5, 0.4
"""Blocks are spread out if they touch more pages than under the other allocator by at least
PAGES_LEAST, or more cache lines by at least LINES_LEAST. 0.5 is half as many again."""
HEADER_LEAST = 15
"""Headers lie between blocks if at least this many more bytes are between neighbours than under the
other allocator."""
COLD_LEAST, COLD_OPERATIONS = 0.3, 1000
"""New blocks are cold if the share of late reuse is larger than under the other allocator by
COLD_LEAST, and if half of all freed memory is reused after COLD_OPERATIONS or more operations."""
SHARED_LEAST, WATCHED_LEAST = 0.05, 4
"""Threads share cache lines if the share of lines with blocks of several threads is larger than
under the other allocator by SHARED_LEAST. If the probe watched at least WATCHED_LEAST lines, it
must also have seen two threads write to one of them."""
CONFIRMED_LEAST = 0.5
"""A finding from one profile alone, without a comparison, needs two threads that wrote to at least
this share of the watched lines."""
SETS_LEAST, LARGE_LEAST = 0.75, 0.5
"""Large blocks collide if the share that begins in the fullest set of the cache is larger than
under the other allocator by SETS_LEAST. Also, at least LARGE_LEAST of all requested bytes must be
for blocks of 4 KiB and more."""
ITSELF_LEAST = 0.05
"""The least difference in the program's own CPU time that is explained by the layout, as a share of
all CPU time. Healthy allocators differ by less, for reasons that no figure shows."""
HUGE_LEAST, HUGE_LIVE_BYTES = 0.3, 32 << 20
"""Huge pages can be the reason if the share of resident memory in them is smaller than under the
other allocator by HUGE_LEAST, and if at least HUGE_LIVE_BYTES are live."""
