"""A run as one JSON document, for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from cairn.model import SCHEMA, Comparison, Run, Sample


def render(run: Run, comparisons: Sequence[Comparison], samples: Sequence[Sample]) -> str:
    """Everything known of a run, a comparison per workload in the order of `run.settings.workloads`.

    `schema` changes when a field changes its meaning or goes away.
    """
    parts = {"schema": SCHEMA, "run": run, "comparisons": list(comparisons), "samples": list(samples)}
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=True, indent=1) + "\n"
