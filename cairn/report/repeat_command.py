"""The command that measures a stored run again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cairn.compare import gate
from cairn.model import COPY, NO_INPUT, Contender, Run, Settings, StopRule
from cairn.report.check import bound
from cairn.verdict import Measure
from cairn.why.ill_allocators import ILL

_GOALS = {Measure.TIME: "time", Measure.CPU_TIME: "cpu", Measure.MEMORY: "memory"}
_RULE, _SETTINGS = StopRule(), Settings((), "")
_CHECK_RULE = StopRule(min_rounds=gate.ROUNDS_LEAST, max_rounds=gate.ROUNDS_DEFAULT)
"""The rules of 'cairn compare' and of 'cairn check' without options."""
_PROGRAM_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,39}")
"""A name that -p takes before '='."""


def command(run: Run, bench: str | None = None, plan: Sequence[str] | None = None) -> str | None:
    """Returns the command that measures the run again, with its seed, as a line for a shell.

    bench: the arguments of 'cairn bench' that repeat the run; None for another command.
    plan: the arguments of 'cairn matrix run' that name its plan and its programs. None if they are
    not known, and for another command.

    Returns None if the stored run does not determine a command that measures the same.
    """
    if (run.experiment or "").partition(" ")[0] == "matrix":
        return None if plan is None else shlex.join(_of_plan(run, plan))
    if bench is not None:
        # A run of an earlier version does not say whether it was made with --quick.
        return None if run.quick is None else shlex.join(_of_bench(run, bench))
    return shlex.join(_of_program(run)) if _is_determined(run) else None


def _is_determined(run: Run) -> bool:
    """Returns whether a command can repeat a run of the user's own program.

    A run cannot be repeated in four cases. Its input came through a pipe. Its commands have
    different loads, which needs -L, and the parameters of -L are not stored. It has several
    commands with -p, which also needs -L. Or it measured a base, or a build that was checked
    against one: such a run knows neither its bounds nor its base.
    """
    workloads = run.settings.workloads
    is_check = (run.made_by or "").startswith("cairn check")
    return (
        run.settings.stdin != COPY
        and not (is_check and run.gate is None)
        and len({one.load for one in workloads}) == 1
        and not (len(workloads) > 1 and _has_programs(run))
    )


def _of_plan(run: Run, plan: Sequence[str]) -> Iterator[str]:
    rounds = run.rule.max_rounds
    yield from ("cairn", "matrix", "run", *plan, *_contenders(run.competing), "-r", str(rounds))
    if run.settings.why:
        yield from ("--profile", str(run.settings.profiled_rounds or rounds))
    if run.rule.budget_s is not None:
        yield from ("--budget", _seconds(run.rule.budget_s))
    yield from ("--seed", str(run.seed))


def _of_bench(run: Run, bench: str) -> Iterator[str]:
    # The experiment on findings adds the ill allocators itself.
    adds = bench.split()[:1] == ["findings"]
    others = [one for one in run.competing if not (adds and _is_ill(one))]
    yield from ("cairn", "bench", *bench.split(), *_contenders(others))
    if run.rule.precision is None:
        yield from ("-r", str(run.rule.max_rounds))
    for option, is_set in (
        ("--instructions", run.settings.instructions), ("--why", run.settings.why),
        ("--counters", run.settings.counters),
    ):  # fmt: skip
        if is_set:
            yield option
    yield from ("--seed", str(run.seed))


def _is_ill(contender: Contender) -> bool:
    """Returns whether this is one of the allocators that are ill on purpose."""
    return any(
        contender.name == one.name and ("ILL", str(one.strength)) in contender.knobs for one in ILL
    )


def _of_program(run: Run) -> Iterator[str]:
    """Yields the words of 'cairn soak', 'cairn check' or 'cairn compare'."""
    contenders = _programs(run) if _has_programs(run) else _contenders(run.competing)
    if run.settings.soak_s is not None:
        yield from ("cairn", "soak", *contenders, "--for", _seconds(run.settings.soak_s))
        yield from ("-r", str(run.rule.max_rounds))
        # 'cairn soak' has no option --warmup, because its runs never have a warm-up.
        yield from _settings(replace(run.settings, warmup=_SETTINGS.warmup))
        yield from _program(run.settings)
        return
    if run.gate is not None:
        yield from ("cairn", "check")
        for one in run.gate.bounds:
            yield from ("--fail-if", bound(one.measure, one.most))
        yield from contenders
        yield from _rule(run.rule, _CHECK_RULE)
        # The bounds say whether instructions are counted.
        yield from _settings(replace(run.settings, count_instructions=False))
    else:
        yield from ("cairn", "compare", *contenders)
        if not _has_programs(run) and not _is_default_baseline(run):
            yield from ("--baseline", *(_name(c) for c in run.competing if c.name == run.baseline))
        yield from _aim(run)
        yield from _rule(run.rule, _RULE)
        yield from _settings(run.settings)
    yield from ("--seed", str(run.seed))
    yield from _program(run.settings, with_programs=_has_programs(run))


def _is_default_baseline(run: Run) -> bool:
    """Returns whether 'cairn compare' chooses this baseline if --baseline is not given.

    It chooses the first contender with the system's allocator and without knobs, whatever its name.
    """
    plain = (one.name for one in run.competing if (one.spec or one.name) == "system")
    return run.baseline == "system" == next(plain, None)


def _contenders(contenders: Sequence[Contender]) -> Iterator[str]:
    """Yields the options -a of these contenders, in their order, since it may decide the baseline.

    Neighbours that are given by their names alone share one option. Each other one has its own.
    """
    plain: list[str] = []
    for one in contenders:
        spec = one.spec or one.name
        if spec == one.name and ":" not in spec:
            plain.append(spec)
            continue
        if plain:
            yield from ("-a", ",".join(plain))
            plain = []
        yield from ("-a", spec if spec == one.name else f"{_name(one)}={spec}")
    if plain:
        yield from ("-a", ",".join(plain))


def _name(contender: Contender) -> str:
    """Returns the contender's name as the options -a and --baseline take it.

    A name that Cairn made may contain '=', ':', '/' or ',', as in "system PYTHONMALLOC=malloc".
    These characters cannot stand before the '=' of -a NAME=SPEC, so '-' replaces them.
    """
    if contender.spec in ("", contender.name):
        return contender.name
    return re.sub("[=:/,]", "-", contender.name)


def _has_programs(run: Run) -> bool:
    """Returns whether the run compares the programs of -p."""
    return any(one.program for one in run.competing)


def _programs(run: Run) -> Iterator[str]:
    """Yields the options -p of all programs, and the options -a under which each of them ran.

    A contender is named after its program, or "PROGRAM/ALLOCATOR" if there are several allocators.
    """
    programs = {one.name.partition("/")[0]: one.program for one in run.competing}
    for name, words in programs.items():
        line = shlex.join(words)
        yield from ("-p", f"{name}={line}" if _PROGRAM_NAME.fullmatch(name) else line)
    first = next(iter(programs))
    under = [
        replace(one, name=one.name.partition("/")[2])
        for one in run.competing
        if one.name.startswith(f"{first}/")
    ]
    yield from _contenders(under)
    specs = {one.spec for one in run.competing}
    # Without -a, each program runs with its own allocator.
    if not under and len(specs) == 1 and specs != {"system"}:
        yield from ("-a", *specs)


def _aim(run: Run) -> Iterator[str]:
    if run.aim.pareto:
        yield "--pareto"
    if run.aim.goal is not None:
        yield from ("--goal", _GOALS[run.aim.goal])
    for one in run.aim.may_cost:
        yield from ("--may-cost", f"{_GOALS[one.measure]} {100 * one.most:.6g}%")


def _rule(rule: StopRule, usual: StopRule) -> Iterator[str]:
    """Yields the options of the rule. `usual`: the rule of the command without options."""
    if rule.precision is None:
        yield from ("-r", str(rule.max_rounds))
    else:
        if rule.precision != usual.precision:
            yield from ("--precision", f"{100 * rule.precision:.6g}%")
        if rule.min_rounds != usual.min_rounds:
            yield from ("--min-rounds", str(rule.min_rounds))
        if rule.max_rounds != usual.max_rounds:
            yield from ("--max-rounds", str(rule.max_rounds))
    if rule.margin != usual.margin:
        yield from ("--margin", f"{100 * rule.margin:.6g}%")
    if rule.budget_s is not None and (rule.precision is None or rule.budget_s != 600):
        yield from ("--budget", _seconds(rule.budget_s))


def _settings(of: Settings) -> Iterator[str]:
    given: Sequence[tuple[str, object, object]] = (
        ("--input", None if of.stdin in (NO_INPUT, COPY) else of.stdin, None),
        ("--output", of.stdout, None),
        ("--ok-exit", ",".join(map(str, of.ok_exit)), "0"),
        ("--verify", "same-output" if of.verify_output else None, None),
        ("--timeout", None if of.timeout_s is None else _seconds(of.timeout_s), None),
        ("--cpus", of.cpus, None),
        ("--warmup", of.warmup, _SETTINGS.warmup),
        ("--repeat", "auto" if of.repeat is None else of.repeat, _SETTINGS.repeat),
        ("--setup", of.setup, None),
        ("--prepare", of.prepare, None),
        ("--conclude", of.conclude, None),
        ("--cleanup", of.cleanup, None),
        ("--ready", of.ready, None),
        ("--idle", None if of.idle_s is None else _seconds(of.idle_s), None),
        ("--memory", of.memory, _SETTINGS.memory),
        ("--warm-memory", _size(of.warm_memory), None),
    )
    for option, text, usual in given:
        if text is not None and text != usual:
            yield from (option, str(text))
    for pattern in of.patterns:
        yield from ("--metric", f"{pattern.name}={pattern.regex}")
    for option, is_set in (
        ("--instructions", of.count_instructions), ("--counters", of.counters), ("--why", of.why),
        ("--shell", of.shell), ("--wait-descendants", of.wait_descendants),
    ):  # fmt: skip
        if is_set:
            yield option


def _seconds(duration_s: float) -> str:
    """Returns a duration without an exponent, which no option would take."""
    return f"{duration_s:.6f}".rstrip("0").rstrip(".") + "s"


def _size(number: int | None) -> str | None:
    if number is None:
        return None
    return str(number) if number else "off"


def _program(of: Settings, *, with_programs: bool = False) -> Iterator[str]:
    """Yields the load with --while, and the commands.

    A single command follows '--'. Several commands are each the value of an option -c. The programs
    of -p take the place of the first word of the command.
    """
    if of.workloads[0].load:
        yield from ("--while", of.workloads[0].load)
    if len(of.workloads) == 1:
        yield from ("--", *of.workloads[0].command[1 if with_programs else 0 :])
        return
    for one in of.workloads:
        yield from ("-c", one.command[0] if of.shell else shlex.join(one.command))
