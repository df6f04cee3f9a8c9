"""Measures a run: the warm-up, random complete rounds, and the decision to stop.

This module prints nothing. It calls an observer for each trial and each round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from cairn import units
from cairn.compare import endings, plan, rounds_needed, stopping, suitability
from cairn.errors import (
    BudgetTooShort,
    CairnError,
    ContenderFailed,
    Interrupted,
    ProgramFailed,
    UsageError,
)
from cairn.model import (
    COPY,
    INTERRUPTED,
    TIME_BUDGET,
    UNSUITED,
    Run,
    Sample,
    Settings,
    Trial,
    value,
)
from cairn.run import batches, builds, known_builds, retries, stop_request, time_budget
from cairn.run.observer import Observer, Progress
from cairn.run.preparation import Preparations
from cairn.run.proof import unproven
from cairn.run.rule_answers import RuleAnswers
from cairn.run.runner import Runner, Trace, failed_before
from cairn.run.sample_checks import beside_successes, refuse_other_environment, verified
from cairn.run.store import Folder
from cairn.run.time_budget import TimeBudget
from cairn.run.warm_memory import WarmMemory

_COLD = 0.5
"""Until the warm-up has ended, the forecast has only times of warm-up trials. It expects all later
trials to take this share of these times, because a first trial reads files that are not in memory
yet."""
_NOTHING_LEFT = "nothing left to compare"
"""The reason why a workload needs no more rounds if all other contenders than the baseline failed.
"""


class Measurement:
    """The measurement of one run, new or resumed. Every trial is stored before the next begins."""

    def __init__(
        self,
        run: Run,
        folder: Folder,
        scratch: Path,
        observer: Observer,
        only_round: int | None = None,
    ) -> None:
        """Prepares a measurement.

        only_round: the number of the single round to measure, if other nodes measure the others.
        """
        self._run = run
        self._folder = folder
        self._only_round = only_round
        settings = run.settings
        if settings.stdin == COPY:
            settings = replace(settings, stdin=folder.stdin())
        self._runner = Runner(settings, run.contenders, scratch)
        self._observer = observer
        self._by_cell = settings.by_cell or settings.reports
        """Whether a failure ends only the trials of its contender on its workload."""
        self._completes_rounds = settings.by_cell or settings.soak_s is not None
        """Whether a resumed run completes the round that was interrupted.

        Other runs compare within rounds. They leave out the incomplete round and begin another.
        """
        self._samples: list[Sample] = []
        self._of: list[list[Sample]] = [[] for _ in run.settings.workloads]
        """By workload: its samples, with a wall time that excludes deliberate sleep; see _judged().
        """
        self._first: dict[tuple[int, str], Sample] = {}
        """By workload and contender: the first trial that did not fail."""
        self._tried: set[tuple[int, str]] = set()
        """(workload, contender) pairs that have been run."""
        self._failed: set[tuple[int, str]] = set()
        """(workload, contender) pairs with a failed trial."""
        self._preparations = Preparations(tolerant=settings.by_cell, left_out=folder.left_out())
        self._settled: dict[int, str] = {}
        """By workload that needs no more rounds: the reason."""
        self._run_s: dict[tuple[int, str], float] = {}
        """By workload and contender: the seconds that a run of the last trial took, including
        --prepare, checks and storage."""
        self._answers = RuleAnswers(run)
        self._watch = builds.Watch(())
        self._told_restored = False
        self._ends: dict[tuple[int, str], endings.Trials] = {}
        """By workload and contender: how the processes of its trials ended."""
        self._bases = {one.name: endings.bases(run, one) for one in run.contenders}
        """By contender: the baseline, and perhaps the baseline with the probe. The endings of the
        contender's processes are compared with those under these baselines."""
        self._warm_memory = WarmMemory(run, self._runner, observer)
        before = folder.samples()
        self._is_spent = only_round is None and TIME_BUDGET in folder.stopped()
        """Whether the time budget has already ended this run, which then does not go on."""
        self._restore(before)
        self._unchecked = retries.unchecked(before, run.baseline, self._may_be_the_program)
        """The last failure of a resumed run, if its check was interrupted; else None."""
        spent_ns = sum(sample.wall_ns * sample.repeats for sample in before)
        self._budget = TimeBudget(run.rule.budget_s, time.monotonic() - spent_ns / 1e9)
        """The time budget.

        In a resumed run, the wall times of all earlier trials count as spent. The time between
        those trials does not count, because it is not known.
        """
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        recent = [sample.trial for sample in before if sample.started_at > booted]
        self._warmed = {trial for trial in recent if trial.round == plan.WARM_UP}
        """The trials of a resumed run's warm-up that were run since this machine was started."""
        self._is_warm = any(trial.round > plan.WARM_UP for trial in recent)
        """Whether rounds were run since then, so that the warm-up is over."""

    def _restore(self, before: Sequence[Sample]) -> None:
        """Notes the trials of an interrupted run, and decides again what was decided after them.

        A run that completes its rounds decides at the beginning of each round which workloads have
        enough rounds. It must not decide this anew in an interrupted round: if a contender failed
        in that round, its workload may now have enough rounds, and the round would stay incomplete.
        """
        last = max((sample.trial.round for sample in before), default=plan.WARM_UP)
        begins = last > plan.WARM_UP and self._completes_rounds
        for sample in before:
            if begins and sample.trial.round == last:
                begins = False
                self._settle_failed()
                self._settle_complete()
            self._note(sample)
            self._run_s[_cell(sample)] = sample.wall_ns / 1e9
        self._settle_failed()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All trials so far, including those before a resume."""
        return tuple(self._samples)

    def measure(self) -> None:
        """Runs trials until the stopping rule ends the measurement.

        A run that its time budget has ended before does not go on.

        Raises ProgramFailed when the baseline fails, ContenderFailed when nothing is left to
        compare or the baseline has no proof of load, and Interrupted on ctrl-C. All trials before
        the error are stored. A run of built-in workloads or of a plan continues after a failure: a
        failed baseline ends only its workload, and another contender leaves only this workload.
        """
        settings = self._run.settings
        baseline = self._run.baseline
        if not self._by_cell and any(name == baseline for _, name in self._failed):
            raise ProgramFailed(f"this run has already failed under {baseline}; begin a new run")
        if self._is_spent:
            self._refuse_no_round()
            return
        ended = len(self._settled) == len(self._of) and self._unchecked is None
        if ended and not self._by_cell:
            others = ", ".join(sorted({name for _, name in self._failed}))
            raise ContenderFailed(
                f"nothing is left to compare {baseline} with, since this run has already "
                f"failed under {others}; begin a new run"
            )
        try:
            if settings.setup is not None:
                self._runner.hook("setup", settings.setup)
            try:
                self._run, self._watch = known_builds.taken(
                    self._run, self._folder, has_trials=bool(self._samples)
                )
                self._rounds()
                self._folder.mark_stopped(
                    "\n".join(self._settled[w] for w in sorted(self._settled))
                )
            finally:
                self._clean_up()
        except KeyboardInterrupt:
            try:
                self._folder.mark_stopped(INTERRUPTED)
            except CairnError:
                # If ctrl-C came while a file was being closed, Python closes the file again, which
                # fails once.
                self._folder.mark_stopped(INTERRUPTED)
            raise Interrupted("interrupted") from None

    def _clean_up(self) -> None:
        """Runs --cleanup. A failure of the command is reported but changes no result."""
        if self._run.settings.cleanup is not None:
            try:
                self._runner.hook("cleanup", self._run.settings.cleanup)
            except UsageError as error:
                self._observer.told(str(error))

    def _rounds(self) -> None:
        run = self._run
        names = plan.taking_part(run, plan.WARM_UP)
        baseline_first = [run.baseline, *(name for name in names if name != run.baseline)]
        workloads = range(len(run.settings.workloads))
        if self._unchecked is not None:
            self._check_failed(self._unchecked.sample, self._unchecked.tries)
        number = max((sample.trial.round for sample in self._samples), default=plan.WARM_UP)
        rest = self._rest_of(number) if self._completes_rounds else []
        if not rest and self._settle():
            return
        runs = 0 if self._is_warm else run.settings.warmup
        warming = plan.warm_up(baseline_first, runs, workloads, run.settings.only)
        self._carry_out([trial for trial in warming if trial not in self._warmed], watch=True)
        self._report_unchecked()
        self._judge(suitability.before_rounds, plan.WARM_UP)
        self._report_few_rounds()
        self._warm_memory.decide(self._samples)
        if self._only_round is not None:
            number = self._only_round - 1
        if rest:
            self._round(number, rest)
        while not self._settle() and number != self._only_round:
            number += 1
            self._round(number, plan.round_of(run, number))

    def _round(self, number: int, trials: Sequence[Trial]) -> None:
        """Runs the trials of a round, or those that an interruption has left of it."""
        self._warm_memory.touch()
        self._carry_out(trials)
        if number == 1 and not any(one.program for one in self._run.contenders):
            self._judge(suitability.after_round, number)
        self._observer.round_ended(self._progress())

    def _rest_of(self, number: int) -> list[Trial]:
        """The trials of an interrupted round of a plan or of 'cairn soak' that have not run yet.

        They make the interrupted round complete. So a resumed run has exactly the trials of a run
        that was not interrupted.
        """
        if number == plan.WARM_UP:
            return []
        done = {_cell(sample) for sample in self._samples if sample.trial.round == number}
        return [
            trial
            for trial in plan.round_of(self._run, number)
            if (trial.workload, trial.contender) not in done | self._failed
            and trial.workload not in self._settled
            and not self._preparations.leaves_out(trial)
        ]

    def _judge(
        self,
        judged: Callable[[Sequence[Sample], str, Settings, int], Sequence[suitability.Unsuited]],
        last: int,
    ) -> None:
        """Tells the observer which programs are little suited to compare allocators, and why.

        last: the round that has just ended. A resumed run has trials of later rounds already. They
        are not judged, so that its judgement is that of an uninterrupted run.

        Raises UsageError if the numbers of a program would mean nothing at all.
        """
        competing = {one.name for one in self._run.competing}
        for workload, of in enumerate(self._of if self._run.settings.soak_s is None else []):
            settings = self._settings_of(workload)
            until = takewhile(lambda sample: sample.trial.round <= last, of)
            its = [sample for sample in until if sample.trial.contender in competing]
            for one in judged(its, self._run.baseline, settings, workload):
                if one.hopeless and not settings.by_cell:
                    self._folder.mark_stopped("before the first round")
                    raise UsageError(one.sentence)
                if one.hopeless:
                    self._settled[workload] = UNSUITED
                several = len(self._of) > 1
                where = f"{settings.workloads[workload].name}: " if several else ""
                self._observer.told(where + one.sentence)

    def _refuse_short_budget(self, rest: Sequence[Trial]) -> None:
        """Raises BudgetTooShort if the budget does not suffice for the warm-up and one round.

        rest: the trials of the warm-up that have not run yet.
        """
        rule = self._run.rule
        if rule.budget_s is None or not self._run_s or any(s.counts for s in self._samples):
            return
        if not self._unsettled():  # every program has failed, and each failure is reported
            return
        round_s = sum(self._round_s(w) for w in self._unsettled())
        needed_s = sum(self._expected_s(trial) for trial in rest) + round_s
        if not self._budget.has_room(needed_s * (_COLD if rest else 1.0)):
            self._refuse_budget(rule.budget_s)

    def _refuse_no_round(self) -> None:
        """Raises BudgetTooShort if the budget has ended before any round was complete."""
        budget_s = self._run.rule.budget_s
        if budget_s is not None and not any(self._has_round(w) for w in range(len(self._of))):
            self._refuse_budget(budget_s)

    def _refuse_budget(self, budget_s: float) -> NoReturn:
        """Ends measuring because the budget does not suffice for one round.

        Raises BudgetTooShort.
        """
        left = self._unsettled()
        repeats = (self._repeats(Trial(1, 0, self._run.baseline, w)) for w in left)
        self._folder.mark_stopped(TIME_BUDGET)
        raise BudgetTooShort(
            time_budget.no_round(
                budget_s, max(self._run_s.values()), sum(self._round_s(w) for w in left),
                len(self._run.contenders) * sum(repeats), self._least(),
                fixed=self._has_fixed_budget(),
            )
        )  # fmt: skip

    def _has_fixed_budget(self) -> bool:
        """Whether the command of this run has no --budget, so that its budget cannot be changed."""
        return self._run.experiment is not None and not self._run.settings.by_cell

    def _report_few_rounds(self) -> None:
        """Tells the observer if the budget has room for fewer rounds than a difference needs."""
        rule, least = self._run.rule, self._least()
        round_s = sum(self._round_s(w) for w in self._unsettled())
        if rule.budget_s is None or rule.judged != "wall" or not round_s:
            return
        room = int(self._budget.left() / round_s)
        if room < least <= rule.max_rounds and len(self._run.competing) > 1:
            self._observer.told(
                time_budget.too_few_rounds(
                    rule.budget_s, round_s, max(1, room), least, fixed=self._has_fixed_budget()
                )
            )

    def _least(self) -> int:
        return stopping.least(self._run)

    def _unsettled(self) -> list[int]:
        return [w for w in range(len(self._of)) if w not in self._settled]

    def _round_s(self, workload: int) -> float:
        """The expected time of a round of this workload, in seconds; 0 before its first trial."""
        return sum(
            self._expected_s(Trial(1, 0, contender.name, workload))
            for contender in self._run.contenders
            if plan.runs_on(self._run.settings.only, contender.name, workload)
        )

    def _expected_s(self, trial: Trial) -> float:
        """The expected time of a trial, in seconds.

        Each run of the trial is expected to take as long as the last run of this contender on this
        workload. If the contender has not run yet, the mean time of the others on the workload is
        used, or 0 if none of them has run. A contender that failed takes 0, because it does not run
        again.
        """
        cell = trial.workload, trial.contender
        if cell in self._failed:
            return 0.0
        known = [taken for (w, _), taken in self._run_s.items() if w == trial.workload]
        run_s = self._run_s.get(cell, statistics.fmean(known) if known else 0.0)
        return run_s * (1 if trial.round == plan.WARM_UP else self._repeats(trial))

    def _settle(self) -> bool:
        """Records the workloads that need no more rounds. Returns whether all are finished."""
        self._settle_complete()
        if self._run.settings.by_cell and not self._room_for_round():
            self._settled |= dict.fromkeys(self._unsettled(), TIME_BUDGET)
        return len(self._settled) == len(self._of)

    def _settle_complete(self) -> None:
        """Records the workloads that have enough rounds."""
        for workload in self._unsettled():
            because = self._enough(workload)
            if because is not None:
                self._settled[workload] = because

    def _settle_failed(self) -> None:
        """Records the workloads on which the baseline, or every other contender, has failed."""
        for workload in self._unsettled() if not self._run.settings.instructions else ():
            if (workload, self._run.baseline) in self._failed:
                self._settled[workload] = f"fails under {self._run.baseline}"
            elif self._nothing_left(workload):
                self._settled[workload] = _NOTHING_LEFT

    def _nothing_left(self, workload: int) -> bool:
        """Whether every contender has failed that the baseline is compared with on the workload."""
        others = [name for name in self._competing(workload) if name != self._run.baseline]
        return bool(others) and all((workload, name) in self._failed for name in others)

    def _room_for_round(self) -> bool:
        """Whether the budget has room for another round of a plan.

        It is true as long as a program has no complete round.
        """
        left = self._unsettled()
        if any(not self._has_round(w) for w in left):
            return True
        return self._budget.has_room(sum(self._round_s(w) for w in left))

    def _settings_of(self, workload: int) -> Settings:
        return plan.settings_of(self._run.settings, workload)

    def _carry_out(self, trials: Sequence[Trial], *, watch: bool = False) -> None:
        """Runs the trials, without finished workloads and without contenders that failed in them.

        When the time budget is spent, the remaining trials are not run and all workloads are
        finished. So a run exceeds its budget by one trial at most.

        watch: whether these are the trials of the warm-up; see Runner.trial(). Raises
        BudgetTooShort as soon as it is known that the budget does not suffice for the warm-up and
        one round.
        """
        budget_s = self._run.rule.budget_s
        for place, trial in enumerate(trials):
            cell = trial.workload, trial.contender
            if trial.workload in self._settled or cell in self._failed:
                continue
            if self._preparations.leaves_out(trial):
                continue
            if watch:
                self._refuse_short_budget(trials[place:])
            if budget_s is not None and self._run_s and not self._budget.left():
                self._refuse_no_round()
                self._settled |= dict.fromkeys(self._unsettled(), TIME_BUDGET)
                return
            stop_request.check()
            repeats = 1 if watch else self._repeats(trial)
            began = time.monotonic()
            self._take(trial, watch=watch)
            self._run_s[cell] = (time.monotonic() - began) / repeats
        if watch:
            self._refuse_short_budget(())

    def _take(self, trial: Trial, *, watch: bool = False) -> None:
        self._observer.trial_begins(trial)
        try:
            sample, trace = self._preparations.tried(lambda: self._one_trial(trial, watch=watch))
        except UsageError as error:
            if not self._run.settings.by_cell:
                raise
            workload = trial.workload
            succeeded = any(cell[0] == workload for cell in self._first)
            if self._preparations.may_go_on(trial, succeeded=succeeded):
                self._folder.mark_left_out(self._preparations.left_out)
                name = self._run.settings.workloads[workload].name
                says = (
                    f"{name} is left out of this round"
                    if trial.round
                    else f"a run of {name} in the warm-up is left out"
                )
                self._observer.told(f"{says}: {error}")
                return
            # The commands of --prepare and --conclude run without a preloaded allocator. If one of
            # them fails, this counts as a failure under the baseline.
            trial = replace(trial, contender=self._run.baseline)
            sample, trace = failed_before(trial, time.time(), str(error))
        self._watch.refuse_changed()
        sample = self._beside_successes(self._judged_by_endings(self._verified(sample)))
        if _cell(sample) not in self._tried:
            self._folder.keep("witness", f"{trial.workload}-{trial.contender}.jsonl", trace.witness)
        self._folder.append(sample)
        self._report_restored()
        self._note(sample)
        self._observer.trial_ended(sample)
        if sample.failure is not None:
            several = f"{trial.workload}-" if len(self._run.settings.workloads) > 1 else ""
            self._folder.keep(
                "failed", f"{several}{trial.contender}.stderr", trace.stderr_tail.encode()
            )
            number = retries.number(self._samples, trial.workload, self._run.baseline)
            self._check_failed(sample, number, trace.stderr_tail)

    def _one_trial(self, trial: Trial, *, watch: bool) -> tuple[Sample, Trace]:
        number = 1 if watch else self._repeats(trial)
        if number == 1:
            return self._runner.trial(trial, watch=watch)
        return self._runner.batch(trial, number)

    def _beside_successes(self, sample: Sample) -> Sample:
        """The sample. If it failed, the failure also says how often this contender succeeded."""
        if self._run.settings.instructions:
            return sample
        of = self._of[sample.trial.workload]
        return beside_successes(
            sample, sum(one.failure is None and _cell(one) == _cell(sample) for one in of)
        )

    def _may_be_the_program(self, sample: Sample) -> bool:
        """Whether the program itself may fail now and then, or print something new each time."""
        settings = self._settings_of(sample.trial.workload)
        return (
            sample.trial.contender != self._run.baseline
            and (sample.signal, sample.timed_out) == (None, False)
            and not (sample.failure or "").startswith("failed: ")
            and not (settings.instructions or settings.reports)
        )

    def _check_failed(self, sample: Sample, tries: int, errors: str = "") -> None:
        """Blames the contender or the program for a failed trial.

        tries: how often the baseline is run again, to see whether it always succeeds. If such a
        trial fails, no contender is to blame, and ProgramFailed is raised unless the run goes on.
        errors: the end of what the program wrote to stderr.
        """
        workload, baseline = sample.trial.workload, self._run.baseline
        took_s = self._expected_s(Trial(1, 0, baseline, workload))
        for _ in range(tries if self._may_be_the_program(sample) else 0):
            stop_request.check()
            if self._budget.has_room(took_s):
                self._take(retries.again(workload, baseline))
            if (workload, baseline) in self._failed:
                return  # the observer was told that the program itself fails
        self._fail(sample, errors)

    def _repeats(self, trial: Trial) -> int:
        """The number of runs whose mean is one sample.

        --repeat auto chooses the number by the shortest run of the warm-up. The first run may be
        longer than all others, since it reads files that are not in memory yet. Without a warm-up,
        the baseline's first trial decides. These trials are stored, so that a resumed run has the
        same number. Runs of the warm-up that come after a round decide nothing.
        """
        repeat = self._run.settings.repeat
        if repeat is not None:
            return repeat
        warm = takewhile(lambda one: one.trial.round == plan.WARM_UP, self._of[trial.workload])
        walls = [one.wall_ns for one in warm if one.failure is None]
        first = self._first.get((trial.workload, self._run.baseline))
        if not walls and first is not None:
            walls = [first.wall_ns]
        return batches.wanted(min(walls)) if walls else 1

    def _report_restored(self) -> None:
        """Tells the observer once that the program changed the files of this run."""
        if self._folder.restored and not self._told_restored:
            self._told_restored = True
            self._observer.told(
                f"the program changed files in {self._folder.path}, where this run is kept; they "
                "were restored"
            )

    def _note(self, sample: Sample) -> None:
        """Adds a sample to all collections of this object.

        One of them groups the samples by workload, so that the stopping rule reads the samples of
        one workload only.
        """
        self._samples.append(sample)
        self._of[sample.trial.workload].append(self._judged(sample))
        self._tried.add(_cell(sample))
        trials = self._ends.setdefault(_cell(sample), endings.Trials())
        trials.add(sample.endings, counted=sample.trial.round > 0, repeats=sample.repeats)
        if sample.failure is None:
            self._first.setdefault(_cell(sample), sample)
        else:
            self._failed.add(_cell(sample))

    def _judged(self, sample: Sample) -> Sample:
        """The sample for the stopping rule.

        Its wall time excludes the time in which a built-in workload sleeps on purpose.
        """
        active = value(sample, "active")
        return sample if not active or active < 0 else replace(sample, wall_ns=round(active))

    def _verified(self, sample: Sample) -> Sample:
        """The sample, marked as failed if its output differs from that of the baseline.

        Raises UsageError if the environment differs from that of earlier trials.
        """
        workload = sample.trial.workload
        refuse_other_environment(sample, self._first.get(_cell(sample), sample))
        first = self._first.get((workload, self._run.baseline), sample)
        return verified(sample, first, self._settings_of(workload), self._run.baseline)

    def _judged_by_endings(self, sample: Sample) -> Sample:
        """The sample, marked as failed if its processes ended otherwise than under the baseline.

        If the sample has failed already, the failure also names crashes, which may be the reason.
        Under valgrind, endings are not judged, because processes may end by valgrind's own limits.
        """
        workload, name = _cell(sample)
        if sample.endings is None or self._run.settings.instructions:
            return sample
        if name == self._run.baseline:
            self._tell_crashes(sample)
            return self._crashing_alone(sample)
        own = endings.together([*self._trials_of(workload, [name]), endings.of_samples([sample])])
        base = endings.together(self._trials_of(workload, self._bases[name]))
        found = endings.crashes(own, base)
        if not found and sample.failure is None:
            found = endings.differences(own, base)
        if not found:
            return sample
        says = endings.says(found, own, base, self._run.baseline)
        if sample.failure is None or unproven(sample) is not None:
            return replace(sample, failure=f"failed: {says}")
        if endings.is_only(found, sample.signal):
            return sample
        return replace(sample, failure=f"{sample.failure}; {says}")

    def _crashing_alone(self, sample: Sample) -> Sample:
        """A sample of the baseline, marked as failed if only the baseline's processes crash."""
        workload, name = _cell(sample)
        own = endings.together([*self._trials_of(workload, [name]), endings.of_samples([sample])])
        for other in self._competing(workload) if sample.failure is None else ():
            base = endings.together(self._trials_of(workload, [other]))
            found = endings.crashes_alone(own, base)
            if found and (workload, other) not in self._failed:
                says = endings.says(found, own, base, other)
                return replace(sample, failure=f"failed: {says}")
        return sample

    def _trials_of(self, workload: int, names: Iterable[str]) -> list[endings.Trials]:
        cells = [(workload, name) for name in names]
        return [self._ends[cell] for cell in cells if cell in self._ends]

    def _tell_crashes(self, sample: Sample) -> None:
        """Tells the observer about crashes under the baseline, once for each workload."""
        workload, name = _cell(sample)
        if sample.failure is not None or (workload, name) in self._ends:
            return
        said = endings.crashes_of(endings.of_samples([sample]))
        if said is not None:
            self._observer.told(f"under {name}, {said}, and the program still succeeded")

    def _report_unchecked(self) -> None:
        """Tells the observer which workloads have no checksum. Their results are not compared."""
        without = sorted(
            {
                workload
                for (workload, _), sample in self._first.items()
                if sample.output_digest is None and self._settings_of(workload).reports
            }
        )
        if without:
            names = ", ".join(self._run.settings.workloads[workload].name for workload in without)
            self._observer.told(
                f"the results of {names} are not compared: "
                "with --seconds the work differs from run to run"
            )

    def _fail(self, sample: Sample, errors: str) -> None:
        name, workload, why = sample.trial.contender, sample.trial.workload, sample.failure or ""
        settings = self._run.settings
        if sample.left_behind and unproven(sample) is not None and sample.signal is None:
            # The launcher ended processes that the command had left behind. If they had just begun,
            # the proof of load may be missing for this reason. If a signal ended the command, the
            # reason is another one: cairn ends a command whose preload is lost.
            for one in suitability.before_rounds(
                [replace(sample, failure=None)], name, settings, workload
            ):
                if one.hopeless and not settings.by_cell:
                    raise UsageError(one.sentence)
        several = len(settings.workloads) > 1
        where = f" on {settings.workloads[workload].name}" if several else ""
        ends_the_run = name == self._run.baseline and not (self._by_cell or settings.instructions)
        if not ends_the_run:
            self._observer.contender_failed(f"{name}{where}", why)
        if settings.instructions:
            return
        if name == self._run.baseline:
            if self._by_cell:
                self._settled[workload] = f"fails under {name}"
                return
            if (problem := unproven(sample)) is not None:
                raise ContenderFailed(problem)
            advice = (
                f"; {suitability.TERMINAL_ADVICE}" if suitability.needs_terminal(errors) else ""
            )
            if len(self._run.competing) == 1:
                raise ProgramFailed(f"under {name}{where}, the program {why}{advice}")
            raise ProgramFailed(
                f"there is nothing to compare with, since under {name}{where} the program {why}"
                + advice
            )
        if name in self._competing(workload) and self._nothing_left(workload):
            self._settled[workload] = _NOTHING_LEFT
            if self._by_cell or list(self._settled.values()) != [_NOTHING_LEFT] * len(self._of):
                return
            raise ContenderFailed(
                f"nothing is left to compare {self._run.baseline} with{where}: under {name}, the "
                f"program {why}"
            )

    def _enough(self, workload: int) -> str | None:
        """Why this workload needs no more rounds, as a phrase; None if it needs more."""
        rule = self._run.rule
        ratios = self._ratios(workload)
        done = self._complete(workload, ratios)
        if ratios:
            look = self._answers.look(workload, ratios, done)
            if look.stop:
                return look.because or "stopped"
        elif done >= (rule.max_rounds if rule.precision is None else rule.min_rounds):
            return units.counted(done, "round")
        if rule.budget_s is None or self._run.settings.by_cell:
            return None
        left = sum(self._round_s(w) for w in self._unsettled())
        return TIME_BUDGET if done >= 1 and not self._budget.has_room(left) else None

    def _ratios(self, workload: int) -> dict[str, tuple[float, ...]]:
        if self._run.settings.instructions:
            return {}
        names = self._competing(workload)
        return stopping.ratios(self._run, self._of[workload], names)

    def _competing(self, workload: int) -> list[str]:
        """The names of the contenders that are compared on this workload."""
        only = self._run.settings.only
        return [one.name for one in self._run.competing if plan.runs_on(only, one.name, workload)]

    def _complete(self, workload: int, ratios: Mapping[str, Sequence[float]]) -> int:
        """The number of complete rounds of this workload.

        Each contender that did not fail has a counted trial in them. With ratios, only the
        contenders that are compared matter. If all have failed, no further round is needed, so the
        result is the number of rounds of the rule.
        """
        names = self._alive(workload, self._competing(workload) if ratios else None)
        return plan.complete(self._of[workload], names) if names else self._run.rule.max_rounds

    def _has_round(self, workload: int) -> bool:
        """Whether a round of this workload is complete, and not because all contenders failed."""
        ratios = self._ratios(workload)
        names = self._alive(workload, self._competing(workload) if ratios else None)
        return bool(names) and plan.complete(self._of[workload], names) > 0

    def _alive(self, workload: int, names: Sequence[str] | None = None) -> list[str]:
        """The contenders of these names that did not fail on this workload; None for all names."""
        run = self._run
        return [
            name
            for name in (plan.taking_part(run, run.rule.max_rounds) if names is None else names)
            if (workload, name) not in self._failed
            and plan.runs_on(run.settings.only, name, workload)
        ]

    def _progress(self) -> Progress:
        """The progress of the workload that needs the most further rounds.

        The time left is that of all workloads.
        """
        rule = self._run.rule
        slowest = Progress(0, 0, None, None, 0.0, None, None)
        left = [0.0, 0.0, 0.0]
        for workload in self._unsettled():
            ratios = self._ratios(workload)
            done = self._complete(workload, ratios)
            look = self._answers.look(workload, ratios, done) if ratios else None
            forecast = self._answers.forecast(workload, ratios, done)
            few = forecast is not None and done < rounds_needed.LIKELY_FROM
            least = max(done, rule.min_rounds)
            low, likely, high = (
                (forecast.low, forecast.likely, forecast.high) if forecast else (least,) * 3
            )
            for place, number in enumerate((low, likely, high)):
                left[place] += max(0, number - done) * self._round_s(workload)
            if likely - done >= slowest.rounds_expected - slowest.rounds:
                slowest = replace(
                    slowest,
                    rounds=done,
                    rounds_expected=max(done, likely),
                    rounds_range=(low, high) if few and low < high else None,
                    half_width=look.half_width if look else None,
                    leading=look.leading if look and len(self._of) == 1 else None,
                )
        low_s, likely_s, high_s = (min(each, self._budget.left()) for each in left)
        return replace(
            slowest,
            seconds_left=likely_s,
            seconds_range=(low_s, high_s) if slowest.rounds_range else None,
        )


def _cell(sample: Sample) -> tuple[int, str]:
    return sample.trial.workload, sample.trial.contender
