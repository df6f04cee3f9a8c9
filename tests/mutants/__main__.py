"""Plants faults in copies of the tree, and reports those that no test notices.

`make mutants` calls it.

    PYTHONPATH=tests .venv/bin/python -m mutants [--seed N] [--count N] [--python | --c]
                                                 [--only FILE] [--show]

Half of the faults are in cairn/, half in src/. Every line that can have a fault is equally likely.
A fault that mypy or the compiler refuses is replaced by the next one. A fault counts as noticed
when a test fails twice with it. The report is build/mutants/SEED.txt, and as JSON
build/mutants/SEED.json. The same seed plants the same faults in the same sources.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
from dataclasses import asdict
from itertools import islice

from mutants import report
from mutants.belonging import digest
from mutants.lane import BUILD, LANES, REFUSED, Unready, kept_of, results_of, work


def lane(language: str, seed: int, count: int, only: str | None, sources: str) -> None:
    """Plants the faults of one language (lane.py). Runs in a process of its own.

    Exits with a message if the tests fail on the tree without faults.
    """
    try:
        work(language, seed, count, only, sources)
    except Unready as problem:
        sys.exit(f"mutants: {problem}")
    except KeyboardInterrupt:
        sys.exit(1)


def main() -> str | int | None:
    """Returns the exit status, or a message for a failure."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument(
        "--python", dest="languages", action="store_const", const=["python"], default=list(LANES)
    )
    parser.add_argument("--c", dest="languages", action="store_const", const=["c"])
    parser.add_argument(
        "--only", metavar="FILE", help="plant faults only in this file, such as src/alloc/heap.c"
    )
    parser.add_argument("--show", action="store_true", help="list the faults without planting them")
    given = parser.parse_args()
    languages, seed, only = given.languages, given.seed, given.only
    if only:
        language = "python" if only.endswith(".py") else "c"
        if next(LANES[language]().drawn(seed, only), None) is None:
            return (
                f"mutants: no line of {only} can have a fault;"
                " name a file of cairn/ or src/, such as src/alloc/heap.c"
            )
        languages = [language]
    share = {language: -(-given.count // len(languages)) for language in languages}
    print(f"seed {seed}", flush=True)
    if given.show:
        for language in languages:
            for fault in islice(LANES[language]().drawn(seed, only), share[language]):
                print(f"{fault.where}  {fault.kind}\n{fault.diff}")
        return None
    explained = report.explained()
    # The sources may change while the faults are planted.
    sources = digest("cairn", "src")
    lanes = [
        multiprocessing.Process(target=lane, args=(language, seed, share[language], only, sources))
        for language in languages
    ]
    for process in lanes:
        process.start()
    try:
        for process in lanes:
            process.join()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for process in lanes:
            process.join()
    found = [
        one
        for language in languages
        for one in kept_of(results_of(language, seed, only), sources).values()
    ]
    text, noticed = report.told(seed, found, explained)
    name = str(seed) if only is None else f"{seed}-{only.replace('/', '-')}"
    (BUILD / f"{name}.txt").write_text(text)
    (BUILD / f"{name}.json").write_text(
        json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False)
    )
    print(text)
    if any(process.exitcode for process in lanes):
        return f"not all faults were planted; to continue, run it again with --seed {seed}"
    if all(one.outcome == REFUSED for one in found):
        return "no fault was planted, so nothing is known of the tests"
    return (
        f"only {noticed:.1%} of the faults were noticed or explained;"
        f" at least {report.LEAST:.0%} are required"
        if noticed < report.LEAST
        else None
    )


if __name__ == "__main__":
    sys.exit(main())
