"""A run as one JSON document, for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from cairn.compare.ranking import Matrix, Ranking
from cairn.compare.standings import LARGE_BYTES, Standings
from cairn.gate import InstructionCount
from cairn.model import SCHEMA, Comparison, Run, Sample
from cairn.report.verdict import says
from cairn.why.gap import Why


def render(
    run: Run,
    comparisons: Sequence[Comparison],
    samples: Sequence[Sample],
    *,
    standings: Standings | None = None,
    scenarios: Ranking | None = None,
    matrices: Sequence[Matrix] = (),
    whys: Sequence[Why] = (),
    instructions: Sequence[InstructionCount] = (),
    check: Mapping[str, Any] | None = None,
) -> str:
    """Returns the whole run, with one comparison per workload.

    Comparisons have the order of `run.settings.workloads`.
    check: the answer of 'cairn check'; None for another command.
    `schema` changes when a field changes its meaning or is removed. Results that the run does not
    have are absent.
    """
    parts: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run,
        "comparisons": [_comparison(comparison) for comparison in comparisons],
        "samples": list(samples),
    }
    if standings is not None:
        parts["standings"] = _standings(standings)
    if scenarios is not None:
        parts["scenarios"] = _plain(scenarios) | {
            "matrices": [_matrix(matrix) for matrix in matrices]
        }
    if whys:
        parts["whys"] = list(whys)
    if instructions:
        parts["instructions"] = list(instructions)
    if check is not None:
        parts["check"] = check
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=True, indent=1) + "\n"


def explanation(run: Run, whys: Sequence[Why]) -> str:
    """Returns the explained gaps of `cairn explain`."""
    return (
        json.dumps(
            msgspec.to_builtins({"schema": SCHEMA, "run": run, "whys": list(whys)}), indent=1
        )
        + "\n"
    )


def _plain(record: Struct) -> dict[str, Any]:
    """Returns the record's fields by name. Callers turn mappings with pairs as keys into lists."""
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _comparison(found: Comparison) -> dict[str, Any]:
    """Returns the comparison, with the sentences on its verdict as `verdict`."""
    return _plain(found) | {"verdict": list(says(found.judged).sentences)}


def _standings(found: Standings) -> dict[str, Any]:
    contests = [_plain(contest) | {"large": contest.large} for contest in found.contests]
    return _plain(found) | {
        "contests": contests,
        "cells": list(found.cells.values()),
        "large_bytes": LARGE_BYTES,
    }


def _matrix(matrix: Matrix) -> dict[str, Any]:
    cells = [
        {"workload": w, "other": other, "over": difference}
        for (w, other), difference in matrix.cells.items()
    ]
    return _plain(matrix) | {"cells": cells}
