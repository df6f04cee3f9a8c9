"""The command: what the user types in, what is printed, which exit code comes out. Nothing else prints or exits.

`group` is the command itself, the modules beside hold what it can do, and `console` how it speaks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

import rich_click as click

from cairn.cli import (
    allocators,
    bench,
    calibrate,
    clean,
    compare,
    completion,
    doctor,
    explain,
    profile,
    report,
    run,
    sites,
)
from cairn.cli.console import fail
from cairn.cli.group import cli
from cairn.errors import CairnError, Interrupted, UsageError

__all__ = [
    "allocators",
    "bench",
    "calibrate",
    "clean",
    "cli",
    "compare",
    "completion",
    "doctor",
    "explain",
    "main",
    "profile",
    "report",
    "run",
    "sites",
]


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Every failure becomes one sentence and its exit code."""
    try:
        yield
    except CairnError as error:
        fail(error, error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        fail(Interrupted("interrupted"), Interrupted.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except UnicodeEncodeError:
        fail(
            UsageError("an argument is not valid UTF-8; give the file another name"),
            UsageError.exit_code,
        )
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # a full disk under stdout: what is buffered goes nowhere, and must not be tried again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        name = f" {error.filename}" if error.filename else ""
        fail(
            CairnError(f"the system refused{name}: {error.strerror or error}"), CairnError.exit_code
        )


def main() -> None:
    """The entry point of the command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for as long as we run
        getattr(sys, name).reconfigure(errors="backslashreplace")  # a locale that has no ▸
    with _sentences():
        code = cli.main(prog_name="cairn", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
