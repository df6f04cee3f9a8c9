"""Finds a plan, and decides which of its programs and contenders take part in a run here."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators import discover
from cairn.allocators.contenders import (
    parse_contender,
    refuse_duplicates,
    resolve,
    split_contenders,
)
from cairn.compare import same_program
from cairn.errors import CairnError, ContenderFailed, ProgramFailed, UsageError, cannot
from cairn.matrix import inputs, programs
from cairn.matrix.plan import MeasurementPlan, PlannedProgram, read
from cairn.matrix.programs import Examination
from cairn.model import Contender, Run, StopRule, Workload

PLANS = Path(__file__).parent.parent / "bench" / "plans"
"""The folder of the plans that come with Cairn."""
_LARGEST = 4 << 20


class NamedPlan(Struct, frozen=True):
    """A plan with its name and the folder in which its programs run."""

    name: str
    plan: MeasurementPlan
    folder: Path
    text: str = ""
    """The content of the plan's file."""
    home: str = ""
    """`folder` as a text, if the file of the plan lies there. It is empty for a plan that comes
    with Cairn: such a plan runs in the folder of inputs, which each machine has for itself."""


def shipped() -> tuple[str, ...]:
    """The names of the plans that come with Cairn."""
    return tuple(sorted(path.stem for path in PLANS.glob("*.toml")))


def unlike_shipped(name: str, run: Run) -> tuple[str, ...]:
    """The programs of the run that are not those of the plan with this name that comes with Cairn.

    A plan of the user may have the same name, and programs with the same names.
    """
    known = {one.name: one for one in load(name).plan.programs}
    return tuple(
        workload.name
        for workload in run.settings.workloads
        if workload.name not in known or _differs(workload, known[workload.name], run.host.cpus)
    )


def _differs(workload: Workload, program: PlannedProgram, cpus: int) -> bool:
    try:
        planned = programs.workload_of(program, cpus)
    except CairnError:  # no line of this machine's cache can be that of the run
        return True
    return same_program.difference(workload, planned) is not None


def load(name: str) -> NamedPlan:
    """The plan with this name, or in this file. Raises UsageError; BrokenPlan lists mistakes."""
    if "/" not in name and not name.endswith(".toml") and name in shipped():
        text = _text(PLANS / f"{name}.toml")
        return NamedPlan(name, read(text, name), inputs.home(), text)
    path = Path(name)
    try:
        os.stat(path)  # whether Path.exists() raises PermissionError depends on Python's version
        is_there = True
    except PermissionError:  # of a folder above it; reading the file says so
        is_there = True
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        close = difflib.get_close_matches(name, shipped(), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"there is no plan {name}: neither a file nor one of {', '.join(shipped())}{hint}"
        )
    text, folder = _text(path), path.absolute().parent
    return NamedPlan(path.stem, read(text, path.name), folder, text, str(folder))


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; a plan is a file that ends in .toml")
        with path.open("rb") as file:  # it may be a device without an end
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise UsageError(f"{path} is too large for a plan")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path} is not a text in UTF-8, so it is not a plan: see line {line}"
        ) from None
    except PermissionError:
        raise UsageError(
            f"you may not read {path}; make it readable, or name another plan"
        ) from None
    except OSError as error:
        raise cannot("read", path, error) from error


def examine(named: NamedPlan, only: Sequence[str]) -> tuple[Examination, ...]:
    """Examines the chosen programs of the plan, in its order."""
    return tuple(programs.examined(one, named.folder) for one in named.plan.only(only))


def chosen(named: NamedPlan, specs: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The contenders as written for -a, and the baseline's name."""
    given = tuple(part for spec in specs for part in split_contenders(spec))
    specs = given or named.plan.contenders
    if not specs:
        raise UsageError("the plan names no contenders; name them with -a system,jemalloc")
    names = [parse_contender(spec).name for spec in specs]
    baseline = named.plan.baseline or "system"
    if baseline not in names:
        baseline = "system" if given and "system" in names else names[0]
    return tuple(specs), baseline


class Competing(Struct, frozen=True):
    """The contenders that take part, and those that do not."""

    contenders: tuple[Contender, ...]
    baseline: str
    absent: tuple[str, ...]
    """Why each other contender does not take part, as sentences."""


def competing(
    specs: Sequence[str], baseline: str, found_programs: Sequence[Examination] = ()
) -> Competing:
    """Finds the libraries of the contenders.

    If a program is linked with an allocator of its own, the C library is preloaded for the system's
    allocator in all programs. That changes nothing in the other programs, because they use the C
    library anyway.

    A contender that is missing here is left out. If the baseline is missing, or the only other
    contender, the error of this contender is raised. Raises ContenderFailed if several others are
    named and all are missing, and UsageError if no other is named.
    """
    parsed = [parse_contender(spec) for spec in specs]
    refuse_duplicates(parsed)
    found = discover.discover(names=[spec.allocator for spec in parsed])
    here: list[Contender] = []
    absent: list[CairnError] = []
    for spec in parsed:
        try:
            here.append(resolve(spec, found))
        except CairnError as error:
            if spec.name == baseline:
                raise
            absent.append(error)
    if baseline not in {one.name for one in here}:
        raise UsageError(f"the baseline {baseline} is none of the contenders")
    reasons = tuple(str(error).rstrip(".") for error in absent)
    if len(here) < 2:
        if not absent:
            raise UsageError(
                f"{baseline} alone has nothing to be compared with; name a second allocator with -a"
            )
        if len(absent) == 1:
            raise absent[0]
        raise ContenderFailed(
            f"only {baseline} is here, so there is nothing to compare: {'; '.join(reasons)}"
        )
    libc = next((one.replaced for one in found_programs if one.runs and one.replaced), None)
    if libc is not None:
        here = [
            replace(one, preload=(libc,), owners=(os.path.realpath(libc),))
            if one.allocator == "system" and not one.preload
            else one
            for one in here
        ]
    return Competing(tuple(here), baseline, reasons)


def runnable(found: Sequence[Examination]) -> tuple[PlannedProgram, ...]:
    """The programs that can be measured. Raises ProgramFailed if there is none."""
    here = tuple(one.program for one in found if one.runs)
    if not here:
        reasons = "; ".join(f"{one.program.name}: {one.why_not}" for one in found)
        raise ProgramFailed(f"no program of the plan can be measured here: {reasons}")
    return here


def rule(plan: MeasurementPlan, rounds: int | None, budget_s: float | None) -> StopRule:
    """The rule of a run: a fixed number of whole rounds, or fewer if the budget ends."""
    number = rounds if rounds is not None else plan.rounds
    return StopRule(
        precision=None, min_rounds=number, max_rounds=number,
        budget_s=budget_s if budget_s is not None else plan.budget_s, judged="active",
    )  # fmt: skip


def groups_of(contenders: Sequence[Contender]) -> dict[str, tuple[str, ...]]:
    """The names of the contenders in groups: by their layout, and by whether they are hardened.

    A division is left out if it would put all contenders into one group.
    """
    known = discover.known_catalog()
    layouts: dict[str, list[str]] = {}
    hardened: dict[str, list[str]] = {}
    for one in contenders:
        entry = known.find(one.allocator)
        if entry is None:
            continue
        if entry.layout is not None:
            layouts.setdefault(entry.layout, []).append(one.name)
        if entry.hardened is not None:
            hardened.setdefault("hardened" if entry.hardened else "not hardened", []).append(
                one.name
            )
    return {
        name: tuple(names)
        for groups in (layouts, hardened)
        if len(groups) > 1
        for name, names in groups.items()
    }
