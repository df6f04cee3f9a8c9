"""Prints how many large blocks cairn served from kept runs in each of the scenarios.

    .venv/bin/python tools/scenario_hits.py

Runs each workload of `cairn bench scenario-forms` once under each of cairn's contenders there, with
CAIRN_SITES=1, and prints a table in Markdown. A cell is the share of blocks, in %, that reused a
run which the thread had kept (docs/allocator.md). The share is estimated from a sample.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

from cairn import native
from cairn.bench import experiments
from cairn.profile import call_sites

CONTENDERS = {
    "cairn": {},
    "frozen": {"CAIRN_POLICY": "frozen"},
    "ucb1": {"CAIRN_POLICY": "ucb1"},
    "sites": {"CAIRN_BIG_CACHE": "sites"},
}


def hits(variant: experiments.Variant, options: dict[str, str]) -> float:
    """Returns the share of the workload's blocks that reused a kept run."""
    command = [str(native.workload(variant.program)), *shlex.split(variant.arguments)]
    environment = {
        **os.environ, "LD_PRELOAD": str(native.allocator()), "CAIRN_SITES": "1",
        "CAIRN_STATS": "json", **options,
    }  # fmt: skip
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    ((document,), _) = call_sites.parse(ended.stderr.splitlines())
    rows = [*document.sites, document.others]
    return sum(row.hits for row in rows) / sum(row.blocks for row in rows)


def main() -> None:
    """Prints the table, a line at a time."""
    (experiment,) = (one for one in experiments.EXPERIMENTS if one.name == "scenario-forms")
    print(f"| hits in % | {' | '.join(CONTENDERS)} |")
    print(f"|---|{'---:|' * len(CONTENDERS)}")
    for variant in experiment.full.variants:
        shares = (f"{100 * hits(variant, options):.1f}" for options in CONTENDERS.values())
        print(f"| {variant.name} | {' | '.join(shares)} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
