"""Names the functions of a just-in-time compiler by the map that it writes for perf.

A runtime writes /tmp/perf-PID.map, with its own process id and in its own file system: a line for
each function with its address, its size and its name. Java needs -XX:+DumpPerfMapAtExit or an agent
for it, Node.js --perf-basic-prof, and Python 3.12 -X perf.
"""

from __future__ import annotations

from bisect import bisect_right

from cairn.binary import elf
from cairn.inspect.process import Target, inner_pid

_BYTES_MOST = 64 << 20
CODE = "code without a name"
"""The name that stands for a function which is not in the map."""


class PerfMap:
    """The functions of a process, by address. The map is empty if its file cannot be read."""

    def __init__(self, target: Target) -> None:
        number = inner_pid(target) or target.pid
        self._functions = sorted(_read(target.path(f"/tmp/perf-{number}.map")))

    def name(self, address: int) -> str:
        """The name of the function at an address; CODE if the map has none there."""
        index = bisect_right(self._functions, (address, 1 << 64, "")) - 1
        if index >= 0:
            start, size, name = self._functions[index]
            if address < start + size:
                return name
        return CODE


def _read(path: str) -> list[tuple[int, int, str]]:
    """Start, size and name of each function of the file. Lines of another form are left out."""
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return []
    with open(descriptor, "rb") as file:
        lines = file.read(_BYTES_MOST).decode("utf-8", "replace").splitlines()
    found = []
    for line in lines:
        start, _, rest = line.partition(" ")
        size, _, name = rest.partition(" ")
        try:
            found.append((int(start, 16), int(size, 16), name.strip()))
        except ValueError:
            continue
    return found
