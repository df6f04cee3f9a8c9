"""Turns the names on the command line of `cairn bench` into runs, and draws the pictures of a run.

`chosen` finds the experiments, `contenders` the allocators, `settings` the commands, and `rule` the
number of rounds. Workloads that do not fit into the available memory and allocators that are not
available here are left out. The callback `say` reports each of them, with the next step.
If nothing remains to be run, the functions raise a CairnError.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn import native, units
from cairn.allocators import discover, obtain
from cairn.allocators.contenders import default_contenders, left_out
from cairn.allocators.tool_runner import Progress
from cairn.bench import experiments, ill_libraries, real_programs
from cairn.bench.experiments import EXPERIMENTS, SUITE, Experiment, Report, Size, Variant
from cairn.compare import ranking, rounds_needed, standings
from cairn.doctor import machine
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.matrix import EXPERIMENT
from cairn.model import Comparison, Run, Settings, StopRule, Workload
from cairn.report import pictures as drawing
from cairn.run import workloads
from cairn.run.store import Folder
from cairn.why.ill_allocators import ILL

__all__ = [
    "EXPERIMENTS",
    "Chosen",
    "chosen",
    "contenders",
    "counted",
    "fitting",
    "named",
    "pictures",
    "report_of",
    "settings",
]

_MEMORY_SHARE = 0.9
"""Share of the available memory that a workload may take. Other programs need the rest, and the
kernel's number is only an estimate."""
_OVERHEAD_S = 0.06
"""Seconds of a trial beyond the workload itself: the launcher, the cgroup, reading the proof."""
_DURATION_FACTOR = 1.25
"""Assumed duration of a trial under the average contender, as a multiple of that under glibc."""
_ILL_FACTOR = 2.0
"""Assumed duration of a trial in an experiment with ill allocators, as a multiple of the duration
under glibc."""
_TIMEOUT_FACTOR = 60
"""The time limit of a trial is at least this multiple of the longest workload's duration under
glibc. A trial that takes longer is assumed to hang."""
_TIMEOUT_LEAST_S = 120.0
"""The time limit of a trial is at least this long."""
_ILL_TIMEOUT_FACTOR = 5
"""In an experiment with ill allocators, the least time limit is _TIMEOUT_LEAST_S times this factor.
An allocator that yields in every tenth free takes minutes on a busy machine."""
_COUNT_S = 0.4
"""Expected seconds of one workload at a small size under callgrind."""


class Chosen(Struct, frozen=True):
    """One run that was asked for: an experiment, its size, and its workloads."""

    experiment: Experiment
    size: Size
    workloads: tuple[workloads.BuiltIn, ...] = ()
    """Entries of the catalog. They run after the variants of the size."""

    def of(self, variants: Sequence[Variant]) -> Chosen:
        """The same run, restricted to the workloads with the names of `variants`."""
        names = {variant.name for variant in variants}
        size = replace(
            self.size,
            variants=tuple(variant for variant in self.size.variants if variant.name in names),
        )
        return replace(
            self,
            size=size,
            workloads=tuple(entry for entry in self.workloads if entry.name in names),
        )

    @property
    def report(self) -> Report:
        """The kind of its report."""
        return self.experiment.report

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The workloads of the run; none for an experiment with a function `prepare`."""
        of_catalog = tuple(
            Variant(w.name, w.program, w.suite, w.seconds, w.memory << 20) for w in self.workloads
        )
        return self.size.variants + of_catalog

    def expected_s(self, contenders: int, rule: StopRule, *, instructions: bool = False) -> float:
        """Expected seconds for the warm-up round and `rule.min_rounds` rounds.

        contenders: the number of all contenders, the ill ones included. The durations were
        measured on one machine. Other machines differ by a factor of two and more.
        """
        trials = (rule.min_rounds + 1) * (2 if self.experiment.why and not instructions else 1)
        if self.experiment.ill:
            ill = _ill_only(self)
            more = Counter(index for of in ill.values() for index in of)
            return trials * sum(
                (contenders - len(ill) + more[index])
                * (_ILL_FACTOR * variant.seconds + _OVERHEAD_S)
                for index, variant in enumerate(self.variants)
            )
        runs = contenders * trials
        if instructions:
            return runs * 2 * len(self.workloads) * _COUNT_S
        if self.experiment.cpu_s is not None:
            return self.experiment.cpu_s / _cpus() * 1.1 * runs
        seconds = [variant.seconds for variant in self.variants]
        if self.experiment.programs:
            seconds += [real_programs.SECONDS] * len(real_programs.PROGRAMS)
        return runs * sum(_DURATION_FACTOR * one + _OVERHEAD_S for one in seconds)


def named(name: str) -> Experiment | None:
    """The experiment of that name; None if it is the name of a workload.

    Raises UsageError if the name is neither.
    """
    experiment = experiments.find(name)
    if experiment is None and workloads.named(name) is None:
        raise workloads.unknown(name, tuple(experiment.name for experiment in EXPERIMENTS))
    return experiment


def chosen(names: Sequence[str], quick: bool) -> tuple[Chosen, ...]:
    """The runs for these names: one for each experiment, and one for all workloads together."""
    found: list[Chosen] = []
    single: list[workloads.BuiltIn] = []
    for name in dict.fromkeys(names):
        experiment = named(name)
        if experiment is None:
            single += [entry for entry in workloads.load() if entry.name == name]
            continue
        size = experiment.quick if quick else experiment.full
        catalog = (
            [entry for entry in workloads.load() if entry.quick or not quick]
            if name == SUITE or experiment.programs
            else []
        )
        found.append(Chosen(experiment, size, tuple(catalog)))
    if single:
        experiment = experiments.SEVERAL if len(single) > 1 else experiments.SINGLE
        found.append(
            Chosen(experiment, experiment.quick if quick else experiment.full, tuple(single))
        )
    return tuple(found)


def counted(choices: Sequence[Chosen]) -> tuple[Chosen, ...]:
    """Merges `choices` into one run that counts instructions.

    The run has the named workloads, and for each experiment all entries of the catalog that use one
    of its programs. One round is enough, because the warm-up round makes a second count, which
    shows whether the counts agree. Raises UsageError for an experiment without built-in workloads,
    and for one that needs times.
    """
    entries: dict[str, workloads.BuiltIn] = {}
    for choice in choices:
        if choice.experiment.prepare is not None:
            raise UsageError(
                f"--instructions works only with built-in workloads, and {choice.experiment.name} "
                "runs none; 'cairn bench list' shows the built-in workloads."
            )
        if choice.experiment.ill:
            raise UsageError(
                f"{choice.experiment.name} judges the causes of lost time, and --instructions "
                "measures no time; leave out one of them."
            )
        programs = {variant.program for variant in choice.variants}
        entries |= {
            e.name: e for e in choice.workloads or workloads.load() if e.program in programs
        }
    size = replace(choices[0].size, rule=experiments.rounds(1), beside=(), variants=())
    return (Chosen(choices[0].experiment, size, tuple(entries.values())),)


def report_of(run: Run) -> Report:
    """The kind of report for a stored run.

    A run of an older version may have an experiment that is now unknown. Its report is a
    comparison.
    """
    if (run.experiment or "").partition(" ")[0] == EXPERIMENT:
        return "matrix"
    if run.experiment == experiments.SINGLE.name and len(run.settings.workloads) > 1:
        return experiments.SEVERAL.report
    experiment = experiments.find(run.experiment or "")
    return experiment.report if experiment is not None else "comparison"


def rule(choice: Chosen, runs: int | None, contenders: int | None) -> StopRule:
    """The stopping rule of this run; if `runs` is given, the rule for exactly that many rounds.

    contenders: the number of contenders, the baseline included; None if instructions are counted.
    If the report compares the times of the contenders, the experiment's fixed number of rounds is
    raised to the least number that can show a difference between so many contenders.
    """
    size = choice.size
    if runs is None:
        own = size.rule
        compares = choice.report == "comparison" and own.precision is None
        if not compares or contenders is None:
            return own
        least = rounds_needed.least(contenders - 1, own)
        return replace(
            own, min_rounds=max(own.min_rounds, least), max_rounds=max(own.max_rounds, least)
        )
    return replace(size.rule, precision=None, min_rounds=runs, max_rounds=runs, budget_s=None)


def contenders(size: Size, say: Callable[[str], None]) -> tuple[str, ...]:
    """The contenders of this size that are available here, then those of `size.beside`.

    `say` reports the allocators that are left out, and how to get them. With `size.replaceable`,
    other allocators of the catalog replace those that are missing. Raises ContenderFailed if fewer
    than two contenders remain.
    """
    found = discover.discover()
    available = [spec.name for spec in default_contenders(found)]
    usable = {item.allocator.name for item in found if item.problem is None}
    known = discover.known_catalog().allocators
    bundled = {entry.name for entry in known if entry.comes_along}
    for sentence in left_out(found):
        say(sentence)
    if size.contenders:
        missing = [name for name in size.contenders if name not in usable and name not in bundled]
        taken = [name for name in size.contenders if name in usable]
        substitutes = (
            [name for name in available if name not in taken][: len(missing)]
            if size.replaceable
            else []
        )
        taken += substitutes
    else:
        missing = [
            e.name
            for e in known
            if e.name not in usable and not e.hardened and obtain.obtainable(e)
        ]
        taken = available
        for item in found:
            entry = item.allocator
            # Only the user can make a library again that the user has added.
            is_added = not entry.comes_along and not obtain.obtainable(entry)
            if is_added and item.problem is not None and entry.name not in usable:
                say(f"{entry.name} is left out: {item.problem}")
        hardened = [entry.name for entry in known if entry.name in usable and entry.hardened]
        if hardened:
            say(
                f"hardened allocators are left out: {', '.join(hardened)}; "
                "name them with -a to run them."
            )
    command = f"'cairn allocators get {' '.join(missing)}'"
    everyone = (*taken, *size.beside)
    if len(everyone) < 2:
        raise ContenderFailed(
            "only the system's allocator is available here, so there is nothing to compare; "
            f"{command} installs others."
        )
    if missing:
        say(
            f"allocators that are not available here are left out: {', '.join(missing)}; "
            f"{command} installs them."
        )
    return everyone


def ill_contenders(choice: Chosen, say: Progress) -> tuple[str, ...]:
    """The ill allocators of this run as arguments of -a; empty if none competes.

    The libraries are compiled if necessary. Raises CairnError if that fails.
    """
    return ill_libraries.specs(say) if choice.experiment.ill else ()


def ill_names(choice: Chosen) -> tuple[str, ...]:
    """The names of the ill allocators of this run; empty if none competes. Compiles nothing.

    Raises CairnError if their sources or a C compiler are missing.
    """
    if not choice.experiment.ill:
        return ()
    ill_libraries.sources_and_compiler()
    return tuple(one.name for one in ILL)


def _ill_only(choice: Chosen) -> dict[str, tuple[int, ...]]:
    """By ill allocator: the indexes of the workloads on which it runs.

    In the quick size it runs only on the first workload of its list.
    """
    quick = choice.size.contenders == choice.experiment.quick.contenders
    names = [variant.name for variant in choice.variants]
    return {
        one.name: tuple(
            names.index(name) for name in one.programs[: 1 if quick else None] if name in names
        )
        for one in ILL
    }


def explained(choices: Sequence[Chosen]) -> tuple[Chosen, ...]:
    """Changes the runs `choices` so that every contender also runs with the probe preloaded.

    Raises UsageError for an experiment that ranks by other numbers than the time of its processes.
    """
    for choice in choices:
        if choice.experiment.report == "scenarios":
            raise UsageError(
                f"--why cannot explain {choice.experiment.name}, which ranks by the time per "
                "operation that its programs report; name workloads of 'cairn bench list' instead."
            )
    return tuple(
        replace(choice, experiment=replace(choice.experiment, why=True)) for choice in choices
    )


def settings(choice: Chosen, say: Progress, *, instructions: bool = False) -> Settings:
    """The settings of this run: its commands, their folder and their time limit.

    With `instructions`, the run counts instructions instead of measuring time. For an experiment
    with a function `prepare`, this fetches and builds its material if necessary. Workloads that do
    not fit into the available memory are left out, and `say` reports them. Raises CairnError if
    none fits or the preparation fails.
    """
    if instructions:
        return _counting_settings(choice)
    if choice.experiment.prepare is not None:
        return replace(choice.experiment.prepare(say), why=choice.experiment.why)
    variants = fitting(choice.variants, say)
    groups = {entry.name: entry.group for entry in choice.workloads}
    others = real_programs.workloads(say) if choice.experiment.programs else ()
    return Settings(
        workloads=tuple(
            Workload(
                v.name, (str(native.workload(v.program)), *workloads.words(v.arguments, _cpus())),
                groups.get(v.name, ""),
            )
            for v in variants
        ) + others,
        folder="/",
        reports=not others,
        why=choice.experiment.why,
        only=_ill_only(choice.of(variants)) if choice.experiment.ill else {},
        timeout_s=max(
            _TIMEOUT_LEAST_S * (_ILL_TIMEOUT_FACTOR if choice.experiment.ill else 1),
            _TIMEOUT_FACTOR * max(variant.seconds for variant in variants)
        ),
    )  # fmt: skip


def _counting_settings(choice: Chosen) -> Settings:
    """The settings for counting instructions: each workload at its sizes `smallest` and `larger`.

    Starting the program takes the same number of instructions at both sizes, so the difference of
    the two counts excludes them. Only the first 8 bytes of a block are written, because filling
    blocks takes more instructions than allocating them. A workload whose arguments set --touch
    keeps its own setting. Raises CairnError if valgrind is not installed.
    """
    if shutil.which("valgrind") is None:
        raise CairnError(
            "--instructions needs valgrind, which is not installed; "
            "Debian: apt-get install valgrind."
        )
    return Settings(
        workloads=tuple(
            entry.workload(
                _with_touch(arguments), _cpus(), name=f"{entry.name} ({size})", group=entry.name
            )
            for entry in choice.workloads
            for size, arguments in (("smallest", entry.smallest), ("larger", entry.larger))
        ),
        folder="/",
        reports=True,
        instructions=True,
        memory="none",
        warm_memory=0,
        timeout_s=_TIMEOUT_LEAST_S,
    )


def _with_touch(arguments: str) -> str:
    """The arguments, with `--touch header` added if they do not set --touch."""
    return arguments if "--touch" in arguments.split() else f"{arguments} --touch header"


def fitting(variants: Sequence[Variant], say: Progress) -> tuple[Variant, ...]:
    """The variants that fit into the available memory; `say` reports the others.

    A variant that does not fit would swap and measure the disk, or make the kernel kill another
    program. Raises CairnError if none fits. If the available memory is unknown, all are returned.
    """
    available = machine.available_memory()
    if available is None:
        return tuple(variants)
    fits = tuple(variant for variant in variants if variant.memory <= _MEMORY_SHARE * available)
    for variant in variants:
        if variant not in fits:
            needs = f"{variant.name} needs about {units.size(variant.memory)} of memory"
            if not fits and len(variants) == 1:
                raise CairnError(
                    f"{needs}, but {units.size(available)} are available; try --quick."
                )
            say(f"{needs}, but {units.size(available)} are available; it is left out.")
    if not fits:
        raise CairnError("no workload fits into the available memory; try --quick.")
    return fits


def _cpus() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def pictures(run: Run, comparisons: Sequence[Comparison], folder: Folder) -> list[Path]:
    """Draws the pictures of a run into its folder, as SVG and as PNG. Returns their paths.

    The list is empty if the run counted instructions, if no round is complete, or if this kind of
    report has no pictures.
    """
    if run.settings.instructions or not any(comparison.rounds for comparison in comparisons):
        return []

    from cairn.report import matrix_board, matrix_charts, standings_charts

    experiment = experiments.find(run.experiment or "")
    title = (
        experiment.title
        if experiment is not None
        else _plan_of(run) or ", ".join(w.name for w in run.settings.workloads)
    )
    drawn: dict[str, Callable[[str], bytes]] = {}
    match report_of(run):
        case "standings":
            found = standings.standings(run, folder.samples())
            drawn["time"] = lambda form: standings_charts.ratios(run, found, title=title, form=form)
            if found.memory_over:
                drawn["memory"] = lambda form: standings_charts.ratios(
                    run, found, title=title, form=form, memory=True
                )
                drawn["means"] = lambda form: standings_charts.time_against_memory(
                    run, found, title=title, form=form
                )
        case "scenarios":
            ranks = ranking.ranking(run, folder.samples())
            drawn["percentiles"] = lambda form: standings_charts.percentiles(
                run, ranks, title=title, form=form
            )
        case "matrix":
            report = matrix_board.of_runs([(run, folder.samples(), folder.stopped())])
            for name, chart in matrix_charts.CHARTS.items():
                drawn[name] = functools.partial(chart, report, f"plan {title}")
        case "comparison":
            drawn = _bars(run, comparisons, title)
    for name, draw in drawn.items():
        for form in ("svg", "png"):
            folder.write(f"{name}.{form}", draw(form))
    return [folder.path / f"{name}.{form}" for name in drawn for form in ("svg", "png")]


def _plan_of(run: Run) -> str:
    """The name of the plan of a run; empty if it is not a run of a plan."""
    kind, _, name = (run.experiment or "").partition(" ")
    return name if kind == EXPERIMENT else ""


def _bars(
    run: Run, comparisons: Sequence[Comparison], title: str
) -> dict[str, Callable[[str], bytes]]:
    """A drawing function for each workload with a complete round, by the name of the picture.

    The picture of an experiment with a single workload has the name and the title of the
    experiment.
    """
    drawn: dict[str, Callable[[str], bytes]] = {}
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        if not comparison.rounds:
            continue
        alone = len(comparisons) == 1
        name = (
            run.experiment if alone and run.experiment != experiments.SINGLE.name else workload.name
        )
        plain = "".join(c if c.isalnum() or c == "-" else "_" for c in name or workload.name)
        heading = title if alone else workload.name
        drawn[plain] = functools.partial(_draw, run, comparison, heading)
    return drawn


def _draw(run: Run, comparison: Comparison, title: str, form: str) -> bytes:
    return drawing.render(run, comparison, title=title, form=form)
