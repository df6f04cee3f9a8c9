"""Counts the instructions of each contender with callgrind, for a run.

Callgrind does not replace malloc, so the preloaded allocator runs and the witness proves it as in
every trial. Each contender runs TIMES times, because a program need not do the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cairn import units
from cairn.compare import plan
from cairn.gate import InstructionCount
from cairn.model import COPY, Run, Trial
from cairn.profile.path_instructions import parsed
from cairn.run import stop_request
from cairn.run.runner import Runner
from cairn.run.store import Folder

TIMES = 2
_SLOWER = 200
"""The factor by which --timeout is longer under callgrind, which takes some 50 times as long."""


def count(
    run: Run, folder: Folder, scratch: Path, told: Callable[[str], None]
) -> tuple[InstructionCount, ...]:
    """Returns the counts of all contenders on all workloads.

    told: shows the user a line before each contender runs.

    Raises UsageError if --prepare or --conclude fails, and Interrupted on ctrl-C.
    """
    outs = scratch / "callgrind"
    outs.mkdir()
    valgrind = (
        "valgrind", "-q", "--tool=callgrind", "--trace-children=yes",
        f"--callgrind-out-file={outs}/%p", f"--log-file={scratch}/valgrind.%p",
    )  # fmt: skip
    settings = replace(
        run.settings, memory="none", counters=False, why=False, patterns=(), verify_output=False
    )
    if settings.stdin == COPY:
        settings = replace(settings, stdin=folder.stdin())
    if settings.timeout_s is not None:
        settings = replace(settings, timeout_s=settings.timeout_s * _SLOWER)
    runner = Runner(settings, run.contenders, scratch, valgrind)
    return tuple(
        _counted(runner, outs, Trial(plan.WARM_UP, 0, one.name, workload), told)
        for workload in range(len(settings.workloads))
        for one in run.competing
        if plan.runs_on(settings.only, one.name, workload)
    )


def _counted(
    runner: Runner, outs: Path, trial: Trial, told: Callable[[str], None]
) -> InstructionCount:
    told(f"{trial.contender}, in {units.counted(TIMES, 'run')} under valgrind")
    counts = []
    for _ in range(TIMES):
        stop_request.check()
        for old in outs.iterdir():
            old.unlink()
        sample, _ = runner.trial(trial)
        if sample.failure is not None:
            problem = f"cannot run under valgrind: it {sample.failure}"
            return InstructionCount(trial.contender, (), trial.workload, problem)
        files = [one.open(encoding="utf-8", errors="replace") for one in sorted(outs.iterdir())]
        try:
            counts.append(parsed(files, ()).program)
        finally:
            for file in files:
                file.close()
        if not counts[-1]:
            problem = "ended without valgrind's count of its instructions"
            return InstructionCount(trial.contender, (), trial.workload, problem)
    return InstructionCount(trial.contender, tuple(counts), trial.workload)
