"""A service under a changing load, which over_time.py and 'cairn compare' run for a minute.

    PYTHONMALLOC=malloc python3 tests/perf/service.py [SECONDS]

Requests are JSON documents that are parsed, changed, put into a cache of bounded size and written
again. Every two seconds the load changes: many small documents, few large ones, almost none. The
plan fixes the number of requests, whatever time each takes, so CPU time says which allocator needs
less.
"""

import json
import sys
import time
from collections import OrderedDict

PHASE_S = 2.0
PLAN = ((9000, 20), (40, 6000), (300, 20), (2500, 200), (100, 50))
"""Requests per phase, and rows per document."""
CACHED = 400


def document(number: int, rows: int) -> str:
    """Returns a document of this many rows, each slightly different from the last."""
    return json.dumps(
        [
            {"id": number * 7 + row, "name": f"row {row % 97}", "tags": ["a", "b" * (row % 40)]}
            for row in range(rows)
        ]
    )


def answer(text: str, cache: OrderedDict[int, object], number: int) -> int:
    """Parses, changes, keeps and writes one document."""
    parsed = json.loads(text)
    for row in parsed[::3]:
        row["name"] = row["name"].upper()
    cache[number % (2 * CACHED)] = parsed
    while len(cache) > CACHED:
        cache.popitem(last=False)
    return len(json.dumps(parsed[: len(parsed) // 2]))


def main() -> None:
    """Runs one phase after the other."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    cache: OrderedDict[int, object] = OrderedDict()
    number = written = 0
    for phase in range(max(1, round(seconds / PHASE_S))):
        requests, rows = PLAN[phase % len(PLAN)]
        began = time.monotonic()
        text = document(phase, rows)
        for _ in range(requests):
            number += 1
            written += answer(text, cache, number)
        if (left := PHASE_S - (time.monotonic() - began)) > 0:
            time.sleep(left)
    print(number, written)


if __name__ == "__main__":
    main()
