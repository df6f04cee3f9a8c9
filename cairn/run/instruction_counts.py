"""Counts the instructions of each contender with callgrind, for a run.

Callgrind does not replace malloc, so the preloaded allocator runs and the witness proves it as in
every trial. Each contender runs TIMES times, because a program need not do the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from cairn import units
from cairn.compare import plan
from cairn.errors import ContenderFailed, ProgramFailed, UsageError
from cairn.gate import InstructionCount
from cairn.model import COPY, Run, Sample, Trial
from cairn.profile.callgrind_files import CutOff
from cairn.profile.path_instructions import parsed
from cairn.run import builds, check_base, known_builds, stop_request
from cairn.run.runner import Runner
from cairn.run.store import Folder
from cairn.run.valgrind import SLOWER, Under, callgrind, lines

TIMES = 2


def count(
    run: Run, folder: Folder, scratch: Path, told: Callable[[str], None]
) -> tuple[InstructionCount, ...]:
    """Returns the counts of all contenders on all workloads.

    told: shows the user a line before each contender runs, and a failure of --cleanup.

    --setup runs before the first count and --cleanup after the last one, also if the rounds of the
    run had both already: --cleanup may have removed what the program needs.

    The run in the folder keeps the tools. A run without rounds also keeps the builds of its files.

    Raises UsageError if --setup, --prepare or --conclude fails, and if a program is another build
    than in the rounds. Raises ProgramFailed or ContenderFailed if a file of the run is replaced
    meanwhile, if the program also fails without valgrind, or if it prints something else than under
    the baseline and `verify_output` is set.
    """
    outs = scratch / "callgrind"
    outs.mkdir()
    under = Under(callgrind(f"{outs}/%p", f"{scratch}/valgrind.%p"))
    settings = replace(run.settings, memory="none", counters=False, why=False, patterns=())
    if settings.stdin == COPY:
        settings = replace(settings, stdin=folder.stdin())
    if settings.timeout_s is not None:
        settings = replace(settings, timeout_s=settings.timeout_s * SLOWER)
    runner = Runner(settings, run.contenders, scratch, under)
    plain = Runner(settings, run.contenders, scratch)
    try:
        if settings.setup is not None:
            plain.hook("setup", settings.setup)
        samples = folder.samples()
        run, watch = known_builds.taken(run, folder, has_trials=bool(samples))
        folder.update(replace(run, tools=check_base.tools_of(run)))
        failed = {
            (one.trial.workload, one.trial.contender) for one in samples if one.failure is not None
        }
        both = _Watched(runner, watch), _Watched(plain, watch)
        return tuple(_all_counts(run, *both, outs, failed, told))
    finally:
        if settings.cleanup is not None:
            try:
                plain.hook("cleanup", settings.cleanup)
            except UsageError as error:
                told(str(error))


class _Watched:
    """A runner whose trials raise an error if a file of the run was replaced meanwhile."""

    def __init__(self, runner: Runner, watch: builds.Watch) -> None:
        self._runner = runner
        self._watch = watch

    def trial(self, trial: Trial) -> Sample:
        """Runs one trial and returns its sample. Raises also what `Watch.refuse_changed` raises."""
        sample, _ = self._runner.trial(trial)
        self._watch.refuse_changed()
        return sample


def _all_counts(
    run: Run,
    runner: _Watched,
    plain: _Watched,
    outs: Path,
    failed: Collection[tuple[int, str]],
    told: Callable[[str], None],
) -> Iterator[InstructionCount]:
    """Yields the counts of each contender on each workload, the baseline's first.

    runner: runs programs under callgrind, which writes to `outs`. plain: runs them without it.
    failed: the (workload, contender) pairs that failed in the rounds. They are not counted.
    """
    settings = run.settings
    names = sorted((one.name for one in run.competing), key=lambda name: name != run.baseline)
    for workload in range(len(settings.workloads)):
        printed: str | None = None
        for name in names:
            if not plan.runs_on(settings.only, name, workload):
                continue
            if (workload, name) in failed:
                problem = "failed in its runs, so its instructions were not counted"
                yield InstructionCount(name, (), workload, problem)
                continue
            trial = Trial(plan.WARM_UP, 0, name, workload)
            count_, digests = _counted(runner, outs, trial, told)
            if count_.problem is not None:
                _refuse_broken(plain, trial, run.baseline)
            elif name == run.baseline:
                printed = digests[0]
                if len(set(digests)) > 1:
                    raise ProgramFailed(
                        f"{name} printed something else in its second run (--verify same-output)"
                    )
            elif printed is not None and set(digests) != {printed}:
                raise ContenderFailed(
                    f"{name} printed something else than {run.baseline} (--verify same-output)"
                )
            yield count_


def _refuse_broken(plain: _Watched, trial: Trial, baseline: str) -> None:
    """Raises ProgramFailed or ContenderFailed if the program fails without valgrind, too."""
    sample = plain.trial(trial)
    if sample.failure is not None:
        kind = ProgramFailed if trial.contender == baseline else ContenderFailed
        raise kind(f"{trial.contender} {sample.failure}")


def _counted(
    runner: _Watched, outs: Path, trial: Trial, told: Callable[[str], None]
) -> tuple[InstructionCount, list[str | None]]:
    """Returns the counts, and the digest of the output of each run that succeeded."""
    told(f"{trial.contender}, in {units.counted(TIMES, 'run')} under valgrind")
    counts = []
    digests: list[str | None] = []
    for _ in range(TIMES):
        stop_request.check()
        for old in outs.iterdir():
            old.unlink()
        sample = runner.trial(trial)
        if sample.failure is not None:
            problem = f"cannot run under valgrind: it {sample.failure}"
            return InstructionCount(trial.contender, (), trial.workload, problem), digests
        digests.append(sample.output_digest)
        try:
            counts.append(parsed(map(lines, sorted(outs.iterdir())), ()).program)
        except CutOff:
            problem = "ended with a file of valgrind that is cut off"
            return InstructionCount(trial.contender, (), trial.workload, problem), digests
        if not counts[-1]:
            problem = "ended without valgrind's count of its instructions"
            return InstructionCount(trial.contender, (), trial.workload, problem), digests
    return InstructionCount(trial.contender, tuple(counts), trial.workload), digests
