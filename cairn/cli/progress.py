"""Progress of a comparison on stderr: a bar on a terminal, a few lines elsewhere.

`Bar` and `Lines` are observers of a measurement: `run.measure` calls their methods between trials,
in one thread.
"""

from __future__ import annotations

import time

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cairn import units
from cairn.cli.console import on_screen
from cairn.compare import plan
from cairn.compare.plan import WARM_UP
from cairn.compare.rounds_needed import FORECAST_FROM, LIKELY_FROM
from cairn.model import Run, Sample, StopRule, Trial
from cairn.report.formatting import message, printable
from cairn.run.observer import Progress as Standing

_QUIET_EVERY_S = 30.0
_PLANNED_AT = (FORECAST_FROM, LIKELY_FROM)
"""The numbers of rounds after which `Lines` prints the predicted number of rounds."""
_PLANNED_FROM_S = 10.0
"""`Lines` prints the predicted number of rounds only if the run goes on for at least this long."""


def _standing(now: Standing) -> str:
    parts = []
    if now.seconds_range is not None:
        parts.append(f"{_between(*map(units.duration, now.seconds_range))} left")
    elif now.seconds_left is not None:
        parts.append(f"{units.duration(now.seconds_left)} left")
    if now.leading:
        parts.append(f"leading: {printable(now.leading)}")
    if now.half_width is not None:
        parts.append(f"±{units.percent(now.half_width, signed=False)}")
    return " · ".join(parts)


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _rounds(now: Standing) -> str:
    """The predicted number of rounds, or its range: "24" or "17–60"."""
    if now.rounds_range is None:
        return str(now.rounds_expected)
    return "–".join(dict.fromkeys(map(str, now.rounds_range)))


class PlannedTrials(Struct, frozen=True):
    """The numbers of trials in the rounds of a run.

    With `cairn matrix run --profile N`, the first N rounds also have trials with the probe.
    """

    each: int
    """The number of trials of a round that run without the probe."""
    further: int = 0
    """The number of trials that a round has in addition, if it also has trials with the probe."""
    probed_rounds: int = 0
    """The number of rounds that also have trials with the probe. They are the first rounds."""
    warm_up: int = 0
    """The number of trials before the first round."""

    @staticmethod
    def of(run: Run) -> PlannedTrials:
        """The trials of this run."""

        def number(round_: int) -> int:
            names, workloads = plan.taking_part(run, round_), range(len(run.settings.workloads))
            return sum(plan.runs_on(run.settings.only, n, w) for n in names for w in workloads)

        probed = run.settings.profiled_rounds if run.settings.why else None
        after = number(run.rule.max_rounds + (probed or 0) + 1)
        warm_up = number(WARM_UP) * run.settings.warmup
        return PlannedTrials(after, number(1) - after, probed or 0, warm_up)

    def until(self, rounds: int) -> int:
        """The number of trials in the first `rounds` rounds."""
        return self.each * rounds + self.further * min(rounds, self.probed_rounds)


class Bar:
    """A live bar. It shows finished and expected rounds, time left, leader and widest interval."""

    def __init__(self, console: Console, rule: StopRule, trials: PlannedTrials) -> None:
        self._console = console
        self._trials = trials
        self._bar = Progress(
            TextColumn("{task.fields[phase]:<8}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[place]}", markup=False),
            TextColumn("{task.fields[now]}", style="dim", markup=False),
            console=console,
            transient=True,
            auto_refresh=False,  # A drawing thread would disturb the program.
        )
        first = rule.max_rounds if rule.precision is None else rule.min_rounds
        self._expected = first
        self._said = str(first)
        self._task: TaskID = self._bar.add_task(
            "", total=trials.warm_up, phase="warm-up", place="", now=""
        )
        self._standing = ""

    def __enter__(self) -> Bar:
        """Draws the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the bar."""
        self._bar.stop()

    def trial_begins(self, trial: Trial) -> None:
        """Shows the name of the contender that runs now."""
        if trial.round != WARM_UP:
            place = f"{trial.round}/{self._said}"
            self._bar.update(
                self._task, phase="rounds", place=place, total=self._trials.until(self._expected),
                completed=self._trials.until(trial.round - 1) + trial.position,
            )  # fmt: skip
        self._show(printable(trial.contender))

    def trial_ended(self, _: Sample) -> None:
        """Moves the bar on."""
        self._bar.advance(self._task)
        self._show("")

    def contender_failed(self, name: str, why: str) -> None:
        """Prints the failure above the bar at once."""
        text = on_screen(self._console, "✘ ", f"under {name}, the program {why}")
        self._console.print(text, style="red", markup=False, highlight=False)

    def told(self, sentence: str) -> None:
        """Prints a warning above the bar."""
        text = on_screen(self._console, "▲ ", sentence)
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def warmed(self, size: int) -> None:
        """Prints how much memory is touched before each round."""
        text = (
            f"{units.size(size)} is touched before each round, so that no run pays for cold pages"
        )
        self._console.print(on_screen(self._console, "memory   ", text))

    def round_ended(self, progress: Standing) -> None:
        """Updates the number of expected rounds, the time left, the leader and the interval."""
        self._expected = progress.rounds_expected
        self._said = _rounds(progress)
        self._standing = _standing(progress)
        self._show("")

    def _show(self, running: str) -> None:
        self._bar.update(
            self._task, now=" · ".join(filter(None, [self._standing, running])), refresh=True
        )


class Lines:
    """Prints lines for logs: each failure at once, and the progress every half minute."""

    def __init__(self, console: Console, rule: StopRule, trials: PlannedTrials) -> None:
        self._console = console
        self._trials = trials
        self._precision = rule.precision
        self._rounds = rule.max_rounds if rule.precision is None else rule.min_rounds
        self._last = time.monotonic()
        self._standing = ""
        self._trial: Trial | None = None
        self._begun = False
        """Whether a round has begun, so that the warm-up is over."""

    def __enter__(self) -> Lines:
        """Does nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing."""

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def trial_begins(self, trial: Trial) -> None:
        """Remembers the trial, so that the next line can report it."""
        self._trial = trial
        self._begun = self._begun or trial.round != WARM_UP

    def trial_ended(self, _: Sample) -> None:
        """Prints the finished and expected runs, at most every half minute.

        After a failure in a round, the baseline may run again. Such a run is part of no round.
        """
        trial = self._trial
        if trial is None or time.monotonic() - self._last < _QUIET_EVERY_S:
            return
        if trial.round == WARM_UP and self._begun:
            return
        self._last = time.monotonic()
        if trial.round == WARM_UP:
            self._say(f"warm-up  {trial.position + 1} of {self._trials.warm_up} runs")
            return
        done = self._trials.until(trial.round - 1) + trial.position + 1
        expected = self._trials.until(max(self._rounds, trial.round))
        said = f"{done} of {expected} runs, in round {trial.round}"
        self._say(f"rounds   {' · '.join(filter(None, [said, self._standing]))}")

    def contender_failed(self, name: str, why: str) -> None:
        """Prints the failure at once."""
        self._say(f"✘ under {printable(name)}, the program {message(why)}")

    def told(self, sentence: str) -> None:
        """Prints a warning at once."""
        self._say(f"▲ {message(sentence)}")

    def warmed(self, size: int) -> None:
        """Prints how much memory is touched before each round."""
        self._say(
            f"memory   {units.size(size)} is touched before each round, so that no run pays for "
            "cold pages"
        )

    def round_ended(self, progress: Standing) -> None:
        """Remembers the progress of the run, so that the next line can report it."""
        self._rounds = progress.rounds_expected
        self._standing = _standing(progress)
        planned = self._precision is not None and progress.rounds in _PLANNED_AT
        if planned and (progress.seconds_left or 0) >= _PLANNED_FROM_S:
            about = _rounds(progress).replace("–", " to ")
            self._say(f"plan     about {about} rounds, {self._standing}")
