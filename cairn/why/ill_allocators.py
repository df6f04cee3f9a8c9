"""Allocators that are ill in one known way, and healthy ones, to judge the causes that Cairn names.

`ILL` describes the libraries of cairn/bench/ill/, each with the programs on which it is tried and
the findings that are right there. `score` judges a run of them. All functions are pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from cairn.model import Sample

if TYPE_CHECKING:
    from cairn.why.causes import Cause, Of
    from cairn.why.gap import Why

GAINED_LEAST = 0.5
"""A finding predicts what the program saves without the cause: its effect. If an allocator without
the illness saves less than this share of the effect, the finding is false."""


class Ill(Struct, frozen=True):
    """An allocator with one illness."""

    name: str
    """The allocator's name as a contender, and the name of its source file in cairn/bench/ill/."""
    illness: str
    """The fault of the allocator, as the end of a sentence that begins with its name."""
    strength: int
    """The value of the environment variable ILL, which the source file explains."""
    right: tuple[str, ...]
    """The findings that name the cause of this illness. Each of them is a right answer."""
    programs: tuple[str, ...]
    """The programs on which the illness has an effect. With --quick, only the first one is run."""


_ALONE = ("table", "cache", "server")
_THREADS = ("larson", "threads", "births")

ILL = (
    Ill("madvise_storm", "returns pages that it needs at once", 32,
        ("returns-what-it-needs",), _ALONE),
    Ill("dropped_pages", "returns the pages of each freed block", 512,
        ("returns-what-it-needs",), ("mixed", "pipeline", "buffers")),
    Ill("trimming", "trims the heap again and again", 1000,
        ("returns-what-it-needs",), ("mixed", "table", "buffers")),
    Ill("mmap_storm", "maps memory page by page", 4, ("asks-too-often",), _ALONE),
    Ill("guard_pages", "protects a page for each use of a block", 512,
        ("changes-protection",), ("mixed", "pipeline", "buffers")),
    Ill("protected_free", "protects the pages of freed blocks", 512,
        ("changes-protection",), ("mixed", "pipeline", "buffers")),
    Ill("thread_number", "asks the kernel for its thread in every call", 1,
        ("calls-the-kernel",), _ALONE),
    Ill("yielding_free", "yields in every tenth free", 10, ("waits-alone", "yields"), _ALONE),
    Ill("yielding_malloc", "yields in every fourth malloc", 4, ("yields",), _THREADS),
    Ill("sleeping_malloc", "sleeps in every thousandth malloc", 50,
        ("waits-alone",), _ALONE),
    Ill("global_lock", "has one lock, which sleeps", 500, ("queues",), _THREADS),
    Ill("spinning_lock", "has one lock, which spins", 500, ("queues",), _THREADS),
    Ill("not_reused", "never uses 95 % of the freed blocks again", 95, ("not-reused",), _ALONE),
    Ill("remote_kept", "loses blocks that another thread frees", 60,
        ("not-reused",), ("larson", "pipeline", "freeing")),
    Ill("huge_bloat", "leaves 70 % of its huge pages unused", 70, ("huge-page-bloat",), _ALONE),
    Ill("metadata_heavy", "fills 70 % of its memory with records", 70,
        ("touches-more-than-it-gives",), _ALONE),
    Ill("coarse_sizes", "makes blocks 150 % too large", 150, ("sizes-too-coarse",), _ALONE),
    Ill("slow_free", "frees slowly", 300, ("slow-free", "slow-path"), _ALONE),
    Ill("poisoning", "writes over freed blocks", 20,
        ("slow-free",), ("mixed", "cache", "table")),
    Ill("slow_new_memory", "is slow in getting new memory", 1500,
        ("slow-new",), ("table", "cache", "nodes")),
    Ill("scrubbing", "clears every block", 20, ("slow-reuse",), ("mixed", "cache", "table")),
    Ill("retrying", "retries when another thread was faster", 60, ("slow-reuse",), _THREADS),
    Ill("first_fit", "searches one list of all sizes", 400, ("slow-reuse",), _ALONE),
    Ill("slot_search", "searches for a slot in every call", 150, ("slow-path",), _ALONE),
    Ill("clearing_calloc", "clears the blocks of calloc again and again", 10, ("slow-calloc",),
        ("zeroed", "zeroed-large", "zeroed-threads")),
    Ill("copying_realloc", "copies each block that it resizes", 1, ("slow-realloc",),
        ("strings", "vectors", "logs")),
    Ill("searching_aligned", "searches for a block that happens to be aligned", 24,
        ("slow-aligned",), ("pages", "lines", "lines-threads")),
    Ill("scattered", "scatters consecutive blocks", 104_729, ("blocks-scattered",),
        ("nodes", "table", "tree")),
    Ill("spread_out", "puts few small blocks on a page", 1088, ("blocks-spread-out",),
        ("table", "cache", "tree")),
    Ill("wide_headers", "leaves unused bytes between small blocks", 240,
        ("headers-between-blocks", "blocks-spread-out"), ("table", "cache", "tree")),
    Ill("cold_blocks", "hands out the coldest blocks", 1500, ("cold-blocks",),
        ("cache", "server", "mixed")),
    Ill("shared_lines", "puts blocks of two threads on a line", 64, ("threads-share-lines",),
        ("counters", "words", "records")),
    Ill("own_spin_lock", "spins on a lock of its own", 100, ("spins",), _THREADS),
    Ill("shared_counter", "counts in one word for all threads", 10, ("contended-atomic",),
        _THREADS),
)  # fmt: skip
HEALTHY = ("system", "cairn", "mimalloc", "jemalloc", "tcmalloc", "snmalloc")


class Told(Struct, frozen=True):
    """The causes that Cairn names for one allocator on one program."""

    allocator: str
    program: str
    right: tuple[str, ...]
    """The findings that name the illness (`Ill.right`); empty for a healthy allocator."""
    causes: tuple[Cause, ...]
    """The causes that Cairn named, the largest effect first."""
    false: tuple[str, ...]
    """The wrong findings among `causes`: see GAINED_LEAST."""
    why_not: str = ""
    """Why there is no answer, as a sentence; empty if there is one."""

    @property
    def first(self) -> bool:
        """Whether the first of `causes` is a right finding."""
        return bool(self.causes) and self.causes[0].name in self.right

    @property
    def named(self) -> bool:
        """Whether any of `causes` is a right finding."""
        return any(cause.name in self.right for cause in self.causes)


def score(
    whys: Sequence[Why], samples: Sequence[Sample], programs: Sequence[str]
) -> tuple[Told, ...]:
    """The causes that Cairn names for each allocator on its programs. Ill allocators come first.

    programs: the names of the workloads. The library of an ill allocator adds an illness to the
    malloc of the baseline. So a comparison with the baseline shows what the program gains without
    the illness. A healthy allocator is compared with the best of the healthy ones.
    """
    costs = _costs(samples)
    ill = {one.name: one for one in ILL}
    return tuple(_told(why, why.contender, ill, costs, programs) for why in whys) + tuple(
        _told(why, why.baseline, ill, costs, programs) for why in _one_for_each_program(whys)
    )


def _one_for_each_program(whys: Sequence[Why]) -> Iterator[Why]:
    """Yields for each program one comparison that has an answer, to judge the baseline."""
    seen = set()
    for why in whys:
        if why.workload not in seen and not why.why_not:
            seen.add(why.workload)
            yield why


Costs: TypeAlias = "Mapping[tuple[int, str], Mapping[Of, float]]"
"""By workload and contender: the means of CPU time and wall time in ns, and of the memory peak in
bytes. Wall time is stored as "thread time"."""


def _costs(samples: Sequence[Sample]) -> Costs:
    found: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        if sample.counts:
            found.setdefault((sample.trial.workload, sample.trial.contender), []).append(sample)
    return {
        cell: {
            "CPU": statistics.fmean(one.user_ns + one.system_ns for one in of),
            "thread time": statistics.fmean(one.wall_ns for one in of),
            "memory": statistics.fmean(one.memory.peak_bytes or 0 for one in of),
        }
        for cell, of in found.items()
    }


def _told(
    why: Why, allocator: str, ill: Mapping[str, Ill], costs: Costs, programs: Sequence[str]
) -> Told:
    from cairn.why.causes import causes

    described = ill.get(allocator)
    right = described.right if described is not None else ()
    others = (
        [why.baseline]
        if described is not None
        else [name for where, name in costs if where == why.workload and name in HEALTHY]
    )
    found = causes(why, allocator)
    if described is None:
        # A part of the gap only describes the difference from another allocator. For a healthy
        # one, only findings count.
        found = tuple(one for one in found if one.finding is not None)
    false = tuple(
        cause.name
        for cause in found
        if cause.finding is not None
        and cause.name not in right
        and _gain(costs, why.workload, allocator, others, cause.of) < GAINED_LEAST * cause.effect
    )
    return Told(allocator, programs[why.workload], right, found, false, why.why_not)


def _gain(costs: Costs, workload: int, allocator: str, others: Sequence[str], of: Of) -> float:
    """The share of `allocator`'s cost that the best of `others` saves; 0 if it saves nothing."""
    own = costs.get((workload, allocator), {}).get(of, 0.0)
    best = min((costs[workload, name][of] for name in others), default=own)
    return max(0.0, 1 - best / own) if own else 0.0
