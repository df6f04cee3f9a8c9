"""Runs the program of a stored run again, in callgrind's simulation of caches and of a TLB.

Callgrind simulates two caches in one run: a first level, and a last level that sees the misses of
the first. So several runs are needed for all levels. A TLB is simulated as a cache whose lines are
pages. The simulation knows the order of loads and stores, but no times. So misses never overlap,
and no other processor takes lines away. The last cache of a run has a prefetcher that recognises
streams (`--simulate-hwpref`), and the first one has none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn import native, units
from cairn.compare import plan
from cairn.doctor import machine
from cairn.errors import ContenderFailed, UsageError
from cairn.model import COPY, Contender, Run, Settings, Trial
from cairn.profile.callgrind_files import CutOff, outside_allocator
from cairn.run import builds, path_instructions, stop_request
from cairn.run.cache_levels import levels
from cairn.run.runner import Runner
from cairn.run.store import Folder
from cairn.run.stored_run import SIMULATION, DamagedFile, encoded
from cairn.run.valgrind import SLOWER, Under, callgrind, first_message, lines
from cairn.simulated_misses import CacheLevel, SimulatedMisses, Simulation

_EVENTS = ("Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw")
"""Callgrind's events with --cache-sim=yes, in its order."""
_FIRST = (_EVENTS.index("D1mr"), _EVENTS.index("D1mw"))
_LAST = (_EVENTS.index("DLmr"), _EVENTS.index("DLmw"))


class _Pass(Struct, frozen=True):
    """One run of callgrind: two levels that it simulates, by their index.

    told: which of the two levels this run counts.
    """

    first: int
    last: int
    told: tuple[int, ...]


def refuse_other_machine(run: Run) -> None:
    """Raises UsageError if the run was measured on another machine."""
    here, there = machine.host().cpu_model, run.host.cpu_model
    if here != there:
        raise UsageError(
            f"this run was measured on another processor ({there}), and this one has other caches "
            f"({here}); simulate it there"
        )


def simulate(
    run: Run,
    folder: Folder,
    cells: Sequence[tuple[int, str]],
    scratch: Path,
    told: Callable[[str], None],
    before: Simulation | None,
) -> None:
    """Simulates contenders on workloads, and writes each result into the run's folder at once.

    cells: pairs of a workload's index and a contender.
    told: shows the user a line before each cell, and a failure of --cleanup.
    before: an earlier simulation. Its results of other cells stay, and so do its caches. With None
        the caches are measured anew. Results of an earlier simulation then stay until a new one
        takes their place, if the sizes of the caches are the same.

    A contender under which the simulation fails has a problem instead of numbers.

    Raises CairnError if the machine does not show its caches, UsageError if --setup, --prepare or
    --conclude fails, and ContenderFailed or UsageError if a file of the run is another build than
    when the run began. On ctrl-C it raises KeyboardInterrupt or Interrupted.
    """
    settings = _settings(run, folder)
    hooks = Runner(settings, (), scratch)
    names = [workload.name for workload in settings.workloads]
    try:
        if settings.setup is not None:
            hooks.hook("setup", settings.setup)
        # --setup may build the program.
        builds.refuse_other(run.builds, builds.of_run(run.settings, run.contenders))
        found = before or _anew(folder, told)
        by_name = {one.name: one for one in run.contenders}
        for number, (workload, name) in enumerate(cells):
            on = f" on {names[workload]}" if len(names) > 1 else ""
            times = units.counted(len(_passes(found.levels)), "run")
            told(f"{name}{on}, in {times} under valgrind")
            trial = Trial(plan.WARM_UP, 0, name, workload)
            here = scratch / f"{number}"
            one = _simulated(replace(run, settings=settings), by_name[name], trial, found, here)
            found = found.plus(one)
            folder.write(SIMULATION, encoded(found))
    finally:
        if settings.cleanup is not None:
            try:
                hooks.hook("cleanup", settings.cleanup)
            except UsageError as error:
                told(str(error))


def _anew(folder: Folder, told: Callable[[str], None]) -> Simulation:
    """A simulation with the caches as they are now, and with earlier results that fit them."""
    found = levels()
    try:
        earlier = folder.simulation()
    except DamagedFile:
        earlier = None
    if earlier is None or not earlier.found:
        return Simulation(found, ())
    if [_option(one) for one in earlier.levels] != [_option(one) for one in found]:
        told("the last cache now has another size, so the earlier simulation is replaced")
        return Simulation(found, ())
    return Simulation(found, earlier.found)


def _settings(run: Run, folder: Folder) -> Settings:
    """The settings of a run in the simulation: nothing is measured, and time limits are longer."""
    settings = replace(
        run.settings,
        memory="none",
        counters=False,
        why=False,
        patterns=(),
        verify_output=False,
        stdout=None,
        timeout_s=_longer(run.settings.timeout_s),
        workloads=tuple(
            replace(one, own=replace(one.own, timeout_s=_longer(one.own.timeout_s)))
            for one in run.settings.workloads
        ),
    )
    return replace(settings, stdin=folder.stdin()) if settings.stdin == COPY else settings


def _longer(timeout_s: float | None) -> float | None:
    return timeout_s * SLOWER if timeout_s is not None else None


def _passes(levels: Sequence[CacheLevel]) -> list[_Pass]:
    """The runs that count all levels: L1 with L2, L1 with L3 if there is an L3, and the TLB."""
    caches = len(levels) - 2
    return [
        _Pass(0, 1, (0, 1)),
        *(_Pass(0, place, (place,)) for place in range(2, caches)),
        _Pass(caches, caches + 1, (caches, caches + 1)),
    ]


def _simulated(
    run: Run, contender: Contender, trial: Trial, simulation: Simulation, scratch: Path
) -> SimulatedMisses:
    found = simulation.levels
    reads, writes = [0] * len(found), [0] * len(found)
    for each in _passes(found):
        stop_request.check()
        try:
            counts = _counted(run, contender, trial, (found[each.first], found[each.last]), scratch)
        finally:
            # A program may write much, and may start many processes with a file each.
            shutil.rmtree(scratch, ignore_errors=True)
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
    try:
        path_instructions.refuse_other_owner(contender, path_instructions.accounts(folder))
    except ContenderFailed:
        return "is not the allocator of every process in the simulation"
    try:
        counts = outside_allocator(map(lines, sorted(outs.iterdir())), len(_EVENTS))
    except CutOff:
        return "ended with a file of valgrind that is cut off"
    return [max(0, number) for number in counts] if counts[0] > 0 else "ended without any count"


def _option(level: CacheLevel) -> str:
    return f"{level.bytes},{level.ways},{level.line_bytes}"
