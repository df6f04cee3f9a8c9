"""Experiments as runs: their workloads as far as memory allows, their contenders as far as they are here, their rule.

What is left out is said, with the next step; when nothing is left, that is one sentence and no run.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import native, units
from cairn.allocators import discover
from cairn.allocators.contenders import default_contenders, left_out
from cairn.allocators.tools import Progress
from cairn.bench import experiments
from cairn.bench.experiments import EXPERIMENTS, SUITE, Experiment, Report, Size, Variant
from cairn.compare import ranking, standings
from cairn.doctor import machine
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.model import Comparison, Run, Settings, StopRule, Workload
from cairn.report import charts
from cairn.report import pictures as drawing
from cairn.run import workloads
from cairn.run.store import Folder

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
"""Of the available memory: what else runs here needs some, and the kernel's estimate is one."""
_OVERHEAD_S = 0.06
"""What a run costs beside the workload: the launcher, the cgroup, reading the proof."""
_SPREAD = 1.25
"""How much longer the average contender takes than the catalog's durations, which are those of a fast one."""
_PATIENCE = 60
_PATIENCE_LEAST_S = 120.0
"""A contender that takes so many times what it should will not end."""
_COUNTED_S = 0.4
"""A run of a workload at a small size under callgrind."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One run to be made: an experiment at a size, of these workloads."""

    experiment: Experiment
    size: Size
    workloads: tuple[workloads.BuiltIn, ...] = ()
    """Of the catalog; the size's own variants where there are none."""

    def of(self, variants: Sequence[Variant]) -> Chosen:
        """The same with these of its workloads alone."""
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
    def variants(self) -> tuple[Variant, ...]:
        """What runs."""
        of_catalog = tuple(
            Variant(w.name, w.program, w.suite, w.seconds, w.memory << 20) for w in self.workloads
        )
        return of_catalog or self.size.variants

    def expected_s(self, contenders: int, rule: StopRule, *, instructions: bool = False) -> float:
        """Seconds until the fewest rounds are done; machines differ by two and more."""
        runs = (
            contenders
            * (rule.min_rounds + 1)
            * (2 if self.experiment.why and not instructions else 1)
        )
        if instructions:
            return runs * 2 * len(self.workloads) * _COUNTED_S
        if self.experiment.cpu_s is not None:
            return self.experiment.cpu_s / _cpus() * 1.1 * runs
        return runs * sum(_SPREAD * variant.seconds + _OVERHEAD_S for variant in self.variants)


def named(name: str) -> Experiment | None:
    """The experiment of that name; UsageError when it is no workload either."""
    experiment = experiments.find(name)
    if experiment is None and workloads.named(name) is None:
        raise workloads.unknown(name, tuple(experiment.name for experiment in EXPERIMENTS))
    return experiment


def chosen(names: Sequence[str], quick: bool) -> tuple[Chosen, ...]:
    """The runs that these names ask for: one for each experiment, and one for all workloads together."""
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
            if name == SUITE
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
    """The same as one run that counts instructions: of an experiment, the catalog's entries of its programs.

    One round is enough: the warm-up is a second count, and shows whether the first repeats.
    """
    entries: dict[str, workloads.BuiltIn] = {}
    for choice in choices:
        if choice.experiment.prepare is not None:
            raise UsageError(
                f"--instructions is for built-in workloads, and {choice.experiment.name} runs none"
            )
        programs = {variant.program for variant in choice.variants}
        entries |= {
            e.name: e for e in choice.workloads or workloads.load() if e.program in programs
        }
    size = replace(choices[0].size, rule=experiments.rounds(1))
    return (Chosen(choices[0].experiment, replace(size, beside=()), tuple(entries.values())),)


def report_of(run: Run) -> Report:
    """What a run, perhaps an old one, is about."""
    if run.experiment == experiments.SINGLE.name and len(run.settings.workloads) > 1:
        return experiments.SEVERAL.report
    experiment = experiments.find(run.experiment or "")
    return experiment.report if experiment is not None else "comparison"


def rule(size: Size, runs: int | None) -> StopRule:
    """The size's own rule, or exactly so many rounds."""
    if runs is None:
        return size.rule
    return replace(size.rule, precision=None, min_rounds=runs, max_rounds=runs, budget_s=None)


def contenders(size: Size, say: Callable[[str], None]) -> tuple[str, ...]:
    """Those of the experiment that are here; `say` hears of the others, and how to get them.

    Where few of a list are here, others of the catalog take their places. Raises ContenderFailed when there would be
    nothing to compare.
    """
    found = discover.discover()
    here = [spec.name for spec in default_contenders(found)]
    usable = {item.allocator.name for item in found if item.problem is None}
    known = discover.known_catalog().allocators
    along = {entry.name for entry in known if entry.comes_along}
    for sentence in left_out(found):
        say(sentence)
    if size.contenders:
        missing = [name for name in size.contenders if name not in usable and name not in along]
        taken = [name for name in size.contenders if name in usable]
        instead = (
            [name for name in here if name not in taken][: len(missing)] if size.replaceable else []
        )
        taken += instead
    else:
        missing = [
            e.name for e in known if e.name not in usable and e.name not in along and not e.hardened
        ]
        taken = here
        hardened = [entry.name for entry in known if entry.name in usable and entry.hardened]
        if hardened:
            say(f"hardened, and left out: {', '.join(hardened)}; -a names them")
    brings = f"'cairn allocators get {' '.join(missing)}' brings them"
    everybody = (*taken, *size.beside)
    if len(everybody) < 2:
        raise ContenderFailed(
            f"only the system's allocator is here, and nothing to compare it with; {brings}"
        )
    if missing:
        say(f"not here, and left out: {', '.join(missing)}; {brings}")
    return everybody


def explained(choices: Sequence[Chosen]) -> tuple[Chosen, ...]:
    """The same with every contender behind the probe, too; UsageError for what ranks by something else than time."""
    for choice in choices:
        if choice.experiment.report == "scenarios":
            raise UsageError(
                f"{choice.experiment.name} ranks by the program's own numbers, which --why does not take apart; "
                "name its workloads, as 'cairn bench list' shows them"
            )
    return tuple(
        replace(choice, experiment=replace(choice.experiment, why=True)) for choice in choices
    )


def settings(choice: Chosen, say: Progress, *, instructions: bool = False) -> Settings:
    """How the trials of this run are carried out; fetches and builds what is not there yet."""
    if instructions:
        return _counted(choice)
    if choice.experiment.prepare is not None:
        return replace(choice.experiment.prepare(say), why=choice.experiment.why)
    variants = fitting(choice.variants, say)
    groups = {entry.name: entry.group for entry in choice.workloads}
    return Settings(
        workloads=tuple(
            Workload(v.name, (str(native.workload(v.program)), *workloads.words(v.arguments, _cpus())),
                     groups.get(v.name, ""))
            for v in variants
        ),
        folder="/",
        reports=True,
        why=choice.experiment.why,
        timeout_s=max(_PATIENCE_LEAST_S, _PATIENCE * max(variant.seconds for variant in variants)),
    )  # fmt: skip


def _counted(choice: Chosen) -> Settings:
    """Each workload at two small sizes: what starting costs is the same in both, and goes when one is taken away.

    Only the heads of blocks are written, since to fill them takes more instructions than to allocate them; an entry
    that says itself what it writes keeps that.
    """
    if shutil.which("valgrind") is None:
        raise CairnError(
            "valgrind is not here, which counts the instructions; Debian: apt-get install valgrind"
        )
    return Settings(
        workloads=tuple(
            entry.workload(
                _touching(arguments), _cpus(), name=f"{entry.name} ({size})", group=entry.name
            )
            for entry in choice.workloads
            for size, arguments in (("smallest", entry.smallest), ("larger", entry.larger))
        ),
        folder="/",
        reports=True,
        instructions=True,
        memory="none",
        warm_memory=0,
        timeout_s=_PATIENCE_LEAST_S,
    )


def _touching(arguments: str) -> str:
    return arguments if "--touch" in arguments.split() else f"{arguments} --touch header"


def fitting(variants: Sequence[Variant], say: Progress) -> tuple[Variant, ...]:
    """Those that the available memory holds; the others would measure the disk, or end somebody else's program."""
    available = machine.available_memory()
    if available is None:
        return tuple(variants)
    fits = tuple(variant for variant in variants if variant.memory <= _MEMORY_SHARE * available)
    for variant in variants:
        if variant not in fits:
            needs = f"{variant.name} needs about {units.size(variant.memory)} of memory"
            if not fits and len(variants) == 1:
                raise CairnError(
                    f"{needs}, and {units.size(available)} are available; --quick takes less"
                )
            say(f"{needs}, and {units.size(available)} are available: left out")
    if not fits:
        raise CairnError("no workload fits into the memory that is available; --quick takes less")
    return fits


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def pictures(run: Run, comparisons: Sequence[Comparison], folder: Folder) -> list[Path]:
    """Draws what the run is about into its folder; nothing where nothing was measured."""
    if run.settings.instructions or not any(comparison.rounds for comparison in comparisons):
        return []
    experiment = experiments.find(run.experiment or "")
    title = (
        experiment.title
        if experiment is not None
        else ", ".join(w.name for w in run.settings.workloads)
    )
    drawn: dict[str, Callable[[str], bytes]] = {}
    match report_of(run):
        case "standings":
            found = standings.standings(run, folder.samples())
            drawn["time"] = lambda form: charts.ratios(run, found, title=title, form=form)
            if found.memory_over:
                drawn["memory"] = lambda form: charts.ratios(
                    run, found, title=title, form=form, memory=True
                )
                drawn["means"] = lambda form: charts.time_against_memory(
                    run, found, title=title, form=form
                )
        case "scenarios":
            ranks = ranking.ranking(run, folder.samples())
            drawn["percentiles"] = lambda form: charts.percentiles(
                run, ranks, title=title, form=form
            )
        case "comparison":
            drawn = _bars(run, comparisons, title)
    for name, draw in drawn.items():
        for form in ("svg", "png"):
            folder.write(f"{name}.{form}", draw(form))
    return [folder.path / f"{name}.{form}" for name in drawn for form in ("svg", "png")]


def _bars(
    run: Run, comparisons: Sequence[Comparison], title: str
) -> dict[str, Callable[[str], bytes]]:
    """One picture for each workload, by name; a single one is called as the experiment is."""
    drawn: dict[str, Callable[[str], bytes]] = {}
    for workload, comparison in zip(run.settings.workloads, comparisons, strict=True):
        if not comparison.rounds:
            continue
        alone = len(comparisons) == 1
        name = (
            run.experiment if alone and run.experiment != experiments.SINGLE.name else workload.name
        )
        plain = "".join(c if c.isalnum() or c == "-" else "_" for c in name or workload.name)
        said = title if alone else workload.name
        drawn[plain] = functools.partial(_drawn, run, comparison, said)
    return drawn


def _drawn(run: Run, comparison: Comparison, title: str, form: str) -> bytes:
    return drawing.render(run, comparison, title=title, form=form)
