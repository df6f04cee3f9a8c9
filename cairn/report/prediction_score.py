"""The score of predicted savings, with a row for each allocator.

The allocator of a row is "left out": the intervals of its predictions are made from the errors of
the predictions that do not begin or end at this allocator.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from cairn import units
from cairn.report.formatting import printable
from cairn.report.standings import Board
from cairn.report.tables import Cell, Table
from cairn.why.prediction import LONGER, SHORTER
from cairn.why.prediction_score import Claim, JudgedChange, Score

_CLAIMS: dict[Claim, str] = {
    "saves": "named an allocator that saves 5 % of CPU time",
    "saves nothing": "said that no other allocator saves 5 %",
}


def board(score: Score) -> Board:
    """Returns the score as a board. Its first sentence has the coverage."""
    judged = score.judged
    rows = [
        _row(printable(name), [one for one in judged if one.left_out == name])
        for name in dict.fromkeys(one.left_out for one in judged)
    ]
    return Board(
        title="Predictions",
        says=tuple(_says(score)),
        tables=(Table("", _HEADS, tuple(rows)),) if rows else (),
        footer=(
            "a prediction: the change from one allocator to another on one program · left out: "
            "the interval comes from the other allocators alone",
        ),
        failures=(),
    )


_HEADS = ("left out", "predictions", "in the interval", "suite", "programs", "half reach")


def _says(score: Score) -> list[str]:
    judged = score.judged
    if not judged:
        return ["Nothing could be predicted: the calibration needs three allocators, and the "
                "programs need enough samples of CPU time."]  # fmt: skip
    suite, programs = ([one for one in judged if one.is_program is way] for way in (False, True))
    down, up = _reach(judged)
    says = [
        f"Of {units.counted(len(judged), 'prediction')} about an allocator that was left out, "
        f"{_covered(judged)} lie in their intervals: {_covered(suite)} on the suite, and "
        f"{_covered(programs)} on other programs. Half of the "
        f"intervals reach less than {down} % of CPU time down and {up} % up."
    ]
    if score.ends is not None:
        shorter, longer = score.ends
        says.append(
            f"By these programs, nine of ten errors lie between {shorter:.2f}".replace("-", "−")
            + f" and {longer:.2f} of the scale (in use: "
            f"−{SHORTER:.2f} and {LONGER:.2f})."
        )
    for claim, text in _CLAIMS.items():
        its = [one for one in score.claimed if one.claim == claim]
        right = sum(one.is_right for one in its)
        was = "was" if right == 1 else "were"
        says.append(f"{units.counted(len(its), 'sentence')} {text}; {right} {was} right.")
    unknown = sum(one.claim == "not known" for one in score.claimed)
    says.append(f"{units.counted(unknown, 'sentence')} said that it is not known.")
    return says


def _covered(of: Sequence[JudgedChange]) -> str:
    """Returns the share of the measured savings that lie in the interval of their prediction."""
    if not of:
        return "none"
    return units.percent(sum(one.covered for one in of) / len(of), signed=False)


def _row(name: str, of: Sequence[JudgedChange]) -> tuple[Cell, ...]:
    suite, programs = ([one for one in of if one.is_program is way] for way in (False, True))
    down, up = _reach(of)
    return (
        Cell("  " + name),
        Cell(str(len(of))),
        *(Cell(_covered(part)) for part in (of, suite, programs)),
        Cell(f"−{down} % +{up} %"),
    )


def _reach(of: Sequence[JudgedChange]) -> tuple[str, str]:
    """Returns how far an interval reaches below and above the predicted saving.

    Both numbers are medians over the intervals, in percentage points.
    """
    down = statistics.median(one.change.told.saves - one.low for one in of)
    up = statistics.median(one.high - one.change.told.saves for one in of)
    return f"{100 * down:.0f}", f"{100 * up:.0f}"
