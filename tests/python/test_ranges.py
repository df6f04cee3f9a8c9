"""Tests of the ranges of profile metrics: the worst, dramatic differences, and their report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from support.documents import keys
from support.plans import a_plan_run, a_trial
from support.widths import at_all_widths

from cairn.bench import kept_ranges
from cairn.clock_samples import CpuSamples
from cairn.compare import plan
from cairn.errors import CairnError
from cairn.model import Contender, ProbeSummary, Run, Sample, twin
from cairn.profile.metrics import BY_KEY, METRICS, Number
from cairn.report import ranges as reporting
from cairn.report import terminal
from cairn.why.ranges import (
    LEFT_OUT,
    ProfileTable,
    badness,
    dramatic,
    gathered,
    median_of_others,
    ranges,
    worst_of,
)

CALLS = BY_KEY["calls.map"]
USE = BY_KEY["page_use"]


def exact(**values: float) -> dict[str, Number]:
    return {name: (value, value, value) for name, value in values.items()}


def test_the_worst_is_left_out_only_if_it_is_far_from_the_next() -> None:
    assert worst_of(CALLS, exact(a=1, b=2, c=3, d=3 * LEFT_OUT + 0.1)) == "d"
    assert worst_of(CALLS, exact(a=1, b=2, c=3, d=3 * LEFT_OUT - 0.1)) is None


def test_the_worst_is_not_left_out_if_its_interval_meets_that_of_another() -> None:
    values = exact(a=1, b=2, c=3) | {"d": (20.0, 2.5, 40.0)}
    assert worst_of(CALLS, values) is None


def test_the_worst_is_the_least_if_less_is_worse() -> None:
    assert worst_of(USE, exact(a=0.9, b=0.8, c=0.7, d=0.1)) == "d"
    assert worst_of(USE, exact(a=0.9, b=0.1, c=0.1, d=0.1)) is None


def test_a_count_below_the_least_that_matters_is_as_good_as_none() -> None:
    assert badness(CALLS, 0.0) == badness(CALLS, CALLS.least)
    assert worst_of(CALLS, exact(a=0, b=0, c=0, d=CALLS.least * (LEFT_OUT - 0.1))) is None


def test_nobody_is_left_out_of_three() -> None:
    assert worst_of(CALLS, exact(a=1, b=1, c=1000)) is None


def test_a_value_three_times_as_bad_as_the_median_of_the_others_is_dramatic() -> None:
    assert [name for name, _ in dramatic(CALLS, exact(a=1, b=2, c=4, d=7))] == ["d"]
    assert dramatic(CALLS, exact(a=1, b=2, c=4, d=5.9)) == ()
    assert dramatic(CALLS, exact(a=0.1, b=2, c=2, d=2)) == (), "it is no fault to have less"
    # The interval of `d` reaches down to the values of the others, so the difference is not
    # certain.
    assert dramatic(CALLS, exact(a=1, b=2, c=4) | {"d": (9.0, 1.0, 20.0)}) == ()


def test_the_median_of_the_others_is_a_value_of_the_metric() -> None:
    assert median_of_others(CALLS, exact(a=1, b=2, c=4, d=70), "d") == pytest.approx(2)
    assert median_of_others(CALLS, exact(a=0, b=0, c=0, d=70), "d") == pytest.approx(CALLS.least)
    assert median_of_others(USE, exact(a=0.9, b=0.8, c=0.7, d=0.1), "d") == pytest.approx(0.8)


def summary(metrics: dict[str, Number]) -> ProbeSummary:
    return ProbeSummary(
        operations=1000, cpu_ns=1, samples=0, samples_inside=0, samples_probe=0, kinds={}, calls={},
        kernel_ns=None, waiting_ns=None, waits=0, faults=0, faults_inside=None, live_bytes=None,
        slack_bytes=None, resident_bytes=None, metrics=metrics,
    )  # fmt: skip


def a_profiled_run() -> tuple[Run, list[Sample]]:
    """Returns a run of two programs and five contenders, each also with the probe."""
    names = ("system", "cairn", "jemalloc", "mimalloc", "scudo")
    run = a_plan_run({"sort": "program", "gcc": "program"}, names, rounds=2)
    probed = tuple(
        Contender(twin(one.name), one.allocator, one.title, probed=True) for one in run.contenders
    )
    run = replace(
        run,
        contenders=run.contenders + probed,
        settings=replace(run.settings, why=True, profiled_rounds=1),
    )
    samples = []
    for workload in (0, 1):
        for place, name in enumerate(names):
            for round_ in (1, 2):
                plain = a_trial(workload, name, round_, 100 + place, (10 + place) * (1 << 20))
                samples.append(
                    replace(
                        plain,
                        minor_faults=800 + 80 * place,
                        cpu_samples=CpuSamples(1_000_000, 10 + place, 5, 5, 0, 80 - place),
                    )
                )
            time, calls = 20.0 - 2 * place, 40.0 if name == "scudo" else 1.0 + place
            its = {
                "requested": (8.0, 8.0, 8.0),
                "calls.map": (calls, calls, calls),
                "time.free": (time, 0.9 * time, 1.1 * time),
                "page_use": (0.8, 0.75, 0.85),
            }
            samples.append(
                replace(a_trial(workload, twin(name), 1, 200, 1 << 24), probe=summary(its))
            )
    return run, samples


def table() -> ProfileTable:
    others = ("system", "cairn", "jemalloc", "mimalloc")
    return gathered([a_profiled_run()], {"hardened": ("scudo",), "not hardened": others})


def test_ranges_are_gathered_from_trials_with_and_without_the_probe() -> None:
    found = {one.metric.key: one for one in ranges(table())}
    assert list(found) == [one.key for one in METRICS if one.key in found]
    calls = found["calls.map"]
    assert (calls.whole.least, calls.whole.greatest, calls.worst) == (1.0, 40.0, "scudo")
    assert (calls.narrow.greatest, calls.narrow.mean) == (4.0, 2.5)
    assert [name for name, _ in calls.dramatic] == ["scudo"]
    assert calls.groups["hardened"].mean == 40.0
    # A time is divided by the time of the baseline. Page faults come from the runs without the
    # probe.
    assert found["time.free"].values["system"][0] == 1.0
    assert found["time.free"].values["scudo"][0] == pytest.approx(0.6)
    assert found["faults.mib"].values["system"][0] == 100.0
    assert found["share"].values["system"][0] == pytest.approx(0.2)
    assert table().costs["sort"]["scudo"].cpu == pytest.approx(1.04)


def test_the_probe_takes_part_only_in_its_rounds() -> None:
    run, _ = a_profiled_run()
    names = [one.name for one in run.competing]
    assert len(names) == 5
    assert plan.taking_part(run, plan.WARM_UP) == names
    assert len(plan.taking_part(run, 1)) == 10
    assert plan.taking_part(run, 2) == names
    always = replace(run, settings=replace(run.settings, profiled_rounds=None))
    assert len(plan.taking_part(always, 2)) == len(plan.taking_part(always, plan.WARM_UP)) == 10


def test_golden_of_ranges(golden: Callable[[str, str], None]) -> None:
    found = table()
    golden(
        "ranges",
        at_all_widths(
            lambda view: terminal.drawn(
                reporting.board(found, full=view.full), view, answer_first=True
            )
        ),
    )


def test_the_other_forms_have_every_value(golden: Callable[[str, str], None]) -> None:
    found = table()
    rows = list(csv.DictReader(io.StringIO(reporting.as_csv(found))))
    assert {"", "sort", "gcc"} == {row["program"] for row in rows}
    scudo = [row for row in rows if row["contender"] == "scudo" and row["metric"] == "calls.map"]
    assert all(row["left_out"] == "yes" and float(row["value"]) == 40 for row in scudo)
    document = json.loads(reporting.as_json(found))
    assert document["ranges"][1]["metric"]["key"] == "calls.map"
    golden("keys/ranges", keys(document))


def test_kept_ranges_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    found = table()
    file = tmp_path_factory.mktemp("kept") / "ranges.json.xz"
    file.write_bytes(kept_ranges.encoded(found, "Made here."))
    again, about = kept_ranges.read(file)
    assert about == "Made here."
    assert (again.programs, again.groups) == (found.programs, found.groups)
    assert again.cells["sort"]["scudo"] == {
        key: tuple(pytest.approx(one, rel=1e-3) for one in number)
        for key, number in found.cells["sort"]["scudo"].items()
    }
    assert again.costs["gcc"]["scudo"].cpu == pytest.approx(1.04, rel=1e-3)


@pytest.mark.parametrize("damage", [b"", b"no ranges", None])
def test_damaged_kept_ranges_are_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes | None
) -> None:
    file = tmp_path_factory.mktemp("kept") / "ranges.json.xz"
    content = kept_ranges.encoded(table(), "")
    file.write_bytes(content[: len(content) // 2] if damage is None else damage)
    with pytest.raises(CairnError, match="ranges"):
        kept_ranges.read(file)
