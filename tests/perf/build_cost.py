"""Measures how much longer a build of 2,000 processes takes with the launcher and the witness.

    .venv/bin/python tests/perf/build_cost.py [ROUNDS]

The build compiles 500 small files of C with make; each needs make's shell or none, gcc, cc1 and as.
Each round builds alone, alone again, and with launcher and witness, in random order. The CPU time is
that of the whole process tree. Exits with 1 if the witness adds more than 1 % to it.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cairn import native, units
from cairn.compare import stats

FILES = 500
LIMIT = 0.01
WAYS = ("alone", "alone again", "launcher + witness")


def project(folder: Path) -> None:
    """Writes the sources and the Makefile."""
    for number in range(FILES):
        (folder / f"f{number}.c").write_text(
            f"#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
            f"int f{number}(const char *text)\n"
            f'{{\n    char *copy = strdup(text);\n    int length = copy ? printf("%s", copy) : 0;\n'
            f"    free(copy);\n    return length + {number};\n}}\n"
        )
    objects = " ".join(f"f{number}.o" for number in range(FILES))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\t@gcc -O1 -c $< -o $@; true\n")


def build(folder: Path, way: str, report: Path) -> tuple[float, float]:
    """Builds everything. Returns the CPU time and the wall time in seconds."""
    for old in folder.glob("*.o"):
        old.unlink()
    report.write_bytes(b"")
    command = ["make", "-s", "-j2", "-C", str(folder)]
    environment = {"PATH": os.environ["PATH"]}
    sink = os.open(os.devnull, os.O_WRONLY)
    if way == "launcher + witness":
        variables = {"LD_PRELOAD": str(native.witness()), "CAIRN_WITNESS": str(report)}
        settings = [word for item in variables.items() for word in ("--setenv", "=".join(item))]
        command = [
            str(native.launcher()), "--report-fd", str(sink), *settings, "--", *command,
        ]  # fmt: skip
    before = os.times()
    done = subprocess.run(command, env=environment, pass_fds=[sink], check=False)
    after = os.times()
    os.close(sink)
    if done.returncode != 0:
        raise SystemExit(f"the build failed: {way}")
    cpu = after.children_user + after.children_system - before.children_user
    return cpu - before.children_system, after.elapsed - before.elapsed


def main() -> int:
    """Measures and prints. Returns the exit code, which says whether the limit is kept."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    if shutil.which("make") is None or shutil.which("gcc") is None:
        raise SystemExit("make and gcc are needed")
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    wall: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="cairn-") as name:
        folder, report = Path(name, "project"), Path(name, "witness.jsonl")
        folder.mkdir()
        project(folder)
        for round_ in range(-1, rounds):
            for way in random.Random(f"build/{round_}").sample(WAYS, len(WAYS)):
                took = build(folder, way, report)
                if way == "launcher + witness":
                    processes = report.read_bytes().count(b'"pid"')
                if round_ >= 0:
                    cpu[way].append(took[0])
                    wall[way].append(took[1])
    alone = sorted(cpu["alone"])[rounds // 2]
    print(f"a build alone: {units.time(alone * 1e9)} of CPU time; {processes} records of processes")
    for what, seconds in (("CPU time", cpu), ("wall time", wall)):
        ratios = {
            way: [math.log(x / b) for x, b in zip(of, seconds["alone"], strict=True)]
            for way, of in seconds.items()
            if way != "alone"
        }
        changes = stats.changes(ratios, stats.ALPHA, LIMIT)
        for way, change in changes.items():
            ends = change.interval
            span = f"[{units.percent(ends.low)}, {units.percent(ends.high)}]" if ends else ""
            print(f"{what:<10} {way:<20} {units.percent(change.estimate):>8}  {span}")
        if what == "CPU time":
            found = changes["launcher + witness"].estimate
    return int(found > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
