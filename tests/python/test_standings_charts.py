"""Tests of the charts that rank allocators over workloads (standings) and over scenarios."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace
from support.comparisons import EVIL
from support.suites import ALLOCATORS, WORKLOADS, a_suite, exact, lively

from cairn.compare.ranking import ranking
from cairn.compare.standings import standings
from cairn.memory import Memory
from cairn.model import Run, Sample
from cairn.report import standings_charts

Draw = Callable[[Run, Sequence[Sample], str], bytes]


def times(run: Run, samples: Sequence[Sample], form: str) -> bytes:
    return standings_charts.ratios(run, standings(run, samples), title="a suite", form=form)


def memories(run: Run, samples: Sequence[Sample], form: str) -> bytes:
    return standings_charts.ratios(
        run, standings(run, samples), title="a suite", form=form, memory=True
    )


def both(run: Run, samples: Sequence[Sample], form: str) -> bytes:
    return standings_charts.time_against_memory(
        run, standings(run, samples), title="a suite", form=form
    )


def operations(run: Run, samples: Sequence[Sample], form: str) -> bytes:
    return standings_charts.percentiles(run, ranking(run, samples), title="scenarios", form=form)


ALL = pytest.mark.parametrize("draw", [times, memories, both, operations])


def small() -> tuple[Run, list[Sample]]:
    run = a_suite(("w0", "w1", "w2"), ("system", "fast"))
    return run, exact(
        run, {(w, name): ms for w in (0, 1, 2) for name, ms in (("system", 100.0), ("fast", 50.0))}
    )


@ALL
@pytest.mark.parametrize(("form", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG\r\n\x1a\n")])
def test_a_picture_is_made_in_either_form(draw: Draw, form: str, head: bytes) -> None:
    made = draw(*small(), form)
    assert made.startswith(head)
    assert len(made) > 5_000


@pytest.mark.parametrize("draw", [times, pytest.param(both, marks=pytest.mark.long)])
def test_a_whole_suite_can_be_drawn(draw: Draw) -> None:
    run = a_suite(WORKLOADS, ALLOCATORS)
    assert len(draw(run, lively(run), "svg")) > 20_000


@ALL
def test_the_same_data_give_the_same_bytes(draw: Draw) -> None:
    run = a_suite(WORKLOADS[:3], ALLOCATORS[:4])
    samples = lively(run)
    assert draw(run, samples, "svg") == draw(run, samples, "svg")


@ALL
def test_names_are_no_markup(draw: Draw) -> None:
    run, samples = small()
    evil = f"$x^2$ {EVIL}"
    contenders = (run.contenders[0], replace(run.contenders[1], name=evil, title=evil))
    named = tuple(replace(workload, name=evil) for workload in run.settings.workloads)
    run = replace(run, contenders=contenders, settings=replace(run.settings, workloads=named))
    of = [
        replace(
            s, trial=replace(s.trial, contender=evil if s.trial.contender == "fast" else "system")
        )
        for s in samples
    ]
    made = draw(run, of, "svg")
    root = ET.fromstring(made)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert b"\x1b" not in made


@ALL
@pytest.mark.parametrize(
    "without",
    [
        "everything",
        pytest.param("intervals", marks=pytest.mark.long),
        "memory",
        pytest.param("reports", marks=pytest.mark.long),
        pytest.param("one contender", marks=pytest.mark.long),
    ],
)
def test_missing_measurements_are_no_error(draw: Draw, without: str) -> None:
    run, samples = small()
    unknown = Memory("not measured", None, None, None)
    match without:
        case "everything":
            samples = []
        case "intervals":
            samples = [s for s in samples if s.trial.round == 1]
        case "memory":
            samples = [replace(s, memory=unknown) for s in samples]
        case "reports":
            samples = [replace(s, reported=None) for s in samples]
        case "one contender":
            samples = [
                replace(s, failure="died") if s.trial.contender == "fast" else s for s in samples
            ]
    assert draw(run, samples, "svg").startswith(b"<?xml")


def test_a_value_far_off_is_cut_and_the_other_values_stay_readable() -> None:
    assert standings_charts._cut([1.0, 1.1, 1.2, 1.3] * 10 + [60.0]) == 1.5
    assert standings_charts._cut([1.0, 8.0, 9.0, 1.3]) == 10.0
    assert standings_charts._cut([50.0, 60.0]) == 30.0
    assert standings_charts._cut([]) == 1.5


def test_ticks_are_thinned_evenly_and_keep_the_first() -> None:
    assert standings_charts._thinned([1, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3], 4)[0] == 1
    assert len(standings_charts._thinned(list(range(1, 30)), 4)) == 4
    assert standings_charts._thinned([1, 2], 4) == [1, 2]


def test_the_plane_names_the_contenders_that_have_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is drawn as paths, so it is taken from the function that draws it."""
    told: list[str] = []
    monkeypatch.setattr(standings_charts, "framed", lambda *given: told.append(given[-1]))
    whole = a_suite(WORKLOADS, ALLOCATORS)
    both(whole, lively(whole), "svg")
    both(*small(), "svg")
    failed, complete = told
    assert failed.endswith(" · not shown, because they have no mean: scudo, hardened-light")
    assert "not shown" not in complete
