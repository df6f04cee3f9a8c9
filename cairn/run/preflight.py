"""Before the first trial: what doctor says of the program, and who competes in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
"""How a note begins that is doctor's: on the terminal these come first, in reports they are notes like others."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is known before anything runs."""

    contenders: tuple[Contender, ...]
    baseline: str
    """The name of the contender that the others are compared with."""
    notes: tuple[str, ...]
    program: str
    """The program in one line, when nothing is to be said against it; else empty."""


def prepare(
    specs: Sequence[str], settings: Settings, baseline: str | None, say: Callable[[str], None]
) -> Preflight:
    """The contenders that the user named, or those that make sense in this program.

    A program that carries an allocator runs once, which `say` is told before: only a run shows whether it uses that.
    Raises ContenderFailed when no preloaded allocator can work in it, or one of them cannot be had.
    """
    found = discover.discover()
    notes: list[str] = []
    if specs:
        parsed = [parse_contender(part) for spec in specs for part in split_contenders(spec)]
        if baseline is None and len(parsed) == 1:
            baseline = "system"
        chosen = _baseline(parsed, baseline)
        diagnosis = _diagnosed(settings, parsed)
    else:
        here = default_contenders(found)
        diagnosis = _diagnosed(settings, ())
        parsed = list(here)
        if diagnosis.linked is not None:
            parsed = beside_linked(here, diagnosis.linked, diagnosis.libc)
        elif diagnosis.knob is not None:
            parsed = with_and_without(here, diagnosis.knob)
            inside = ", ".join(spec.name for spec in here)
            notes.append(f"{MARK}contenders: system · {'='.join(diagnosis.knob)} × {{{inside}}}")
        notes += _few(here, found)
        chosen = _baseline(parsed, baseline)
    refuse_duplicates(parsed)
    _refuse_system(parsed, diagnosis)
    contenders = tuple(resolve(spec, found, diagnosis.program) for spec in parsed)
    if os.environ.get("LD_PRELOAD"):
        notes.append("LD_PRELOAD of the environment is kept, behind the allocator under test")
    if diagnosis.carries is not None and not settings.instructions:
        from cairn.run import reached

        say(
            f"runs {diagnosis.carries.name} once behind the probe: it carries {diagnosis.carries.inside.allocator}"
        )
        seen = reached.look(settings, next(one for one in contenders if one.name == chosen))
        diagnosis = with_a_run(diagnosis, seen) if seen is not None else diagnosis
    followed = () if specs else _followed(diagnosis)
    warnings = [
        MARK + (check.says if check.subject in followed else sentence(check))
        for check in diagnosis.warnings
    ]
    fine = "" if warnings else " · ".join(check.says for check in diagnosis.checks)
    return Preflight(
        contenders=contenders, baseline=chosen, notes=(*warnings, *notes), program=fine
    )


def _few(here: Sequence[ContenderSpec], found: Sequence[Found]) -> list[str]:
    """Why there are fewer contenders than one would expect, and what brings more."""
    notes = list(left_out(found))
    along = {entry.name for entry in discover.known_catalog().allocators if entry.comes_along}
    if all(spec.allocator in along for spec in here):
        own = (
            "the system's allocator is"
            if len(here) == 1
            else "the system's allocator and cairn's own are"
        )
        notes.append(f"only {own} here; 'cairn allocators get jemalloc mimalloc' brings others")
    return notes


def named(specs: Sequence[str]) -> tuple[str, ...]:
    """The names of the contenders that a run of these would have; raises what that run would, before any program."""
    found = discover.discover()
    parsed = [parse_contender(part) for spec in specs for part in split_contenders(spec)]
    _baseline(parsed, "system" if len(parsed) == 1 else None)
    refuse_duplicates(parsed)
    return tuple(resolve(spec, found).name for spec in parsed)


def _baseline(parsed: list[ContenderSpec], wanted: str | None) -> str:
    """The baseline's name; one that does not compete yet is added. Without a wish: the system's, else the first."""
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
    """What doctor says of the programs, as all these contenders start them; of several, the first speaks for all."""
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
    """Without a preload, the program's malloc is that of the library it is linked with, which is not the system's."""
    system = next((spec.name for spec in specs if spec.allocator == "system"), None)
    if system is not None and diagnosis.linked is not None:
        check = next(check for check in diagnosis.checks if check.subject == "allocator")
        raise ContenderFailed(f"{system} cannot be a contender here: {sentence(check)}")


def _followed(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Subjects of the checks whose next step this very run takes, so that it need not be told."""
    return (
        ("allocator",)
        if diagnosis.linked is not None
        else ("runtime",)
        if diagnosis.knob is not None
        else ()
    )


def sentence(check: Check) -> str:
    """A check on one line, with its next step."""
    return f"{check.says}. {check.next_step}" if check.next_step else check.says


def common_knobs(specs: Sequence[ContenderSpec]) -> Mapping[str, str]:
    """What every contender sets alike, and the program will therefore see in any case."""
    if not specs:
        return {}
    return dict(set[tuple[str, str]].intersection(*(set(spec.knobs) for spec in specs)))


def with_and_without(specs: Sequence[ContenderSpec], knob: tuple[str, str]) -> list[ContenderSpec]:
    """The program as it is, then every allocator under the knob without which it would hardly be called."""
    as_it_is = [spec for spec in specs if spec.allocator == "system"]
    return [
        *as_it_is,
        *(replace(spec, name=f"{spec.name} {'='.join(knob)}", knobs=(knob,)) for spec in specs),
    ]


def beside_linked(
    specs: Sequence[ContenderSpec], linked: str, libc: str | None
) -> list[ContenderSpec]:
    """The allocator that the program is linked with comes first and is the baseline; glibc's must be preloaded."""
    others = [spec for spec in specs if spec.allocator != "system"]
    libraries = [("linked", linked), *([("glibc", libc)] if libc is not None else [])]
    return [
        *(ContenderSpec(name=name, allocator="custom", path=path) for name, path in libraries),
        *others,
    ]


def host_warnings(host: Host) -> tuple[str, ...]:
    """What about the machine cannot wait for 'cairn doctor', each a phrase."""
    return quick_warnings(conditions(host, thorough=False))
