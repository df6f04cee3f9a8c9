"""The command that measures a stored run again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cairn.model import COPY, NO_INPUT, Run, Settings, StopRule
from cairn.verdict import Measure

_GOALS = {Measure.TIME: "time", Measure.CPU_TIME: "cpu", Measure.MEMORY: "memory"}
_RULE, _SETTINGS = StopRule(), Settings((), "")


def command(run: Run, bench: str | None = None) -> str:
    """Returns the command that measures the run again, with its seed, as a line for a shell.

    bench: the arguments of 'cairn bench' that repeat the run; None for another command.
    """
    return shlex.join(_words(run, bench))


def _words(run: Run, bench: str | None) -> Iterator[str]:
    contenders = tuple(_contenders(run))
    kind, _, plan = (run.experiment or "").partition(" ")
    if kind == "matrix":
        yield from ("cairn", "matrix", "run", plan, *contenders)
        yield from ("-r", str(run.rule.max_rounds), "--seed", str(run.seed))
        return
    if bench is not None:
        yield from ("cairn", "bench", *bench.split(), *contenders)
        if run.rule.precision is None:
            yield from ("-r", str(run.rule.max_rounds))
        if run.settings.instructions:
            yield "--instructions"
        elif run.settings.why:
            yield "--why"
        yield from ("--seed", str(run.seed))
        return
    if run.settings.soak_s is not None:
        yield from ("cairn", "soak", *contenders, "--for", f"{run.settings.soak_s:g}s")
        yield from ("-r", str(run.rule.max_rounds))
        # 'cairn soak' has no option --warmup, because its runs never have a warm-up.
        yield from _settings(replace(run.settings, warmup=_SETTINGS.warmup))
        yield from _program(run.settings)
        return
    yield from ("cairn", "compare", *contenders)
    if run.competing and run.baseline != "system":
        yield from ("--baseline", run.baseline)
    yield from _aim(run)
    yield from _rule(run.rule)
    yield from _settings(run.settings)
    yield from ("--seed", str(run.seed))
    yield from _program(run.settings)


def _contenders(run: Run) -> Iterator[str]:
    """Yields the options -a of all contenders.

    Contenders that are given by their names alone share one option. Each other one has its own.
    """
    plain = [one.name for one in run.competing if one.spec in ("", one.name)]
    if plain:
        yield from ("-a", ",".join(plain))
    for one in run.competing:
        if one.spec not in ("", one.name):
            is_named = one.spec.partition(":")[0].rpartition("/")[2] == one.name
            yield from ("-a", one.spec if is_named else f"{one.name}={one.spec}")


def _aim(run: Run) -> Iterator[str]:
    if run.aim.pareto:
        yield "--pareto"
    if run.aim.goal is not None:
        yield from ("--goal", _GOALS[run.aim.goal])
    for bound in run.aim.may_cost:
        yield from ("--may-cost", f"{_GOALS[bound.measure]} {100 * bound.most:.6g}%")


def _rule(rule: StopRule) -> Iterator[str]:
    if rule.precision is None:
        yield from ("-r", str(rule.max_rounds))
    else:
        if rule.precision != _RULE.precision:
            yield from ("--precision", f"{100 * rule.precision:.6g}%")
        if rule.min_rounds != _RULE.min_rounds:
            yield from ("--min-rounds", str(rule.min_rounds))
        if rule.max_rounds != _RULE.max_rounds:
            yield from ("--max-rounds", str(rule.max_rounds))
    if rule.margin != _RULE.margin:
        yield from ("--margin", f"{100 * rule.margin:.6g}%")
    if rule.budget_s is not None and (rule.precision is None or rule.budget_s != 600):
        yield from ("--budget", f"{rule.budget_s:g}s")


def _settings(of: Settings) -> Iterator[str]:
    given: Sequence[tuple[str, object, object]] = (
        ("--input", None if of.stdin in (NO_INPUT, COPY) else of.stdin, None),
        ("--output", of.stdout, None),
        ("--ok-exit", ",".join(map(str, of.ok_exit)), "0"),
        ("--verify", "same-output" if of.verify_output else None, None),
        ("--timeout", None if of.timeout_s is None else f"{of.timeout_s:g}s", None),
        ("--cpus", of.cpus, None),
        ("--warmup", of.warmup, _SETTINGS.warmup),
        ("--repeat", "auto" if of.repeat is None else of.repeat, _SETTINGS.repeat),
        ("--setup", of.setup, None),
        ("--prepare", of.prepare, None),
        ("--conclude", of.conclude, None),
        ("--cleanup", of.cleanup, None),
        ("--ready", of.ready, None),
        ("--idle", None if of.idle_s is None else f"{of.idle_s:g}s", None),
        ("--memory", of.memory, _SETTINGS.memory),
        ("--warm-memory", _size(of.warm_memory), None),
    )
    for option, text, usual in given:
        if text is not None and text != usual:
            yield from (option, str(text))
    for pattern in of.patterns:
        yield from ("--metric", f"{pattern.name}={pattern.regex}")
    for option, is_set in (
        ("--counters", of.counters), ("--why", of.why), ("--shell", of.shell),
        ("--wait-descendants", of.wait_descendants),
    ):  # fmt: skip
        if is_set:
            yield option


def _size(number: int | None) -> str | None:
    if number is None:
        return None
    return str(number) if number else "off"


def _program(of: Settings) -> Iterator[str]:
    """Yields the loads with --while, and the commands.

    A single command follows '--'. Several commands are each the value of an option -c.
    """
    loads = dict.fromkeys(one.load for one in of.workloads if one.load)
    for load in loads:
        yield from ("--while", load)
    if len(of.workloads) == 1:
        yield from ("--", *of.workloads[0].command)
        return
    for one in of.workloads:
        yield from ("-c", one.command[0] if of.shell else shlex.join(one.command))
