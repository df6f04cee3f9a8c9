"""Keeps the answers of the stopping rule, so that it is not evaluated more often than needed.

The time to evaluate the rule grows with the square of the number of rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cairn.compare import rounds_needed, stats, stopping
from cairn.model import Run

_LOOKS_ALL = 100
"""Up to this number of rounds, the stopping rule is evaluated after every round."""
_FORECASTS_ALL = 12
"""Up to this number of rounds, the total number of rounds is predicted anew after every round.
Later it is predicted whenever the number of rounds has grown by the factor _LOOKS_GROWTH."""
_LOOKS_GROWTH = 1.05
"""Beyond _LOOKS_ALL rounds, the stopping rule is evaluated again when the number of rounds has
grown by this factor; see RuleAnswers.look()."""

Ratios = Mapping[str, Sequence[float]]
"""By contender: the log ratios that `stopping.ratios` returns."""


class RuleAnswers:
    """The last answers of the stopping rule of a run, by workload."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looks: dict[int, tuple[int, int, stats.Look]] = {}
        """By workload: the last evaluation of the stopping rule.

        It consists of the number of rounds at the evaluation, the number of contenders that were
        compared with the baseline, and the answer.
        """
        self._forecasts: dict[int, tuple[int, rounds_needed.Forecast | None]] = {}
        """By workload: the number of rounds at the last prediction, and this prediction of the
        total number."""

    def look(self, workload: int, ratios: Ratios, rounds: int) -> stats.Look:
        """The stopping rule's answer after this number of complete rounds.

        `ratios` is not empty.

        Beyond _LOOKS_ALL rounds, the last answer is returned again until the number of rounds has
        grown by the factor _LOOKS_GROWTH. The rule is always evaluated anew when its number of
        rounds is one at which it may stop (`stats.look_rounds`), and after a contender failed.
        """
        rule = self._run.rule
        before = self._looks.get(workload)
        decides = before is None or before[1] != len(ratios) or rounds in stats.look_rounds(rule)
        if before is not None and not decides:
            at, _, answer = before
            if rounds == at or _LOOKS_ALL < rounds < at * _LOOKS_GROWTH:
                return answer
        answer = stopping.look(self._run, ratios, rounds)
        self._looks[workload] = rounds, len(ratios), answer
        return answer

    def forecast(self, workload: int, ratios: Ratios, rounds: int) -> rounds_needed.Forecast | None:
        """The predicted number of rounds of this workload; the last prediction if that is recent.

        A prediction takes some milliseconds. It is made after every round at first, and later when
        the number of rounds has grown by the factor _LOOKS_GROWTH.
        """
        at, answer = self._forecasts.get(workload, (0, None))
        if answer is None or rounds <= _FORECASTS_ALL or rounds >= at * _LOOKS_GROWTH:
            answer = stopping.forecast(self._run, ratios, rounds) if ratios else None
            self._forecasts[workload] = rounds, answer
        return answer
