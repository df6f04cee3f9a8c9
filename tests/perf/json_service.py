"""A service under a changing load, which runs for about a minute.

    PYTHONMALLOC=malloc python3 tests/perf/json_service.py [SECONDS]

It is a program for memory_over_time.py and for 'cairn compare'. A request is a JSON document. The
service parses and changes the document, puts it into a cache of bounded size, and writes it again.
Every two seconds the load changes: many small documents, few large ones, almost no documents. The
number of requests is fixed and does not depend on their time, so that the allocator with the least
CPU time is the fastest.
"""

import json
import sys
import time
from collections import OrderedDict

PHASE_S = 2.0
PLAN = ((9000, 20), (40, 6000), (300, 20), (2500, 200), (100, 50))
"""For each phase: the number of requests, and the rows of a document."""
CACHED = 400


def document(number: int, rows: int) -> str:
    """Returns a document of `rows` rows, of which each differs slightly from the one before."""
    return json.dumps(
        [
            {"id": number * 7 + row, "name": f"row {row % 97}", "tags": ["a", "b" * (row % 40)]}
            for row in range(rows)
        ]
    )


def answer(text: str, cache: OrderedDict[int, object], number: int) -> int:
    """Parses, changes, caches and writes one document. Returns the length of the written text."""
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
