"""Measures the ranges that come with Cairn, for 'cairn judge'.

    .venv/bin/python tools/judge_ranges.py RESULTS

Runs the plan `judge` with its own contenders, and then with the ill allocators, and writes
cairn/bench/ranges.json.xz from these runs. Runs that lie in the folders RESULTS/healthy and
RESULTS/ill are used instead, and continued if they were interrupted; there may be several of each,
with other programs (`--only`). Takes about 15 minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cairn.bench import ill_libraries

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "cairn" / "bench" / "ranges.json.xz"
ROUNDS = "3"
"""Rounds of the healthy contenders. The illnesses are strong, so one round suffices for them."""


def _cairn(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "cairn", *arguments], check=False)
    if done.returncode not in (0, 4):  # 4: a contender failed on a program
        sys.exit(f"'cairn {' '.join(arguments[:2])}' ended with exit code {done.returncode}")


def _runs(results: Path, *arguments: str) -> list[str]:
    """Makes the run of a folder, or completes those that lie there. Returns their paths."""
    if not any(results.glob("*/run.json")):
        _cairn("matrix", "run", "judge", "--results", str(results), *arguments)
    found = sorted(str(one.parent) for one in results.glob("*/run.json"))
    for path in found:
        stopped = Path(path) / "stopped"
        if not stopped.exists() or "interrupted" in stopped.read_text():
            _cairn("matrix", "run", "--resume", path, "--results", str(results))
    return found


def main() -> None:
    """Measures, and writes the file."""
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
