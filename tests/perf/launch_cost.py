"""Measures how much longer a program of 50 ms takes with the launcher, the witness, and both.

    .venv/bin/python tests/perf/launch_cost.py [ROUNDS]

Each round runs the program alone, alone again, and in the three other ways, in random order. The
time includes the start of the launcher, and is measured from outside. Exits with 1 if launcher and
witness together add more than 3 % to the program's time.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cairn import native, units
from cairn.compare import stats

PROGRAMS = Path(__file__).resolve().parents[1] / "support" / "programs"
LIMIT = 0.03


def spawn(argv: list[str], environment: dict[str, str]) -> None:
    """Starts a command as cheaply as possible, discards its output, and waits for it."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=silent)
    if os.waitpid(pid, 0)[1] != 0:
        raise SystemExit(f"{argv[0]} failed")


def turns_of_50_ms(program: Path) -> str:
    """Returns the argument with which the program works for 50 ms.

    The function measures with the fastest of a few runs, because noise only adds time.
    """
    turns, best = 20, math.inf
    for _ in range(7):
        began = time.perf_counter()
        spawn([str(program), str(turns)], {})
        best = min(best, time.perf_counter() - began)
    return str(max(1, round(turns * 0.050 / best)))


def ways(program: Path, scratch: Path) -> dict[str, Callable[[], None]]:
    """Returns a function for each way to run the program.

    The program runs alone, with the witness, with the launcher, and with both.
    """
    argv = [str(program), turns_of_50_ms(program)]
    plain = {"PATH": os.environ["PATH"]}
    report = scratch / "witness.jsonl"
    witnessed = {**plain, "LD_PRELOAD": str(native.witness()), "CAIRN_WITNESS": str(report)}
    sink = os.open(os.devnull, os.O_WRONLY)
    os.set_inheritable(sink, True)
    launch = [str(native.launcher()), "--report-fd", str(sink)]
    settings = [
        word
        for name in ("LD_PRELOAD", "CAIRN_WITNESS")
        for word in ("--setenv", f"{name}={witnessed[name]}")
    ]

    def empty_report() -> None:
        report.write_bytes(b"")

    def with_witness(argv: list[str], environment: dict[str, str]) -> Callable[[], None]:
        def run() -> None:
            empty_report()
            spawn(argv, environment)

        return run

    return {
        "alone": lambda: spawn(argv, plain),
        "alone again": lambda: spawn(argv, plain),
        "witness": with_witness(argv, witnessed),
        "launcher": lambda: spawn([*launch, "--", *argv], plain),
        "launcher + witness": with_witness([*launch, *settings, "--", *argv], plain),
    }


def main() -> int:
    """Measures and prints. Returns the exit code, which says whether the limit is kept."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory(prefix="cairn-") as name:
        scratch = Path(name)
        program = scratch / "spin"
        subprocess.run(
            ["gcc", "-O1", "-fno-builtin", str(PROGRAMS / "spin.c"), "-o", str(program)], check=True
        )
        all_ways = ways(program, scratch)
        seconds: dict[str, list[float]] = {way: [] for way in all_ways}
        for round_ in range(-2, rounds):
            for way in random.Random(f"cost/{round_}").sample(list(all_ways), len(all_ways)):
                began = time.perf_counter()
                all_ways[way]()
                if round_ >= 0:
                    seconds[way].append(time.perf_counter() - began)
    ratios = {
        way: [math.log(x / b) for x, b in zip(values, seconds["alone"], strict=True)]
        for way, values in seconds.items()
        if way != "alone"
    }
    alone = sorted(seconds["alone"])[rounds // 2]
    print(f"program alone: {units.time(alone * 1e9)} (median of {rounds} interleaved rounds)")
    changes = stats.changes(ratios, stats.ALPHA, LIMIT)
    for way, change in changes.items():
        interval = change.interval
        span = (
            f"[{units.percent(interval.low)}, {units.percent(interval.high)}]"
            if interval
            else "too few rounds"
        )
        print(
            f"{way:<20} {units.percent(change.estimate):>8}  {span}  "
            f"({units.time(change.estimate * alone * 1e9)})"
        )
    return int(changes["launcher + witness"].estimate > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
