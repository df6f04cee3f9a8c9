"""The command `cairn`: reads the arguments, prints the results, sets the exit code.

No other package prints or exits.

`root_command` holds the command itself. Each subcommand has a module of its own. `console`
writes to the terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

import rich_click as click
from click.exceptions import NoArgsIsHelpError

from cairn.cli import usage_errors
from cairn.cli.console import NOTHING_YET, fail, refused
from cairn.cli.root_command import cli
from cairn.errors import CairnError, Interrupted, UsageError
from cairn.run import stop_request

__all__ = ["cli", "main"]

_MEASURING = {"compare", "bench", "calibrate", "check", "judge", "matrix", "soak"}
"""The commands that measure a run."""


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Turns each exception into one sentence on stderr and the exit code that belongs to it."""
    try:
        yield
    except CairnError as error:
        fail(error, error.exit_code)
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        text = usage_errors.sentence(error, cli, sys.argv[1:])
        fail(CairnError(text), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _end_by_signals()
        # No run has begun yet. `measurement.conduct` handles later interrupts, and names the
        # command that continues the run.
        begins = set(sys.argv[1:2]) & _MEASURING and "--resume" not in sys.argv
        fail(Interrupted(NOTHING_YET if begins else "interrupted"), Interrupted.exit_code)
    except BrokenPipeError:
        _end_without_reader()
    except SystemExit as end:
        # click turns a BrokenPipeError into the exit code 1, which would mean that cairn failed.
        if isinstance(end.__context__, BrokenPipeError):
            _end_without_reader()
        raise
    except UnicodeEncodeError:
        fail(
            UsageError("an argument is not valid UTF-8; give the file another name"),
            UsageError.exit_code,
        )
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            # The disk under stdout is full. Python would flush the buffer again at exit and fail
            # again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fail(refused(error), CairnError.exit_code)


def _end_without_reader() -> NoReturn:
    """Ends with the exit code that a shell shows for a program that SIGPIPE ended.

    The caller has found that the reader of standard output has closed it.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def _end_by_signals() -> None:
    """Lets SIGINT, SIGTERM and SIGHUP end the process at once, without a Python exception."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Runs the command and exits with its code."""
    # If the caller closed standard output, a result that goes there is an error (EBADF), because it
    # would be lost. Messages may be lost.
    for name, how in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, how), "w", encoding="utf-8")
            setattr(sys, name, stream)
        # The locale's encoding may lack signs such as ▸.
        getattr(sys, name).reconfigure(errors="backslashreplace")
    with _sentences():
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, stop_request.on_signal)
        sys.unraisablehook = stop_request.on_discarded
        code = cli.main(prog_name="cairn", standalone_mode=False)
        sys.stdout.flush()
        _end_by_signals()
        sys.exit(code if isinstance(code, int) else 0)
