"""Makes the contenders of a run that compares several programs: programs × allocators.

The words of a program take the place of the first word of the command. So the programs run with the
same arguments. The first program under the first allocator is the baseline.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators.contenders import parse_contender, split_contenders
from cairn.doctor.program_checks import diagnose
from cairn.errors import UsageError
from cairn.model import Contender, Settings, Workload
from cairn.run import preflight

_NAMED = re.compile(r"([A-Za-z0-9_][\w.+-]{0,39})=(.*)", re.DOTALL)


class NamedProgram(Struct, frozen=True):
    """An argument of -p: a program with a name."""

    name: str
    words: tuple[str, ...]
    """The program and the arguments that belong to it alone."""


def parse_program(text: str) -> NamedProgram:
    """Parses [NAME=]COMMAND; without NAME, the program's file name is its name.

    Raises ValueError, whose text says what is wrong.
    """
    match = _NAMED.fullmatch(text)
    name, line = (match[1], match[2]) if match else ("", text)
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be read: {error}; quote it as for a shell") from None
    if not words or not words[0]:
        raise ValueError(f"{text!r} names no program; write for example new=./build/prog")
    name = name or os.path.basename(words[0])
    if not name or not name.isprintable():
        raise ValueError(f"{text!r} is a folder; write for example new=./build/prog")
    return NamedProgram(name, words)


def refuse(programs: Sequence[NamedProgram], folder: str) -> None:
    """Raises UsageError if a program is missing, or if two have one name."""
    names = [one.name for one in programs]
    for one in programs:
        if names.count(one.name) > 1:
            raise UsageError(
                f"-p has two programs with the name {one.name}; give each its own name, as in "
                "-p old=./a -p new=./b"
            )
        word = one.words[0]
        path = os.path.join(folder, word) if "/" in word else shutil.which(word)
        if path is None or not os.path.exists(path):
            raise UsageError(f"the program {one.name} is missing: there is no file {word}")
        if os.path.isdir(path) or not os.access(path, os.X_OK):
            raise UsageError(f"the program {one.name} cannot be executed: {word}")


def workload_of(program: NamedProgram, workload: Workload) -> Workload:
    """Returns the workload as this program runs it."""
    return replace(workload, command=(*program.words, *workload.command[1:]))


def named(programs: Sequence[NamedProgram], workload: Workload) -> Workload:
    """Returns the workload with a name that shows all programs, as in "-p a -p b -- ARGS"."""
    told = " ".join(f"-p {shlex.quote(f'{one.name}={shlex.join(one.words)}')}" for one in programs)
    rest = shlex.join(workload.command[1:])
    load = f" while {workload.load}" if workload.load else ""
    return replace(workload, name=f"{told}{f' -- {rest}' if rest else ''}{load}")


def prepare(
    specs: Sequence[str],
    settings: Settings,
    programs: Sequence[NamedProgram],
    say: Callable[[str], None],
) -> preflight.Preflight:
    """Chooses the contenders, as `preflight.prepare` does for each program.

    specs: the user's arguments of -a; () runs each program with the allocator that it has.

    A contender is named after its program and its allocator, as in "new/cairn". A program with only
    one allocator gives its contender its own name, as in "new".
    """
    contenders: list[Contender] = []
    notes: list[str] = []
    for program in programs:
        own = replace(
            settings, workloads=tuple(workload_of(program, one) for one in settings.workloads)
        )
        allocators = specs or (allocator_of(own),)
        first = parse_contender(split_contenders(allocators[0])[0]).name
        ready = preflight.prepare(allocators, own, first, say)
        for one in ready.contenders:
            alone = len(ready.contenders) == 1
            name = program.name if alone else f"{program.name}/{one.name}"
            contenders.append(replace(one, name=name, program=program.words))
        # Without -a, no allocator is chosen, and advice on allocators would only distract.
        notes += [note for note in ready.notes if specs and note not in notes]
    return preflight.Preflight(
        contenders=tuple(contenders), baseline=contenders[0].name, notes=tuple(notes), program=""
    )


def allocator_of(settings: Settings) -> str:
    """Returns the spec of the allocator that the program has by itself.

    With --shell, that is the allocator of the shell.
    """
    command = ("/bin/sh",) if settings.shell else settings.workloads[0].command
    linked = diagnose(command, os.environ).linked
    return "system" if linked is None else f"linked={linked}"
