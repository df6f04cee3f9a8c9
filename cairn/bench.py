"""Experiments as runs: their contenders as far as they are here, their rule, their pictures."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cairn import discover, experiments
from cairn.errors import UsageError
from cairn.experiments import EXPERIMENTS, Experiment
from cairn.model import Comparison, Run, StopRule
from cairn.report import pictures as drawing
from cairn.store import Folder

__all__ = ["EXPERIMENTS", "contenders", "expected_s", "named", "pictures", "rule"]


def named(name: str) -> Experiment:
    """The experiment; UsageError tells which there are."""
    experiment = experiments.find(name)
    if experiment is None:
        known = ", ".join(experiment.name for experiment in EXPERIMENTS)
        raise UsageError(f"no experiment is called '{name}'; there are: {known}")
    return experiment


def rule(quick: bool) -> StopRule:
    """A fixed number of blocks: twelve for a result to keep, quick eight. One look, and a duration that is known."""
    blocks = 8 if quick else 12
    return StopRule(precision=None, min_blocks=blocks, max_blocks=blocks)


def contenders(experiment: Experiment, quick: bool, say: Callable[[str], None]) -> tuple[str, ...]:
    """Those of the experiment that are here; `say` hears of the others, and how to get them."""
    wanted = experiment.quick if quick else experiment.contenders
    here = {item.allocator.name for item in discover.discover() if item.problem is None}
    missing = [name for name in wanted if name not in here]
    if missing:
        say(f"not here, and left out: {', '.join(missing)}; 'cairn allocators get {' '.join(missing)}' brings them")
    return tuple(name for name in wanted if name in here)


def expected_s(experiment: Experiment, contenders: int, rule: StopRule) -> float:
    """Seconds until the fewest blocks are done."""
    return experiments.expected_s(experiment, contenders, rule.min_blocks, 1, len(os.sched_getaffinity(0)))


def pictures(experiment: Experiment, run: Run, comparison: Comparison, folder: Folder) -> list[Path]:
    """Draws the bars into the run's folder; none when nothing was measured."""
    if not comparison.blocks:
        return []
    drawn = []
    for form in ("svg", "png"):
        name = f"{experiment.name}.{form}"
        folder.write(name, drawing.render(run, comparison, title=experiment.title, form=form))
        drawn.append(folder.path / name)
    return drawn
