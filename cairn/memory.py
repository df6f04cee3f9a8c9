"""The memory of a process tree in one trial, as frozen values. None means not measured."""

from __future__ import annotations

from msgspec import Struct


class MemoryDivision(Struct, frozen=True):
    """The memory of a process tree, divided among its processes.

    The launcher divides the memory several times during a trial. These are the numbers of the time
    at which the tree had the most memory.
    """

    processes: int
    total_bytes: int
    """The bytes of anonymous and shared pages of the whole tree."""
    largest_bytes: int
    """The bytes of anonymous pages of the process that has most of them."""
    copied_bytes: int | None
    """The bytes of copied pages: two processes shared such a page since a fork, and one of them
    copied it in order to write to it. None if the method counts shared pages in each process."""
    child_pages: int
    """The number of shared pages to which children of a fork wrote. It is estimated from page
    faults."""
    parent_pages: int
    """The number of shared pages to which processes wrote after their first fork. It is estimated
    from page faults."""


class Trim(Struct, frozen=True):
    """The memory of a program before and after its allocator was asked to give memory back."""

    live_bytes: int
    """Live bytes before the request. The three numbers of this class are sums over the processes
    that were asked."""
    held_bytes: int
    """Held bytes before the request."""
    after_bytes: int
    """Held bytes after the request."""


AFTER_ITS_END = "could not be asked after its end"
"""The value of `Series.no_trim` if the program ended by itself, before the time of its run was
over."""


class Series(Struct, frozen=True):
    """The memory of a program over time, as the probe saw it: sums over its processes.

    All tuples are equally long.
    """

    at_ms: tuple[int, ...]
    """Times since the start of the program, ascending."""
    live: tuple[int, ...]
    """Usable bytes of the live blocks; requested bytes if the usable ones are not known."""
    held: tuple[int, ...]
    """Bytes that the allocators have from the kernel, but at most the resident bytes."""
    resident: tuple[int, ...]
    """Resident bytes of the processes without pages of files and without the probe."""
    counted: bool
    """Whether live bytes were counted in every process; otherwise they are estimates."""
    processes: int
    live_peak: int = 0
    """The highest live memory of a single process, which may lie between two moments; 0 if it is
    not known, and for several processes."""
    trim: Trim | None = None
    no_trim: str | None = None
    """Why there is no `trim`, as the rest of a sentence that begins with the allocator."""

    @property
    def ended_early(self) -> bool:
        """Whether the program ended by itself, before the time of its run was over."""
        return self.no_trim == AFTER_ITS_END


class Memory(Struct, frozen=True):
    """The memory of the whole process tree: anonymous and shared pages.

    Page cache and kernel memory are left out.
    """

    method: str
    """How memory was measured: "cgroup v2", "cgroup v1", "sampled" or "not measured"."""
    peak_bytes: int | None
    peak_less_lazy_bytes: int | None
    """The peak without lazily freed pages.

    The program freed these pages with MADV_FREE, and the kernel has not reclaimed them yet.
    """
    lazy_peak_bytes: int | None
    """The largest amount of lazily freed memory at any time."""
    division: MemoryDivision | None = None
    """The memory divided among the processes; None if that was not requested, as without --why."""
    mean_bytes: int | None = None
    """The mean over time: the byte-seconds of the run divided by its seconds. With a load,
    `mean_bytes` and `growth_bytes` are those of the time in which the load ran."""
    growth_bytes: int | None = None
    """The memory at the end of the run minus that in the middle of the run; may be negative."""
    idle_bytes: int | None = None
    """The memory of a server after its load had stopped for the time of --idle."""
    series: Series | None = None
    """Memory over time, for a run of 'cairn soak'."""

    def number(self, key: str) -> int | None:
        """The number whose key in NUMBERS is `key`."""
        numbers = {
            "peak": self.peak_bytes,
            "peak_less_lazy": self.peak_less_lazy_bytes,
            "lazy": self.lazy_peak_bytes,
            "mean_memory": self.mean_bytes,
            "idle_memory": self.idle_bytes,
            "growth": self.growth_bytes,
        }
        return numbers[key]


NUMBERS = frozenset(("peak", "peak_less_lazy", "lazy", "mean_memory", "idle_memory", "growth"))
"""The keys of the metrics of memory. They are compared only if all runs used the same method."""
