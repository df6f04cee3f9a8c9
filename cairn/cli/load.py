"""Checks the options of a server under load."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.errors import UsageError
from cairn.run import server


def check(
    load: str | None,
    ready: str | None,
    prepare: str | None,
    commands: Sequence[Sequence[str]],
    parameters: Sequence[str],
    *,
    why: bool,
    verify: bool,
    wait_descendants: bool,
    repeat: bool,
    idle: bool = False,
) -> None:
    """Raises UsageError if the options do not describe a server under load.

    parameters: the names that -L gives.
    """
    if load is None:
        if idle:
            raise UsageError(
                "--idle is the time for which a server lives on after its load; give the load with "
                "--while"
            )
        if ready is not None:
            raise UsageError("--ready belongs to a server under load; give the load with --while")
        return
    if not load.strip():
        raise UsageError(
            "--while needs the command of a load, such as 'redis-benchmark -q -p {port}'"
        )
    if why:
        raise UsageError(
            "--why explains whole runs of a program, and --while measures a server only while its "
            "load runs; leave out one of the two"
        )
    if verify:
        raise UsageError(
            "--verify compares the output of the program, and a server under load prints times; "
            "leave out --verify"
        )
    if wait_descendants or repeat:
        option = "--wait-descendants" if wait_descendants else "--repeat"
        raise UsageError(
            f"a server ends when its load has ended, and the load decides how long it works; leave "
            f"out {option}"
        )
    if "port" in parameters:
        raise UsageError("with --while, cairn chooses the port; leave out -L port")
    for command in commands:
        if ready is None and not server.uses_port(*command, prepare):
            raise UsageError(
                f"nothing says when {command[0]} is ready; write {{port}} where its port belongs, "
                "or give --ready COMMAND"
            )


def refuse_instructions(load: str | None, what: str = "--instructions") -> None:
    """Raises UsageError or CairnError if instructions cannot be counted.

    what: the option or the bound that needs the counts, as the subject of a sentence.
    """
    from cairn.run.valgrind import need_valgrind

    if load is not None:
        raise UsageError(
            f"{what} needs counts of whole runs of a program, and --while measures a server only "
            "while its load runs; leave out one of the two"
        )
    need_valgrind(what)
