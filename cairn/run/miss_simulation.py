"""Runs the program of a stored run again, in callgrind's simulation of caches and of a TLB.

Callgrind simulates two caches in one run: a first level, and a last level that sees the misses of
the first. So several runs are needed for all levels. A TLB is simulated as a cache whose lines are
pages. The simulation knows the order of loads and stores, and no time: it simulates no overlap of
misses, and no other processor that takes lines away. It does simulate a prefetcher that recognises
streams (`--simulate-hwpref`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn import native, units
from cairn.compare import plan
from cairn.errors import CairnError
from cairn.model import COPY, Contender, Run, Trial
from cairn.profile.callgrind_files import CutOff, outside_allocator
from cairn.run import builds, path_instructions, stop_request
from cairn.run.cache_levels import levels
from cairn.run.runner import Runner
from cairn.run.store import Folder
from cairn.run.valgrind import SLOWER, Under, callgrind, first_message, lines
from cairn.simulated_misses import CacheLevel, SimulatedMisses, Simulation

_EVENTS = ("Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw")
"""Callgrind's events with --cache-sim=yes, in its order."""
_FIRST = (_EVENTS.index("D1mr"), _EVENTS.index("D1mw"))
_LAST = (_EVENTS.index("DLmr"), _EVENTS.index("DLmw"))


@dataclass(frozen=True, slots=True)
class _Pass:
    """One run of callgrind: two levels that it simulates, by their index.

    told: which of the two levels this run counts.
    """

    first: int
    last: int
    told: tuple[int, ...]


def simulate(
    run: Run,
    folder: Folder,
    contenders: Sequence[str],
    scratch: Path,
    told: Callable[[str], None],
) -> Simulation:
    """Simulates each contender on all workloads.

    told: shows the user a line before each contender runs. A contender under which the simulation
    fails has a problem instead of numbers.

    Raises CairnError if the machine does not show its caches, UsageError if --setup, --prepare or
    --conclude fails, ContenderFailed or UsageError if a file of the run is another build than when
    the run began, and Interrupted on ctrl-C.
    """
    builds.refuse_other(run.builds, builds.of_run(run.settings, run.contenders))
    found = levels()
    settings = replace(
        run.settings, memory="none", counters=False, why=False, patterns=(), verify_output=False
    )
    if settings.stdin == COPY:
        settings = replace(settings, stdin=folder.stdin())
    if settings.timeout_s is not None:
        settings = replace(settings, timeout_s=settings.timeout_s * SLOWER)
    run = replace(run, settings=settings)
    by_name = {one.name: one for one in run.contenders}
    misses = []
    hooks = Runner(settings, (), scratch)
    if settings.setup is not None:
        hooks.hook("setup", settings.setup)
    for workload in range(len(settings.workloads)):
        for name in contenders:
            if plan.runs_on(settings.only, name, workload):
                told(f"{name}, in {units.counted(len(_passes(found)), 'run')} under valgrind")
                trial = Trial(plan.WARM_UP, 0, name, workload)
                misses.append(_simulated(run, by_name[name], trial, found, scratch))
    if settings.cleanup is not None:
        hooks.hook("cleanup", settings.cleanup)
    return Simulation(found, tuple(misses))


def _passes(levels: Sequence[CacheLevel]) -> list[_Pass]:
    """The runs that count all levels: L1 with L2, L1 with L3 if there is an L3, and the TLB."""
    caches = len(levels) - 2
    return [
        _Pass(0, 1, (0, 1)),
        *(_Pass(0, place, (place,)) for place in range(2, caches)),
        _Pass(caches, caches + 1, (caches, caches + 1)),
    ]


def _simulated(
    run: Run, contender: Contender, trial: Trial, found: Sequence[CacheLevel], scratch: Path
) -> SimulatedMisses:
    reads, writes = [0] * len(found), [0] * len(found)
    for number, each in enumerate(_passes(found)):
        stop_request.check()
        here = scratch / f"{trial.workload}-{contender.name}-{number}"
        counts = _counted(run, contender, trial, (found[each.first], found[each.last]), here)
        if isinstance(counts, str):
            return SimulatedMisses(contender.name, (), (), trial.workload, counts)
        for level in each.told:
            read, write = _FIRST if level == each.first else _LAST
            reads[level], writes[level] = counts[read], counts[write]
    return SimulatedMisses(contender.name, tuple(reads), tuple(writes), trial.workload)


def _counted(
    run: Run,
    contender: Contender,
    trial: Trial,
    simulated: tuple[CacheLevel, CacheLevel],
    folder: Path,
) -> list[int] | str:
    """How often each event happened outside the allocator, or the problem as `SimulatedMisses`."""
    outs = folder / "callgrind"
    for part in ("callgrind", *path_instructions.FOLDERS):
        (folder / part).mkdir(parents=True)
    first, last = simulated
    under = Under(
        callgrind(
            f"{outs}/%p",
            f"{folder}/log.%p",
            "--cache-sim=yes",
            # Streams are recognised within pages of 4 KiB, which a TLB's lines already are.
            f"--simulate-hwpref={'yes' if first.line_bytes < 4096 else 'no'}",
            f"--I1={_option(first)}",
            f"--D1={_option(first)}",
            f"--LL={_option(last)}",
        ),
        native.instructions(),
        path_instructions.variables(folder, "count"),
    )
    sample, _ = Runner(run.settings, [contender], folder, under).trial(trial)
    if sample.failure is not None:
        said = first_message(folder, "log.*")
        return f"cannot run in the simulation: it {sample.failure}" + (f" ({said})" if said else "")
    path_instructions.refuse_other_owner(contender, path_instructions.accounts(folder))
    try:
        counts = outside_allocator(map(lines, sorted(outs.iterdir())), len(_EVENTS))
    except CutOff:
        raise CairnError(
            f"a file of valgrind is cut off; is there room left in {folder.parent}?"
        ) from None
    return counts if counts[0] > 0 else "ended without valgrind's count"


def _option(level: CacheLevel) -> str:
    return f"{level.bytes},{level.ways},{level.line_bytes}"
