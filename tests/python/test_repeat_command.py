"""Tests that the command of a stored run measures the same run again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support.comparisons import a_run

from cairn.allocators.catalog import load_catalog
from cairn.allocators.contenders import parse_contender, split_contenders
from cairn.bench import run_settings
from cairn.cli import check_plan, cli, measurement
from cairn.cli import compare as comparing
from cairn.doctor import machine
from cairn.errors import CairnError
from cairn.gate import Gate, GateBound
from cairn.matrix import programs, runs
from cairn.model import COPY, Contender, Pattern, Run, Settings, StopRule, Workload
from cairn.page.run import of_run
from cairn.report import repeat_command
from cairn.report.run import Measured, comparisons
from cairn.run import store, valgrind
from cairn.run.program_contenders import NamedProgram
from cairn.verdict import Aim, Bound, Measure
from cairn.why.ill_allocators import ILL

PROGRAM = (Workload("prog", ("prog", "-n", "two words", "--flag", "$HOME")),)


def a_named_run(settings: Settings, rule: StopRule, aim: Aim) -> Run:
    run = a_run(
        Contender("system", "system", "glibc", spec="system"),
        Contender("lazy", "jemalloc", "jemalloc", spec="jemalloc:MALLOC_CONF=a:1,b:2"),
        Contender("mine", "custom", "libmine.so", spec="/opt/my lib/libmine.so"),
    )
    return replace(run, settings=settings, rule=rule, aim=aim, seed=77)


def line_of(run: Run, bench: str | None = None) -> str:
    line = repeat_command.command(run, bench)
    assert line is not None
    return line


def asked_for(monkeypatch: pytest.MonkeyPatch, line: str) -> dict[str, Any]:
    """Returns what `cairn compare` or `cairn check` understands of a command line.

    Nothing is measured, so that --instructions needs no valgrind here.
    """
    found: dict[str, Any] = {}

    def new_run(_: object, settings: Settings, specs: object, *more: object, **also: object) -> Run:
        found.update(settings=settings, specs=specs, baseline=more[0], rule=more[1], seed=more[2])
        found.update(programs=also["programs"])
        raise CairnError("enough")

    for module in (comparing, check_plan):
        monkeypatch.setattr(module, "new_run", new_run)
    monkeypatch.setattr(valgrind, "need_valgrind", lambda _: None)
    words = shlex.split(line)
    assert words[0] == "cairn"
    done = CliRunner().invoke(cli, words[1:])
    assert "enough" in str(done.exception) or "enough" in done.output, done.output
    return found


RULES = (
    StopRule(None, 12, 12),
    StopRule(0.005, 20, 90, 0.02, 300.0),
    StopRule(0.01, 10, 200, 0.01, 600.0),
    StopRule(None, 9, 9, 0.01, 90.0),
)
SETTINGS = (
    Settings(PROGRAM, "/"),
    Settings(
        PROGRAM, "/", stdout="/tmp/out file", setup="make x", prepare="sync; true",
        conclude="rm -f 'a b'", cleanup="true", patterns=(Pattern("rate", "([0-9.]+) r/s"),),
        ok_exit=(0, 3), verify_output=True, cpus="0", timeout_s=90.0, warmup=3, memory="sampled",
        warm_memory=0, counters=True, wait_descendants=True, repeat=5, count_instructions=True,
    ),
    Settings((*PROGRAM, Workload("other", ("other", "a b"))), "/", why=True),
    Settings((Workload("x | y", ("x | y > z",)),), "/", shell=True, repeat=None),
    Settings(
        (Workload("serve", ("serve", "{port}"), load="load {port}"),), "/", ready="ping {port}",
        idle_s=10.0,
    ),
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_the_command_asks_for_the_same_settings(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, rule: StopRule
) -> None:
    run = a_named_run(settings, rule, Aim())
    found = asked_for(monkeypatch, line_of(run))
    again = found["settings"]
    assert [one.command for one in again.workloads] == [one.command for one in settings.workloads]
    assert [one.load for one in again.workloads] == [one.load for one in settings.workloads]
    same = replace(again, workloads=settings.workloads, folder="/", stdin=settings.stdin)
    assert same == settings
    assert found["rule"] == rule and found["seed"] == 77 and found["baseline"] is None
    assert set(found["specs"]) == {
        "system", "lazy=jemalloc:MALLOC_CONF=a:1,b:2", "mine=/opt/my lib/libmine.so",
    }  # fmt: skip


def test_the_command_has_the_aim_and_the_baseline() -> None:
    aim = Aim(Measure.MEMORY, (Bound(Measure.TIME, 0.05),))
    run = replace(a_named_run(SETTINGS[0], RULES[0], aim), baseline="lazy")
    words = shlex.split(line_of(run))
    assert words[words.index("--goal") + 1] == "memory"
    assert words[words.index("--may-cost") + 1] == "time 5%"
    assert words[words.index("--baseline") + 1] == "lazy"
    assert "--pareto" in line_of(replace(run, aim=Aim(pareto=True)))


def test_the_baseline_is_named_if_another_contender_would_take_its_place() -> None:
    """Two contenders may have the system's allocator, and the first of them is the default."""
    again, system = (Contender(name, "system", "glibc", spec="system") for name in NAMES)
    run = replace(a_run(again, system), settings=SETTINGS[0])
    assert options(line_of(run), "--baseline") == ["system"]
    assert options(line_of(replace(run, contenders=(system, again))), "--baseline") == []


NAMES = ("again", "system")


def of_a_plan(*names: str, **more: Any) -> Run:
    """A run of the plan 'judge', which comes with Cairn, with these programs."""
    planned = {one.name: one for one in runs.load("judge").plan.programs}
    workloads = tuple(
        programs.workload_of(planned[one], machine.host().cpus)
        if one in planned
        else Workload(one, (one,))
        for one in names
    )
    settings = Settings(workloads, "/", by_cell=True)
    run = a_named_run(settings, replace(RULES[0], judged="active"), Aim())
    return replace(run, experiment="matrix judge", **more)


def plan_line(run: Run, folder: Path) -> str | None:
    """Returns the command of a stored run."""
    found = measurement.measured(store.Folder.create(folder, run))
    return repeat_command.command(run, found.bench, found.plan)


def test_a_run_of_an_experiment_or_a_plan_is_repeated_by_its_own_command(tmp_path: Path) -> None:
    """The command of a plan once lacked --profile, --budget and --only.

    The run of a plan of the user once had a command with the name of the plan instead of its file.
    It also had one if the plan of the user had the name of one that comes with Cairn.
    """
    run = replace(a_named_run(SETTINGS[0], RULES[0], Aim()), quick=False)
    assert line_of(run, "suite").startswith("cairn bench suite -a system ")
    names = [one.name for one in runs.load("judge").plan.programs]
    some = of_a_plan(*names[1:3], rule=StopRule(None, 4, 4, budget_s=3600.0, judged="active"))
    why = replace(some.settings, why=True, profiled_rounds=2)
    line = plan_line(replace(some, settings=why), tmp_path / "some")
    assert line is not None
    assert line.startswith(f"cairn matrix run judge --only {names[1]} --only {names[2]} -a system ")
    assert line.endswith(" -r 4 --profile 2 --budget 3600s --seed 77")
    whole = of_a_plan(*names[1:], notes=(f"not measured here: {names[0]}",))
    line = plan_line(whole, tmp_path / "whole")
    assert line is not None and line.startswith("cairn matrix run judge -a system ")
    assert line.endswith(" -r 12 --seed 77")
    first, *others = whole.settings.workloads
    other = replace(first, command=(first.command[0], "--operations", "5"))
    of_user = replace(whole.settings, workloads=(other, *others))
    for number, own in enumerate((
        replace(whole, experiment="matrix my-plan"), of_a_plan("my own program"),
        replace(whole, settings=of_user),
    )):  # fmt: skip
        assert plan_line(own, tmp_path / str(number)) is None


def test_a_run_of_a_check_without_bounds_has_no_command() -> None:
    """'cairn compare' was once named, which does not check against the base."""
    run = replace(a_named_run(SETTINGS[0], RULES[0], Aim()), made_by="cairn check")
    assert repeat_command.command(run) is None


def options(line: str, option: str) -> list[str]:
    """Returns the values of all options of this name."""
    words = shlex.split(line)
    return [words[place + 1] for place, word in enumerate(words) if word == option]


KNOBBED = (
    Contender("system", "system", "glibc", spec="system"),
    Contender(
        "system PYTHONMALLOC=malloc", "system", "glibc", spec="system:PYTHONMALLOC=malloc",
    ),
    Contender("jemalloc:MALLOC_CONF=x", "jemalloc", "j", spec="jemalloc:MALLOC_CONF=x"),
    Contender("libmine:K=v", "custom", "libmine.so", spec="/opt/libmine.so:K=v"),
    Contender("mimalloc", "mimalloc", "m", spec="mimalloc"),
    Contender("tcmalloc", "tcmalloc", "t", spec="tcmalloc"),
)  # fmt: skip


def test_each_contender_is_an_argument_that_means_it() -> None:
    """A name with "=" once became the name of an allocator, and knobs were put into a list."""
    run = replace(a_run(*KNOBBED), settings=SETTINGS[0])
    specs = options(line_of(run), "-a")
    assert specs == [
        "system",
        "system PYTHONMALLOC-malloc=system:PYTHONMALLOC=malloc",
        "jemalloc:MALLOC_CONF=x",
        "libmine-K-v=/opt/libmine.so:K=v",
        "mimalloc,tcmalloc",
    ]
    catalog = load_catalog()
    again = [parse_contender(part, catalog) for one in specs for part in split_contenders(one)]
    assert [one.knobs for one in again] == [
        (), (("PYTHONMALLOC", "malloc"),), (("MALLOC_CONF", "x"),), (("K", "v"),), (), (),
    ]  # fmt: skip
    assert [one.allocator for one in again] == [one.allocator for one in KNOBBED]
    for one, parsed in zip(KNOBBED[1:], again[1:], strict=True):
        assert options(line_of(replace(run, baseline=one.name)), "--baseline") == [parsed.name]


def test_the_first_contender_stays_the_first() -> None:
    """It is the baseline of a check, and of an experiment without the system's allocator."""
    run = replace(a_run(*KNOBBED[::-1]), settings=SETTINGS[0], baseline="tcmalloc", quick=False)
    for line in (line_of(run), line_of(run, "larson")):
        assert options(line, "-a")[0] == "tcmalloc,mimalloc"
        assert options(line, "-a")[-1] == "system"


ONE_EACH = (
    ((("jemalloc",), ("jemalloc",)), ("jemalloc",)),
    ((("system",), ("system",)), ()),
    ((("/usr/lib/libjemalloc.so.2",), ("system",)), ()),
)
"""The allocators of two programs, and the allocators that the command names."""


@pytest.mark.parametrize(
    ("checked", "specs", "given"),
    [
        *((checked, *each) for checked in (False, True) for each in ONE_EACH),
        (False, (("system", "jemalloc:MALLOC_CONF=x"),) * 2, ("system", "jemalloc:MALLOC_CONF=x")),
    ],
)
def test_programs_are_compared_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checked: bool,
    specs: tuple[tuple[str, ...], ...], given: tuple[str, ...],
) -> None:  # fmt: skip
    """The page of such a run once had a command that compares the allocators instead."""
    second = tmp_path / "my prog"
    second.touch(mode=0o755)
    programs = (
        NamedProgram("old", ("/bin/sh", "-e")), NamedProgram("my prog", (str(second), "-n")),
    )  # fmt: skip
    run = a_run(
        *(
            Contender(
                program.name if len(of) == 1 else f"{program.name}/{spec}", "x", spec, spec=spec,
                program=program.words,
            )
            for program, of in zip(programs, specs, strict=True)
            for spec in of
        )
    )  # fmt: skip
    workload = Workload("-p …", (shlex.join(programs[0].words), "a b", "-x"))
    run = replace(
        run, settings=Settings((workload,), "/"), baseline=run.contenders[0].name,
        gate=Gate((GateBound("time", 0.03),)) if checked else None,
        rule=StopRule(None, 12, 12),
    )  # fmt: skip
    line = line_of(run)
    assert line.startswith(
        "cairn check --fail-if 'time>3%' -p " if checked else "cairn compare -p "
    )
    found = asked_for(monkeypatch, line)
    assert found["programs"] == programs
    assert tuple(part for one in found["specs"] for part in split_contenders(one)) == given
    assert found["settings"].workloads[0].command == workload.command


def test_a_check_is_repeated_as_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was once repeated by `cairn compare`, which knows no bounds."""
    gate = Gate((GateBound("time", 0.03), GateBound("instructions", 0.005)))
    settings = Settings(PROGRAM, "/", count_instructions=True, timeout_s=60.0)
    rule = StopRule(min_rounds=12, max_rounds=400, budget_s=600.0)
    run = replace(
        a_run(*KNOBBED[3:5]),
        settings=settings,
        rule=rule,
        gate=gate,
        baseline="libmine:K=v",
        seed=5,
    )
    line = line_of(run)
    assert options(line, "--fail-if") == ["time>3%", "instructions>0.5%"]
    assert line.startswith("cairn check ") and "--instructions" not in line
    found = asked_for(monkeypatch, line)
    assert (found["rule"], found["seed"], found["baseline"]) == (rule, 5, "libmine-K-v")
    assert replace(found["settings"], workloads=PROGRAM, folder="/") == settings


def test_a_run_of_the_ill_allocators_names_only_the_healthy_ones() -> None:
    """The command adds the ill ones itself, and once refused their names, which were then twice."""
    ill = ILL[0]
    contenders = (
        *KNOBBED[:1],
        Contender("cairn", "cairn", "cairn", spec="cairn"),
        Contender(
            ill.name, "custom", "x", knobs=(("ILL", str(ill.strength)),),
            spec=f"/cache/{ill.name}.so:ILL={ill.strength}",
        ),
    )  # fmt: skip
    settings = Settings(PROGRAM, "/", why=True, counters=True)
    run = replace(a_run(*contenders), settings=settings, experiment="findings", quick=True, seed=5)
    assert line_of(run, "findings --quick") == (
        "cairn bench findings --quick -a system,cairn -r 12 --why --counters --seed 5"
    )


def test_a_run_that_no_command_repeats_has_none() -> None:
    """Its input came through a pipe, or something that the command needs is not stored."""
    run = a_named_run(SETTINGS[0], RULES[0], Aim())
    two = (*PROGRAM, Workload("other", ("other",), load="load {port}"))
    program = tuple(replace(one, program=("/bin/cat",)) for one in run.contenders)
    alike = tuple(replace(one, load="") for one in two)
    for settings, contenders in (
        (Settings(PROGRAM, "/", stdin=COPY), run.contenders),
        (Settings(two, "/"), run.contenders),
        (Settings(alike, "/"), program),
    ):
        of = replace(run, settings=settings, contenders=contenders)
        assert repeat_command.command(of) is None
        measured = Measured(of, (), ("12 rounds",), "last")
        assert "measures the run again" not in of_run(measured, comparisons(measured))
    assert repeat_command.command(replace(run, experiment="fill"), "fill") is None


@pytest.mark.parametrize(
    ("experiment", "quick", "bench"),
    [
        ("fill", True, "fill --quick"),
        ("fill", False, "fill"),
        ("fill", None, "fill"),
        ("workloads", True, "prog --quick"),
        ("matrix my-plan", None, None),
        (None, None, None),
    ],
)
def test_the_size_of_an_experiment_is_kept(
    tmp_path: Path, experiment: str | None, quick: bool | None, bench: str | None
) -> None:
    """`--quick` was once left out of the next step, which was then another experiment."""
    run = replace(a_named_run(SETTINGS[0], RULES[0], Aim()), experiment=experiment, quick=quick)
    folder = store.Folder.create(tmp_path, run)
    assert measurement.measured(folder, predicts=False).bench == bench


def test_counts_of_several_experiments_name_all_their_workloads(tmp_path: Path) -> None:
    """Such a run has the name of the first experiment, and was repeated without the others."""
    for number, named in enumerate((["scenarios", "larson"], ["scenarios"])):
        (choice,) = run_settings.counted(run_settings.chosen(named, quick=False))
        names = [one.name for one in choice.workloads]
        workloads = tuple(
            Workload(f"{name} ({size})", (name,), name)
            for name in names
            for size in ("smallest", "larger")
        )
        settings = Settings(workloads, "/", instructions=True, reports=True)
        run = a_named_run(settings, RULES[0], Aim())
        run = replace(run, experiment=choice.experiment.name, quick=False)
        assert run.experiment == "scenarios"
        folder = store.Folder.create(tmp_path / str(number), run)
        bench = measurement.measured(folder, predicts=False).bench
        assert bench == (" ".join(names) if len(named) > 1 else "scenarios")


def test_a_long_budget_has_no_exponent() -> None:
    """A budget of 300 h was written as 1.08e+06s, which no option takes."""
    for budget_s, text in ((1_080_000.0, "1080000s"), (0.25, "0.25s"), (90.0, "90s")):
        run = replace(a_run(), rule=StopRule(budget_s=budget_s), settings=Settings(PROGRAM, "/"))
        assert options(line_of(run), "--budget") == [text]
