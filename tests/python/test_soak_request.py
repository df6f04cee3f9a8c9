"""Tests of the request to give memory back at the end of a soak, with processes that are simulated.

Each process has a path, an id, whether it has the probe's handler, and how many requests it leaves
without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from cairn.run import soak


@dataclass
class Simulated:
    pid: int
    seen: str = "dispatch"
    has_probe: bool = True
    silent: int = 0
    """The number of requests without an answer; -1 for all."""
    requests: int = 0
    trims: int = 3

    def receive(self) -> None:
        self.requests += 1
        if self.silent >= 0 and self.requests > self.silent:
            self.trims += 1


Ask = Callable[[Sequence[Simulated]], soak.Asked]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setattr(soak, "_ANSWER_S", 0.02)
    monkeypatch.setattr(soak, "_LOOK_S", 0.001)

    def ask(processes: Sequence[Simulated]) -> soak.Asked:
        by_id = {one.pid: one for one in processes}

        def profile(one: Simulated) -> SimpleNamespace:
            return SimpleNamespace(
                process=SimpleNamespace(pid=one.pid, seen=one.seen), trims=one.trims
            )

        monkeypatch.setattr(
            soak, "_running", lambda _: [(Path(str(one.pid)), profile(one)) for one in processes]
        )
        monkeypatch.setattr(soak, "_read", lambda path: profile(by_id[int(path.name)]))
        monkeypatch.setattr(soak, "_trims", lambda found: found.trims)
        monkeypatch.setattr(soak, "_has_library", lambda _: True)
        monkeypatch.setattr(soak, "_has_probe", lambda pid: by_id[pid].has_probe)
        monkeypatch.setattr(soak, "_send", lambda pid: by_id[pid].receive())
        return soak.ask(Path("nowhere"))

    return ask


NO_HANDLER = "could not be asked, because the probe has no handler for SIGSYS there"
NO_ANSWER = "has no function that gives memory back, or did not answer"


@pytest.mark.parametrize(
    ("processes", "answered", "problem"),
    [
        ([Simulated(7)], (7,), None),
        ([Simulated(7), Simulated(8, silent=3)], (7, 8), None),
        ([Simulated(7), Simulated(8, silent=-1)], (7,), None),
        ([Simulated(7, silent=-1)], (), NO_ANSWER),
        ([Simulated(7, has_probe=False), Simulated(8, seen="interpose")], (), NO_HANDLER),
        ([Simulated(7, has_probe=False), Simulated(8)], (8,), None),
        ([], (), NO_HANDLER),
    ],
)
def test_the_processes_that_answer_are_known_and_the_reason_if_none_does(
    asked: Ask, processes: list[Simulated], answered: tuple[int, ...], problem: str | None
) -> None:
    found = asked(processes)
    assert (found.answered, found.problem) == (answered, problem)
    assert found.running == tuple(one.pid for one in processes)
    for one in processes:
        assert one.requests == 0 if one.seen != "dispatch" or not one.has_probe else one.requests
