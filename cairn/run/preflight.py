"""Prepares a run: checks the program with doctor, and chooses contenders and baseline."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators import discover
from cairn.allocators.catalog import Found
from cairn.allocators.contenders import (
    ContenderSpec,
    default_contenders,
    left_out,
    parse_contender,
    refuse_duplicates,
    resolve,
    split_contenders,
)
from cairn.doctor.machine import conditions
from cairn.doctor.machine_checks import quick_warnings
from cairn.doctor.program_checks import Diagnosis, diagnose, with_a_run
from cairn.errors import ContenderFailed
from cairn.model import Check, Contender, Host, Settings

MARK = "doctor: "
"""The beginning of each note that comes from the checks of 'cairn doctor'.

The terminal shows these notes before all other notes. Reports show them like other notes.
"""


class Preflight(Struct, frozen=True):
    """The result of the preparation."""

    contenders: tuple[Contender, ...]
    baseline: str
    """The name of the contender that the others are compared with."""
    notes: tuple[str, ...]
    program: str
    """A description of the program in one line; empty if a check of the program gave a warning."""


def prepare(
    specs: Sequence[str], settings: Settings, baseline: str | None, say: Callable[[str], None]
) -> Preflight:
    """Chooses the contenders: those in `specs` if there are any, else a default for this program.

    specs: the user's arguments of -a.
    baseline: the user's choice; None for the default.
    say: shows the user a line.

    A program that contains an allocator is run once with the probe preloaded, because only a run
    shows whether the program uses that allocator. The user is shown a line before this run. Raises
    ContenderFailed when no preloaded allocator can work in the program, or when a contender is not
    on this machine or cannot be used.
    """
    notes: list[str] = []
    if specs:
        parsed = [parse_contender(part) for spec in specs for part in split_contenders(spec)]
        if baseline is None and len(parsed) == 1:
            baseline = "system"
        chosen = _baseline(parsed, baseline)
        found = discover.discover(names=[spec.allocator for spec in parsed])
        diagnosis = _diagnosed(settings, parsed)
    else:
        found = discover.discover()
        here = default_contenders(found)
        diagnosis = _diagnosed(settings, ())
        parsed = list(here)
        if diagnosis.linked is not None:
            parsed = beside_linked(here, diagnosis.linked, diagnosis.libc, found)
        elif diagnosis.knob is not None:
            parsed = with_and_without(here, diagnosis.knob)
            inside = ", ".join(spec.name for spec in here)
            notes.append(f"{MARK}contenders: system · {'='.join(diagnosis.knob)} × {{{inside}}}")
        notes += _notes_on_few(here, found)
        chosen = _baseline(parsed, baseline)
    refuse_duplicates(parsed)
    _refuse_system(parsed, diagnosis)
    contenders = tuple(resolve(spec, found, diagnosis.program) for spec in parsed)
    if os.environ.get("LD_PRELOAD"):
        notes.append("LD_PRELOAD of your environment is kept, after the allocator under test")
    if diagnosis.carries is not None and not settings.instructions:
        from cairn.run import malloc_share

        say(
            f"{diagnosis.carries.name} contains {diagnosis.carries.inside.allocator}; "
            "a run with the probe now finds out which allocator the program uses"
        )
        judged = next(one for one in contenders if one.name == chosen)
        seen = malloc_share.look(settings, judged, say)
        diagnosis = with_a_run(diagnosis, seen) if seen is not None else diagnosis
    followed = () if specs else _settled_by_run(diagnosis)
    warnings = [
        MARK + (check.says if check.subject in followed else sentence(check))
        for check in diagnosis.warnings
    ]
    fine = "" if warnings else " · ".join(check.says for check in diagnosis.checks)
    return Preflight(
        contenders=contenders, baseline=chosen, notes=(*warnings, *notes), program=fine
    )


def _notes_on_few(here: Sequence[ContenderSpec], found: Sequence[Found]) -> list[str]:
    """Notes on why there are few contenders, and how to get more."""
    notes = list(left_out(found))
    along = {entry.name for entry in discover.known_catalog().allocators if entry.comes_along}
    if all(spec.allocator in along for spec in here):
        own = (
            "the system's allocator is"
            if len(here) == 1
            else "the system's allocator and cairn's own are"
        )
        notes.append(f"only {own} here; 'cairn allocators get jemalloc mimalloc' fetches others")
    return notes


def named(specs: Sequence[str], others: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the contenders of a run with these specs.

    others: the names of further contenders, whose libraries need not exist yet.

    No program is run. Raises the errors that such a run would raise.
    """
    parsed = [parse_contender(part) for spec in specs for part in split_contenders(spec)]
    _baseline(parsed, "system" if len(parsed) + len(others) == 1 else None)
    refuse_duplicates([*parsed, *(ContenderSpec(name=one, allocator="custom") for one in others)])
    found = discover.discover(names=[spec.allocator for spec in parsed])
    return (*(resolve(spec, found).name for spec in parsed), *others)


def _baseline(parsed: list[ContenderSpec], wanted: str | None) -> str:
    """The baseline's name. If `parsed` lacks the contender that the user wants, it is inserted.

    wanted: the user's choice. With None the baseline is the system's allocator without knobs, or
    the first contender if the system's allocator does not compete.
    """
    if wanted is None:
        return next(
            (spec.name for spec in parsed if spec.allocator == "system" and not spec.knobs),
            parsed[0].name,
        )
    if any(spec.name == wanted for spec in parsed):
        return wanted
    spec = parse_contender(wanted)
    same = next(
        (other for other in parsed if replace(other, name="") == replace(spec, name="")), None
    )
    if same is not None:
        return same.name
    parsed.insert(0, spec)
    return spec.name


def _diagnosed(settings: Settings, specs: Sequence[ContenderSpec]) -> Diagnosis:
    """Doctor's diagnosis of the program of the first workload.

    The programs of all workloads are checked, in an environment with the knobs that all contenders
    share. Raises ContenderFailed if one of the programs keeps preloaded allocators out.
    """
    commands = (
        [("/bin/sh",)] if settings.shell else [workload.command for workload in settings.workloads]
    )
    first = {command[0]: command for command in reversed(commands)}
    diagnoses = [
        diagnose(command, {**os.environ, **common_knobs(specs)})
        for command in reversed(first.values())
    ]
    for diagnosis in diagnoses:
        if diagnosis.obstacle is not None:
            raise ContenderFailed(sentence(diagnosis.obstacle))
    return diagnoses[0]


def _refuse_system(specs: Sequence[ContenderSpec], diagnosis: Diagnosis) -> None:
    """Raises ContenderFailed if the system's allocator competes but the program cannot use it.

    A program that is linked with an allocator uses the linked allocator when nothing is preloaded.
    """
    system = next((spec.name for spec in specs if spec.allocator == "system"), None)
    if system is not None and diagnosis.linked is not None:
        check = next(check for check in diagnosis.checks if check.subject == "allocator")
        raise ContenderFailed(f"{system} cannot be a contender here: {sentence(check)}")


def _settled_by_run(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The subjects of the checks whose advice the chosen contenders already follow.

    The user is shown the result of such a check without its advice.
    """
    return (
        ("allocator",)
        if diagnosis.linked is not None
        else ("runtime",)
        if diagnosis.knob is not None
        else ()
    )


def sentence(check: Check) -> str:
    """Returns the text of the check, followed by its next step if it has one, on one line."""
    return f"{check.says}. {check.next_step}" if check.next_step else check.says


def common_knobs(specs: Sequence[ContenderSpec]) -> Mapping[str, str]:
    """The variables that all contenders set to the same value."""
    if not specs:
        return {}
    return dict(set[tuple[str, str]].intersection(*(set(spec.knobs) for spec in specs)))


def with_and_without(specs: Sequence[ContenderSpec], knob: tuple[str, str]) -> list[ContenderSpec]:
    """The contenders for a program such as CPython, which rarely calls malloc by default.

    The environment variable `knob` makes the program call malloc for all its memory. The first
    contender is the system's allocator without this variable. All allocators with the variable
    follow.
    """
    as_it_is = [spec for spec in specs if spec.allocator == "system"]
    return [
        *as_it_is,
        *(replace(spec, name=f"{spec.name} {'='.join(knob)}", knobs=(knob,)) for spec in specs),
    ]


def beside_linked(
    specs: Sequence[ContenderSpec], linked: str, libc: str | None, found: Sequence[Found] = ()
) -> list[ContenderSpec]:
    """The contenders for a program that is linked with an allocator.

    The linked allocator comes first and is the baseline. glibc's malloc competes as a preloaded
    library, because without a preload the program uses the linked allocator. An allocator whose
    only copy in `found` is the linked library does not compete with itself.
    """
    copies: dict[str, set[str]] = {}
    for item in found:
        if item.path is not None and item.problem is None:
            copies.setdefault(item.allocator.name, set()).add(os.path.realpath(item.path))
    linked_alone = {os.path.realpath(linked)}
    others = [
        spec
        for spec in specs
        if spec.allocator != "system" and copies.get(spec.allocator) != linked_alone
    ]
    libraries = [("linked", linked), *([("glibc", libc)] if libc is not None else [])]
    return [
        *(ContenderSpec(name=name, allocator="custom", path=path) for name, path in libraries),
        *others,
    ]


def host_warnings(host: Host) -> tuple[str, ...]:
    """The warnings about the machine that every run shows, as phrases."""
    return quick_warnings(conditions(host, thorough=False))
