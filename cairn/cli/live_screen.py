"""cairn profile --live: a screen on the terminal while the program runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cairn.cli.console import say, stderr, wants_color
from cairn.errors import CairnError, UsageError
from cairn.report import live_screen
from cairn.report.live_screen import Seen

_EACH_S = 1.0
_TAIL_BYTES = 4096


def check() -> None:
    """Raises UsageError if there is no terminal to draw on."""
    if not sys.stderr.isatty():
        raise UsageError(
            "--live draws on the terminal, but standard error is not a terminal; leave out --live, "
            "or do not redirect standard error"
        )
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        raise UsageError(
            "--live needs a terminal that can move its cursor, and TERM says that this one cannot"
        )


def drawing(color: str) -> Live:
    """Returns a display that takes the whole terminal. It redraws only when it is updated."""
    # rich would take the size from these variables, and not see that it changes.
    sizes = ("COLUMNS", "LINES")
    console = Console(
        file=sys.stderr,
        force_terminal=True,
        no_color=not wants_color(color, sys.stderr),
        highlight=False,
        _environ={key: text for key, text in os.environ.items() if key not in sizes},
    )
    return Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip


def draw(live: Live, lines: Sequence[str]) -> None:
    """Draws the lines. The first one is the title."""
    text = Text("\n".join(lines), no_wrap=True, overflow="crop")
    text.stylize("bold", 0, len(lines[0]))
    live.update(text, refresh=True)


class LiveScreen:
    """Context manager around the run of a program: shows the counts of its probe each second.

    A thread of its own reads and draws. The program's output for the terminal waits in a file. It
    is written to the terminal when the screen ends.
    """

    def __init__(
        self, read: Callable[[Callable[[], bool]], Seen], title: str, folder: Path, color: str
    ) -> None:
        """Prepares the screen.

        read: returns the counts so far. Its argument returns whether the screen has ended, so that
            the counts are not needed any more.
        folder: a private folder for the program's output.
        """
        self._read, self._title = read, title
        self._file = folder / "output"
        self.output = os.open(
            self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        """The descriptor of the file for the program's output."""
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._live = drawing(color)
        self._thread = threading.Thread(target=self._follow, name="live screen", daemon=True)

    def __enter__(self) -> LiveScreen:
        self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._live.stop()
        os.close(self.output)
        self._write_output()
        if self._failure is not None:
            say(stderr(), "note", f"the live screen ended early: {self._failure}")

    def _follow(self) -> None:
        try:
            self._refresh()
        except Exception as error:
            # The program goes on, and its report does not need the screen.
            self._failure = error

    def _refresh(self) -> None:
        before: Seen | None = None
        now = Seen(time.monotonic_ns(), None)
        self._draw(None, now)
        took = 0.0
        # Reading takes at most half of a processor, even with many processes.
        while not self._over.wait(max(_EACH_S - took, took)):
            began = time.monotonic()
            with contextlib.suppress(CairnError):
                # A file may be incomplete for a moment. The screen then keeps its numbers.
                before, now = now, self._read(self._over.is_set)
            if self._over.is_set():
                return
            self._draw(before, now)
            took = time.monotonic() - began

    def _draw(self, before: Seen | None, now: Seen) -> None:
        width, height = self._live.console.size
        found = live_screen.lines(self._title, before, now, self._last_line(), width, height)
        draw(self._live, found)

    def _last_line(self) -> str:
        size = os.fstat(self.output).st_size
        text = os.pread(self.output, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return text.decode("utf-8", "replace").rstrip().rpartition("\n")[2]

    def _write_output(self) -> None:
        """Writes the program's output, which waits in the file, to the terminal."""
        stream = sys.stdout if os.isatty(1) else sys.stderr
        stream.flush()
        with self._file.open("rb") as file, contextlib.suppress(OSError):
            shutil.copyfileobj(file, stream.buffer)
            stream.flush()
