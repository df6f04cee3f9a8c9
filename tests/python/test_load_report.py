"""Tests of the report on a server under load."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import statistics
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.compare import suitability
from cairn.compare.comparison import deciding_ratios
from cairn.model import Contender, Run, Sample, Shown, StopRule, Workload
from cairn.report.run import Measured, comparisons, rendered
from cairn.report.view import View
from cairn.verdict import Measure, Outcome

ROUNDS = 12
SYSTEM = Contender("system", "system", "glibc 2.36")
CAIRN = Contender("cairn", "cairn", "cairn 0.1.0")
JEMALLOC = Contender("jemalloc", "jemalloc", "jemalloc 5.3.0")


def run_of(*contenders: Contender) -> Run:
    run = a_run(*(contenders or (SYSTEM, CAIRN, JEMALLOC)))
    load = "redis-benchmark -q -p {port} -n 200000"
    workload = Workload("redis-server --port '{port}'", ("redis-server", "--port", "{port}"))
    return replace(
        run,
        settings=replace(run.settings, workloads=(replace(workload, load=load),)),
        rule=StopRule(precision=None, min_rounds=ROUNDS, max_rounds=ROUNDS),
    )


def loaded(
    rates: Mapping[str, float],
    *,
    wall_ms: Callable[[float], float] = lambda rate: 2e8 / rate,
    cpu_us: Mapping[str, float] | None = None,
    requests: bool = True,
    errors: float = 0,
) -> list[Sample]:
    """Returns samples of a load with throughputs `rates`, and `cpu_us` of CPU time per request."""
    noise = random.Random(7)
    found = []
    for round_ in range(1, ROUNDS + 1):
        drift = noise.uniform(0.9, 1.1)
        for name, typical in rates.items():
            rate = typical * drift * noise.uniform(0.99, 1.01)
            wall = wall_ms(rate)
            made = rate * wall / 1e3
            one = (cpu_us or {}).get(name, 5.0) * noise.uniform(0.99, 1.01)
            load = {"requests/s": rate, "p50": 4e10 / rate, "p99": 9e10 / rate, "errors": errors}
            load |= {"SET: requests/s": rate, "transfer": 1e3 * rate}
            if requests:
                load["requests"] = made
            cpu = made * one * 1e3
            found.append(
                a_sample(
                    round_, name, wall, load=load, user_ns=round(0.7 * cpu),
                    system_ns=round(0.3 * cpu),
                )
            )  # fmt: skip
    return found


def measured(samples: list[Sample]) -> Measured:
    names = {sample.trial.contender for sample in samples}
    run = run_of(*(one for one in (SYSTEM, CAIRN, JEMALLOC) if one.name in names))
    return Measured(run, tuple(samples), (f"{ROUNDS} rounds",), "last")


def shown(samples: list[Sample], width: int = 80, *, full: bool = False) -> str:
    one = measured(samples)
    return rendered(one, comparisons(one), View(width=width, full=full))


FASTER = {"system": 100_000.0, "cairn": 110_000.0, "jemalloc": 95_000.0}


def test_the_report_of_a_load_is_golden(golden: Callable[[str, str], None]) -> None:
    for width in (80, 120):
        golden(f"load-{width}", shown(loaded(FASTER), width))
    golden("load-full", shown(loaded(FASTER), 120, full=True))


def test_more_throughput_is_better_in_every_form() -> None:
    samples = loaded(FASTER)
    (found,) = comparisons(measured(samples))
    assert [row.contender for row in found.rows] == ["cairn", "system", "jemalloc"]
    cairn = next(row for row in found.rows if row.contender == "cairn")
    assert cairn.changes["load:requests/s"].shown is Shown.MORE
    assert cairn.changes["request_time"].shown is Shown.LESS
    assert found.judged.judgements[0].effect(Measure.TIME).outcome is Outcome.BETTER
    colored = rendered(measured(samples), [found], View(width=120, color=True))
    line = next(
        line
        for place, line in enumerate(colored.splitlines())
        if "requests/s" in "".join(colored.splitlines()[max(0, place - 3) : place])
        and "cairn" in line
    )
    assert "\x1b[32m" in line and "▲" in line and "\x1b[31m" not in line, line
    document = json.loads(rendered(measured(samples), [found], View(form="json")))
    metrics = {one["key"]: one for one in document["comparisons"][0]["metrics"]}
    assert metrics["load:requests/s"]["direction"] == "more"
    assert metrics["load:p99"]["direction"] == "less"
    assert document["comparisons"][0]["time"]["key"] == "request_time"
    rows = list(csv.DictReader(io.StringIO(rendered(measured(samples), [found], View(form="csv")))))
    assert float(rows[1]["load:requests/s"]) > float(rows[0]["load:requests/s"])


def test_a_load_of_fixed_time_is_judged_by_its_throughput_and_cpu_time_per_request() -> None:
    """The tool runs for a fixed time, so the wall time is equal under each allocator."""
    rates = {"system": 100_000.0, "cairn": 120_000.0}
    samples = loaded(rates, wall_ms=lambda _: 2000.0, cpu_us={"system": 6.0, "cairn": 5.0})
    (found,) = comparisons(measured(samples))
    cairn = next(row for row in found.rows if row.contender == "cairn")
    assert cairn.changes["wall"].shown is Shown.EQUIVALENT
    effects = found.judged.judgements[0]
    for measure in (Measure.TIME, Measure.CPU_TIME):
        assert effects.effect(measure).outcome is Outcome.BETTER
        assert effects.effect(measure).ratio == pytest.approx(1 / 1.2, rel=0.02)
    assert "CPU time per" in shown(samples)


def test_without_the_number_of_requests_the_cpu_time_of_the_load_is_judged() -> None:
    samples = loaded({"system": 100_000.0, "cairn": 110_000.0}, requests=False)
    (found,) = comparisons(measured(samples))
    assert found.cpu_time.key == "cpu_time"
    assert "CPU time per" not in shown(samples)


def test_a_server_that_is_mostly_idle_is_told_first() -> None:
    samples = loaded({"system": 100_000.0, "cairn": 100_100.0}, cpu_us={"system": 1, "cairn": 1})
    text = shown(samples, 120)
    assert text.startswith(
        "The server used at most 20 % of one CPU: the load is too light for an allocator to change the "
        "throughput."
    )


def test_errors_are_shown_if_there_are_any() -> None:
    rates = {"system": 100_000.0, "cairn": 110_000.0}
    assert "errors" not in shown(loaded(rates))
    assert "errors" in shown(loaded(rates, errors=3), 120)


def test_only_the_full_report_has_the_numbers_of_each_part() -> None:
    assert "SET" not in shown(loaded(FASTER))
    assert "SET: requests/s" in shown(loaded(FASTER), 120, full=True)
    assert "transfer" in shown(loaded(FASTER), 120, full=True)


def test_a_load_without_known_numbers_is_judged_by_its_time() -> None:
    samples = [replace(sample, load={}) for sample in loaded(FASTER)]
    (found,) = comparisons(measured(samples))
    assert found.time.key == "wall" and found.judged.under_load
    assert found.rows[0].contender == "cairn"


def test_one_run_without_numbers_does_not_mix_two_kinds_of_time() -> None:
    samples = loaded(FASTER)
    samples[5] = replace(samples[5], load={})
    (found,) = comparisons(measured(samples))
    assert found.time.key == "wall"


def test_the_stopping_rule_looks_at_the_throughput() -> None:
    rates = {"system": 100_000.0, "cairn": 120_000.0}
    samples = loaded(rates, wall_ms=lambda _: 2000.0)
    (ratios,) = deciding_ratios(samples, ["system", "cairn"], "system").values()
    assert statistics.median(ratios) == pytest.approx(math.log(1 / 1.2), abs=0.02)
    plain = [replace(sample, load={}) for sample in samples]
    (ratios,) = deciding_ratios(plain, ["system", "cairn"], "system").values()
    assert set(ratios) == {0.0}
    plain[5] = samples[5]
    (ratios,) = deciding_ratios(plain, ["system", "cairn"], "system").values()
    assert set(ratios) == {0.0}, "two kinds of time are not mixed"


def test_a_server_is_judged_by_its_load_before_the_rounds() -> None:
    run = run_of()
    short = loaded(FASTER, wall_ms=lambda _: 5.0)
    (one,) = suitability.before_rounds(short, "system", run.settings)
    assert one.sentence.startswith("The load takes less than 20 ms")
    left = [replace(sample, left_behind=2) for sample in loaded(FASTER)]
    assert suitability.before_rounds(left, "system", run.settings) == ()
    idle = loaded(FASTER, cpu_us=dict.fromkeys(FASTER, 0.5))
    (one,) = suitability.after_round(idle, "system", run.settings)
    assert one.sentence.startswith("The server used at most 20 % of one CPU: the load is too light")
    assert suitability.after_round(loaded(FASTER), "system", run.settings) == ()
