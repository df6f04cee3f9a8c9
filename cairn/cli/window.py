"""Begins and ends the counting of a profile: by time, by signals, or with the program."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cairn import units
from cairn.cli.console import say, stderr
from cairn.errors import CairnError
from cairn.model import Unreached

if TYPE_CHECKING:
    from cairn.profile.spare import Spare
    from cairn.profile.tally import Profile, Tree
    from cairn.profile.window import Snapshot


_EXEC_S = 0.1
"""The longest time from the execution of a program until the witness has reported it."""


class Span(Struct, frozen=True):
    """The part of the program's life that is counted. By default, it is the whole life."""

    delay: float | None = None
    """Seconds from the program's start until counting begins."""
    duration: float | None = None
    """Seconds from the begin of counting until its end; None counts until the program ends."""
    toggle: signal.Signals | None = None
    """The signal whose first arrival begins counting, and whose second arrival ends it."""

    @property
    def whole(self) -> bool:
        """Whether the program is counted from its start to its end."""
        return self == Span()


class Counting:
    """Context manager around the run of a program whose calls the probe counts.

    A thread of its own reads the probe's files when counting begins and ends.
    """

    def __init__(
        self,
        span: Span,
        folder: Path,
        spare: Spare | None,
        witness: Path,
        report: Callable[[Profile], None],
    ) -> None:
        self._span, self._folder, self._spare, self._report = span, folder, spare, report
        self._witness = witness
        self._events: SimpleQueue[Literal["signal", "over"]] = SimpleQueue()
        self._started_ns = self._ended_ns = time.monotonic_ns()
        self._begin: Snapshot | None = None
        self._reported = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._follow, name="counting", daemon=True)

    def __enter__(self) -> Counting:
        self._started_ns = time.monotonic_ns()
        # foreground.run() puts this handler back when the program has ended. So a signal that comes
        # later, before the report is written, does not kill cairn.
        for toggle, handler in self.signals.items():
            signal.signal(toggle, lambda *_, handler=handler: handler())
        if not self._span.whole:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended_ns = time.monotonic_ns()
        self._events.put("over")
        if not self._span.whole:
            self._thread.join()

    @property
    def whole(self) -> bool:
        """Whether the whole life of the program is counted."""
        return self._span.whole

    @property
    def signals(self) -> Mapping[signal.Signals, Callable[[], None]]:
        """Handlers for the signals that cairn keeps for itself and does not pass to the program."""
        return {self._span.toggle: lambda: self._events.put("signal")} if self._span.toggle else {}

    def finish(self, tree: Tree | None) -> None:
        """Reports after the program has ended, unless the report was written while it ran.

        tree: the launcher's figures.

        Raises CairnError if nothing was counted. If an error prevented the report while the program
        ran, that error is raised.
        """
        from cairn.profile import reader

        if self._failure is not None:
            raise self._failure
        if self._span.whole:
            others = self._spare.profiles() if self._spare is not None else ()
            self._report(reader.gather(self._folder, others, tree))
        elif self._begin is None:
            after = units.about((self._ended_ns - self._started_ns) / 1e9)
            sooner = "" if self._span.delay is None else "; give a shorter --delay"
            raise CairnError(f"the program ended after {after}, before counting began{sooner}")
        elif not self._reported:
            self._report(self._since(self._begin))

    def _since(self, begin: Snapshot) -> Profile:
        from cairn.doctor import machine
        from cairn.profile import window

        unreached = self._unreached()
        if any(one.reason == "silent" for _, one in unreached):
            # A program that was executed a moment ago has not reported yet, but will soon. A
            # program that the probe cannot reach remains silent.
            time.sleep(_EXEC_S)
            again = self._unreached()
            unreached = tuple(one for one in unreached if one in again)
        return window.since(
            self._folder, begin, self._started_ns, self._spare, unreached, machine.processors()
        )

    def _unreached(self) -> tuple[tuple[int, Unreached], ...]:
        """Process id and program of each process that the probe could not reach until now."""
        from cairn.run.proof import unreached_processes

        return unreached_processes(self._witness.read_bytes()) if self._witness.exists() else ()

    def _follow(self) -> None:
        try:
            self._count()
        except Exception as error:
            # finish() raises it in the main thread.
            self._failure = error

    def _count(self) -> None:
        from cairn.profile import window

        span = self._span
        by_signal = (
            f"kill -{span.toggle.name.removeprefix('SIG')} {os.getpid()}" if span.toggle else ""
        )
        if span.toggle:
            say(stderr(), "profile", f"to begin counting: {by_signal}")
        later = span.delay is not None or span.toggle is not None
        if later and not self._waited(span.delay):
            return
        self._begin = (
            window.look(self._folder, self._spare, self._unreached())
            if later
            else window.Snapshot(self._started_ns, {}, frozenset(), {}, {})
        )
        if span.toggle:
            say(stderr(), "profile", f"counting; to end it: {by_signal}")
        if self._waited(span.duration):
            self._report(self._since(self._begin))
            self._reported = True

    def _waited(self, seconds: float | None) -> bool:
        """Waits for the signal, at most `seconds`.

        Returns False if the program ended meanwhile, else True.
        """
        try:
            return self._events.get(timeout=seconds) == "signal"
        except Empty:
            return True
