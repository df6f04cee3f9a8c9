"""The part of cairn matrix that measures a plan on several machines."""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

import cairn
from cairn import units
from cairn.cli import measurement as making
from cairn.cli.console import end_like_ctrl_c, say
from cairn.errors import CairnError, Interrupted, ProgramFailed, UsageError
from cairn.matrix.fleet import COMPLETE, SCHEMA, Fleet, FleetPlan, find, machine_of, proven
from cairn.model import TIME_BUDGET
from cairn.report.formatting import printable
from cairn.run import store

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.cli.console import Output
    from cairn.matrix.fleet_watch import FleetWatch
    from cairn.matrix.plan import MeasurementPlan, PlannedProgram
    from cairn.matrix.runs import NamedPlan
    from cairn.matrix.schedulers import Scheduler
    from cairn.report.terminal import Screen
    from cairn.report.view import View
    from cairn.run.stored_run import StoredRun

_SLOWEST = 4.0
"""The time limit of a job, as a multiple of the expected time of its warm-up and its round."""
_START_S = 600.0
"""The time that is added to this limit, for the start of the job and for making its inputs."""


def options_of(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The options of --sbatch, each KEY=VALUE or KEY. Raises UsageError."""
    found = {}
    for text in texts:
        key, _, value = text.removeprefix("--").partition("=")
        if not key.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"--sbatch {text} is not KEY=VALUE, such as --sbatch account=mine")
        if any(ord(character) < 32 for character in value):
            raise UsageError(f"--sbatch {key} has a line break or another control character")
        if key == "time" and not re.fullmatch("[1-9][0-9]{0,8}", value):
            raise UsageError(f"--sbatch time={value} is not a number of minutes, such as time=120")
        found[key.replace("-", "_")] = value
    return tuple(found.items())


def begin(
    console: Console,
    named: NamedPlan,
    where: Path,
    output: Output,
    *,
    on: str,
    sbatch: Sequence[str],
    specs: Sequence[str],
    rounds: int | None,
    budget: float | None,
    only: Sequence[str],
    seed: int | None,
) -> None:
    """Submits the rounds of a plan, waits for them, and shows the report."""
    from cairn.allocators.contenders import parse_contender, refuse_duplicates
    from cairn.matrix import runs, schedulers

    scheduler, partition = schedulers.parse(on)
    further = options_of(sbatch)
    if further and scheduler != "slurm":
        raise UsageError("--sbatch is for --on slurm")
    schedulers.needed(scheduler)
    contenders, baseline = runs.chosen(named, specs)
    parsed = [parse_contender(spec) for spec in contenders]
    refuse_duplicates(parsed)
    if len(parsed) < 2:
        raise UsageError(
            f"{parsed[0].name} alone has nothing to be compared with; name a second allocator with "
            "-a"
        )
    chosen = named.plan.only(only)
    now = time.time()
    drawn = secrets.randbelow(1_000_000)
    planned = seed if seed is not None else named.plan.seed
    plan = FleetPlan(
        schema=SCHEMA, id=store.new_id(now), created_at=now, cairn=cairn.__version__,
        plan=named.name, text=named.text, folder=named.home, contenders=contenders,
        baseline=baseline, only=tuple(only), rounds=rounds or named.plan.rounds,
        seed=drawn if planned is None else planned, scheduler=scheduler, partition=partition,
        options=further, minutes=_minutes(named.plan, chosen, len(contenders), scheduler),
        budget_s=budget if budget is not None else named.plan.budget_s,
    )  # fmt: skip
    fleet = Fleet.create(where.absolute(), plan)
    where_to = f"Slurm, partition {partition}" if partition else scheduler.capitalize()
    say(
        console, "plan",
        f"{units.counted(len(chosen), 'program')}, {len(contenders)} contenders × "
        f"{units.counted(plan.rounds, 'round')} · {where_to if scheduler == 'slurm' else on} · "
        f"seed {plan.seed} · {plan.id}",
    )  # fmt: skip
    go_on(console, fleet, output)


def _minutes(
    plan: MeasurementPlan, chosen: Sequence[PlannedProgram], contenders: int, scheduler: str
) -> int:
    """The time limit of a job.

    On this machine, no option sets another limit, so a round may take as long as the limits of its
    runs allow. The limit of a job then ends nothing but a round that hangs.
    """
    from cairn.matrix import programs

    round_s, _ = programs.expected_s(chosen, contenders, 1, plan.warmup)
    limit_s = _SLOWEST * round_s
    if scheduler == "local":
        runs = contenders * (1 + plan.warmup)
        limit_s = max(limit_s, runs * sum(program.timeout_s for program in chosen))
    return math.ceil((limit_s + _START_S) / 60)


def go_on(console: Console, fleet: Fleet, output: Output) -> None:
    """Waits for the rounds of a fleet, and shows the report.

    If the user interrupts this command, jobs of Slurm go on.
    """
    from cairn.matrix import schedulers
    from cairn.matrix.fleet_watch import FleetWatch
    from cairn.report.run import comparisons, fitting

    fleet.hold()
    end_like_ctrl_c()
    scheduler = schedulers.of(fleet)
    watch = FleetWatch(fleet, scheduler, partial(say, console))
    try:
        because = watch.wait(0.2 if fleet.plan.scheduler == "local" else 2.0)
    except KeyboardInterrupt:
        raise _interrupted(fleet, scheduler, watch) from None
    except CairnError:
        say(console, "results", str(fleet.path))
        raise
    if because == COMPLETE:
        fleet.remove_attempts()
    found = fleet.nodes()
    if found:
        _show(found, output)
    say(console, "results", str(fleet.path))
    if because not in (COMPLETE, TIME_BUDGET):
        raise CairnError(
            f"{because}; 'cairn matrix run --resume {fleet.path.name}' tries them again"
        )
    if not found:
        raise UsageError(
            f"no round was measured within {units.duration(fleet.plan.budget_s or 0)} after the "
            "first job had started; begin a new run with a longer --budget"
        )
    failures: list[CairnError] = []
    # The exit code says the same as the report, which leaves out the nodes that do not fit.
    for measured in fitting([making.measured(one) for one in found])[0]:
        try:
            making.raise_failures(measured.run, comparisons(measured))
        except CairnError as error:
            failures.append(error)
    # A failure under the baseline on any node takes precedence.
    if failures:
        raise min(failures, key=lambda failure: not isinstance(failure, ProgramFailed))


def _interrupted(fleet: Fleet, scheduler: Scheduler, watch: FleetWatch) -> Interrupted:
    """The error after ctrl-C. Jobs on this machine are cancelled, and jobs of Slurm go on."""
    name = fleet.path.name
    if fleet.plan.scheduler == "local":
        scheduler.cancel(watch.jobs)
        number = len(fleet.numbers())
        return Interrupted(
            f"interrupted; {units.counted(number, 'round')} {'is' if number == 1 else 'are'} kept; "
            f"continue with: cairn matrix run --resume {name}"
        )
    alive = scheduler.alive(watch.jobs) or {}
    arrays = " ".join(sorted({one.partition("_")[0] for one in alive}))
    cancel = f"; 'scancel {arrays}' ends them" if arrays else ""
    return Interrupted(
        f"interrupted; the jobs go on{cancel}; wait for them with: cairn matrix run --resume {name}"
    )


def _show(found: Sequence[StoredRun], output: Output) -> None:
    from cairn.report import matrix_report
    from cairn.report.run import fitting, plan_report

    measured, notes = fitting([making.measured(one) for one in found])
    output.write(matrix_report.rendered(plan_report(measured, notes=notes), output.view))


def stored(where: Path, name: str) -> list[StoredRun]:
    """The runs that `name` stands for: one, or those of each node of a fleet.

    Raises UsageError if there is none, or if no round of the fleet was delivered.
    """
    fleet = find(where, name)
    if fleet is None:
        return [store.find(where, name)]
    found = fleet.nodes()
    if not found:
        raise UsageError(
            f"no round of {fleet.path.name} was measured yet; 'cairn matrix status "
            f"{fleet.path.name}' shows how far it is"
        )
    return list(found)


def status(fleet: Fleet, view: View, *, as_json: bool) -> None:
    """Prints how far a fleet has come, and what each node did."""
    from cairn.report.terminal import Screen

    plan, nodes, numbers = fleet.plan, fleet.nodes(), fleet.numbers()
    ended = fleet.ended()
    state = ended or ("running" if fleet.is_held() else "not finished")
    if as_json:
        click.echo(json.dumps(_document(fleet, state), indent=1))
        return
    screen = Screen(view)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(plan.created_at))
    on = plan.scheduler + (f":{plan.partition}" if plan.partition else "")
    screen.line(
        f"{plan.id} · plan {printable(plan.plan)} · on {on} · begun {began} · {printable(state)}",
        "bold",
    )
    screen.line(
        f"{len(numbers)} of {units.counted(plan.rounds, 'round')} complete, by "
        f"{units.counted(len(nodes), 'node')}"
    )
    for one in nodes:
        good, runs = proven(one.rounds)
        screen.line(
            f"{printable(one.node)}: {units.counted(len(one.rounds), 'round')} on "
            f"{printable(machine_of(one.rounds[0].run))}; {good} of {units.counted(runs, 'run')} "
            "proved which allocator they used",
            "" if good == runs else "yellow",
            hanging=2,
        )
        _tell_absent(screen, dict.fromkeys(s for of in one.rounds for s in of.node.absent))
    for refusal in fleet.refusals().values():
        screen.line(
            f"✘ round {refusal.round} on {printable(refusal.node)}: {printable(refusal.says)}",
            "red",
            hanging=2,
        )
    if ended != COMPLETE and not fleet.is_held():
        screen.line(f"Next: cairn matrix run --resume {plan.id}")
    click.echo(screen.text(), nl=False, color=True)


def _tell_absent(screen: Screen, absent: Sequence[str] | dict[str, None]) -> None:
    for says in absent:
        screen.line(f"  ▲ {printable(says)}", "yellow", hanging=4)


def _document(fleet: Fleet, state: str) -> dict[str, object]:
    """The state as a document for JSON."""
    nodes = [
        {
            "node": one.node, "rounds": [each.number for each in one.rounds],
            "machine": machine_of(one.rounds[0].run),
            "runs": proven(one.rounds)[1], "runs_proven": proven(one.rounds)[0],
            "absent": list(dict.fromkeys(s for of in one.rounds for s in of.node.absent)),
        }
        for one in fleet.nodes()
    ]  # fmt: skip
    return {
        "run": fleet.plan.id, "plan": fleet.plan.plan, "state": state,
        "rounds": len(fleet.numbers()), "rounds_planned": fleet.plan.rounds, "nodes": nodes,
        "refused": [
            {"round": one.round, "node": one.node, "says": one.says}
            for one in fleet.refusals().values()
        ],
    }  # fmt: skip
