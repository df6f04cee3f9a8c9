"""Tests of cairn matrix run --profile, cairn matrix ranges, and cairn judge."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.judging import HEALTHY_LEAST, ILL_IN

from cairn.bench import ill_libraries
from cairn.matrix import runs
from cairn.why.ill_allocators import ILL

from ..conftest import Command

ARGUMENTS = "--threads 2 --operations 30K"
PLAN = f"""\
[plan]
contenders = ["system", "other=LIBRARY"]
rounds = 2
warmup = 0

[program.larson]
workload = "larson"
arguments = "{ARGUMENTS}"
"""
_JUDGED_MOST_S = 120.0
"""The time that a judgement may take."""


def test_a_plan_with_the_probe_gives_ranges_and_a_judgement(cairn: Command, forward: Path) -> None:
    """The third contender has the name and the setting of an ill allocator of Cairn."""
    ill = f'"{ILL[0].name}={forward}:ILL={ILL[0].name}"'
    # Cairn's own ranges are those of a plan of this name, with this program.
    plan = cairn.home / "judge.toml"
    arguments = {one.name: one.arguments for one in runs.load("judge").plan.programs}
    plan.write_text(
        PLAN.replace('LIBRARY"', f'{forward}", {ill}').replace(ARGUMENTS, arguments["larson"])
    )
    ran = cairn("matrix", "run", plan, "--profile")
    assert ran.code == 0, ran.err
    assert "each also 1 time with the probe" in " ".join(ran.err.split())
    samples = next(cairn.results.glob("*/samples.jsonl")).read_text().splitlines()
    assert len(samples) == 9, "two rounds without the probe, and one with it"

    found = cairn("matrix", "ranges", "--json").json["ranges"]
    over = {one["metric"]["key"]: one for one in found if one["program"] is None}
    assert {"requested", "calls.mib", "faults.mib", "fresh", "time.free"} <= set(over)
    requested = {name: value for name, (value, *_) in over["requested"]["values"].items()}
    assert set(requested) == {"system", "other"} and requested["system"] > 0
    # The program requests nearly the same under both allocators. Its threads make random requests,
    # so a small difference is possible.
    assert requested["other"] == pytest.approx(requested["system"], rel=0.1)

    judged = cairn("judge", "--read", "last", "--full")
    assert judged.code == 0, judged.err
    assert "larson" in judged.out and "is clearly worse than" in judged.out
    assert " was not measured on " in " ".join(judged.out.split())


def test_what_cannot_be_judged_is_one_sentence(cairn: Command, forward: Path) -> None:
    assert "name one library" in cairn("judge").sentence
    assert "one allocator at a time" in cairn("judge", "system,jemalloc").sentence
    plan = cairn.home / "small.toml"
    plan.write_text(PLAN.replace("LIBRARY", str(forward)).replace("30K", "2K"))
    assert cairn("matrix", "run", plan, "-r", "1").code == 0
    for command in (("matrix", "ranges"), ("judge", "--read", "last")):
        told = cairn(*command)
        assert told.code == 2 and "--profile" in told.sentence


needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("ill", ILL_IN)
def test_an_ill_allocator_is_outside_after_one_quick_run(cairn: Command, ill: str) -> None:
    specs = {spec.partition("=")[0]: spec for spec in ill_libraries.specs(lambda _: None)}
    told = cairn("judge", specs[ill], "--json", timeout=_JUDGED_MOST_S)
    assert told.code in (0, 4), told.err
    outside = {one["metric"] for one in told.json["metrics"] if one["place"] == "outside"}
    assert outside & set(ILL_IN[ill]), outside


@pytest.mark.long
def test_healthy_allocators_are_inside_or_at_the_edge_after_one_quick_run(cairn: Command) -> None:
    """Judges each allocator that is installed here and is part of the ranges.

    `cairn judge` leaves the judged allocator out of the ranges.
    """
    cairn.environment["XDG_CACHE_HOME"] = os.environ.get(
        "XDG_CACHE_HOME", str(Path.home() / ".cache")
    )
    here = {one["allocator"] for one in cairn("allocators", "--json").json["found"]}
    names = [
        name
        for name in (
            "cairn", "jemalloc", "mimalloc", "mimalloc3", "rpmalloc", "snmalloc", "tcmalloc",
            "google-tcmalloc", "tbbmalloc", "hoard", "scudo", "cairn-hardened",
        )
        if name in here
    ]  # fmt: skip
    places = []
    for name in names:
        told = cairn("judge", name, "--json", timeout=_JUDGED_MOST_S)
        assert told.code == 0, told.err
        assert name not in told.json["contenders"]
        places += [(name, one["metric"], one["place"]) for one in told.json["metrics"]]
    outside = [one for one in places if one[2] == "outside"]
    assert len(outside) <= (1 - HEALTHY_LEAST) * len(places), outside
