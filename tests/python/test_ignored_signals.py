"""Tests that a signal which the caller ignores stays ignored, such as SIGHUP under nohup."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from cairn.cli import attach, live_screen
from cairn.inspect import moment, process, sampled
from cairn.run import foreground

IGNORED = (signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def ignoring() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in IGNORED]


def test_a_program_ignores_what_the_caller_of_cairn_ignores(ignoring: None) -> None:
    """The launcher inherited SIG_DFL instead, and SIGHUP ended a program under nohup."""
    with foreground._signals_passed_on({}):
        assert handlers() == [signal.SIG_IGN, signal.SIG_IGN]
        assert callable(signal.getsignal(signal.SIGTERM))
    assert handlers() == [signal.SIG_IGN, signal.SIG_IGN]


def test_a_signal_with_a_task_of_its_own_is_never_ignored(ignoring: None) -> None:
    with foreground._signals_passed_on({signal.SIGHUP: lambda: None}):
        assert callable(signal.getsignal(signal.SIGHUP))
    assert handlers() == [signal.SIG_IGN, signal.SIG_IGN]


def test_watching_a_process_goes_on_under_nohup(
    ignoring: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(*_: object) -> list[object]:
        return handlers()

    screen = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(live_screen, "check", lambda: None)
    monkeypatch.setattr(live_screen, "drawing", lambda _: screen)
    monkeypatch.setattr(process, "find", lambda _: SimpleNamespace(name="prog"))
    monkeypatch.setattr(moment, "now", lambda _: None)
    monkeypatch.setattr(sampled, "sample", sample)
    assert attach._watched(1, 1.0, "never") == [signal.SIG_IGN, signal.SIG_IGN]
