"""Tests of the examples that put a load on redis and nginx."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import path_of

ROOT = Path(__file__).resolve().parents[2]


def compared(example: str, cairn: Any) -> Any:
    """Runs the example for one round. Returns its comparison as JSON."""
    done = subprocess.run(
        [ROOT / "examples" / example, "-r", "1", "--json"],
        env=cairn.env, cwd=cairn.home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, _, document = done.stdout.partition("\n")
    assert first == f"{example}: which malloc should it use?"
    return json.loads(document)


@pytest.mark.long
@pytest.mark.parametrize(
    ("example", "programs"),
    [
        ("redis", ("redis-server", "redis-benchmark")),
        ("nginx", ("nginx", "wrk")),
    ],
)
def test_an_example_compares_a_server_under_load(
    cairn: Any, example: str, programs: tuple[str, ...]
) -> None:
    for program in programs:
        path_of(program)
    found = compared(example, cairn)
    comparison = found["comparisons"][0]
    assert comparison["time"]["key"] == "request_time"
    assert len(comparison["rows"]) >= 2
    for row in comparison["rows"]:
        assert not row["failures"]
        for key in ("load:requests/s", "load:p50", "cpu_time", "peak"):
            assert row["summaries"][key]["median"] > 0, key
    for sample in found["samples"]:
        assert sample["wall_ns"] > sample["user_ns"] + sample["system_ns"] > 0
