"""Measures the ranges that come with Cairn, for 'cairn judge'.

    .venv/bin/python tools/judge_ranges.py RESULTS

Runs the plan `judge` with its own contenders, and then with the ill allocators. Writes
cairn/bench/ranges.json.xz from these runs. Takes about 15 minutes.

If the folder RESULTS/healthy or RESULTS/ill already contains runs, the script uses these runs, and
first continues each run that was interrupted. A folder may contain several runs, for example of
different programs (`--only`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cairn.bench import ill_libraries

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "cairn" / "bench" / "ranges.json.xz"
ROUNDS = "3"
"""The number of rounds of the healthy contenders. The illnesses are strong, so one round suffices
for the ill ones."""


def _cairn(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "cairn", *arguments], check=False)
    if done.returncode not in (0, 4):  # 4: a contender failed on a program
        sys.exit(f"'cairn {' '.join(arguments[:2])}' ended with exit code {done.returncode}")


def _runs(results: Path, *arguments: str) -> list[str]:
    """Returns the paths of the runs in a folder.

    Makes a run if the folder has none, and continues each run that was interrupted.
    """
    if not any(results.glob("*/run.json")):
        _cairn("matrix", "run", "judge", "--results", str(results), *arguments)
    found = sorted(str(one.parent) for one in results.glob("*/run.json"))
    for path in found:
        stopped = Path(path) / "stopped"
        if not stopped.exists() or "interrupted" in stopped.read_text():
            _cairn("matrix", "run", "--resume", path, "--results", str(results))
    return found


def main() -> None:
    """Measures the runs that are missing, and writes the file of ranges."""
    if len(sys.argv) != 2:
        sys.exit("usage: tools/judge_ranges.py RESULTS")
    results = Path(sys.argv[1])
    ill = [word for spec in ill_libraries.specs(print) for word in ("-a", spec)]
    runs = [
        *_runs(results / "healthy", "--rounds", ROUNDS, "--profile", ROUNDS),
        *_runs(results / "ill", "--rounds", "1", "--profile", "1", "-a", "system", *ill),
    ]
    _cairn("matrix", "ranges", *runs, "--keep", str(KEPT), "--force")


if __name__ == "__main__":
    main()
