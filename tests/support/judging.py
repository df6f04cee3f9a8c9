"""What is true of ill and healthy allocators, for tests of `cairn judge`."""

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
"""By ill allocator: the metrics that measure its illness. It must be outside in one of them.

A freed block that is never used again makes later allocations fresh. `trimming` gives memory back
by madvise, or by brk if it lies at the end of the heap. What a size class wastes is `slack`.
"""
HEALTHY_LEAST = 0.95
"""The share of metrics in which a healthy allocator must be inside or at the edge."""
