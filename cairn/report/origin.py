"""The origin of a run's numbers: machine, contenders, plan and proof of load, as tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cairn import units
from cairn.model import NO_INPUT, Run, Sample
from cairn.report.formatting import NOT_MEASURED, command, printable
from cairn.report.standings import UNKNOWN
from cairn.report.tables import Cell, Table
from cairn.verdict import Aim


def machine(run: Run) -> Table:
    """Returns the machine and its state when the run began."""
    host = run.host
    kind = {True: "virtual", False: "physical", None: "perhaps virtual"}[host.virtual]
    facts = [
        ("system", host.system),
        ("kernel", host.kernel),
        ("architecture", host.architecture),
        ("C library", host.libc),
        ("processor", host.cpu_model),
        ("CPUs", f"{host.cpus} ({kind})"),
        ("memory", None if host.memory_bytes is None else units.size(host.memory_bytes)),
        ("OS page", units.size(host.page_bytes)),
        ("transparent huge pages", host.transparent_huge_pages),
        ("frequency governor", host.governor),
        ("load when the run began", None if host.load is None else f"{host.load}"),
        ("cairn", run.cairn),
    ]
    return _facts("machine", [(name, text or "not known") for name, text in facts])


def plan(run: Run) -> Table:
    """Returns the rule by which the run was measured, and the settings that were given."""
    return _facts("plan", list(_plan(run)))


def _plan(run: Run) -> Iterator[tuple[str, str]]:
    rule, settings = run.rule, run.settings
    yield "run", run.id
    rounds = units.counted(rule.max_rounds, "round")
    if rule.precision is not None:
        rounds = (
            f"{rule.min_rounds} to {rule.max_rounds}, until ±"
            f"{units.percent(rule.precision, signed=False)}"
        )
    yield "rounds", rounds
    if rule.budget_s is not None:
        yield "budget", units.duration(rule.budget_s)
    if settings.soak_s is not None:
        yield "length of a run", units.duration(settings.soak_s)
    yield "equivalent", f"within ±{units.percent(rule.margin, signed=False)}"
    yield "baseline", run.baseline
    yield "seed of the random order", str(run.seed)
    yield "warm-up", units.counted(settings.warmup, "run")
    if settings.repeat is not None and settings.repeat > 1:
        yield "runs for each number", str(settings.repeat)
    yield "memory", f"measured by {settings.memory}" if settings.memory != "auto" else "automatic"
    for name, text in (
        ("input", settings.stdin if settings.stdin != NO_INPUT else None),
        ("setup", settings.setup),
        ("before each run", settings.prepare),
        ("after each run", settings.conclude),
        ("at the end", settings.cleanup),
        ("CPUs of the program", settings.cpus),
        ("time limit", None if settings.timeout_s is None else f"{settings.timeout_s:g} s"),
    ):
        if text:
            yield name, command(text)


def _facts(title: str, facts: Sequence[tuple[str, str]]) -> Table:
    rows = tuple((Cell(name), Cell(printable(text))) for name, text in facts)
    return Table("", (title, ""), rows, texts=True)


def contenders(run: Run) -> Table:
    """Returns the contenders with their versions, origins and environments."""
    rows = tuple(
        (
            Cell(printable(one.name)),
            Cell(printable(one.title)),
            Cell(printable(one.origin or UNKNOWN)),
            Cell(printable(shlex.join(f"{key}={text}" for key, text in one.knobs) or UNKNOWN)),
            Cell(printable(one.build_id or UNKNOWN)),
        )
        for one in run.competing
    )
    heads = ("contender", "version", "origin", "environment", "build ID")
    return Table("", heads, rows, texts=True)


def proof(run: Run, samples: Sequence[Sample]) -> Table:
    """Returns in how many processes each contender was proven to own malloc."""
    rows = []
    for one in run.competing:
        own = [sample.proof for sample in samples if sample.trial.contender == one.name]
        seen, loaded = sum(of.processes for of in own), sum(of.loaded for of in own)
        owners = list(dict.fromkeys(of.owner for of in own if of.owner))
        rows.append(
            (
                Cell(printable(one.name)),
                Cell(units.count(len(own))),
                Cell(units.count(seen)),
                Cell(units.count(loaded), None if seen == loaded else False),
                Cell(printable(", ".join(owners)) or NOT_MEASURED),
            )
        )
    heads = ("contender", "runs", "processes", "loaded in", "owner of malloc")
    return Table("", heads, tuple(rows))


def aim(of: Aim) -> str:
    """Returns the question that a verdict answers, as a sentence."""
    if of.pareto:
        return (
            "Time and memory are judged together: the best contenders are those that no other "
            "beats in both."
        )
    if of.goal is None:
        return "Time, CPU time and memory are judged, each by itself."
    bounds = [f"{100 * one.most:.6g} % more {one.measure.value}" for one in of.may_cost]
    price = f", at a price of at most {' and '.join(bounds)}" if bounds else ""
    return f"Only {of.goal.value} is judged{price}."
