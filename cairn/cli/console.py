"""How the command speaks: to the user on stderr, with results on stdout or into a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import rich_click as click
from click.core import ParameterSource
from rich.console import Console

from cairn.errors import CairnError, UsageError
from cairn.report.view import WIDTH, Form, View
from cairn.report.words import printable
from cairn.run.run_file import ENDING
from cairn.run.stored_run import cannot

_NARROWEST = 40
"""A terminal that claims fewer columns is taken to have these."""


def wants_color(choice: str, stream: Any) -> bool:
    """Whether a stream gets colour, by --color, NO_COLOR and what it is."""
    if choice != "auto":
        return choice == "always"
    return (
        bool(stream.isatty())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


class _Stderr(Console):
    """Who reads it may go away; the work goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def stderr(color: str = "auto") -> Console:
    """Where progress and warnings go."""
    wanted = wants_color(color, sys.stderr)
    return _Stderr(
        stderr=True, no_color=not wanted, highlight=False, soft_wrap=True, force_terminal=None
    )


def say(console: Console, head: str, text: str) -> None:
    """A line with its subject in front; the text may come from anywhere."""
    console.print(f"{head:<8} {printable(text)}", markup=False)


def was_given(name: str) -> bool:
    """Whether the command line has this parameter of the command that runs."""
    context = click.get_current_context()
    assert context is not None
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def given(beside: Collection[str]) -> Iterator[str]:
    """What the command line has but for these parameters, as the user wrote it or would."""
    context = click.get_current_context()
    assert context is not None
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in beside and was_given(name) and context.params.get(name) not in ((), None):
            forms = "--json, --csv or --md" if name == "form" else ""
            yield forms or (
                parameter.opts[0] if isinstance(parameter, click.Option) else "a command"
            )


@dataclass(frozen=True, slots=True)
class Output:
    """How a command's result is shown, and where to."""

    view: View
    out: Path | None = None
    """A file; None is standard output."""
    force: bool = False
    """Whether a file that exists is replaced."""
    packs: bool = False
    """The whole run as a run file, instead of a report."""

    def write(self, content: str | bytes) -> None:
        """The result goes to standard output, or to the file as a whole."""
        emit(content, self.out, self.force)


_ENDINGS: dict[str, Form] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".txt": "text",
    "": "text",
}


def output_of(form: Form | None, full: bool, color: str, out: Path | None, force: bool) -> Output:
    """The result as the options ask for it: in a file, its ending chooses the form if no option does.

    Raises UsageError or CairnError if the file cannot be written: now, and not after minutes of measuring.
    """
    packs = form is None and out is not None and out.name.endswith(ENDING)
    if form is None and out is not None and not packs:
        if out.suffix not in _ENDINGS:
            raise UsageError(
                f"the ending of {out} names no form; end it with .json, .csv, .md, .txt or .tar.xz, "
                "or give --json, --csv or --md"
            )
        form = _ENDINGS[out.suffix]
    check_out(out, force)
    colored = wants_color(color, sys.stdout) and (out is None or color == "always")
    width = WIDTH if out is not None else width_of(sys.stdout)
    return Output(View(form or "text", full, colored, width), out, force, packs)


def width_of(stream: Any) -> int:
    """Columns for a text: those of the terminal, or of $COLUMNS, else a fixed number."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)
    return WIDTH


def check_out(out: Path | None, force: bool) -> None:
    """Says now what would fail after minutes of measuring."""
    if out is None:
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder; -o names a file")
    if os.path.lexists(out) and not force:
        raise CairnError(f"{out} exists; --force replaces it")
    if not out.parent.is_dir():
        raise CairnError(f"cannot write {out}: there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise CairnError(f"cannot write {out}: no permission to write in {out.parent}")


def emit(content: str | bytes, out: Path | None, force: bool) -> None:
    """Writes a result to standard output, or to a file as a whole: never half of it, never through a link."""
    if out is None:
        click.echo(content, nl=False, color=True)  # it has colour only where that is wanted
        return
    check_out(out, force)
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        draft.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise cannot("write", out, error) from error


def fail(error: BaseException, code: int) -> NoReturn:
    """One sentence, and out."""
    stderr().print(f"✘ {printable(str(error))}", markup=False, style="red")
    sys.exit(code)


def end_like_ctrl_c() -> None:
    """From now on, being ended keeps what there is; under nohup a hangup goes on meaning nothing."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def interrupt(number: int, _: object) -> NoReturn:
    """A signal handler: being ended is like ctrl-C."""
    raise KeyboardInterrupt(number)
