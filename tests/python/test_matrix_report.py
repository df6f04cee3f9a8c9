"""Tests of the reports of plans: text, Markdown, CSV, JSON, LaTeX and pictures."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from support.comparisons import EVIL
from support.documents import keys
from support.plans import a_plan_run, noisy
from support.widths import words_of

from cairn.compare.matrix import GeometricMean
from cairn.compare.same_program import difference
from cairn.errors import UsageError
from cairn.model import Contender, Interval, Run, Sample, Workload
from cairn.own_settings import OwnSettings
from cairn.report import matrix_charts, matrix_export, matrix_report
from cairn.report.matrix_board import MatrixReport, fitting, of_runs
from cairn.report.view import View

PROGRAMS = {
    "sqlite3": "program", "gcc": "program", "pbzip2/1": "program", "pbzip2/2": "program",
    "dedup": "kernel", "larson": "workload",
}  # fmt: skip
CONTENDERS = (
    "system", "cairn", "jemalloc", "mimalloc3", "rpmalloc", "snmalloc", "tcmalloc", "hoard",
)  # fmt: skip
GROUPS = {
    "size-segregated": ("cairn", "jemalloc", "mimalloc3", "rpmalloc", "snmalloc", "tcmalloc"),
    "sequential": ("hoard",),
}


def measured(seed: int = 5) -> tuple[Run, list[Sample]]:
    """Returns a run with wins, losses, ties, a failed cell and a program that fails."""
    run = a_plan_run(PROGRAMS, CONTENDERS, rounds=8)
    host = replace(
        run.host, cpu_model="a processor", cpus=2, libc="glibc 2.36", kernel="Linux 6.1",
        system="Debian 12", architecture="x86_64",
    )  # fmt: skip
    run = replace(run, host=host, notes=("dedup stands for dedup: a kernel, pattern assumed",))
    truth = {}
    for place, name in enumerate(CONTENDERS[1:]):
        for workload in range(len(PROGRAMS)):
            truth[workload, name] = (
                0.88 + 0.03 * place + 0.02 * workload * (place % 3 - 1),
                0.9 + 0.12 * place,
            )
    truth[4, "hoard"] = (2.4, 31.0)
    samples = noisy(run, truth, seed=seed)
    for at, sample in enumerate(samples):
        cell = sample.trial.workload, sample.trial.contender
        if cell == (3, "snmalloc") and sample.trial.round == 5:
            samples[at] = replace(sample, failure="was killed by signal 11 (SIGSEGV)")
        if cell == (5, "system"):
            samples[at] = replace(sample, failure="failed with exit code 1")
    return run, samples


def report(**more: object) -> MatrixReport:
    run, samples = measured()
    return of_runs([(run, samples, ("8 rounds",))], groups=GROUPS, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 120])
def test_golden_of_the_table(golden: Callable[[str, str], None], width: int) -> None:
    text = matrix_report.rendered(report(), View(width=width))
    golden(f"matrix-{width}", text)
    assert all(cell_len(line) <= width for line in text.splitlines())


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_number_and_no_name_is_cut_at_any_width(width: int) -> None:
    whole = words_of(matrix_report.rendered(report(), View(full=True, width=2000)))
    text = matrix_report.rendered(report(), View(full=True, width=width))
    assert whole <= words_of(text)
    colored = matrix_report.rendered(report(), View(full=True, width=width, color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text


def test_full_adds_a_table_of_intervals_for_each_measure() -> None:
    short, full = (
        matrix_report.rendered(report(), View(full=full, width=200)) for full in (False, True)
    )
    assert len(full.splitlines()) > len(short.splitlines()) + 10


def test_golden_of_latex_and_markdown(golden: Callable[[str, str], None]) -> None:
    golden("matrix-latex", matrix_report.rendered(report(), View("tex")))
    golden("matrix-md", matrix_report.rendered(report(), View("md")))


def test_golden_of_two_versions(golden: Callable[[str, str], None]) -> None:
    golden(
        "matrix-between",
        matrix_report.rendered(report(between=("jemalloc", "cairn")), View(width=80)),
    )


def test_the_csv_has_a_line_for_every_cell_and_mean() -> None:
    rows = list(csv.DictReader(io.StringIO(matrix_report.rendered(report(), View("csv")))))
    cells = [row for row in rows if row["program"] != matrix_export.MEAN]
    assert len(cells) == 2 * len(PROGRAMS) * len(CONTENDERS)
    (cell,) = [
        row
        for row in cells
        if (row["measure"], row["program"], row["contender"]) == ("time", "gcc", "cairn")
    ]
    assert float(cell["low"]) < float(cell["estimate"]) < float(cell["high"])
    assert cell["rounds"] == "8" and cell["outcome"] == "less" and cell["failure"] == ""
    (bad,) = [r for r in cells if r["failure"].startswith("was killed") and r["measure"] == "time"]
    assert bad["estimate"] == "" and bad["contender"] == "snmalloc"
    means = [row for row in rows if row["program"] == matrix_export.MEAN]
    assert {row["contender"] for row in means} == set(CONTENDERS) - {"system", "snmalloc"}


def test_the_document_has_the_rows_of_the_csv_and_the_scores(
    golden: Callable[[str, str], None],
) -> None:
    document = json.loads(matrix_report.rendered(report(), View("json")))
    assert document["plan"] == "invented" and document["whole_rounds"] == 8
    golden("keys/matrix", keys(document))
    rows = list(csv.DictReader(io.StringIO(matrix_report.rendered(report(), View("csv")))))
    assert len(document["rows"]) == len(rows)
    scores = {(s["measure"], s["contender"]): s for s in document["scores"]}
    assert scores["memory", "hoard"]["losses"] == 5


@pytest.mark.parametrize("chart", matrix_charts.CHARTS)
@pytest.mark.parametrize(
    ("form", "head"),
    [("svg", b"<?xml"), pytest.param("png", b"\x89PNG", marks=pytest.mark.long)],
)
def test_every_picture_is_made_in_either_form(chart: str, form: str, head: bytes) -> None:
    made = matrix_charts.CHARTS[chart](report(), "plan invented", form)
    assert made.startswith(head) and len(made) > 5_000


def test_the_same_data_give_the_same_picture() -> None:
    draw = matrix_charts.CHARTS["plane"]
    assert draw(report(), "plan", "svg") == draw(report(), "plan", "svg")


def test_the_front_has_the_points_that_no_other_beats_in_both() -> None:
    points = {"system": (1.0, 1.0), "quick": (0.8, 1.5), "lean": (1.1, 0.7), "bad": (1.2, 1.2)}
    assert matrix_charts.pareto(points) == ["quick", "system", "lean"]


def test_hostile_names_are_printable_in_every_form() -> None:
    run = a_plan_run({EVIL: "program"}, ("system", f"x{EVIL}"), rounds=3)
    found = of_runs([(run, noisy(run, {}, seed=1), ("3 rounds",))])
    for form in ("text", "md", "tex"):
        text = matrix_report.rendered(found, View(form))  # type: ignore[arg-type]
        assert "\x1b" not in text and "\u202e" not in text
    assert b"<script>" not in matrix_charts.CHARTS["time"](found, EVIL, "svg")
    assert r"\textbackslash{}" in matrix_report.rendered(found, View("tex"))


def test_a_proven_contender_is_named_beside_an_unproven_one_with_a_lower_mean() -> None:
    found = report()
    first = found.result.rivals["time"][0]
    (other,) = [n for n in found.result.contenders if n not in (first, found.result.baseline)][:1]
    means = dict(found.result.means)
    means["time", first] = GeometricMean(0.89, Interval(0.70, 1.12, 0.95))
    means["time", other] = GeometricMean(0.95, Interval(0.948, 0.951, 0.95))
    proven = found.result.proven - {("time", first)} | {("time", other)}
    changed = replace(found, result=replace(found.result, means=means, proven=proven))
    text = " ".join(matrix_report.rendered(changed, View(width=120)).split())
    assert re.search(r"takes 0\.\d+ \[0\.\d+, 0\.\d+\] times the time of system", text)
    assert f"{first} has a lower mean, but is not proven faster than" in text


def test_the_csv_has_no_terminal_escapes_and_no_formulas() -> None:
    found = report()
    titles = dict.fromkeys(found.titles, "=1+1\x1b[31m")
    text = matrix_export.as_csv(replace(found, titles=titles))
    assert "\x1b" not in text and "'=1+1" in text


def test_a_run_without_a_complete_round_says_so() -> None:
    run = a_plan_run(PROGRAMS, CONTENDERS, rounds=4)
    report = of_runs([(run, [], ("interrupted",))])
    text = matrix_report.rendered(report, View(width=80))
    assert text.startswith("There is no complete round yet, so there is no mean")
    assert "0 of 4 rounds" in text
    # The command once named 'last', which may be another run.
    assert report.cut is not None and f"--resume {run.id}'" in report.cut


def test_few_rounds_give_no_verdict_and_no_sign() -> None:
    run = a_plan_run(PROGRAMS, ("system", "half"), rounds=2)
    truth = {(w, "half"): (0.5, 0.5) for w in range(len(PROGRAMS))}
    report = of_runs([(run, noisy(run, truth, seed=1), ("2 rounds",))])
    text = matrix_report.rendered(report, View(width=80))
    assert text.startswith("No verdict yet: 2 rounds are too few for an interval.")
    assert "Run at least 6 (-r 6)" in text and "0.50" in text
    table = text[: text.index("▼ proven less")]
    for sign in ("▼/≈/▲/open", "[95 %]", "[too few rounds]"):
        assert sign in text
        table = table.replace(sign, "")
    assert not set("▼▲≈[") & set(table)


def test_runs_of_one_round_each_give_no_verdict() -> None:
    """The report once said that no contender is proven faster."""
    runs = []
    for number in range(6):
        run = a_plan_run({"a": "program"}, ("system", "half"), rounds=1, number=number)
        runs.append((run, noisy(run, {(0, "half"): (0.5, 0.5)}, seed=number), ("1 round",)))
    text = " ".join(matrix_report.rendered(of_runs(runs), View(width=80)).split())
    assert text.startswith("No verdict yet: each run has one round")
    assert "is proven" not in text


def test_the_advised_rounds_replace_those_in_which_a_program_was_not_measured() -> None:
    run = a_plan_run({"a": "program", "b": "program"}, ("system", "half"), rounds=6)
    samples = [s for s in noisy(run, {}, seed=1) if (s.trial.round, s.trial.workload) != (3, 1)]
    text = " ".join(
        matrix_report.rendered(of_runs([(run, samples, ("6 rounds",))]), View(width=80)).split()
    )
    assert "5 rounds are too few for an interval. Run at least 7 (-r 7)." in text


def test_a_table_of_a_plan_stands_for_its_numbers_of_threads() -> None:
    run = a_plan_run({"p/1": "program", "p/2": "program", "q": "program"}, ("system", "x"))
    found = of_runs([(run, noisy(run, {}, seed=1), ())], programs=["p"])
    assert found.result.programs == ("p/1", "p/2")


def test_a_run_in_which_every_contender_failed_once_is_drawn_and_written_as_latex() -> None:
    run = a_plan_run({"a": "program", "b<c|d>": "program"}, ("system", "x"), rounds=6)
    samples = [
        replace(s, failure="failed with exit code 1")
        if (s.trial.workload, s.trial.contender) == (0, "x")
        else s
        for s in noisy(run, {}, seed=1)
    ]
    found = of_runs([(run, samples, ("6 rounds",))])
    latex = matrix_report.rendered(found, View(form="tex"))
    assert (
        latex.count(r"\begin{tabular}") == 2 and r"b\textless{}c\textbar{}d\textgreater{}" in latex
    )
    assert matrix_charts.CHARTS["heat"](found, "plan", "svg").startswith(b"<?xml")
    assert "There is no complete round" not in matrix_report.rendered(found, View(width=80))


def test_runs_with_other_versions_are_not_merged() -> None:
    one, other = measured(), measured(6)
    changed = replace(other[0].contenders[1], title="cairn 9.9")
    second = replace(other[0], contenders=(other[0].contenders[0], changed), id="another")
    with pytest.raises(UsageError, match=r"different contenders with the name cairn"):
        of_runs([(*one, ()), (second, other[1], ())])


def changed_in_a_second_run(**change: object) -> list[tuple[Run, list[Sample], tuple[str, ...]]]:
    """Returns two runs. The contender "mine" of the second one has other properties."""
    contender = Contender("mine", "custom", "libmine.so", build_id="aa", knobs=(("A", "1"),))
    runs = []
    for number, mine in enumerate((contender, replace(contender, **change)), 1):
        run = a_plan_run({"a": "program"}, ("system", "mine"), rounds=6, number=number)
        run = replace(run, contenders=(run.contenders[0], mine))
        runs.append((run, noisy(run, {}, seed=number), ("6 rounds",)))
    return runs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"knobs": (("A", "2"),)}, "libmine.so with A=1 and libmine.so with A=2"),
        ({"build_id": "bb"}, "libmine.so with A=1, build aa and libmine.so with A=1, build bb"),
    ],
    ids=["settings", "build"],
)
def test_runs_with_other_settings_or_builds_are_not_merged(
    change: dict[str, object], says: str
) -> None:
    """They were averaged as one contender, because only the titles were compared."""
    runs = changed_in_a_second_run(**change)
    with pytest.raises(UsageError, match=f"contenders with the name mine: {says};"):
        of_runs(runs)
    kept, notes = fitting([(run, samples) for run, samples, _ in runs])
    assert kept == (0,) and "its mine is libmine.so with A=" in notes[0]


def test_builds_are_compared_only_if_they_could_be_equal() -> None:
    assert of_runs(changed_in_a_second_run()).result.runs == 2
    first, (run, *rest) = changed_in_a_second_run(build_id="bb")
    elsewhere = replace(run, host=replace(run.host, architecture="aarch64"))
    assert of_runs([first, (elsewhere, *rest)]).result.runs == 2
    versions = [
        (replace(run, contenders=tuple(replace(c, version="1.0") for c in run.contenders)), *rest)
        for run, *rest in (first, (run, *rest))
    ]
    assert of_runs(versions).result.runs == 2


def test_a_contender_or_program_that_is_not_there_is_told() -> None:
    run, samples = measured()
    with pytest.raises(UsageError, match="no contender scudo"):
        of_runs([(run, samples, ())], between=("system", "scudo"))
    with pytest.raises(UsageError, match="with itself"):
        of_runs([(run, samples, ())], between=("cairn", "cairn"))
    with pytest.raises(UsageError, match="no program php"):
        of_runs([(run, samples, ())], programs=["php"])


def test_a_mean_that_is_not_proven_among_all_contenders_is_not_announced() -> None:
    """The interval of the luckiest of seven contenders may lie below 1 by itself."""
    found = report()
    result = found.result
    assert result.means["time", result.rivals["time"][0]].interval is not None
    changed = replace(found, result=replace(result, proven=frozenset()), real=None)
    text = " ".join(matrix_report.rendered(changed, View(width=200)).split())
    assert "no contender is proven faster than system" in text
    assert "no contender is proven to take less peak memory than system" in text


def test_other_programs_of_one_name_are_not_merged() -> None:
    one, other = measured(), measured(6)
    workloads = list(other[0].settings.workloads)
    workloads[1] = replace(workloads[1], command=("gcc", "-O2"))
    settings = replace(other[0].settings, workloads=tuple(workloads))
    second = replace(other[0], id="20260102-000000-0001", settings=settings)
    with pytest.raises(
        UsageError, match=r"gcc is another program in 20260102.*its command differs"
    ):
        of_runs([(*one, ()), (second, other[1], ())])
    assert of_runs([(*one, ()), (second, other[1], ())], programs=["sqlite3"]).result.runs == 2


def test_the_same_program_in_another_cache_is_the_same() -> None:
    def workload(home: str, run: str, recipe: str = "k1") -> Workload:
        data, work = f"{home}/cairn/matrix/data/p-{recipe}", f"{home}/cairn/matrix/work/{run}/p"
        return Workload(
            "p", (f"sort {shlex.quote(data)}/x > {shlex.quote(work)}/y",), "program",
            own=OwnSettings(shell=True, prepare=f"rm -rf {shlex.quote(work)}", timeout_s=len(home)),
        )  # fmt: skip

    first = workload("/homes/a/.cache", "run-1")
    assert difference(first, workload("/homes/b c/cache", "run-2")) is None
    assert difference(first, workload("/homes/a/.cache", "run-1", "k2")) == "command"


def test_a_merged_table_says_what_it_left_out() -> None:
    names = {"a": "program", "b": "program"}
    one = a_plan_run(names, ("system", "x", "y"), rounds=6, number=1)
    other = a_plan_run(names, ("system", "x"), rounds=1, number=2)
    last = a_plan_run({"c": "program"}, ("system", "x"), rounds=6, number=3)
    runs = [(run, noisy(run, {}, seed=place), ()) for place, run in enumerate((one, other, last))]
    found = of_runs(runs)
    assert found.notes == (
        f"a, b of {other.id} are left out, because this run has fewer than 2 complete rounds",
        f"y was measured in {one.id} alone",
        "no mean contains c, because it was not measured under y",
    )
    text = " ".join(matrix_report.rendered(found, View(width=80)).split())
    assert all(note in text for note in found.notes)
    between = of_runs(runs[:2], between=("y", "x"))
    assert between.notes == (f"{other.id} is left out, because it has no y",)


def test_a_failure_in_a_run_that_is_left_out_does_not_count() -> None:
    """A contender got a cross for a failure in a run that the notes say is left out."""
    names = {"a": "program"}
    one = a_plan_run(names, ("system", "old", "new"), rounds=6, number=1)
    other = a_plan_run(names, ("system", "new"), rounds=6, number=2)
    failed = [
        replace(sample, failure="was killed by signal 11 (SIGSEGV)")
        if sample.trial.contender == "new"
        else sample
        for sample in noisy(other, {}, seed=2)
    ]
    found = of_runs(
        [(one, noisy(one, {}, seed=1), ()), (other, failed, ())], between=("old", "new")
    )
    assert found.notes == (f"{other.id} is left out, because it has no old",)
    cell = found.result.cells["a", "new"]
    assert cell.failure is None and cell.time is not None


def test_two_runs_are_merged_in_one_table() -> None:
    (first, one), (second, other) = measured(), measured(6)
    second = replace(second, id="20260102-000000-0001")
    text = matrix_report.rendered(
        of_runs([(first, one, ("8 rounds",)), (second, other, ("8 rounds",))]), View(width=100)
    )
    assert "16 rounds of each program in random order of 2 runs" in text
    both = of_runs([(first, one, ("8 rounds",)), (second, other, ("8 rounds",))])
    assert "a processor" not in matrix_report.rendered(both, View(form="tex"))
    assert "a processor" not in matrix_report.rendered(both, View(form="md"))
