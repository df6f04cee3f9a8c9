"""Carries a run out: warm-up, random complete blocks, the decision to stop. Prints nothing; an observer may watch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cairn import compare, machine, plan, stats
from cairn.errors import ContenderFailed, Interrupted, ProgramFailed, UsageError
from cairn.model import Run, Sample, Trial
from cairn.runner import Runner
from cairn.store import Folder

WARM_FROM_BYTES = 256 << 20
"""Footprint from which cold guest memory shows: a 3 GB fill took 6.5 s cold and 0.22 s warm in a virtual machine."""
_WARM_SHARE = 1.2
_WARM_LIMIT = 0.7
"""Never touch more than this share of the memory that is available."""

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands after a block."""

    blocks: int
    blocks_expected: int
    seconds_left: float | None
    half_width: float | None
    leading: str | None


class Observer(Protocol):
    """Whoever shows what happens; called between trials, never during one."""

    def trial_begins(self, trial: Trial) -> None:
        """The next trial is about to start."""

    def trial_ended(self, sample: Sample, /) -> None:
        """A trial was measured and stored."""

    def contender_failed(self, name: str, why: str) -> None:
        """This contender takes no further part."""

    def told(self, sentence: str) -> None:
        """Something that the user should know and that changes no result."""

    def warmed(self, size: int) -> None:
        """Memory is touched before each block from now on; `size` in bytes."""

    def block_ended(self, progress: Progress) -> None:
        """All contenders ran once more."""


class Measurement:
    """One run being measured, new or resumed. Every trial is stored before the next begins."""

    def __init__(self, run: Run, folder: Folder, scratch: Path, observer: Observer) -> None:
        self._run = run
        self._folder = folder
        self._runner = Runner(run.settings, run.contenders, scratch)
        self._observer = observer
        self._samples = list(folder.samples())
        self._failed = {(s.trial.workload, s.trial.contender) for s in self._samples if s.failure is not None}
        self._settled: dict[int, str] = {}
        """Workloads that need no more blocks, and why."""
        self._began = time.monotonic()
        self._block_seconds: list[float] = []
        self._warm_bytes = run.settings.warm_memory or 0

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All trials so far, those of before a resume included."""
        return tuple(self._samples)

    def measure(self) -> None:
        """Runs until the rule says stop.

        Raises ProgramFailed when the baseline fails, ContenderFailed when nothing is left to compare or the baseline
        has no proof, Interrupted on ctrl-C; whatever was measured by then is in the folder.
        """
        settings = self._run.settings
        if any(name == self._run.baseline for _, name in self._failed):
            raise ProgramFailed(f"this run failed under {self._run.baseline} before; begin a new one")
        try:
            if settings.setup is not None:
                self._runner.hook("setup", settings.setup)
            try:
                self._blocks()
                self._folder.mark_stopped("\n".join(self._settled[w] for w in sorted(self._settled)))
            finally:
                self._clean_up()
        except KeyboardInterrupt:
            self._folder.mark_stopped(INTERRUPTED)
            raise Interrupted("interrupted; what was measured is kept") from None

    def _clean_up(self) -> None:
        """Its failure is told and changes nothing: what was measured is measured."""
        if self._run.settings.cleanup is not None:
            try:
                self._runner.hook("cleanup", self._run.settings.cleanup)
            except UsageError as error:
                self._observer.told(str(error))

    def _blocks(self) -> None:
        run = self._run
        names = [contender.name for contender in run.contenders]
        baseline_first = [run.baseline, *(name for name in names if name != run.baseline)]
        workloads = range(len(run.settings.workloads))
        with self._counted_time():
            for trial in plan.warm_up(baseline_first, run.settings.warmup, workloads):
                if self._takes_part(trial):
                    self._take(trial, watch=True)
        self._decide_warm_memory()
        number = max((sample.trial.block for sample in self._samples), default=0)
        while True:
            for workload in workloads:
                because = None if workload in self._settled else self._enough(workload)
                if because is not None:
                    self._settled[workload] = because
            if len(self._settled) == len(workloads):
                return
            number += 1
            with self._counted_time():
                if self._warm_bytes:
                    self._runner.touch(self._warm_bytes)
                for trial in plan.block(number, names, run.seed, workloads):
                    if self._takes_part(trial):
                        self._take(trial)
            self._observer.block_ended(self._progress())

    def _takes_part(self, trial: Trial) -> bool:
        return trial.workload not in self._settled and (trial.workload, trial.contender) not in self._failed

    @contextmanager
    def _counted_time(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._block_seconds.append(time.monotonic() - began)

    def _take(self, trial: Trial, *, watch: bool = False) -> None:
        self._observer.trial_begins(trial)
        sample, trace = self._runner.trial(trial, watch=watch)
        self._check_environment(sample)
        sample = self._verified(sample)
        if not any((s.trial.workload, s.trial.contender) == (trial.workload, trial.contender) for s in self._samples):
            self._folder.keep("witness", f"{trial.workload}-{trial.contender}.jsonl", trace.witness)
        self._folder.append(sample)
        self._samples.append(sample)
        self._observer.trial_ended(sample)
        if sample.failure is not None:
            self._folder.keep("failed", f"{trial.contender}.stderr", trace.stderr_tail.encode())
            self._fail(sample)

    def _samples_like(self, sample: Sample, contender: str) -> Iterator[Sample]:
        """Earlier trials of this contender on the sample's workload."""
        cell = (sample.trial.workload, contender)
        return (s for s in self._samples if (s.trial.workload, s.trial.contender) == cell)

    def _check_environment(self, sample: Sample) -> None:
        """A run that goes on in another shell must not mix two environments: what an allocator reads stays the same."""
        before = next((s for s in self._samples_like(sample, sample.trial.contender) if s.failure is None), sample)
        if sample.failure is None and before.proof.knobs != sample.proof.knobs:
            changed = sorted(before.proof.knobs.keys() ^ sample.proof.knobs.keys()) or sorted(sample.proof.knobs)
            raise UsageError(
                f"{', '.join(changed)} is not as when this run began; set it as it was, or begin a new run"
            )

    def _verified(self, sample: Sample) -> Sample:
        """Under --verify same-output, what the baseline printed first is what every trial must print."""
        if not self._run.settings.verify_output or sample.failure is not None:
            return sample
        first = next(
            (s for s in (*self._samples_like(sample, self._run.baseline), sample) if s.failure is None), sample
        )
        if sample.output_digest == first.output_digest:
            return sample
        other = "every time" if sample.trial.contender == self._run.baseline else f"than under {self._run.baseline}"
        return replace(sample, failure=f"printed something else {other} (--verify same-output)")

    def _fail(self, sample: Sample) -> None:
        name, workload, why = sample.trial.contender, sample.trial.workload, sample.failure or ""
        self._failed.add((workload, name))
        several = len(self._run.settings.workloads) > 1
        where = f" on {self._run.settings.workloads[workload].name}" if several else ""
        self._observer.contender_failed(f"{name}{where}", why)
        if name == self._run.baseline:
            if sample.proof.problem is not None and why == sample.proof.problem:
                raise ContenderFailed(why)
            raise ProgramFailed(f"the program {why} under {name}{where}, so there is nothing to compare with")
        if len([cell for cell in self._failed if cell[0] == workload]) == len(self._run.contenders) - 1:
            self._settled[workload] = "nothing left to compare"
            if len(self._settled) < len(self._run.settings.workloads):
                return
            raise ContenderFailed(f"nothing is left to compare {self._run.baseline} with{where}: {name} {why}")

    def _of(self, workload: int) -> list[Sample]:
        return [sample for sample in self._samples if sample.trial.workload == workload]

    def _enough(self, workload: int) -> str | None:
        """Why this workload needs no more blocks; None to go on."""
        rule = self._run.rule
        ratios = self._ratios(workload)
        done = self._complete(workload, ratios)
        if ratios:
            look = stats.look(ratios, rule)
            if look.stop:
                return look.because or "stopped"
        elif done >= (rule.max_blocks if rule.precision is None else rule.min_blocks):
            return f"{done} blocks"
        if rule.budget_s is not None and done >= 1:
            expected = self._block_seconds[-1] if self._block_seconds else 0.0
            if time.monotonic() - self._began + expected > rule.budget_s:
                return "time budget"
        return None

    def _ratios(self, workload: int) -> dict[str, tuple[float, ...]]:
        names = [contender.name for contender in self._run.contenders]
        return compare.wall_ratios(self._of(workload), names, self._run.baseline)

    def _complete(self, workload: int, ratios: dict[str, tuple[float, ...]]) -> int:
        """Blocks that count; those of the baseline alone when there is nothing else."""
        alone = [s for s in self._of(workload) if s.counts and s.trial.contender == self._run.baseline]
        return min((len(of) for of in ratios.values()), default=len(alone))

    def _progress(self) -> Progress:
        """Of the workload that is farthest from its end."""
        rule = self._run.rule
        open_ = [w for w in range(len(self._run.settings.workloads)) if w not in self._settled]
        standings = []
        for workload in open_:
            ratios = self._ratios(workload)
            done = self._complete(workload, ratios)
            look = stats.look(ratios, rule) if ratios else None
            expected = look.blocks_expected if look else max(done, rule.min_blocks)
            standings.append((expected - done, done, expected, look))
        if not standings:
            return Progress(0, 0, 0.0, None, None)
        _, done, expected, look = max(standings, key=lambda standing: standing[0])
        recent = self._block_seconds[-5:]
        left = (expected - done) * sum(recent) / len(recent)
        if rule.budget_s is not None:
            left = min(left, max(0.0, rule.budget_s - (time.monotonic() - self._began)))
        return Progress(
            blocks=done,
            blocks_expected=expected,
            seconds_left=left,
            half_width=look.half_width if look else None,
            leading=look.leading if look and len(self._run.settings.workloads) == 1 else None,
        )

    def _decide_warm_memory(self) -> None:
        """In a virtual machine, a first touch of memory that the host has not backed costs up to 30 times more."""
        if self._run.settings.warm_memory is None and self._run.host.virtual:
            peak = max((sample.memory.peak_bytes or 0 for sample in self._samples), default=0)
            if peak >= WARM_FROM_BYTES:
                available = machine.available_memory() or 0
                self._warm_bytes = min(int(peak * _WARM_SHARE), int(available * _WARM_LIMIT))
        if self._warm_bytes:
            self._observer.warmed(self._warm_bytes)
