"""Tests of the order of causes, and of the score of the findings, with invented comparisons."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support.comparisons import a_sample

from cairn import native
from cairn.bench import experiments, ill_libraries, real_programs, run_settings
from cairn.cli import cli
from cairn.errors import CairnError, UsageError
from cairn.memory import Memory
from cairn.model import Finding, Interval, Sample
from cairn.report import terminal
from cairn.report.findings_score import board
from cairn.report.view import View
from cairn.report.why import sentences
from cairn.why.causes import causes
from cairn.why.gap import Why
from cairn.why.ill_allocators import HEALTHY, ILL, Told, score
from cairn.why.parts import FAULTS, KERNEL, OWN, PROGRAM, UNEXPLAINED, Gap, Part

MIB = 1 << 20


def finding(name: str, effect: float, of: str = "CPU") -> Finding:
    return Finding(name, "It does", of, effect, "do less")  # type: ignore[arg-type]


def part(name: str, change: float, *, shown: bool = True) -> Part:
    ends = Interval(change - 1, change + 1, 0.95) if shown else Interval(-1e9, 1e9, 0.95)
    return Part(name, None, None, change, ends)


def a_why(
    contender: str = "ill",
    *,
    own: float = 0.0,
    kernel: float = 0.0,
    faults: float = 0.0,
    program: float = 0.0,
    unexplained: float = 0.0,
    compared: Sequence[Finding] = (),
    raised: Sequence[tuple[str, Finding]] = (),
    workload: int = 0,
) -> Why:
    """Returns a comparison with `system`, which takes 100 ns of CPU time."""
    change = own + kernel + faults + program + unexplained
    whole = Part("", 100 + change, 100, change, Interval(change - 1, change + 1, 0.95))
    each = {OWN: own, KERNEL: kernel, FAULTS: faults, PROGRAM: program, UNEXPLAINED: unexplained}
    parts = tuple(part(name, ns) for name, ns in each.items())
    time = Gap("time", whole, parts)
    return Why(contender, "system", workload, 6, time, None, tuple(compared), tuple(raised))


def names(why: Why, contender: str = "ill") -> list[str]:
    return [one.name for one in causes(why, contender)]


def test_causes_stand_in_the_order_of_their_effects() -> None:
    why = a_why(
        own=60,
        program=40,
        compared=[finding("slow-free", 0.3)],
        raised=[("ill", finding("not-reused", 0.7, "memory"))],
    )
    assert names(why) == ["not-reused", "slow-free", PROGRAM]
    assert causes(why, "ill")[2].effect == pytest.approx(40 / 200)
    assert names(why, "system") == []


def test_a_part_without_a_reason_stands_before_a_smaller_finding_and_is_told_first() -> None:
    why = a_why(own=10, program=900, compared=[finding("slow-new", 0.027)])
    assert names(why) == [PROGRAM, "slow-new"]
    first, *others = sentences(why)
    assert "the program itself takes" in first and first.endswith("; the reason is not known.")
    assert others[-1].startswith("▲ ill against system: It does: 2.7 % of CPU")
    # The largest part of the gap may be one of which the other contender takes more. A separate
    # sentence then names it.
    opposite = a_why(own=-950, program=900, raised=[("ill", finding("slow-new", 0.027))])
    says = "(program code) is not known; 1 finding below explains less than that."
    assert any(text.endswith(says) for text in sentences(opposite))
    larger = a_why(own=900, program=10, compared=[finding("slow-new", 0.9)])
    assert not [text for text in sentences(larger) if "The reason for" in text]


@pytest.mark.parametrize(
    ("name", "reason", "of"),
    [
        (OWN, "slow-realloc", "CPU"),
        (OWN, "queues", "thread time"),
        (KERNEL, "asks-too-often", "CPU"),
        (KERNEL, "yields", "CPU"),
        (KERNEL, "queues", "thread time"),
        (FAULTS, "returns-what-it-needs", "CPU"),
        (FAULTS, "not-reused", "memory"),
    ],
)
def test_a_part_of_the_allocator_without_a_finding_stands_before_smaller_findings(
    name: str, reason: str, of: str
) -> None:
    """Only the program's own part and the unexplained part once stood in the order of causes."""
    key = {OWN: "own", KERNEL: "kernel", FAULTS: "faults"}[name]
    of_program = ("ill", finding("cold-blocks", 0.1))
    why = replace(a_why(program=10, **{key: 90}), layout=of_program)  # type: ignore[arg-type]
    assert names(why) == [name, "cold-blocks"]
    assert causes(why, "ill")[0].effect == pytest.approx(0.45)
    assert names(why, "system") == []
    explains = finding(reason, 0.3, of)
    known = (
        replace(why, findings=(explains,))
        if reason.startswith("slow")
        else replace(why, raised=(("ill", explains),))
    )
    assert names(known) == [reason, "cold-blocks"]
    # A finding that both contenders have to the same extent is no reason for a difference.
    both = replace(why, raised=(("ill", explains), ("system", explains)))
    assert names(both) == [name, "cold-blocks"]


def test_a_part_without_a_finding_says_nothing_false_about_a_healthy_allocator() -> None:
    healthy, _ = judged(a_why("cairn", own=90), {"cairn": 190, "system": 100})
    assert (healthy.causes, healthy.false) == ((), ())


def test_findings_are_told_in_the_order_of_their_effects_whoever_made_them() -> None:
    why = a_why(
        own=60,
        compared=[finding("slow-free", 0.3)],
        raised=[
            ("system", finding("queues", 0.4)),
            ("ill", finding("queues", 0.45)),
            ("ill", finding("not-reused", 0.7, "memory")),
        ],
    )
    told = [text.partition(":")[0] for text in sentences(why) if text.startswith("▲")]
    assert told == ["▲ ill", "▲ ill against system", "▲ ill", "▲ system"]


def test_a_part_that_is_not_shown_is_no_cause() -> None:
    why = a_why(program=50)
    assert why.time is not None
    hidden = tuple(part(one.name, one.change or 0.0, shown=False) for one in why.time.parts)
    why = Why("ill", "system", 0, 6, Gap("time", why.time.whole, hidden), None)
    assert names(why) == []


def test_a_finding_about_both_contenders_counts_with_the_difference() -> None:
    raised = [("ill", finding("queues", 0.5)), ("system", finding("queues", 0.3))]
    (cause,) = causes(a_why(raised=raised), "ill")
    assert cause.effect == pytest.approx(0.2)
    equal = [("ill", finding("queues", 0.5)), ("system", finding("queues", 0.495))]
    assert names(a_why(raised=equal)) == []


def test_findings_of_the_comparison_belong_to_the_slower_contender() -> None:
    why = a_why("fast", own=-50, compared=[finding("slow-path", 0.5)])
    assert names(why, "fast") == []
    assert names(why, "system") == ["slow-path"]


def runs(cpu_ns: dict[str, float], peak: dict[str, int] | None = None) -> list[Sample]:
    """Returns six rounds in which contenders take this CPU time, and this much memory."""
    return [
        a_sample(
            round_,
            name,
            1,
            user_ns=round(ns),
            system_ns=0,
            memory=Memory("cgroup v2", (peak or {}).get(name, 100 * MIB), None, None),
        )
        for round_ in range(7)
        for name, ns in cpu_ns.items()
    ]


def judged(why: Why, cpu_ns: dict[str, float], peak: dict[str, int] | None = None) -> list[Told]:
    return list(score([why], runs(cpu_ns, peak), ["table"]))


def test_a_right_finding_is_named_first_or_later_or_not_at_all() -> None:
    right = finding("slow-free", 0.3)
    ill, _ = judged(a_why("slow_free", own=60, compared=[right]), {"slow_free": 160, "system": 100})
    assert (ill.first, ill.named, ill.false) == (True, True, ())
    ill, _ = judged(
        a_why("slow_free", own=60, program=90, compared=[right]), {"slow_free": 250, "system": 100}
    )
    assert (ill.first, ill.named) == (False, True)
    ill, _ = judged(a_why("slow_free"), {"slow_free": 100, "system": 100})
    assert (ill.first, ill.named) == (False, False)


def test_the_program_itself_without_a_reason_is_no_answer_for_scattered_blocks() -> None:
    why = a_why("scattered", program=900)
    times = {"scattered": 1000, "system": 100}
    ill, _ = judged(why, times)
    assert not ill.named
    reason = ("scattered", finding("blocks-scattered", 0.9))
    ill, _ = judged(replace(why, layout=reason), times)
    assert ill.first and [one.name for one in ill.causes] == ["blocks-scattered"]


@pytest.mark.parametrize(("own", "false"), [(130, True), (134, False), (200, False)])
def test_a_finding_is_false_if_less_than_half_of_its_effect_is_gained(
    own: float, false: bool
) -> None:
    """The finding claims half of the CPU time, so an allocator without it must save a quarter.

    The best allocator takes 100. It saves a quarter if the ill allocator takes 133.3 or more.
    """
    raised = [("slow_free", finding("calls-the-kernel", 0.5))]
    ill, _ = judged(a_why("slow_free", raised=raised), {"slow_free": own, "system": 100})
    assert (ill.false == ("calls-the-kernel",)) is false


def test_a_healthy_allocator_is_compared_with_the_best_healthy_one() -> None:
    raised = [("system", finding("not-reused", 0.4, "memory"))]
    cpu_ns = {"system": 100.0, "cairn": 100.0, "slow_free": 100.0}
    least = {"system": 100 * MIB, "cairn": 79 * MIB, "slow_free": MIB}
    healthy, base = judged(a_why("cairn", raised=raised), cpu_ns, least)
    assert (healthy.allocator, healthy.causes) == ("cairn", ())
    assert (base.allocator, base.false) == ("system", ())
    _, base = judged(a_why("cairn", raised=raised), cpu_ns, {**least, "cairn": 81 * MIB})
    assert base.false == ("not-reused",)


def test_the_board_has_a_row_for_each_ill_allocator_and_the_three_totals() -> None:
    why = a_why("slow_free", own=60, compared=[finding("slow-free", 0.3)])
    other = a_why("scattered", own=60, compared=[finding("slow-new", 0.5)])
    samples = runs({"slow_free": 160, "scattered": 100, "system": 100})
    text = terminal.drawn(board(score([why, other], samples, ["table"])), View())
    assert (
        "Of 2 cases of ill allocators, the cause was named first in 1 (50.0 %) and named at all in "
        "1 (50.0 %). 1 finding was false, 0 of them about healthy allocators in 1 case."
    ) in " ".join(text.split())
    assert "table: slow-new" in text and "slow-free or slow-path" in text


def test_a_case_that_failed_counts_in_no_total() -> None:
    """A failed case of a healthy allocator once counted as one without a false finding."""
    why = a_why("slow_free", own=60, compared=[finding("slow-free", 0.3)])
    failed = [replace(a_why(name), why_not="it failed") for name in ("cairn", "scattered")]
    samples = runs({"slow_free": 160, "scattered": 100, "cairn": 100, "system": 100})
    told = score([why, *failed], samples, ["table"])
    assert [one.allocator for one in told if one.why_not] == ["cairn", "scattered"]
    found = board(told)
    assert found.says == (
        "Of 1 case of ill allocators, the cause was named first in 1 (100 %) and named at all in 1 "
        "(100 %). 0 findings were false, 0 of them about healthy allocators in 1 case.",
    )
    assert [row[0].text.strip() for table in found.tables for row in table.rows] == [
        "slow_free", "system",
    ]  # fmt: skip
    assert found.failures == ("cairn, table: it failed", "scattered, table: it failed")


def test_each_ill_allocator_has_a_source_that_names_its_findings() -> None:
    sources = {file.stem for file in ill_libraries.FOLDER.glob("*.c")}
    assert {one.name for one in ILL} == sources and len(ILL) >= 20
    for one in ILL:
        text = (ill_libraries.FOLDER / f"{one.name}.c").read_text()
        assert text.startswith(f"/* {one.name}: ") and "$ILL" in text, one.name
        for name in one.right:
            assert name in text, f"{one.name} does not name {name}"


def test_every_rule_has_an_ill_allocator_that_proves_it() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text()
    alone = page.partition("## The rules\n")[2].partition("## Beside another")[0]
    two = page.partition("### Findings that need two allocators\n")[2].partition("Times below")[0]
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", alone + two, re.MULTILINE)
    rules = {name.strip("`") for row in rows for name in row.split(", ")}
    assert {"returns-what-it-needs", "slow-reuse", "slow-calloc", "calls-the-kernel"} <= rules
    assert rules <= {name for one in ILL for name in one.right}


def test_each_ill_allocator_runs_on_three_programs_of_the_experiment() -> None:
    experiment = experiments.find("findings")
    assert experiment is not None and experiment.ill and experiment.why
    programs = [variant.name for variant in experiment.full.variants]
    assert len(programs) >= 12 and set(experiment.full.contenders) == set(HEALTHY)
    for one in ILL:
        assert len(one.programs) == 3 and set(one.programs) <= set(programs), one.name
    for quick, each in ((False, 3), (True, 1)):
        (choice,) = run_settings.chosen(["findings"], quick)
        settings = run_settings.settings(choice, lambda _: None)
        assert set(settings.only) == {one.name for one in ILL}
        names = [workload.name for workload in settings.workloads]
        for one in ILL:
            its = tuple(names[place] for place in settings.only[one.name])
            assert its == one.programs[:each], one.name


def test_missing_sources_or_a_missing_compiler_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ill_libraries, "find_tool", lambda _: None)
    with pytest.raises(CairnError, match=r"no C compiler here; Debian: apt-get install gcc\.$"):
        ill_libraries.specs(lambda _: None)
    monkeypatch.setattr(ill_libraries, "FOLDER", tmp_path / "none")
    with pytest.raises(CairnError, match=r"lacks the sources of \d+ of the allocators"):
        ill_libraries.specs(lambda _: None)


@pytest.mark.parametrize("name", ["findings", "predictions"])
def test_a_plan_compiles_nothing_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The plan of `findings` once compiled its libraries, and that of `predictions` wrote files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module in (ill_libraries, real_programs):
        monkeypatch.setattr(module, "find_tool", lambda tool: f"/usr/bin/{tool}")
    done = CliRunner().invoke(cli, ["bench", name, "--plan", "-a", "system"])
    assert done.exit_code == 0, done.output
    assert not list(tmp_path.rglob("*"))
    if name == "findings":
        assert all(one.name in done.output for one in ILL)
        # The run itself has several specs, so that it does not insert the system's allocator.
        done = CliRunner().invoke(cli, ["bench", name, "--plan", "-a", "cairn"])
        names = ", ".join(("cairn", *(one.name for one in ILL)))
        assert f"{len(ILL) + 1} contenders ({names})" in done.output
        twice = f"{ILL[0].name}=system"
        done = CliRunner().invoke(cli, ["bench", name, "--plan", "-a", twice])
        assert f"two contenders are called '{ILL[0].name}'" in str(done.exception)
        monkeypatch.setattr(ill_libraries, "find_tool", lambda _: None)
        done = CliRunner().invoke(cli, ["bench", name, "--plan", "-a", "system"])
        assert "no C compiler here" in str(done.exception)
    else:
        assert all(one.name in done.output for one in real_programs.PROGRAMS)


def test_instructions_cannot_judge_findings() -> None:
    """Each ill allocator was once counted on every workload."""
    choices = run_settings.chosen(["findings", "larson"], quick=True)
    with pytest.raises(UsageError, match=r"findings judges the causes of lost time, and --inst"):
        run_settings.counted(choices)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.long
def test_no_illness_changes_the_content_of_a_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workloads check their blocks, and resize some. `scrubbing` once cleared resized ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    failed = {}
    for spec, one in zip(ill_libraries.specs(lambda _: None), ILL, strict=True):
        library = spec.partition("=")[2].partition(":")[0]
        environment = os.environ | {"LD_PRELOAD": library, "ILL": str(one.strength)}
        for program, arguments in (
            ("hash_table", "--operations 100K"),
            ("calloc_sweep", "--least 16 --most 64K --bytes 64K"),
            ("aligned", "--operations 50K --threads 2"),
        ):
            done = subprocess.run(
                [native.workload(program), *arguments.split()],
                env=environment, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                failed[one.name, program] = done.stderr
    assert not failed


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.long
def test_the_libraries_are_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    first = ill_libraries.specs(said.append)
    assert said == [f"compiling {len(ILL)} ill allocators"]
    assert ill_libraries.specs(said.append) == first and len(said) == 1
    for spec, one in zip(first, ILL, strict=True):
        name, _, rest = spec.partition("=")
        path, _, knob = rest.partition(":")
        assert (name, knob) == (one.name, f"ILL={one.strength}") and Path(path).is_file()
