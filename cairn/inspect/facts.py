"""The facts about the memory of a running process, as frozen values. None means not known."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SCHEMA = 1
"""The version of the document of 'cairn inspect --json'."""

How = Literal["preloaded", "linked", "in the program", "C library", "not known"]
"""How the allocator came into the process: by LD_PRELOAD, as a library that the program is linked
with, inside the program's own file, or as a part of the C library."""
Kind = Literal["heap", "anonymous", "stacks", "files", "shared memory", "huge page files", "kernel"]
"""The kinds of mappings. "heap" is the area that brk(2) moves; "anonymous" is all other private
memory without a file, which most allocators use; "stacks" are those of all threads."""


class ProcessFacts(Struct, frozen=True):
    """The process itself."""

    pid: int
    name: str
    """The name that the kernel keeps for the process: 15 characters at most."""
    command: tuple[str, ...]
    """The command line. A process can overwrite its own."""
    program: str
    """The path of the executable file, as the process sees it."""
    bits: int | None
    """32 or 64."""
    is_static: bool
    """Whether the process has no dynamic loader. No library can be preloaded into such a
    program."""
    libc: str | None
    """The C library: "glibc 2.36", "glibc" or "musl"."""
    threads: int
    running_s: float
    """The seconds since the process started."""
    user_s: float
    """CPU time in user mode so far, in seconds."""
    system_s: float
    """CPU time in the kernel so far, in seconds."""
    minor_faults: int
    """Page faults so far for which nothing was read from a disk."""
    inner_pid: int | None
    """The process id in the PID namespace of the process; None if that namespace is ours."""
    is_replaced: bool
    """Whether its executable file or its allocator was deleted or replaced after the start."""
    is_deleted: bool
    """Whether one of these files was deleted and no other file is at its path now."""


class Serving(Struct, frozen=True):
    """The allocator that serves malloc in the process."""

    name: str
    """The name for a reader, such as "glibc" or "jemalloc"; "not known" if it is not known."""
    entry: str | None
    """The name that 'cairn allocators' lists for it; None if it is not listed."""
    version: str | None
    how: How
    path: str | None
    """The file that contains the allocator, by the path that the process sees."""
    build_id: str | None
    evidence: str
    """The reason why this allocator is known to serve malloc, as a whole sentence."""
    beside: str | None = None
    """Another allocator inside the program's file, which may serve a part of the program's blocks.
    An example is the allocator of a Rust program."""
    runtime: str | None = None
    """A language runtime that has an allocator or a heap of its own in front of malloc."""


class EnvironmentVariable(Struct, frozen=True):
    """A variable of the environment with which the process started."""

    name: str
    value: str
    is_read: bool | None
    """Whether the allocator reads it; None if that is not known."""


class InUse(Struct, frozen=True):
    """A setting that the allocator uses now, read from its memory."""

    name: str
    value: int


class MappingSum(Struct, frozen=True):
    """All mappings of one kind, added up. The numbers are bytes, except `mappings`."""

    kind: Kind
    mappings: int
    size: int
    """The size of the address ranges. Most of their pages may never have been touched."""
    resident: int
    proportional: int
    """Like `resident`, but a page that n processes share counts as one n-th of a page."""
    private_dirty: int
    """Resident pages that belong to this process alone and were written."""
    swapped: int
    lazily_freed: int
    """Resident pages that the process freed with MADV_FREE, and that the kernel has not taken
    back."""
    huge: int
    """Bytes of `resident` in transparent huge pages, and in reserved ones."""


class Heap(Struct, frozen=True):
    """Live and held memory in bytes, from the allocator's own statistics."""

    held: int
    """The memory that the allocator has from the kernel."""
    live_most: int
    """The most memory that can be in blocks which the program has not freed, with their headers."""
    live_least: int
    """The least memory that can be in blocks which the program has not freed. In the caches of some
    threads, which cannot be read, freed blocks look like blocks in use."""
    free: int
    """`held` minus `live_most`: free blocks in the allocator's lists, and unused memory at the ends
    of its arenas."""
    top: int
    """The part of `free` at the ends of the arenas."""
    mapped: int
    """The part of `held` in blocks that have a mapping of their own."""
    mapped_blocks: int
    """The number of blocks that have a mapping of their own."""
    arenas: int
    is_by_symbols: bool
    """Whether debug symbols gave the address of the statistics. Otherwise the statistics were found
    in the data of the C library by their form."""
    free_resident: int | None = None
    """The part of `free` in physical memory. None if the kernel does not show which pages are; then
    the next two numbers are None, too."""
    top_resident: int | None = None
    """The part of `free_resident` at the ends of the arenas."""
    trimmed: int | None = None
    """The part of `free_resident` that malloc_trim(0) would return to the kernel. These are the
    whole pages inside free blocks, and those at the end of the main arena."""

    @property
    def held_resident(self) -> int:
        """The most physical memory of `held`. It is `held` if `free_resident` is None."""
        return self.held - (0 if self.free_resident is None else self.free - self.free_resident)


class GrowthOf(Struct, frozen=True):
    """The growth of private memory, in bytes. It is resident and swapped memory without files."""

    seconds: float
    readings: int
    begin: int
    end: int
    per_s: float | None
    """The growth in bytes per second; None if it is not known."""
    low: float | None
    high: float | None
    why_not: str = ""
    """Why `per_s` is None, as a whole sentence."""
    faults_per_s: float | None = None
    """Page faults per second while the process was watched."""


class Limits(Struct, frozen=True):
    """Limits of the kernel that the process may reach."""

    cgroup_bytes: int | None
    """The least memory limit of the process's cgroups."""
    cgroup_used: int | None
    """The memory that the kernel compares with this limit. It includes page cache."""
    mappings: int
    mappings_most: int | None
    """vm.max_map_count."""
    address_bytes: int | None
    """RLIMIT_AS."""
    cgroup_cache: int | None = None
    """The part of `cgroup_used` that the kernel frees first at the limit: page cache, and memory
    that was freed with MADV_FREE."""

    @property
    def cgroup_needed(self) -> int | None:
        """The part of `cgroup_used` that the kernel cannot just free; None if not known."""
        if self.cgroup_used is None or self.cgroup_cache is None:
            return None
        return max(0, self.cgroup_used - self.cgroup_cache)


class Inspection(Struct, frozen=True):
    """Everything that 'cairn inspect' knows about a process."""

    process: ProcessFacts
    allocator: Serving
    environment: tuple[EnvironmentVariable, ...] | None
    """The variables of the environment; None if they cannot be read."""
    unused_preload: tuple[str, ...]
    """Allocators that LD_PRELOAD names, and of which none serves the process."""
    in_use: tuple[InUse, ...]
    """Settings that the allocator uses now; empty if they cannot be read."""
    mappings: tuple[MappingSum, ...]
    heap: Heap | None
    heap_why_not: str
    """Why `heap` is None, as a whole sentence; empty if it is known."""
    growth: GrowthOf | None
    """The growth during the time of --for; None without --for."""
    limits: Limits
    transparent_huge_pages: str | None
    """The setting of the machine: "always", "madvise" or "never"."""

    def sum_of(self, *kinds: Kind) -> MappingSum:
        """All mappings of these kinds, as one."""
        of = [one for one in self.mappings if one.kind in kinds]
        return MappingSum(
            kinds[0],
            *(
                sum(getattr(one, name) for one in of)
                for name in (
                    "mappings", "size", "resident", "proportional", "private_dirty", "swapped",
                    "lazily_freed", "huge",
                )
            ),
        )  # fmt: skip
