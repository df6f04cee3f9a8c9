"""Tests of Git, which starts many of its own programs and packs with threads."""

from __future__ import annotations

from collections.abc import Callable

from .conftest import INPUTS, Stage, path_of


def test_a_history_and_its_clones(both: Callable[..., str]) -> None:
    path_of("git")
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b"))
    }
    when = {f"GIT_{role}_DATE": "2020-03-01 12:00 +0000" for role in ("AUTHOR", "COMMITTER")}

    def session(stage: Stage) -> str:
        return stage.run("/bin/sh", INPUTS / "history.sh", **who, **when, GIT_CONFIG_NOSYSTEM="1")

    both(session, "git")
