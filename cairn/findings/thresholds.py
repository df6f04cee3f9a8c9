"""The smallest effect that is reported as a finding, and the thresholds of findings about layout.

docs/decisions/0048-thresholds-of-layout-findings.md says how the latter were chosen.
"""

from __future__ import annotations

from cairn.model import Finding

LEAST_CPU, LEAST_MEMORY = 0.01, 0.05
"""Shares of CPU time (or thread time) and of memory. Smaller effects are not worth acting on."""


def is_likely(finding: Finding) -> bool:
    """Whether the finding is only likely: no effect is known, and it is stored as 0."""
    return not finding.measured and not finding.effect


def large_enough(finding: Finding) -> bool:
    """Whether the effect reaches LEAST_MEMORY or LEAST_CPU, whichever applies to its unit.

    True if the effect is not known.
    """
    least = LEAST_MEMORY if finding.of == "memory" else LEAST_CPU
    return is_likely(finding) or finding.effect >= least


LIVE_BYTES = 1 << 20
"""Live bytes below which it does not matter how small blocks lie: they fit into a cache."""
SCATTERED_BYTES, SCATTERED_RATIO, FURTHER_LEAST = 256 << 10, 8.0, 0.4
"""Blocks are scattered if consecutive ones are this far apart, this many times as far as under the
other allocator, and on different pages for this much more of all pairs."""
PAGES_LEAST, LINES_LEAST = 0.5, 0.4
"""Blocks are spread out if they touch this much more pages or cache lines, as a share."""
HEADER_LEAST = 15
"""Bytes between neighbours beyond those of the other allocator."""
COLD_LEAST, COLD_OPERATIONS = 0.3, 1000
"""New blocks are cold if this much more of all reuse comes late, and half of it after so many
operations."""
SHARED_LEAST, WATCHED_LEAST = 0.05, 4
"""Threads share lines if this much more of all lines have blocks of several threads. If so many
lines were watched, two threads must have written to one of them."""
CONFIRMED_LEAST = 0.5
"""In one profile alone, the least share of the watched lines that two threads must have written
to."""
SETS_LEAST, LARGE_LEAST = 0.75, 0.5
"""Large blocks collide if this much more of them begin in the fullest set, and if this share of all
requested bytes was for blocks of 4 KiB and more."""
ITSELF_LEAST = 0.05
"""The least effect of a layout on the program's own CPU time, as a share of all CPU time. Healthy
allocators differ by less for reasons that no figure shows."""
HUGE_LEAST, HUGE_LIVE_BYTES = 0.3, 32 << 20
"""Huge pages can matter if this much less of the memory lies in them, and if so much is live."""
