"""Draws the memory of a program over time under several allocators, and marks when they learn.

    .venv/bin/python tests/perf/memory_over_time.py PICTURE.svg [NAME=LIBRARY[:KEY=VALUE;…]…]
                                                    -- PROG [ARG…]

The default allocators are cairn with and without learning. The script runs the program once under
each. Twice a second, it reads the anonymous memory of the program and its descendants from /proc.
With CAIRN_TRACE=1, cairn's allocator writes a line whenever it has learnt something. Each line
becomes a mark at its time. For each allocator, the script prints the CPU time, the mean and the
maximum of the memory, and the number of marks. One run does not show which allocator is better;
'cairn compare' shows that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cairn import native, units

EVERY_S = 0.5
TRACE = "cairn: "


@dataclass
class Course:
    """One run: times in seconds since its start, and the anonymous memory in bytes at `times`."""

    name: str
    times: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    cpu_s: float = 0.0


def tree(root: int) -> list[int]:
    """Returns the process and those of its descendants that still exist."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            queue += [
                int(child) for task in tasks for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue
    return found


def anonymous_bytes(root: int) -> int:
    """Returns the anonymous resident memory of the process and its descendants."""
    total = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
    return total


def run(name: str, library: str, knobs: dict[str, str], command: list[str]) -> Course:
    """Runs the program once to its end."""
    course = Course(name)
    environment = {**os.environ, **knobs, "CAIRN_TRACE": "1", "LD_PRELOAD": library}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as told:
        started = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

        def listen() -> None:
            for line in started.stderr or ():
                if line.startswith(TRACE):
                    course.marks.append(time.monotonic() - began)
                else:
                    told.write(line)

        listener = threading.Thread(target=listen)
        listener.start()
        while True:
            pid, status, used = os.wait4(started.pid, os.WNOHANG)
            if pid:
                break
            course.held.append(anonymous_bytes(started.pid))
            course.times.append(time.monotonic() - began)
            time.sleep(EVERY_S)
        listener.join()
        if status != 0:
            told.seek(0)
            raise SystemExit(f"{name}: {' '.join(command)} failed\n{told.read()}")
    course.cpu_s = used.ru_utime + used.ru_stime
    return course


def draw(courses: list[Course], title: str, picture: Path) -> None:
    """Draws memory over time, a panel for each allocator."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1 + 2 * len(courses)), layout="constrained")
    panels = figure.subplots(len(courses), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, course in zip(panels, courses, strict=True):
        axes.plot(course.times, [held / (1 << 20) for held in course.held], linewidth=1)
        for mark in course.marks:
            axes.axvline(mark, color="#cc6677", linewidth=0.5, alpha=0.5)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("MiB", fontsize=8)
        axes.set_title(
            f"{course.name}: {course.cpu_s:.1f} s of CPU time, {len(course.marks)} changes",
            fontsize=9,
        )
    panels[-1].set_xlabel("seconds; a vertical line where something was learnt", fontsize=8)
    figure.suptitle(title, fontsize=10, parse_math=False)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else {})


def main() -> int:
    """Runs the program under each allocator, prints a line for each run, and draws the picture."""
    if len(sys.argv) < 4 or "--" not in sys.argv:
        print(__doc__, file=sys.stderr)
        return 2
    at = sys.argv.index("--")
    command, own = sys.argv[at + 1 :], str(native.allocator())
    contenders = []
    for one in sys.argv[2:at] or [f"learning={own}", f"frozen={own}:CAIRN_POLICY=frozen"]:
        name, _, rest = one.partition("=")
        library, _, knobs = rest.partition(":")
        contenders.append(
            (name, library, dict(knob.split("=", 1) for knob in knobs.split(";") if knob))
        )
    courses = []
    for name, library, knobs in contenders:
        course = run(name, library, knobs, command)
        courses.append(course)
        mean, most = sum(course.held) / max(1, len(course.held)), max(course.held, default=0)
        print(
            f"{name:12} {course.cpu_s:8.2f} s of CPU time, {units.size(mean)} held on average, "
            f"{units.size(most)} at most, {len(course.marks)} changes",
            flush=True,
        )
    draw(courses, " ".join(Path(word).name for word in command), Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
