"""Names the functions of a just-in-time compiler by the map that it writes for perf.

A runtime writes /tmp/perf-PID.map, with its own process id and in its own file system: a line for
each function with its address, its size and its name. Java needs -XX:+DumpPerfMapAtExit or an agent
for it, Node.js --perf-basic-prof, and Python 3.12 -X perf.

The runtime only appends lines. If it compiles a function to an address at which an older function
was, the last line that has the address is right.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from cairn.binary import elf
from cairn.inspect.process import Target, inner_pid

_BYTES_MOST = 64 << 20
"""At most this many bytes of the map are read, from its end. Its newest functions are there."""
CODE = "code without a name"
"""The name that stands for a function which is not in the map."""
_Function = tuple[int, int, str]
"""The address of a function, the address behind its last byte, and its name."""


class PerfMap:
    """The functions of a process, by address. The map is empty if its file cannot be read.

    The file is opened at once, because it may be out of reach when the process has ended. `refresh`
    reads it.
    """

    def __init__(self, target: Target) -> None:
        number = inner_pid(target) or target.pid
        self._path = target.path(f"/tmp/perf-{number}.map")
        self._file: int | None = None
        self._size = 0
        self._edges: list[int] = []
        self._names: list[str] = []
        self._open()

    def __enter__(self) -> PerfMap:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def refresh(self) -> None:
        """Reads the map, if it has changed since it was last read."""
        if self._file is None:
            self._open()
        if self._file is None:
            return
        try:
            size = os.fstat(self._file).st_size
            if size == self._size:
                return
            begin = max(0, size - _BYTES_MOST)
            content = os.pread(self._file, _BYTES_MOST, begin)
        except OSError:
            return
        self._size = size
        if begin:
            content = content.partition(b"\n")[2]
        # The runtime may not have written the last line to its end yet.
        lines = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()
        self._edges, self._names = _pieces(list(_functions(lines)))

    def name(self, address: int) -> str:
        """The name of the function at an address; CODE if the map has none there."""
        index = bisect_right(self._edges, address) - 1
        return self._names[index] if index >= 0 else CODE

    def _open(self) -> None:
        try:
            self._file = elf.open_regular(self._path)
        except OSError:
            self._file = None


def _functions(lines: Sequence[str]) -> Iterator[_Function]:
    """Yields the functions of the file. Lines of another form are left out."""
    for line in lines:
        start, _, rest = line.partition(" ")
        size, _, name = rest.partition(" ")
        try:
            first = int(start, 16)
            yield first, first + int(size, 16), name.strip()
        except ValueError:
            continue


def _pieces(functions: Sequence[_Function]) -> tuple[list[int], list[str]]:
    """The addresses at which a name begins, in order, and the names.

    Of several functions that have an address, the last one gives the name.
    """
    edges = sorted({edge for start, end, _ in functions for edge in (start, end)})
    later = sorted(range(len(functions)), key=lambda one: -functions[one][0])
    here: list[int] = []  # a heap; the last function of the file comes first
    names = []
    for edge in edges:
        while later and functions[later[-1]][0] == edge:
            heappush(here, -later.pop())
        while here and functions[-here[0]][1] <= edge:
            heappop(here)
        names.append(functions[-here[0]][2] if here else CODE)
    return edges, names
