"""How far a run of a plan has come, from its stored samples alone. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cairn import units
from cairn.compare import plan
from cairn.model import INTERRUPTED, SCHEMA, UNSUITED, Run, Sample

NOTHING_TO_COMPARE = "ended: no program can be compared"
"""The state of a run in which each program failed under the baseline or under all others."""


class PlanProgress(Struct, frozen=True):
    """The state of a run of a plan."""

    plan: str
    state: str
    """"running", "complete", "interrupted", "not finished", `NOTHING_TO_COMPARE`, or why measuring
    ended."""
    rounds: int
    """The number of whole rounds. A round is whole if every program ran under every contender that
    takes part in it, also with the probe. Programs on which nothing is compared, and other pairs
    that failed, are not counted."""
    planned: int
    done: int
    """The number of runs so far, without the warm-up."""
    trials: int
    """The number of runs in all planned rounds, without the warm-up and without the pairs of
    program and contender that failed."""
    seconds_left: float | None
    """The expected seconds until all planned runs are done, with those of the warm-up; None if none
    is left, or if no run was timed."""
    programs: int
    """The number of programs in the run."""
    lost: int
    """The number of programs that failed under the baseline or under all others, so that nothing is
    compared on them."""
    partly: int
    """The number of programs that failed under some contenders only."""
    failures: tuple[str, ...]
    """A sentence for each failed pair of program and contender. A program that failed under the
    baseline has one sentence."""
    resumable: bool

    @property
    def failed(self) -> str:
        """How many programs failed, as a phrase; empty if none did."""
        of = f"of {units.counted(self.programs, 'program')} failed"
        found = [f"{self.lost} {of}"] if self.lost else []
        if self.partly:
            found.append(f"{self.partly} {of} under some contenders")
        return ", ".join(found)


def of(
    run: Run, samples: Sequence[Sample], stopped: Sequence[str], *, runs_now: bool
) -> PlanProgress:
    """The state of the run with these samples.

    runs_now: whether a process is measuring it.
    """
    names = [workload.name for workload in run.settings.workloads]
    failures: dict[tuple[int, str], str] = {}
    times: dict[tuple[int, str], list[float]] = {}
    rounds: dict[tuple[int, str], set[int]] = {}
    warmed: Counter[tuple[int, str]] = Counter()
    for sample in samples:
        cell = sample.trial.workload, sample.trial.contender
        if sample.failure is not None:
            failures.setdefault(cell, sample.failure)
        else:
            times.setdefault(cell, []).append(sample.wall_ns / 1e9)
            if sample.counts:
                rounds.setdefault(cell, set()).add(sample.trial.round)
            else:
                warmed[cell] += 1
    lost = {workload for workload, name in failures if name == run.baseline}
    unsuited = {workload for workload, why in enumerate(stopped) if why == UNSUITED}
    others = [one.name for one in run.competing if one.name != run.baseline]
    alone = {
        workload
        for workload in range(len(names))
        if others and all((workload, name) in failures for name in others)
    }
    cells = [
        (workload, contender.name)
        for workload in range(len(names))
        for contender in run.contenders
        if workload not in lost | alone | unsuited and (workload, contender.name) not in failures
    ]
    planned = run.rule.max_rounds
    number = Counter(name for of in range(1, planned + 1) for name in plan.taking_part(run, of))
    measured: set[int] = set().union(*rounds.values()) if cells else set()
    whole = [of for of in measured if _is_whole(of, cells, rounds, plan.taking_part(run, of))]
    warmup = dict.fromkeys(plan.taking_part(run, plan.WARM_UP), run.settings.warmup)
    missing = [
        max(0, number[cell[1]] - len(rounds[cell]))
        if cell in rounds
        else number[cell[1]] + max(0, warmup.get(cell[1], 0) - warmed[cell])
        for cell in cells
    ]
    known = [statistics.fmean(times[cell]) for cell in cells if cell in times]
    each = statistics.fmean(known) if known else 0.0
    left = sum(
        more * (statistics.fmean(times[cell]) if cell in times else each)
        for cell, more in zip(cells, missing, strict=True)
    )
    compares = any(name in others for _, name in cells)
    state = _state(stopped, runs_now=runs_now, compares=compares)
    ended = bool(stopped) and INTERRUPTED not in stopped and not runs_now
    return PlanProgress(
        plan=(run.experiment or "").partition(" ")[2],
        state=state,
        rounds=len(whole),
        planned=planned,
        done=sum(len(rounds.get(cell, ())) for cell in cells),
        trials=sum(number[name] for _, name in cells),
        seconds_left=left if left and not ended and known else None,
        programs=len(names),
        lost=len(lost | alone),
        partly=len({workload for workload, _ in failures} - lost - alone),
        failures=tuple(
            _failure(names[workload], name, why)
            for (workload, name), why in failures.items()
            if workload not in lost or name == run.baseline
        ),
        resumable=not ended and not runs_now,
    )


def _is_whole(
    number: int,
    cells: Sequence[tuple[int, str]],
    rounds: Mapping[tuple[int, str], set[int]],
    taking_part: Sequence[str],
) -> bool:
    """Whether each of these cells ran in the round, if its contender takes part in the round."""
    return all(number in rounds.get(cell, ()) for cell in cells if cell[1] in taking_part)


def _failure(program: str, contender: str, why: str) -> str:
    """A sentence on a failed pair. `why` is the rest of a sentence, or whole sentences."""
    if why[:1].islower():
        return f"{program}: under {contender}, the program {why.removesuffix('.')}."
    return f"{program}: under {contender}, the program failed: {why}"


def _state(stopped: Sequence[str], *, runs_now: bool, compares: bool) -> str:
    """compares: whether a contender can still be compared with the baseline on any program."""
    if runs_now:
        return "running"
    if not stopped:
        return "not finished"
    if INTERRUPTED in stopped:
        return INTERRUPTED
    if not compares:
        return NOTHING_TO_COMPARE
    budget = [reason for reason in stopped if "budget" in reason]
    return budget[0] if budget else "complete"


def document(run: Run, now: PlanProgress) -> dict[str, Any]:
    """The state as a document for JSON."""
    return {
        "schema": SCHEMA, "run": run.id, "plan": now.plan, "state": now.state,
        "rounds": now.rounds, "rounds_planned": now.planned, "runs": now.done,
        "runs_planned": now.trials, "seconds_left": now.seconds_left,
        "programs": now.programs, "programs_lost": now.lost, "failures": list(now.failures),
    }  # fmt: skip
