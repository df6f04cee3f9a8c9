"""Tests of the place of an allocator in ranges: invented ones, and those that come with Cairn.

The kept ranges have the values of healthy and of ill allocators. So the tests can check with these
ranges how well a judgement tells healthy allocators from ill ones.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.comparisons import a_run
from support.documents import keys
from support.judging import HEALTHY_LEAST, ILL_IN
from support.widths import at_all_widths

from cairn import native
from cairn.bench import kept_ranges
from cairn.binary.library import inspect_library
from cairn.cli import judge
from cairn.cli.console import Output
from cairn.errors import UsageError
from cairn.matrix import programs, runs
from cairn.model import SCHEMA, Contender
from cairn.profile.metrics import METRICS, Number
from cairn.report import placing as reporting
from cairn.report import terminal
from cairn.report.placing import RangeJudgement
from cairn.report.run import Measured
from cairn.report.view import View
from cairn.why import placing
from cairn.why.ill_allocators import ILL
from cairn.why.placing import Placed, placed
from cairn.why.ranges import Cost, ProfileTable

KEYS = ("calls.map", "page_use")
MORE = placing.WIDENED["kernel"]
LESS = placing.WIDENED["layout"]


def invented(ill: tuple[str, ...] = ()) -> ProfileTable:
    """Returns ranges of healthy allocators.

    Their mapping calls reach from 1 to 4, and their page use from 0.5 to 0.9. The allocators in
    `ill` have 40 mapping calls.
    """
    names = ("system", "cairn", "jemalloc", "mimalloc", *ill)
    values = {"system": (1, 0.9), "cairn": (2, 0.8), "jemalloc": (3, 0.6), "mimalloc": (4, 0.5)}
    cells = {
        name: {
            key: (float(value), float(value), float(value))
            for key, value in zip(KEYS, values.get(name, (40, 0.9)), strict=True)
        }
        for name in names
    }
    costs = {name: Cost(2.5 if name in ill else 1.0, 1.5) for name in names}
    titles = {name: f"{name} 1.0" for name in names}
    return ProfileTable("system", titles, ("sort",), {"sort": cells}, {"sort": costs}, {}, ill)


def place(calls: float | Number, use: float = 0.9, ill: tuple[str, ...] = ()) -> list[Placed]:
    number = calls if isinstance(calls, tuple) else (calls, calls, calls)
    cells = {"sort": {"calls.map": number, "page_use": (use, use, use)}}
    return list(placed(cells, invented(ill)))


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        (0.0, "inside"), (4.0, "inside"), (4.1, "edge"), (4 * MORE, "edge"),
        (4 * MORE + 0.1, "outside"), ((4 * MORE + 1, 4 * MORE - 1, 90.0), "edge"),
    ],
)  # fmt: skip
def test_a_value_is_placed_by_its_distance_from_the_worst_healthy_one(
    calls: float | Number, verdict: str
) -> None:
    found = place(calls)[0]
    assert (found.metric.key, found.verdict, found.end_of) == ("calls.map", verdict, "mimalloc")


def test_less_use_is_worse() -> None:
    assert place(1, use=0.5 / LESS + 0.01)[1].verdict == "edge"
    assert place(1, use=0.5 / LESS - 0.01)[1].verdict == "outside"
    assert place(1, use=1.0)[1].verdict == "inside"


def test_the_cost_is_that_of_those_who_were_outside_there() -> None:
    found = place(100, ill=("mmap_storm",))[0]
    assert [one.contender for one in found.outliers] == ["mmap_storm"]
    assert found.cost("cpu") == (2.5, 2.5, 2.5)
    assert place(100)[0].cost("cpu") is None
    assert place(2, ill=("mmap_storm",))[0].outliers == ()


def test_ill_allocators_are_in_no_range() -> None:
    assert place(30, ill=("mmap_storm",))[0].end == 4.0


def test_a_range_of_two_contenders_places_nobody() -> None:
    table = invented().without(("cairn", "jemalloc"))
    assert placed({"sort": {"calls.map": (100.0, 100.0, 100.0)}}, table) == ()


def judgement(name: str = "mine") -> RangeJudgement:
    table = invented(("mmap_storm",))
    cells = {"sort": {"calls.map": (100.0, 100.0, 100.0), "page_use": (0.4, 0.4, 0.4)}}
    return RangeJudgement(
        name=name, title="libmine.so", placed=placed(cells, table), contenders=table.healthy,
        baseline="system", about="Made by cairn 0 on 2026-01-01.", missing=("gcc",),
    )  # fmt: skip


def test_golden_of_a_judgement(golden: Callable[[str, str], None]) -> None:
    found = judgement()
    golden(
        "judge",
        at_all_widths(
            lambda view: terminal.drawn(
                reporting.board(found, full=view.full), view, answer_first=True
            )
        ),
    )


def test_the_other_forms_of_a_judgement_have_every_metric(
    golden: Callable[[str, str], None],
) -> None:
    rows = list(csv.DictReader(io.StringIO(reporting.as_csv([judgement()]))))
    assert [row["place"] for row in rows] == ["outside", "edge"]
    document = json.loads(reporting.as_json([judgement()]))
    assert document["metrics"][0]["outliers"][0]["cost"]["cpu"] == 2.5
    golden("keys/judge", keys(document))


def test_several_judgements_are_one_document_and_one_table() -> None:
    """Cairn once printed two JSON documents, and a table whose rows named no allocator."""
    both = [judgement("mine"), judgement("other")]
    document = json.loads(judge._rendered(both, Output(View(form="json"))))
    first, second = document["allocators"]
    assert (first["name"], second["name"], document["schema"]) == ("mine", "other", SCHEMA)
    alone = json.loads(reporting.as_json(both[:1]))
    assert alone == {"schema": SCHEMA, **first}
    table = judge._rendered(both, Output(View(form="csv")))
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [(row["contender"], row["place"]) for row in rows] == [
        ("mine", "outside"), ("mine", "edge"), ("other", "outside"), ("other", "edge"),
    ]  # fmt: skip
    markdown = judge._rendered(both, Output(View(form="md")))
    assert markdown.count("# libmine.so beside healthy allocators\n") == 2


def test_a_title_that_two_contenders_share_has_their_names() -> None:
    shared = "jemalloc 5.3.1"
    contenders = [Contender(name, "jemalloc", shared) for name in ("jemalloc", "lazy")]
    run = a_run(Contender("system", "system", "glibc 2.36"), *contenders)
    found = judge._judgements(Measured(run, (), (), "last", kind="matrix"), invented(), "")
    assert [one.title for one in found] == [f"jemalloc ({shared})", f"lazy ({shared})"]


def a_run_of_judge(plan: str = "judge") -> Measured:
    """Returns a run with the programs of the plan 'judge' and without samples."""
    run = a_run(Contender("system", "system", "glibc 2.36"), Contender("x", "x", "x 1.0"))
    settings = programs.settings_of(runs.load("judge").plan.programs, Path("/"))
    run = replace(run, experiment=f"matrix {plan}", settings=settings, baseline="system")
    return Measured(run, (), (), "last", kind="matrix")


def test_cairn_s_own_ranges_judge_no_run_of_another_plan() -> None:
    """A program of the same name may do other work there.

    A plan of the user with the file judge.toml was once taken for Cairn's own.
    """
    judge._refuse_other_plan(a_run_of_judge())
    with pytest.raises(UsageError, match=r"a run of the plan 'suite'.*--ranges"):
        judge._refuse_other_plan(a_run_of_judge("suite"))
    found = a_run_of_judge()
    *others, last = found.run.settings.workloads
    for other in (replace(last, command=("pipeline",)), replace(last, name="mine")):
        settings = replace(found.run.settings, workloads=(*others, other))
        own = replace(found, run=replace(found.run, settings=settings))
        with pytest.raises(UsageError, match=rf"plan 'judge', whose {other.name} is another"):
            judge._refuse_other_plan(own)
    some = replace(found.run.settings, workloads=tuple(others[1:]))
    judge._refuse_other_plan(replace(found, run=replace(found.run, settings=some)))


def test_a_run_is_judged_by_ranges_of_the_same_baseline_alone() -> None:
    """Times that were divided by those of jemalloc were once called multiples of the system's."""
    found = a_run_of_judge()
    judge._refuse_other_baseline(found, invented())
    other = replace(found, run=replace(found.run, baseline="x"))
    with pytest.raises(UsageError, match=r"is x, and that of the ranges is system; measure again"):
        judge._refuse_other_baseline(other, invented())
    metric = next(one for one in METRICS if one.relative)
    cells = {
        "sort": {
            name: {metric.key: (n, n, n)} for name, n in zip("abcd", (1, 1, 2, 2), strict=True)
        }
    }
    titles = dict.fromkeys("abcd", "")
    table = ProfileTable("a", titles, ("sort",), cells, {"sort": {}}, {}, ())
    (far,) = placed({"sort": {metric.key: (50.0, 50.0, 50.0)}}, table)
    made = reporting.board(
        RangeJudgement("m", "m", (far,), tuple("abcd"), baseline="a", about=""), full=False
    )
    assert "50 × that of a on sort" in " ".join(made.says)
    assert "Times are multiples of those of a." in " ".join(made.footer)


LEFT_OUT = {
    "jemalloc": (Contender("lazy", "jemalloc", "jemalloc 5.2", ("/l/libjemalloc.so.2",)), "jemalloc"),
    "a path": (Contender("a", "custom", "x", ("/l/libjemalloc.so.2",)), "jemalloc"),
    "the end of a link": (
        Contender("a", "custom", "x", ("/l/x.so",), owners=("/l/libmimalloc.so.2.1",)), "mimalloc",
    ),
    "our library": (Contender("a", "custom", "x", ("/l/libcairn.so.0",)), "cairn"),
    "a name of the user": (Contender("a", "my-mi", "my-mi", ("/l/libmimalloc.so.2",)), "mimalloc"),
    "another name in the ranges": (Contender("a", "custom", "jemalloc 1.0"), "jemalloc"),
    "the hardened build": (Contender("a", "custom", "x", ("/l/libcairn-hardened.so.0",)), None),
    "another library": (Contender("a", "custom", "x", ("/l/libother.so",)), None),
    "another library with the name of one": (Contender("jemalloc", "custom", "x", ("/x.so",)), None),
}  # fmt: skip
"""By the way of naming a library: a contender, and its own library in the ranges."""


def left_out_for(contender: Contender, table: ProfileTable) -> tuple[str, ...]:
    run = a_run(Contender("system", "system", "glibc 2.36"), contender)
    (found,) = judge._judgements(Measured(run, (), (), "last", kind="matrix"), table, "")
    assert set(found.contenders) == set(table.healthy) - set(found.left_out)
    return found.left_out


@pytest.mark.parametrize("how", LEFT_OUT)
def test_the_ranges_do_not_contain_the_judged_library(how: str) -> None:
    """A library that was given by its path was judged by a range that contained it."""
    contender, expected = LEFT_OUT[how]
    assert left_out_for(contender, invented()) == ((expected,) if expected else ())


def test_an_allocator_with_the_library_of_another_is_that_allocator() -> None:
    contender = Contender("a", "google-tcmalloc-rseq", "x", ("/l/libother.so",))
    assert left_out_for(contender, kept()) == ("google-tcmalloc",)


def test_a_copy_of_a_library_is_recognized_by_its_soname(tmp_path: Path) -> None:
    copy = tmp_path / "libmine.so"
    shutil.copy(native.allocator(), copy)
    build = inspect_library(str(copy)).build_id
    contender = Contender("a", "custom", "libmine.so", (str(copy),), build_id=build)
    assert left_out_for(contender, invented()) == ("cairn",)
    assert left_out_for(replace(contender, build_id="ff"), invented()) == ()
    copy.unlink()
    assert left_out_for(contender, invented()) == ()


@cache
def kept() -> ProfileTable:
    return kept_ranges.read()[0]


def own(table: ProfileTable, name: str) -> dict[str, object]:
    return {program: row[name] for program, row in table.cells.items() if name in row}


NOT_KEPT = {
    "clearing_calloc", "cold_blocks", "copying_realloc", "own_spin_lock", "searching_aligned",
    "shared_counter", "shared_lines", "spread_out", "wide_headers", "yielding_malloc",
}  # fmt: skip
"""Ill allocators that are newer than the kept ranges. When tools/judge_ranges.py measures the ranges
again, it will include them."""


@pytest.mark.parametrize("ill", [one.name for one in ILL if one.name not in NOT_KEPT])
def test_an_ill_allocator_is_outside_in_the_metric_in_which_it_is_ill(ill: str) -> None:
    found = placed(own(kept(), ill), kept())  # type: ignore[arg-type]
    outside = {one.metric.key for one in found if one.verdict == "outside"}
    assert outside & set(ILL_IN[ill]), (ill, outside)


def test_a_healthy_allocator_that_is_left_out_is_inside_or_at_the_edge() -> None:
    good = whole = 0
    for name in kept().healthy:
        # An allocator and its hardened build have most of their code in common, so both are left
        # out.
        same = [one for one in kept().healthy if one.split("-h")[0] == name.split("-h")[0]]
        found = placed(own(kept(), name), kept().without(same))  # type: ignore[arg-type]
        good += sum(one.verdict != "outside" for one in found)
        whole += len(found)
    assert whole > 15 * len(kept().healthy)
    assert good >= HEALTHY_LEAST * whole, (good, whole)


def test_the_kept_ranges_have_every_judged_metric_of_this_machine() -> None:
    judged = {one.key for one in METRICS if one.worse != "neither"}
    having = {key for row in kept().cells.values() for of in row.values() for key in of}
    assert judged <= having
    assert set(kept().ill) | NOT_KEPT == {one.name for one in ILL}
    assert not set(kept().ill) & NOT_KEPT
    assert len(kept().healthy) >= 10
