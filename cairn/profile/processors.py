"""The time of the processors that a program may use. All functions are pure."""

from __future__ import annotations

from msgspec import Struct

from cairn.profile.estimates import cpu_ns, probe_ns
from cairn.profile.tally import Profile


class ProcessorTime(Struct, frozen=True):
    """The time of all processors together, from the start of the program to its end, in ns.

    The time of the probe is left out.
    """

    processors: float
    """The number of processors. A CPU limit can make it a fraction."""
    whole: float
    unused: float
    """The part of `whole` in which the program used no processor."""

    @property
    def used_share(self) -> float:
        """The share of `whole` in which the program used a processor."""
        return 1 - self.unused / self.whole


def number_in(cpus: str) -> int:
    """The number of different CPUs in a list such as 0,2-3."""
    ends = ([int(end) for end in part.split("-")] for part in cpus.split(","))
    return len(set().union(*(range(of[0], of[-1] + 1) for of in ends)))


def processor_time(profile: Profile) -> ProcessorTime | None:
    """The time of the program's processors; None if it is not known.

    It is known if the whole program was launched: the CPU time is then that of all its processes.
    """
    tree = profile.tree
    if profile.window is not None or tree is None or not tree.processors or not tree.wall_ns:
        return None
    whole = tree.processors * tree.wall_ns
    used = max(tree.user_ns + tree.system_ns, cpu_ns(profile) or 0)
    without_probe = max(whole - (probe_ns(profile) or 0.0), whole / 2)
    unused = min(max(0.0, whole - used), without_probe)
    return ProcessorTime(tree.processors, without_probe, unused)
