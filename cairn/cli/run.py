"""cairn run: runs a program with an allocator and proves that it is loaded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

from cairn import units
from cairn.allocators import discover
from cairn.allocators.contenders import parse_contender, resolve, split_contenders
from cairn.binary.program import Program, inspect_program, refuse_program, refuse_wrapper
from cairn.cli.console import fail, refused, say, stderr
from cairn.cli.root_command import cli
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
"""Exit codes of `cairn run` for its own failures. env(1) has the same codes, and programs seldom
use them."""


ALLOCATOR = click.option(
    "-a",
    "--allocator",
    "spec",
    default="system",
    show_default=True,
    metavar="SPEC",
    help="The allocator: a name from 'cairn allocators' or a path, and after ':' environment "
    "variables as KEY=VALUE;….",
)


@cli.command(context_settings={"allow_interspersed_args": False})
@ALLOCATOR
@click.option(
    "--hardened",
    is_flag=True,
    help="The same as -a cairn-hardened: the program ends with one line at a misuse of memory.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def run(command: tuple[str, ...], spec: str, hardened: bool) -> None:
    """Run a program with an allocator, and prove that it is loaded.

    The program gets the terminal, standard input and signals. Start servers in the foreground:
    processes that the program leaves in the background are killed when it ends.

    Exit codes: the program's own; 2 usage, and the program did not start; 125 cairn failed; 126 the
    program cannot be executed, or the allocator cannot be preloaded or is not proved to be loaded;
    127 the program is not found; 128 + n signal n killed the program.
    """
    if not command:
        raise UsageError("which program? For example: cairn run -a jemalloc -- ls -R /usr/share")
    if hardened and spec != "system":
        raise UsageError("--hardened chooses the allocator itself; leave out -a or --hardened")
    from cairn.run import foreground

    with failing_as_env():
        ended = foreground.run(
            contender_for("cairn-hardened" if hardened else spec, command), command
        )
    end(ended)


@contextlib.contextmanager
def failing_as_env() -> Iterator[None]:
    """Ends the command with the exit codes of env(1) if the body raises an error.

    Usage errors pass through.
    """
    try:
        yield
    except ProgramMissing as error:
        fail(error, EXIT_NOT_FOUND)
    except (ProgramNotExecutable, ContenderFailed) as error:
        fail(error, EXIT_CANNOT_PRELOAD)
    except (UsageError, BrokenPipeError):
        raise
    except CairnError as error:
        fail(error, EXIT_CANNOT_RUN)
    except OSError as error:
        fail(refused(error), EXIT_CANNOT_RUN)


def contender_for(spec: str, command: Sequence[str]) -> Contender:
    """Returns the allocator that -a names for this program.

    Raises CairnError if it cannot be preloaded, and UsageError for a list.
    """
    if len(split_contenders(spec)) > 1:
        raise UsageError(
            f"-a {spec} names several allocators, and this command runs the program once; "
            "'cairn compare' compares them"
        )
    parsed = parse_contender(spec)
    return resolve(parsed, discover.discover(names=[parsed.allocator]), _program(command))


def end(ended: Ended) -> NoReturn:
    """Exits with the program's exit code, or with an error if the allocator was not proved."""
    if ended.left_behind:
        say(
            stderr(),
            "run",
            f"{units.counted(ended.left_behind, 'background process', 'background processes')} "
            f"outlived the program and {'was' if ended.left_behind == 1 else 'were'} killed",
        )
    if ended.crashes is not None and ended.exit_code < EXIT_SIGNAL:
        say(stderr(), "run", ended.crashes)
    if ended.problem is not None:
        fail(ContenderFailed(ended.problem), ended.exit_code or EXIT_CANNOT_PRELOAD)
    sys.exit(ended.exit_code)


def _program(command: Sequence[str]) -> Program:
    """Returns the program of the command.

    Raises CairnError if no allocator can be preloaded into it.
    """
    refuse_wrapper(command)
    program = inspect_program(command[0])
    refuse_program(program)
    return program
