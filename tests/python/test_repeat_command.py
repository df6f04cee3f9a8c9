"""Tests that the command of a stored run measures the same run again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support.comparisons import a_run

from cairn.cli import cli
from cairn.cli import compare as comparing
from cairn.errors import CairnError
from cairn.model import Contender, Pattern, Run, Settings, StopRule, Workload
from cairn.report import repeat_command
from cairn.verdict import Aim, Bound, Measure

PROGRAM = (Workload("prog", ("prog", "-n", "two words", "--flag", "$HOME")),)


def a_named_run(settings: Settings, rule: StopRule, aim: Aim) -> Run:
    run = a_run(
        Contender("system", "system", "glibc", spec="system"),
        Contender("lazy", "jemalloc", "jemalloc", spec="jemalloc:MALLOC_CONF=a:1,b:2"),
        Contender("mine", "custom", "libmine.so", spec="/opt/my lib/libmine.so"),
    )
    return replace(run, settings=settings, rule=rule, aim=aim, seed=77)


def asked_for(monkeypatch: pytest.MonkeyPatch, line: str) -> dict[str, Any]:
    """Returns what `cairn compare` understands of a command line, without measuring."""
    found: dict[str, Any] = {}

    def new_run(_: object, settings: Settings, specs: object, *more: object, **__: object) -> Run:
        found.update(settings=settings, specs=specs, baseline=more[0], rule=more[1], seed=more[2])
        raise CairnError("enough")

    monkeypatch.setattr(comparing, "new_run", new_run)
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
        warm_memory=0, counters=True, wait_descendants=True, repeat=5,
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
    found = asked_for(monkeypatch, repeat_command.command(run))
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
    words = shlex.split(repeat_command.command(run))
    assert words[words.index("--goal") + 1] == "memory"
    assert words[words.index("--may-cost") + 1] == "time 5%"
    assert words[words.index("--baseline") + 1] == "lazy"
    assert "--pareto" in repeat_command.command(replace(run, aim=Aim(pareto=True)))


def test_a_run_of_an_experiment_or_a_plan_is_repeated_by_its_own_command() -> None:
    run = a_named_run(SETTINGS[0], RULES[0], Aim())
    assert repeat_command.command(run, "suite").startswith("cairn bench suite -a system ")
    plan = replace(run, experiment="matrix my-plan")
    assert repeat_command.command(plan).startswith("cairn matrix run my-plan -a system ")
