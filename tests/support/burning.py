"""Programs whose allocator takes a known share of the CPU time.

The allocator is burning.c and the program share.c (in programs/). Both spend their time in rounds
of the same arithmetic, each of which waits for the one before. So the share follows from the
numbers of rounds, also on a busy machine, which slows both alike. The few instructions around the
rounds are measured once, alone.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOTS = 16
"""The highest number of live blocks of a thread of share.c. It is small, so that all of them stay
in the L1 cache."""
TRIES = 9
"""How often each speed is measured. The fastest try is the one that nothing disturbed."""
TURN_NS = 10.0
"""The instructions of a turn outside the rounds, such as the branch at the end of a loop, may count
for the program or for the allocator. They take at most this time."""


@dataclass(frozen=True)
class Load:
    """Arguments of share.c, and of burning.c."""

    pairs: int
    work: int
    threads: int = 1
    rounds: int = 0
    """The number of rounds that each malloc and each free burns."""
    calls: bool = True


@dataclass(frozen=True)
class Speeds:
    """CPU times of share.c and burning.c on this machine, in nanoseconds."""

    round_ns: float
    turn_ns: float
    """CPU time of a turn without rounds and without calls of the allocator."""
    calls_ns: float
    """CPU time of a turn with a malloc and a free, all without rounds."""
    start_ns: float
    """CPU time of a process that makes no turns."""


@dataclass(frozen=True)
class Told:
    """A share of CPU time that 'cairn profile' printed, and the true share."""

    load: Load
    truth: tuple[float, float]
    value: float
    ends: tuple[float, float]
    """The interval of the share: 0 to 1 if no share was printed."""
    clock: str | None
    samples: int
    said: str
    """The whole report."""

    @property
    def is_covered(self) -> bool:
        """Whether the printed interval and the interval of the true share overlap."""
        return self.ends[0] <= self.truth[1] and self.truth[0] <= self.ends[1]

    @property
    def is_narrow(self) -> bool:
        """Whether the ends of the interval are near the printed share.

        The distance may be 3 percentage points or a tenth of the share, whichever is more.
        """
        reach = max(self.ends[1] - self.value, self.value - self.ends[0])
        return reach <= max(0.03, 0.1 * self.value)


@dataclass
class Burning:
    """Runs share.c with burning.c, and knows the allocator's share of its CPU time."""

    program: Path
    allocator: Path
    folder: Path
    known: Speeds = field(init=False)

    def __post_init__(self) -> None:
        self.known = self._speeds()

    @staticmethod
    def of(compiled: Callable[..., Path], folder: Path) -> Burning:
        """Compiles both files."""
        return Burning(
            compiled("share.c", "-O2", "-pthread"),
            compiled("burning.c", "-O2", "-shared"),
            folder,
        )

    def command(self, load: Load) -> list[object]:
        return [self.program, load.pairs, load.work, int(load.calls), load.threads, SLOTS]

    def environment(self, load: Load) -> dict[str, str]:
        return {"BURN_ROUNDS": str(load.rounds), "BURN_FILE": str(self.folder / "burnt")}

    def profiled(self, cairn: Any, load: Load, *options: object) -> Told:
        """Runs `cairn profile` on this load. Returns the printed share and the true share."""
        out = self.folder / "profile.json"
        command = ["profile", "--json", out, "--force", "-a", f"burning={self.allocator}", *options]
        result = cairn(*command, "--", *self.command(load), **self.environment(load))
        assert result.code == 0, result.err
        found = json.loads(out.read_text())["cpu_share"]
        truth = self.truth(load)
        if found["value"] is None:
            return Told(load, truth, 0.0, (0.0, 1.0), found["clock"], found["samples"], result.err)
        ends = found["interval"]["low"], found["interval"]["high"]
        return Told(load, truth, found["value"], ends, found["clock"], found["samples"], result.err)

    def truth(self, load: Load) -> tuple[float, float]:
        """The lowest and the highest share of CPU time that the allocator can have.

        Call it only after a run of this load: the file BURN_FILE must hold the time in which that
        run mapped memory.
        """
        known, turns = self.known, load.pairs * load.threads
        started_ns = (known.start_ns, 2 * known.start_ns)
        program_ns = turns * (load.work * known.round_ns + known.turn_ns)
        allocator_ns = float((self.folder / "burnt").read_text())
        if not load.calls:
            # The program makes no calls. But the C library allocates some blocks at the start and
            # at the end.
            whole_ns = allocator_ns + program_ns + started_ns[0]
            return allocator_ns / 2 / whole_ns, allocator_ns / whole_ns + 1e-3
        frees = load.threads * (load.pairs - SLOTS * (1 - math.exp(-load.pairs / SLOTS)))
        allocator_ns += (turns + frees) * load.rounds * known.round_ns
        allocator_ns += frees * (known.calls_ns - known.turn_ns)
        moved_ns = turns * TURN_NS
        return (
            (allocator_ns - moved_ns) / (allocator_ns + program_ns + started_ns[1]),
            allocator_ns / (allocator_ns + program_ns + started_ns[0]),
        )

    def _speeds(self) -> Speeds:
        empty, bare = Load(0, 0), Load(500_000, 0, calls=False)
        worked = Load(10_000, 1000, calls=False)
        burnt = Load(20_000, 0, rounds=300)
        least = dict.fromkeys((empty, bare, worked, burnt), math.inf)
        mapped_ns = math.inf
        for _ in range(TRIES):
            for load in least:
                least[load] = min(least[load], self._cpu_ns(load))
                if load is empty:
                    mapped_ns = min(mapped_ns, float((self.folder / "burnt").read_text()))
        whole_ns = least[empty]
        turn_ns = (least[bare] - whole_ns) / bare.pairs
        round_ns = ((least[worked] - whole_ns) / worked.pairs - turn_ns) / worked.work
        calls_ns = (least[burnt] - whole_ns) / burnt.pairs
        # Subtracts the rounds. Each turn has a malloc and a free, but the first free of each slot
        # gets NULL and burns nothing.
        calls_ns -= (2 * burnt.pairs - SLOTS) / burnt.pairs * burnt.rounds * round_ns
        return Speeds(round_ns, turn_ns, calls_ns, whole_ns - mapped_ns)

    def _cpu_ns(self, load: Load) -> float:
        """The CPU time of a run that no profiler measures."""
        with subprocess.Popen(
            [str(word) for word in self.command(load)],
            env={**os.environ, **self.environment(load), "LD_PRELOAD": str(self.allocator)},
            stdout=subprocess.DEVNULL,
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, load
        return (used.ru_utime + used.ru_stime) * 1e9

    def load(self, share: float, cpu_ns: float, threads: int = 1, rounds: int = 1000) -> Load:
        """Returns a load in which the allocator takes about this share of the CPU time.

        `cpu_ns` is the CPU time of all threads together.
        """
        calls_ns = 2 * rounds * self.known.round_ns
        if not share:
            pairs = round(cpu_ns / threads / calls_ns)
            return Load(max(1, pairs), 2 * rounds, threads, rounds, calls=False)
        pairs = round(cpu_ns / threads * share / calls_ns)
        return Load(max(1, pairs), round(2 * rounds * (1 - share) / share), threads, rounds)


def drawn(chance: random.Random, burning: Burning) -> Load:
    """A random load: the allocator takes 0 to 95 % of 30 ms to 3 s of CPU time."""
    share = chance.choice((0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 0.95))
    cpu_ns = 30e6 * 100 ** chance.random()
    return burning.load(
        share, cpu_ns, chance.choice((1, 1, 2, 4)), chance.choice((300, 1000, 3000))
    )
