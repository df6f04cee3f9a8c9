"""cairn run: a program with an allocator, for its user."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

from cairn.allocators import discover
from cairn.allocators.contenders import parse_contender, resolve
from cairn.binary.program import Program, inspect_program, refuse_program, refuse_wrapper
from cairn.cli.console import fail, say, stderr
from cairn.cli.group import cli
from cairn.errors import (
    CairnError,
    ContenderFailed,
    ProgramMissing,
    ProgramNotExecutable,
    UsageError,
)
from cairn.model import Contender

if TYPE_CHECKING:
    from cairn.run.foreground import Ended

EXIT_CANNOT_RUN, EXIT_CANNOT_PRELOAD, EXIT_NOT_FOUND, EXIT_SIGNAL = 125, 126, 127, 128
"""`cairn run` fails as env(1) does, so that the program's own exit codes keep their meaning."""


ALLOCATOR = click.option(
    "-a",
    "--allocator",
    "spec",
    default="system",
    show_default=True,
    metavar="[NAME=]LIB[@VERSION][:KEY=VAL;…]",
    help="The allocator: a name from 'cairn allocators' or a path, with environment knobs behind ':'.",
)


@cli.command(context_settings={"allow_interspersed_args": False})
@ALLOCATOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def run(command: tuple[str, ...], spec: str) -> None:
    """Run a program with an allocator, and prove that it is loaded.

    Terminal, standard input and signals are the program's. Its exit code is returned; as with env(1), 125 is our own
    failure, 126 "cannot be preloaded or not proved", 127 "not found", and 128 + n "killed by signal n".

    What the program leaves in the background is ended with it: start servers in the foreground.
    """
    if not command:
        raise UsageError("which program? For example: cairn run -a jemalloc -- ls -R /usr/share")
    from cairn.run import foreground

    with failing_as_env():
        ended = foreground.run(contender_for(spec, command), command)
    end(ended)


@contextlib.contextmanager
def failing_as_env() -> Iterator[None]:
    """Ends the command with the exit codes of env(1); what is wrong with the command line stays a usage error."""
    try:
        yield
    except ProgramMissing as error:
        fail(error, EXIT_NOT_FOUND)
    except (ProgramNotExecutable, ContenderFailed) as error:
        fail(error, EXIT_CANNOT_PRELOAD)
    except (UsageError, BrokenPipeError):
        raise
    except (CairnError, OSError) as error:
        fail(error, EXIT_CANNOT_RUN)


def contender_for(spec: str, command: Sequence[str]) -> Contender:
    """What -a means for this program."""
    return resolve(parse_contender(spec), discover.discover(), _program(command))


def end(ended: Ended) -> NoReturn:
    """Exits as the program did, unless its allocator was not proved."""
    if ended.left_behind:
        say(
            stderr(),
            "run",
            f"{ended.left_behind} processes were still alive and were ended with the command",
        )
    if ended.problem is not None:
        fail(ContenderFailed(ended.problem), ended.exit_code or EXIT_CANNOT_PRELOAD)
    sys.exit(ended.exit_code)


def _program(command: Sequence[str]) -> Program:
    """What the command is; refused when no allocator can be preloaded into it."""
    refuse_wrapper(command)
    program = inspect_program(command[0])
    refuse_program(program)
    return program
