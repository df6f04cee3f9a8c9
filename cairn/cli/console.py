"""How the command speaks: to the user on stderr, with results on stdout or into a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import rich_click as click
from click.core import ParameterSource
from rich.console import Console

from cairn.errors import CairnError, UsageError
from cairn.report.words import printable
from cairn.run import store


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


def form_of(form: str | None, out: Path | None) -> str:
    """The form of a report: as asked for, or by the ending of -o; else "text"."""
    if form is not None or out is None:
        return form or "text"
    endings = {".json": "json", ".csv": "csv", ".md": "md", ".txt": "text", "": "text"}
    if out.suffix not in endings:
        raise UsageError(
            f"{out} could be anything; end it with .json, .csv, .md or .txt, or say --json, --csv or --md"
        )
    return endings[out.suffix]


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


def emit(text: str, out: Path | None, force: bool) -> None:
    """Writes a report to stdout, or to a file as a whole: never half, never through a link."""
    if out is None:
        click.echo(text, nl=False, color=True)  # the text has colour only where it is wanted
        return
    check_out(out, force)
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise store.cannot("write", out, error) from error


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
