"""Tests of the words of a comparison: each shape of verdict is a golden file at 80 and 120 columns.

The runs are invented. Their noise comes from a seed, so the files do not change from run to run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace
from rich.cells import cell_len
from support.comparisons import a_run, a_sample

from cairn.compare import comparison, suitability
from cairn.memory import Memory
from cairn.model import Contender, Run, Sample, StopRule, Workload
from cairn.report import terminal
from cairn.report.verdict import says
from cairn.report.view import View
from cairn.verdict import (
    AIMS,
    EVERY_AIM,
    Advice,
    Aim,
    Bound,
    Effect,
    Judgement,
    Measure,
    Outcome,
    Recommendation,
    State,
    Verdict,
)

WIDTHS = (80, 120)
SCREEN_LINES = 24
"""A terminal shows this many lines without scrolling."""

TITLES = {
    "system": "glibc 2.36",
    "cairn": "cairn 0.1.0",
    "jemalloc": "jemalloc 5.3.1",
    "mimalloc": "mimalloc 3.3.2",
    "rpmalloc": "rpmalloc 1.4.3",
    "snmalloc": "snmalloc 0.7.6",
    "tcmalloc": "tcmalloc 2.10",
    "hardened": "hardened_malloc 13",
}
BASE_MS, BASE_BYTES, BASE_FAULTS = 2000.0, 100 << 20, 24_000


class Truth(Struct, frozen=True):
    """The true ratios of a contender to the baseline."""

    time: float = 1.0
    cpu: float | None = None
    """The ratio of CPU time. None: the same as that of `time`."""
    memory: float = 1.0
    faults: float = 1.0
    lazy: float = 0.0
    """The part of the contender's memory that is lazily freed."""
    failure: str | None = None


class Shape(Struct, frozen=True):
    """An invented run on which a test wants a verdict."""

    contenders: Mapping[str, Truth]
    rounds: int = 20
    noise: float = 0.01
    memory_noise: float = 0.005
    rule: StopRule = field(default_factory=lambda: StopRule(budget_s=600))
    stopped: str = "precision reached"
    disturbed: Sequence[tuple[str, int]] = ()
    """The runs, as (contender, round), that other work on the machine slowed down."""
    memory: bool = True
    notes: tuple[str, ...] = ()
    base_ms: float = BASE_MS
    sleep: float = 0.0
    """The part of the wall time in which the program waits."""
    left_behind: int = 0
    """The number of processes that the program leaves in the background."""
    baseline: str = "system"
    workloads: tuple[str, ...] = ("./server 1000000",)
    aim: Aim = EVERY_AIM
    over_time: bool = False
    """Whether these were measured: mean memory, growth, and memory after idle time."""
    idle: bool = True
    """Whether memory after idle time was measured, if `over_time` is set."""


def ratios(**more: float) -> Truth:
    return Truth(**more)  # type: ignore[arg-type]


LEAN = Aim(Measure.MEMORY)
LEAN_AT_5 = Aim(Measure.MEMORY, (Bound(Measure.TIME, 0.05),))
FRONT = Aim(pareto=True)
DIFFERENT = {
    "system": ratios(),
    "tcmalloc": ratios(time=0.86, memory=1.40, faults=1.5),
    "cairn": ratios(time=0.93, memory=0.72, faults=0.8),
}
"""The fastest contender is not the one with the least memory."""

SHAPES: dict[str, Shape] = {
    "goal-time": Shape(DIFFERENT, aim=Aim(Measure.TIME)),
    "goal-cpu": Shape(DIFFERENT, aim=Aim(Measure.CPU_TIME)),
    "goal-memory": Shape(DIFFERENT, aim=LEAN),
    "goal-memory-over-time": Shape(DIFFERENT, aim=LEAN, over_time=True),
    "front-over-time": Shape(DIFFERENT, aim=FRONT, over_time=True),
    "goal-memory-equal": Shape({"system": ratios(), "cairn": ratios(time=0.9)}, aim=LEAN),
    "goal-memory-worse": Shape({"system": ratios(), "cairn": ratios(time=0.9, memory=1.3)}, aim=LEAN),
    "goal-memory-costs-nothing": Shape(
        {"system": ratios(), "lean": ratios(memory=0.69)}, noise=0.004, aim=LEAN
    ),
    "goal-memory-not-known": Shape(
        {"system": ratios(), "lean": ratios(memory=0.98)}, memory_noise=0.3, aim=LEAN
    ),
    "goal-memory-not-measured": Shape(
        {"system": ratios(), "cairn": ratios(time=0.9)}, memory=False, aim=LEAN
    ),
    "goal-memory-alike": Shape(
        {"system": ratios(), "cairn": ratios(memory=0.8), "lean": ratios(memory=0.8)}, aim=LEAN
    ),
    "goal-time-while-waiting": Shape(
        {"system": ratios(), "cairn": ratios(memory=0.8)}, sleep=0.98, aim=Aim(Measure.TIME)
    ),
    "goal-failed-contender": Shape(
        {
            "system": ratios(),
            "lean": ratios(memory=0.8),
            "crash": Truth(failure="was killed by SIGSEGV"),
        },
        aim=LEAN,
    ),
    "bound-kept": Shape({"system": ratios(), "lean": ratios(time=1.03, memory=0.7)}, aim=LEAN_AT_5),
    "bound-exceeded": Shape(
        {"system": ratios(), "lean": ratios(time=1.12, memory=0.7)}, aim=LEAN_AT_5
    ),
    "bound-not-known": Shape(
        {"system": ratios(), "lean": ratios(time=1.045, memory=0.7)}, noise=0.02, aim=LEAN_AT_5
    ),
    "bound-one-keeps-it": Shape(
        {
            "system": ratios(),
            "lean": ratios(time=1.2, memory=0.6),
            "cairn": ratios(time=1.02, memory=0.8),
            "mimalloc": ratios(time=1.05, memory=0.7),
        },
        noise=0.02,
        aim=LEAN_AT_5,
    ),
    "bounds-two": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8, cpu=1.01, memory=1.02)},
        aim=Aim(Measure.TIME, (Bound(Measure.CPU_TIME, 0.05), Bound(Measure.MEMORY, 0.05))),
    ),
    "front-of-one": Shape({"system": ratios(), "cairn": ratios(time=0.8, memory=0.9)}, aim=FRONT),
    "front-is-the-baseline": Shape(
        {"system": ratios(), "cairn": ratios(time=1.2, memory=1.1)}, aim=FRONT
    ),
    "front-of-two": Shape(DIFFERENT, aim=FRONT),
    "front-of-three": Shape(
        DIFFERENT | {"system": ratios(), "lean": ratios(time=1.1, memory=0.5)}, aim=FRONT
    ),
    "front-of-five": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.95, memory=0.98),
            "mimalloc": ratios(time=0.80, memory=1.10),
            "jemalloc": ratios(time=0.90, memory=1.05),
            "tcmalloc": ratios(time=0.80, memory=1.31),
        },
        aim=FRONT,
    ),
    "front-many-beaten": Shape(
        {name: ratios(time=1 + place / 10, memory=1 + place / 20)
         for place, name in enumerate(("system", "cairn", "lean", "jemalloc", "mimalloc",
                                       "tcmalloc"))},
        aim=FRONT,
    ),
    "front-not-known": Shape(
        {"system": ratios(), "cairn": ratios(time=0.99), "lean": ratios(memory=0.99)},
        noise=0.1, memory_noise=0.1, aim=FRONT,
    ),
    "front-not-measured": Shape(
        {"system": ratios(), "cairn": ratios(time=0.9)}, memory=False, aim=FRONT
    ),
    "short-program": Shape(
        {"system": ratios(), "cairn": ratios(time=0.9)}, base_ms=1.3, noise=0.2, rounds=200,
        stopped="200 rounds",
    ),
    "in-the-background": Shape(
        {"system": ratios(), "cairn": ratios(time=0.9)}, base_ms=240, left_behind=2,
        workloads=("nginx -c nginx.conf",),
    ),
    "better-by-all": Shape(
        {"system": ratios(), "cairn": ratios(time=0.64, memory=0.94, faults=0.7)}
    ),
    "better-by-time-worse-by-memory": Shape(
        {"system": ratios(), "jemalloc": ratios(time=0.79, memory=1.17, faults=1.3)}
    ),
    "two-level-by-time": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.80, memory=1.04, faults=0.9),
            "tcmalloc": ratios(time=0.80, memory=1.31, faults=1.2),
        }
    ),
    "three-level-by-time": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.80, memory=1.04),
            "mimalloc": ratios(time=0.80, memory=1.10),
            "tcmalloc": ratios(time=0.80, memory=1.31),
        }
    ),
    "time-and-memory-differ": Shape(
        {
            "system": ratios(),
            "tcmalloc": ratios(time=0.86, memory=1.40, faults=1.5),
            "cairn": ratios(time=0.93, memory=0.72, faults=0.8),
        }
    ),
    "only-memory": Shape(
        {"system": ratios(), "lean": ratios(memory=0.69, faults=0.8)},
        noise=0.004,
    ),
    "only-memory-time-unclear": Shape(
        {"system": ratios(), "lean": ratios(memory=0.69)}, noise=0.05, rounds=30, stopped="30 rounds"
    ),
    "only-cpu-time": Shape(
        {"system": ratios(), "jemalloc": ratios(time=1.0, cpu=0.86, memory=1.31)},
        noise=0.035,
    ),
    "more-cpu-time-for-less-time": Shape(
        {"system": ratios(), "mimalloc": ratios(time=0.88, cpu=1.21, memory=0.97)},
    ),
    "nothing-shown": Shape(
        {"system": ratios(), "mimalloc": ratios(), "tcmalloc": ratios()},
        noise=0.12, memory_noise=0.1, rounds=200, stopped="200 rounds",
    ),
    "nothing-known-yet": Shape(
        {"system": ratios(), "mimalloc": ratios(), "tcmalloc": ratios()},
        noise=0.15, memory_noise=0.1, rounds=12, stopped="time budget",
    ),
    "equivalent": Shape(
        {"system": ratios(), "mimalloc": ratios(), "tcmalloc": ratios()},
        noise=0.004, memory_noise=0.003, rounds=22,
    ),
    "equivalent-one": Shape(
        {"system": ratios(), "mimalloc": ratios()}, noise=0.004, memory_noise=0.003, rounds=22
    ),
    "one-round": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8)}, rounds=1, stopped="time budget",
        base_ms=3400,
    ),
    "too-few-rounds": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8), "jemalloc": ratios(time=0.9)},
        rounds=3, rule=StopRule(precision=None, min_rounds=3, max_rounds=3), stopped="3 rounds",
    ),
    "baseline-best": Shape(
        {
            "system": ratios(),
            "jemalloc": ratios(time=1.07, memory=1.22, faults=1.6),
            "hardened": ratios(time=1.74, memory=1.35, faults=1.9),
        }
    ),
    "one-is-worse": Shape({"system": ratios(), "scudo": ratios(time=1.12, memory=1.08)}),
    "slower-but-leaner": Shape(
        {"system": ratios(), "scudo": ratios(time=1.12, memory=0.58, faults=0.9)}
    ),
    "failed-contender": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.8, memory=0.95),
            "crash": Truth(failure="was killed by signal 4 (SIGILL)"),
        }
    ),
    "all-others-failed": Shape(
        {
            "system": ratios(),
            "crash": Truth(failure="was killed by signal 4 (SIGILL)"),
            "ill": Truth(failure="ended with exit code 1"),
        }
    ),
    "baseline-failed": Shape(
        {"system": Truth(failure="ended with exit code 1"), "cairn": ratios(time=0.8)},
        stopped="nothing left to compare",
    ),
    "alone": Shape({"system": ratios()}, stopped="nothing left to compare"),
    "no-round": Shape({"system": ratios(), "cairn": ratios()}, rounds=0, stopped="interrupted"),
    "mix-of-three": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.91, memory=0.97, faults=0.8),
            "jemalloc": ratios(time=1.0, cpu=0.96, memory=1.2),
            "hardened": ratios(time=1.35, memory=1.1, faults=1.9),
        }
    ),
    "far-slower": Shape(
        {"system": ratios(), "guard": ratios(time=46, cpu=44, memory=2.4, faults=31)}
    ),
    "twice-and-half": Shape(
        {"system": ratios(), "arena": ratios(time=0.5, memory=2.0, faults=0.5)},
        noise=0.004, memory_noise=0.001,
    ),
    "far-faster": Shape(
        {"system": ratios(), "pool": ratios(time=0.048, memory=0.031, faults=0.02)}
    ),
    "far-slower-and-wide": Shape(
        {"system": ratios(), "guard": ratios(time=2.6, memory=1.0)}, noise=0.2, rounds=12,
        stopped="time budget",
    ),
    "many-contenders": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.70, memory=0.90, faults=0.7),
            "mimalloc": ratios(time=0.74, memory=1.27, faults=1.2),
            "rpmalloc": ratios(time=0.80, memory=1.36, faults=1.4),
            "snmalloc": ratios(time=0.85, memory=1.22, faults=1.3),
            "tcmalloc": ratios(time=0.88, memory=1.45, faults=1.2),
            "jemalloc": ratios(time=0.97, memory=1.18, faults=1.1),
            "hardened": ratios(time=1.62, memory=1.30, faults=1.5),
        }
    ),
    "many-contenders-alike": Shape(
        {
            "system": ratios(),
            **{name: ratios() for name in ("cairn", "mimalloc", "rpmalloc", "snmalloc", "tcmalloc")},
        },
        noise=0.005, memory_noise=0.003, rounds=60,
    ),
    "many-contenders-level": Shape(
        {
            "system": ratios(),
            "cairn": ratios(time=0.90, memory=0.93),
            "mimalloc": ratios(time=0.90, memory=1.12),
            "rpmalloc": ratios(time=0.90, memory=1.21),
            "snmalloc": ratios(time=0.90, memory=1.16),
            "tcmalloc": ratios(time=0.90, memory=1.36),
        },
        noise=0.02,
    ),
    "lazily-freed": Shape(
        {"system": ratios(), "jemalloc": ratios(time=0.9, memory=1.5, lazy=0.55)}
    ),
    "memory-not-measured": Shape(
        {"system": ratios(), "cairn": ratios(time=0.9)}, memory=False
    ),
    "disturbed-runs": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8), "tcmalloc": ratios(time=0.9)},
        disturbed=(("cairn", 5), ("system", 9), ("tcmalloc", 14)),
        notes=("tcmalloc: it is not the newest release",),
    ),
    "one-disturbed-run": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8)}, disturbed=(("cairn", 5),)
    ),
    "baseline-is-another": Shape(
        {"jemalloc": ratios(), "tcmalloc": ratios(time=0.9, memory=1.1)}, baseline="jemalloc"
    ),
    "several-workloads": Shape(
        {"system": ratios(), "cairn": ratios(time=0.8, memory=1.1)},
        workloads=("./bench --threads 1", "./bench --threads 4"),
    ),
    "leaner-in-memory-fatter-in-cpu": Shape(
        {"system": ratios(), "x": ratios(time=1.0, cpu=1.04, memory=0.903)}, noise=0.008
    ),
    "small-differences": Shape(
        {"system": ratios(), "cairn": ratios(time=0.976, memory=1.015, faults=0.97)},
        noise=0.006, memory_noise=0.002, rounds=28,
    ),
    "tiny-proven-difference": Shape(
        {"system": ratios(), "cairn": ratios(time=0.995, memory=0.996)},
        noise=0.002, memory_noise=0.001,
    ),
    "proven-but-tiny": Shape(
        {"system": ratios(), "cairn": ratios(time=1.0, memory=0.993)},
        noise=0.004, memory_noise=0.012, rounds=40,
    ),
    "better-by-time-tiny-in-memory": Shape(
        {"system": ratios(), "cairn": ratios(time=0.85, memory=1.007)},
        memory_noise=0.012, rounds=40,
    ),
    "waits": Shape(
        {"system": ratios(), "cairn": ratios(cpu=0.9, memory=0.95)}, noise=0.001, sleep=0.98
    ),
}  # fmt: skip


def samples(shape: Shape, workload: int) -> list[Sample]:
    """Returns the runs of one workload: a warm-up that does not count, then the rounds."""
    rng = random.Random(4711 + workload)

    def around(noise: float) -> float:
        return 1 + rng.uniform(-noise, noise) + rng.gauss(0, noise / 3)

    made = []
    now = 1e9
    for round_ in range(1, shape.rounds + 1):
        drift = rng.uniform(0.95, 1.05)
        for name, true in shape.contenders.items():
            wall = shape.base_ms * true.time * drift * around(shape.noise)
            if (name, round_) in shape.disturbed:
                wall *= 1.6
            cpu = true.time if true.cpu is None else true.cpu
            cpu_ms = shape.base_ms * (1 - shape.sleep) * cpu * drift * around(shape.noise)
            peak = round(BASE_BYTES * true.memory * around(shape.memory_noise))
            part = round(peak * true.lazy)
            memory = (
                Memory("cgroup v2", peak, peak - part, part)
                if shape.memory
                else Memory("not measured", None, None, None)
            )
            if shape.over_time:
                lean = true.memory < 1
                memory = replace(
                    memory,
                    mean_bytes=round(0.6 * peak),
                    growth_bytes=-(2 << 20) if lean else 3 << 20,
                    idle_bytes=round((0.2 if lean else 0.5) * peak) if shape.idle else None,
                )
            sample = a_sample(
                round_, name, wall, memory=memory, user_ns=round(cpu_ms * 0.9e6),
                system_ns=round(cpu_ms * 0.1e6),
                minor_faults=round(BASE_FAULTS * true.faults * around(shape.memory_noise)),
                left_behind=shape.left_behind,
            )  # fmt: skip
            sample = replace(sample, trial=replace(sample.trial, workload=workload), started_at=now)
            now += wall / 1e3
            if true.failure is not None:
                sample = replace(sample, failure=true.failure)
            made.append(sample)
    return made


def rendered(shape: Shape, view: View) -> str:
    names = list(shape.contenders)
    run: Run = a_run(*(Contender(name, name, TITLES.get(name, name), spec=name) for name in names))
    workloads = tuple(Workload(line, tuple(line.split())) for line in shape.workloads)
    run = replace(
        run,
        settings=replace(run.settings, workloads=workloads),
        notes=shape.notes,
        baseline=shape.baseline,
        rule=shape.rule,
    )
    found = []
    for place in range(len(workloads)):
        its = samples(shape, place)
        found.append(
            comparison.compare(
                its, run.contenders, run.baseline, run.rule, stopped_because=shape.stopped,
                unsuited=suitability.sentences(its, run.baseline, run.settings, place),
                aim=shape.aim,
            )
        )  # fmt: skip
    return terminal.render(run, found, view)


@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_of_a_verdict_is_golden(name: str, golden: Callable[[str, str], None]) -> None:
    shape = SHAPES[name]
    for width in WIDTHS:
        text = rendered(shape, View(width=width))
        assert all(cell_len(line) <= width for line in text.splitlines()), text
        assert "\x1b" not in text
        if len(shape.workloads) == 1 and not shape.aim.pareto:
            assert len(text.splitlines()) < SCREEN_LINES, "the prompt is on the same screen"
        if "peak memory against" in text and len(shape.contenders) <= 4:
            before = text[: text.index("peak memory against")]
            assert len(before.splitlines()) < SCREEN_LINES, "the plane follows the evidence"
        golden(f"verdict/{name}-{width}", text)


def a_verdict(*effects: Effect, **more: object) -> Verdict:
    """Returns the verdict on one contender, `x`, without advice."""
    judgement = Judgement("x", effects)
    made = Verdict(State.JUDGED, "system", rounds=20, margin=0.01, judgements=(judgement,))
    return replace(made, **more)  # type: ignore[arg-type]


def an_effect(measure: Measure, ratio: float, half_width: float = 0.01) -> Effect:
    low, high = ratio * (1 - half_width), ratio * (1 + half_width)
    outcome = Outcome.BETTER if high < 1 else Outcome.WORSE if low > 1 else Outcome.NOT_SHOWN
    return Effect(measure, outcome, ratio, low, high, 0.95, amount=None)


def sentence(*, same: bool = False, **ratios_: float) -> str:
    """Returns the sentence on a contender with these ratios. `same` makes its time equivalent."""
    given_ = {"time": 1.0, "cpu": 1.0, "memory": 1.0, "faults": 1.0} | ratios_
    effects = [an_effect(m, r) for m, r in zip(Measure, given_.values(), strict=True)]
    if same:
        effects[0] = replace(effects[0], outcome=Outcome.EQUIVALENT)
    keep = tuple(Recommendation(aim, Advice.KEEP) for aim in AIMS)
    (text,) = says(a_verdict(*effects, recommendations=keep)).evidence
    return text


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.9998 / 20.0, "1/20 of the time of system"),
        (1 / 1111, "1/1,111 of the time of system"),
        (0.18, "82 % less time than system"),
        (0.5, "half the time of system"),
        (0.862, "14 % less time than system"),
        (0.9, "10 % less time than system"),
        (1.0995, "10 % more time than system"),
        (1.31, "31 % more time than system"),
        (1.99, "99 % more time than system"),
        (2.0, "twice the time of system"),
        (2.44, "2.4 times the time of system"),
        (46.2, "46 times the time of system"),
        (1234.0, "1,234 times the time of system"),
    ],
)
def test_a_ratio_is_told_as_people_say_it(ratio: float, words: str) -> None:
    assert sentence(time=ratio) == f"x takes {words}."


def test_but_stands_where_good_news_turns_into_bad_news() -> None:
    assert sentence(time=0.8, memory=1.2) == (
        "x takes 20 % less time, but 20 % more memory than system."
    )
    assert sentence(time=0.8, cpu=1.2, memory=0.7) == (
        "x takes 20 % less time and 30 % less memory, but 20 % more CPU time than system."
    )
    assert sentence(time=2.0, memory=0.5, faults=3.0) == (
        "x takes twice the time and 3.0 times the page faults, but half the memory of system."
    )
    assert sentence(cpu=1.1, memory=1.2, same=True) == (
        "Compared with system, x takes the same time within ±1 %, but 10 % more CPU time and 20 % "
        "more memory."
    )
    assert sentence(cpu=1.1, memory=0.8, same=True) == (
        "Compared with system, x takes the same time within ±1 % and 10 % more CPU time, but 20 % "
        "less memory."
    )
    assert sentence(memory=0.8, same=True) == (
        "Compared with system, x takes the same time within ±1 % and 20 % less memory."
    )


def test_measures_keep_their_order_and_equal_ones_are_joined() -> None:
    assert sentence(time=0.8, cpu=0.8, memory=0.7, faults=0.6) == (
        "x takes 20 % less time and CPU time, 30 % less memory, and 40 % fewer page faults than "
        "system."
    )
    assert sentence(cpu=0.86, memory=1.31) == (
        "x takes 14 % less CPU time, but 31 % more memory than system; no difference in time is "
        "shown."
    )


def test_nothing_measured_is_no_answer() -> None:
    nothing = [Effect(measure, Outcome.NOT_KNOWN) for measure in Measure]
    advice = tuple(Recommendation(aim, Advice.NOT_MEASURED) for aim in AIMS)
    assert says(a_verdict(*nothing, recommendations=advice)).sentences == (
        "No answer: neither time, CPU time nor memory was measured in every run. 'cairn doctor' says "
        "what the measurement needs.",
    )


@given(
    st.lists(st.floats(1e-4, 1e4), min_size=4, max_size=4),
    st.lists(st.floats(0, 0.5), min_size=4, max_size=4),
)
def test_every_verdict_can_be_told(ratios_: list[float], widths: list[float]) -> None:
    effects = [
        an_effect(measure, ratio, width)
        for measure, ratio, width in zip(Measure, ratios_, widths, strict=True)
    ]
    best = {m.measure: ("x",) if m.outcome is Outcome.BETTER else () for m in effects}
    advice = tuple(
        Recommendation(aim, Advice.USE if best[aim] else Advice.KEEP, best=best[aim])
        for aim in AIMS
    )
    text = " ".join(says(a_verdict(*effects, recommendations=advice)).sentences)
    for effect in effects:
        if effect.outcome is not Outcome.NOT_SHOWN:
            assert effect.measure.value in text, text
    assert not re.search(r"(?<![\d.,])0(\.0+)? (%|times)|nan|inf|  ", text), text


@pytest.mark.parametrize(
    ("aim", "is_shown"),
    [
        (EVERY_AIM, False),
        (Aim(Measure.TIME), False),
        (LEAN, True),
        (Aim(Measure.TIME, (Bound(Measure.MEMORY, 0.05),)), True),
        (FRONT, True),
    ],
)
def test_memory_over_time_has_a_table_if_memory_is_an_aim(aim: Aim, is_shown: bool) -> None:
    shape = Shape(DIFFERENT, aim=aim, over_time=True, idle=False)
    assert ("mean memory" in rendered(shape, View())) == is_shown
    assert "mean memory" in rendered(replace(shape, idle=True), View())
