"""The time budget of a run: how much is left, and the sentences when it is too short."""

from __future__ import annotations

import math
import time

from msgspec import Struct

from cairn import units


class TimeBudget(Struct):
    """A budget that counts from a moment on the monotonic clock."""

    seconds: float | None
    """None if there is no budget."""
    began: float

    def spent(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self.began

    def left(self) -> float:
        """The seconds that are left, at least 0; infinite without a budget."""
        return math.inf if self.seconds is None else max(0.0, self.seconds - self.spent())

    def has_room(self, seconds: float) -> bool:
        """Whether work of this length ends within the budget."""
        return self.seconds is None or self.spent() + seconds <= self.seconds


def no_round(
    budget_s: float, run_s: float, round_s: float, runs: int, least: int, *, fixed: bool = False
) -> str:
    """The sentences when not even one round fits into the budget.

    run_s, round_s: the expected time of one run, and of one round, which has `runs` runs.
    least: the least number of rounds that can show a difference.
    fixed: whether the command has no --budget. Then -r sets the number of rounds, without a budget.
    """
    whole = round_s * (least + 1)
    option = _option(whole, least, fixed)
    return (
        f"no round fits into the budget of {units.about(budget_s)}: a run takes about "
        f"{units.about(run_s)}, and a round has {runs} runs. To show a difference takes at least "
        f"{least} rounds and the warm-up, about {units.about(whole)}: {option}"
    )


def _option(budget_s: float, rounds: int, fixed: bool) -> str:
    return f"-r {rounds}" if fixed else f"--budget {units.budget(budget_s)}"


def too_few_rounds(
    budget_s: float, round_s: float, room: int, least: int, *, fixed: bool = False
) -> str:
    """The sentence when fewer rounds fit into the budget than can show a difference.

    room: the number of rounds that fit. fixed: as for `no_round`.
    """
    rounds = units.counted(room, "round")
    return (
        f"the budget of {units.about(budget_s)} has room for about {rounds}, and at least "
        f"{least} are needed to show a difference: {_option(round_s * (least + 1), least, fixed)}"
    )
