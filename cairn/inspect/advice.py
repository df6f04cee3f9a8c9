"""Says what follows from the facts about a process, as whole sentences. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import units
from cairn.inspect.facts import EnvironmentVariable, Inspection, Limits

MIB = 1 << 20
FREE_LEAST, FREE_SHARE = 32 * MIB, 0.25
"""Free resident memory is worth a sentence if it is at least this large, and at least this share of
the memory that the allocator holds. Allocators keep a quarter for speed without harm."""
TRIM_LEAST = 0.02
"""If malloc_trim(0) returns less than this share of the free resident memory, it is of no use."""
ARENAS_MANY = 8
"""With at least this many arenas, a limit of their number may save memory. glibc makes up to eight
for each processor."""
LAZY_LEAST, LAZY_SHARE = 16 * MIB, 0.10
SWAPPED_LEAST = 8 * MIB
HUGE_FROM = 512 * MIB
"""If glibc holds at least this much physical memory, huge pages may save notable time. With small
pages, the caches of address translations (TLB) of most processors reach only some megabytes."""
MAPPINGS_SHARE, LIMIT_SHARE = 0.8, 0.9
OWN_SHARE = 0.5
"""If glibc holds less than this share of the private memory, most of it does not come from malloc.
Then the commands that watch malloc would show little of its growth."""
_SOON_S = 30 * 86400.0
_OWN_HEAPS = {
    "CPython": "CPython serves blocks up to 512 bytes by an allocator of its own in front of "
    "malloc, so most of its objects are not malloc's blocks; PYTHONMALLOC=malloc changes that.",
    "Java": "The Java heap does not come from malloc: malloc serves the virtual machine and native "
    "libraries, and -Xmx bounds the heap.",
    "Node.js": "The heap of JavaScript does not come from malloc: malloc serves Node.js itself and "
    "buffers, and --max-old-space-size bounds the heap.",
    "Go": "Go's heap does not come from malloc: GOGC and GOMEMLIMIT control it.",
}


def advice(found: Inspection) -> tuple[str, ...]:
    """The sentences, the most urgent first. Empty if nothing follows from the facts."""
    return (
        *_limits(found),
        *_growth(found),
        *_memory(found),
        *_settings(found),
        *_allocator(found),
    )


def _limits(found: Inspection) -> Iterator[str]:
    limits = found.limits
    if limits.mappings_most and limits.mappings >= MAPPINGS_SHARE * limits.mappings_most:
        yield (
            f"The process has {limits.mappings:,} mappings, and the kernel permits "
            f"{limits.mappings_most:,}: beyond that, allocations fail although memory is free. "
            "Raise vm.max_map_count."
        )
    needed, most = limits.cgroup_needed, limits.cgroup_bytes
    if needed is not None and most is not None and needed >= LIMIT_SHARE * most:
        yield (
            f"Its cgroup uses {units.size(needed)} of the {units.size(most)} that it may have, "
            "page cache not counted. At the limit, the kernel swaps out memory of it if it can, "
            "and else ends a process of it."
        )
    swapped = found.sum_of("heap", "anonymous", "stacks", "shared memory").swapped
    if swapped >= SWAPPED_LEAST:
        yield (
            f"{units.size(swapped)} of its memory are swapped out, and each access to such a page "
            "waits for the disk: the machine has too little memory for its programs."
        )


def _growth(found: Inspection) -> Iterator[str]:
    growth = found.growth
    if growth is None or growth.per_s is None or growth.low is None or growth.low <= 0:
        return
    yield from _limit_is_near(found.limits, growth.low, growth.high or growth.per_s)
    short = "A short look cannot tell a leak from a cache that fills"
    private = found.sum_of("heap", "anonymous").resident
    if found.process.is_static:
        yield (
            f"{short}: look again later. The program is statically linked, so 'cairn soak' and "
            "'cairn profile' cannot reach its allocator."
        )
    elif found.heap is not None and found.heap.held_resident < OWN_SHARE * private:
        yield (
            f"{short}: look again later. glibc holds {units.size(found.heap.held_resident)} of the "
            f"{units.size(private)} of private memory. The program or a library maps the rest "
            "itself, and 'cairn soak' and 'cairn profile' do not see that."
        )
    else:
        yield (
            f"{short}: 'cairn soak -- PROG' can, and 'cairn profile --stacks -- PROG' names the "
            "functions that allocate."
        )


def _limit_is_near(limits: Limits, low: float, high: float) -> Iterator[str]:
    """Says when the cgroup reaches its limit. `low` and `high` are rates in bytes per second."""
    most, needed = limits.cgroup_bytes, limits.cgroup_needed
    if most is None or needed is None or needed >= most:
        return
    first_s, last_s = (most - needed) / high, (most - needed) / low
    if first_s >= _SOON_S:
        return
    first, last = units.duration(first_s), units.duration(last_s)
    if last_s >= _SOON_S:
        when = f"in {first} at the earliest"
    elif first == last:
        when = f"in about {first}"
    else:
        when = f"in {first} to {last}"
    yield (
        f"At this rate, its cgroup reaches its limit of {units.size(most)} {when}, page cache not "
        "counted."
    )


def _memory(found: Inspection) -> Iterator[str]:
    heap = found.heap
    lazy = found.sum_of("heap", "anonymous")
    if lazy.lazily_freed >= max(LAZY_LEAST, LAZY_SHARE * lazy.resident):
        yield (
            f"{units.size(lazy.lazily_freed)} of its resident memory were freed already: the "
            "kernel takes these pages when it needs them, so the process needs less than its "
            "resident set."
        )
    if heap is None or heap.free_resident is None:
        return
    resident_free = min(heap.free_resident, lazy.resident)
    if resident_free >= max(FREE_LEAST, FREE_SHARE * heap.held_resident):
        share = resident_free / heap.held
        text = (
            f"{units.size(resident_free)} of the {units.size(heap.held)} that glibc holds are free "
            f"and still resident ({share:.0%}): ".replace("%", " %")
        )
        trim = f"malloc_trim(0) in the program returns {_trimmed(heap.trimmed or 0, resident_free)}"
        if heap.arenas >= ARENAS_MANY:
            yield text + (
                f"it has {heap.arenas} arenas, and fewer of them share free memory better. Try "
                "MALLOC_ARENA_MAX=2 by 'cairn compare -a system -a "
                "few=system:MALLOC_ARENA_MAX=2 -- PROG'."
            )
        elif (heap.top_resident or 0) >= resident_free / 2:
            ends = "the end of the heap" if heap.arenas == 1 else "the ends of its arenas"
            yield text + f"most of them are at {ends}, and {trim}."
        else:
            yield text + (
                f"they lie between live blocks. {trim}, and 'cairn compare -- PROG' says whether "
                "another allocator keeps less."
            )


def _trimmed(trimmed: int, free: int) -> str:
    """The part of `free` bytes that a trim returns, in words."""
    if trimmed < TRIM_LEAST * free:
        return "almost none of them"
    return f"{units.size(min(trimmed, free))} of them"


def _settings(found: Inspection) -> Iterator[str]:
    serving = found.allocator
    for one in found.environment or ():
        if one.is_read is False:
            yield f"{one.name} is set, but {_owner(found)} does not read it."
    if found.unused_preload:
        reason = (
            "the program is statically linked, so no library can be preloaded into it"
            if found.process.is_static
            else "the program has a malloc of its own, which comes first"
            if serving.how == "in the program"
            else "no preloaded library serves malloc: the loader ignores LD_PRELOAD in programs "
            "that gain rights, and skips a file that it does not find"
        )
        yield f"LD_PRELOAD names {', '.join(found.unused_preload)}, but {reason}."
    anonymous = found.sum_of("heap", "anonymous")
    held = min(anonymous.resident, 0 if found.heap is None else found.heap.held_resident)
    if (
        serving.entry == "system"
        and found.transparent_huge_pages == "madvise"
        and held >= HUGE_FROM
        and not anonymous.huge
        and not any(one.name == "hugetlb_page_bytes" and one.value for one in found.in_use)
    ):
        yield (
            f"None of the {units.size(held)} of physical memory that glibc holds lie in huge "
            "pages. glibc 2.35 and newer requests them with GLIBC_TUNABLES=glibc.malloc.hugetlb=1; "
            "try 'cairn compare -a system -a "
            "huge=system:GLIBC_TUNABLES=glibc.malloc.hugetlb=1 -- PROG'."
        )


def _allocator(found: Inspection) -> Iterator[str]:
    serving = found.allocator
    if found.process.is_deleted:
        yield (
            "Its program or its allocator was deleted since it started, and no other file is in "
            "its place: it still runs the deleted one, and cannot be started anew without it."
        )
    elif found.process.is_replaced:
        yield (
            "Its program or its allocator was replaced on disk since it started: it still runs the "
            "old one until it is started anew."
        )
    if serving.beside is not None:
        yield (
            f"{serving.beside} is inside the program's file as well, and may serve a part of its "
            "blocks: a Rust program calls such an allocator by other names than malloc."
        )
    if serving.runtime in _OWN_HEAPS:
        changed = serving.runtime == "CPython" and _value(found, "PYTHONMALLOC") == "malloc"
        if not changed:
            yield _OWN_HEAPS[serving.runtime]


def _owner(found: Inspection) -> str:
    name = found.allocator.name
    return "the allocator" if name == "not known" else name


def _value(found: Inspection, name: str) -> str | None:
    variables: tuple[EnvironmentVariable, ...] = found.environment or ()
    return next((one.value for one in variables if one.name == name), None)
