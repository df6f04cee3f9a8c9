"""The expected results for ill and healthy allocators, for tests of `cairn judge`."""

from __future__ import annotations

ILL_IN = {
    "madvise_storm": ("calls.madvise",),
    "dropped_pages": ("calls.madvise",),
    "trimming": ("calls.madvise", "calls.map"),
    "mmap_storm": ("calls.map",),
    "guard_pages": ("calls.mprotect",),
    "protected_free": ("calls.mprotect",),
    "thread_number": ("calls.other",),
    "yielding_free": ("calls.pause",),
    "sleeping_malloc": ("calls.pause",),
    "global_lock": ("locks.taken", "locks.waits"),
    "spinning_lock": ("locks.taken", "locks.waits"),
    "not_reused": ("fresh",),
    "remote_kept": ("fresh",),
    "huge_bloat": ("resident", "untouched"),
    "metadata_heavy": ("resident", "untouched"),
    "coarse_sizes": ("slack",),
    "slow_free": ("time.free",),
    "poisoning": ("time.free",),
    "slow_new_memory": ("time.new",),
    "scrubbing": ("time.reused",),
    "retrying": ("time.reused",),
    "first_fit": ("time.reused",),
    "slot_search": ("time.reused", "time.free"),
    "scattered": ("distance", "further", "page_use", "line_use"),
}
"""By ill allocator: the metrics that measure its illness.

`cairn judge` must find the allocator outside the healthy range in at least one of them. If a freed
block is never used again, later allocations are `fresh`. `trimming` gives memory back by madvise,
or by brk if the memory lies at the end of the heap. `slack` measures the bytes by which blocks are
larger than requested.
"""
HEALTHY_LEAST = 0.95
"""The share of metrics in which a healthy allocator must be inside the healthy range or at its
edge."""
