"""Writes to the user: progress and errors to stderr, results to stdout or to a file."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import signal
import stat
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import rich_click as click
from click.core import ParameterSource
from msgspec import Struct
from rich.console import Console

from cairn.errors import CairnError, UsageError, cannot
from cairn.report.formatting import message, wrapped
from cairn.report.view import WIDTH, Form, View
from cairn.run import stop_request
from cairn.run.run_archive import ENDING

NOTHING_YET = "interrupted; nothing was measured yet"
"""The sentence after ctrl-C before the first trial."""
_NARROWEST = 40
"""Reports are at least this wide, even on a terminal that has fewer columns."""


def wants_color(choice: str, stream: Any) -> bool:
    """Returns whether a stream gets colour: --color decides, else NO_COLOR, TERM and isatty()."""
    if choice != "auto":
        return choice == "always"
    return (
        bool(stream.isatty())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


class _Stderr(Console):
    """The console on stderr.

    If the reader of stderr exits, later text is dropped and the command continues.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def stderr(color: str = "auto") -> Console:
    """Returns the console for progress and warnings."""
    wanted = wants_color(color, sys.stderr)
    return _Stderr(
        stderr=True, no_color=not wanted, highlight=False, soft_wrap=True, force_terminal=None
    )


def say(console: Console, head: str, text: str) -> None:
    """Prints `text` on a line that begins with its subject `head`, such as "doctor".

    The text may come from a program, so it is made printable. A very long one is shortened in its
    middle.
    """
    console.print(on_screen(console, f"{head:<8} ", text), markup=False)


def on_screen(console: Console, head: str, text: str) -> str:
    """Returns a message in lines that fit the terminal, so that no name is broken at its edge.

    The lines after the first are indented as far as `head`. If the output is no terminal but a log,
    the message is one line.
    """
    text = message(text)
    if not console.is_terminal:
        return head + text
    lines = wrapped(text, max(_NARROWEST, console.width) - len(head))
    return head + f"\n{' ' * len(head)}".join(lines)


def was_given(name: str) -> bool:
    """Returns whether the user gave this parameter on the command line."""
    context = click.get_current_context()
    assert context is not None
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def given(beside: Collection[str]) -> Iterator[str]:
    """Yields the command line's parameters except those in `beside`, as the user spells them."""
    context = click.get_current_context()
    assert context is not None
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params.get(name)
        if name in beside or not was_given(name) or value in ((), None):
            continue
        if not isinstance(parameter, click.Option):
            yield "the command"
        elif name != "form" or parameter.flag_value == value:
            yield parameter.opts[0]


class Output(Struct, frozen=True):
    """The form and the destination of a command's result."""

    view: View
    out: Path | None = None
    """The file to write; None is standard output."""
    force: bool = False
    """Whether an existing file is replaced."""
    packs: bool = False
    """Whether to write the whole run as a run file, instead of a report."""

    def write(self, content: str | bytes) -> None:
        """Writes the result to standard output or to the file. Fails as `emit` does."""
        emit(content, self.out, self.force)


FORMS: dict[str, Form] = {
    ".html": "html", ".json": "json", ".csv": "csv", ".md": "md", ".tex": "tex", ".svg": "svg",
    ".txt": "text", "": "text",
}  # fmt: skip
"""The form of a result, by the ending of its file."""
_OPTIONS = {".json": "--json", ".csv": "--csv", ".md": "--md", ".tex": "--latex"}

TABLE = (".json", ".csv", ".md", ".txt")
"""The endings that choose the form of a table."""
DOCUMENT = (".json", ".md", ".txt")
PAGE = (".html", *TABLE, ENDING)
PICTURE = (".html", *TABLE, ".svg", ENDING)


def ending_of(out: Path | None, form: Form | None, endings: Sequence[str]) -> str:
    """Returns the ending of the file if it decides the form of a result, else "".

    It is one of `endings`. If an option gives the form, the ending decides nothing.

    Raises UsageError for an ending that the command does not have, and for one that contradicts the
    option. Any form is a text, so .txt contradicts none.
    """
    if out is None:
        return ""
    ending = ENDING if out.name.endswith(ENDING) else out.suffix
    if form is None:
        if ending and ending not in endings:
            options = [_OPTIONS[one] for one in endings if one in _OPTIONS]
            raise UsageError(
                f"the ending of {out} chooses no form; use {_either(endings)}, or give "
                f"{_either(options)}"
            )
        return ending
    wanted = next(one for one, chosen in FORMS.items() if chosen == form)
    if ending in (*FORMS, ".png", ENDING) and ending not in (wanted, ".txt", ""):
        raise UsageError(f"{out} does not end in {wanted}, as {_OPTIONS[wanted]} asks for")
    return ""


def _either(words: Sequence[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def output_of(
    form: Form | None,
    full: bool,
    color: str,
    out: Path | None,
    force: bool,
    *,
    endings: Sequence[str] = TABLE,
) -> Output:
    """Returns how and where to write the result.

    Without a form option, the file's ending chooses the form. It is one of `endings`.

    Raises UsageError or CairnError if the file cannot be written. Call it before measuring, so that
    the user sees this error at once.
    """
    ending = ending_of(out, form, endings)
    packs = ending == ENDING
    form = form or ("text" if packs else FORMS[ending])
    return Output(view_of(form, full, color, out, force), out, force, packs)


def view_of(form: Form, full: bool, color: str, out: Path | None, force: bool) -> View:
    """Returns how to show the result. Raises as `check_out` does."""
    check_out(out, force)
    colored = wants_color(color, sys.stdout) and (out is None or color == "always")
    width = WIDTH if out is not None else width_of(sys.stdout)
    return View(form, full, colored, width)


def width_of(stream: Any) -> int:
    """Returns the width of a text in columns: that of the terminal, else $COLUMNS, else WIDTH."""
    if stream.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)
    return WIDTH


def check_out(out: Path | None, force: bool) -> None:
    """Raises UsageError or CairnError if the file cannot be written. Call it before measuring."""
    if out is None or is_stream(out):
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder; an output is a file")
    if os.path.lexists(out) and not force:
        raise CairnError(f"{out} exists; --force replaces it")
    if not out.parent.is_dir():
        raise CairnError(f"cannot write {out}: there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise CairnError(f"cannot write {out}: no permission to write in {out.parent}")


def refuse_one_file(*outs: Path | None) -> None:
    """Raises UsageError if two outputs have one file. None is standard output."""
    seen = set()
    for one in outs:
        if one is None or is_stream(one):
            continue
        if (file := os.path.realpath(one)) in seen:
            raise UsageError(f"two outputs would be written to {one}; give each a file")
        seen.add(file)


def is_stream(out: Path) -> bool:
    """Returns whether `out` is a device, a pipe or a descriptor, such as /dev/stdout.

    Such an output is written directly: a new file must not replace it.
    """
    try:
        mode = out.stat().st_mode
    except OSError:
        return False
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
        return False
    descriptors = ("/dev/fd/", "/dev/std", "/proc/")
    return not stat.S_ISREG(mode) or str(out.absolute()).startswith(descriptors)


def emit(content: str | bytes, out: Path | None, force: bool) -> None:
    """Writes a result to standard output or to the file `out`.

    A file is written completely or not at all, by a rename. It keeps the permissions of the file
    that it replaces. A new file has all permissions that the umask allows. If `out` is a link, the
    link itself is replaced. A device, a pipe or a descriptor is written directly.

    Raises UsageError or CairnError if the file cannot be written.
    """
    if out is None:
        # The content has colour codes only if colour is wanted.
        click.echo(content, nl=False, color=True)
        return
    check_out(out, force)
    encoded = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if is_stream(out):
        try:
            descriptor = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(encoded)
        except OSError as error:
            raise cannot("write", out, error) from error
        return
    draft = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    mode = _mode(out)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        # The kernel applies the umask to the mode of a new file.
        descriptor = os.open(draft, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(encoded)
            if mode is not None:
                os.fchmod(descriptor, mode)
        draft.replace(out)
    except BaseException as error:
        # After ctrl-C, too, no draft is left behind.
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise cannot("write", out, error) from error
        raise


def _mode(out: Path) -> int | None:
    """Returns the permissions of the file that is replaced; None if there is no regular file."""
    try:
        status = out.lstat()
    except OSError:
        return None
    return status.st_mode & 0o777 if stat.S_ISREG(status.st_mode) else None


def fail(error: BaseException, code: int) -> NoReturn:
    """Prints the error as one sentence, or as the lines that it has, and exits with `code`."""
    console = stderr()
    for place, line in enumerate(getattr(error, "lines", (str(error),))):
        sign = "  " if place else "✘ "
        console.print(on_screen(console, sign, line), markup=False, style="red")
    sys.exit(code)


_PRINTING = frozenset({"click", "rich", "rich_click"})
"""The packages that print for Cairn. `cairn.cli` itself flushes standard output at the end."""


def refused(error: OSError) -> CairnError:
    """Returns the sentence on an error of the system that no other code expected."""
    if error.filename is not None:
        return cannot("use", os.fsdecode(error.filename), error)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    if module == "cairn.cli" or module.partition(".")[0] in _PRINTING:
        if error.errno == errno.EBADF:
            return CairnError("cannot write standard output: it is closed")
        return cannot("write", "standard output", error)
    return CairnError(f"the system refused: {error.strerror or error}")


def end_like_ctrl_c() -> None:
    """From now on, SIGTERM and SIGHUP act like ctrl-C, so that finished trials are kept.

    A signal that is ignored stays ignored: under nohup, SIGHUP still has no effect.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop_request.on_signal)
