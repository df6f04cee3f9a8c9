"""The verdicts of `cairn bench misuse`: what happens when a program misuses an allocator's memory.

A cell of the table is one scenario with blocks of one size under one contender. The program
`cairn-misuse` does the misuse, in one or several ways (attacks). Each attack runs in a process of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairn.model import signal_name

CAUGHT, NEUTRAL, EXPLOITABLE = "caught", "neutral", "exploitable"
VERDICTS = (CAUGHT, NEUTRAL, EXPLOITABLE)
"""The verdicts of a cell, the best first.

- caught: the process was ended before damage could be shown, or the call with the wrong pointer
  failed as the standards say.
- neutral: the program went on or made no progress, and no damage could be shown.
- exploitable: the program has shown damage.
"""
BLOCKS = (24, 100, 1000, 5000, 40_000, 300_000)
"""The sizes of the blocks in bytes."""
_STOOD_STILL, _KILLED = "SIGALRM", "SIGKILL"


class MisuseScenario(Struct, frozen=True):
    """One kind of misuse."""

    name: str
    attacks: int
    """The number of ways in which the program can commit this misuse."""
    title: str
    """The misuse that the program commits, as a clause."""


class MisuseCell(Struct, frozen=True):
    """What happened under one contender in one scenario with blocks of one size."""

    contender: str
    scenario: str
    block_bytes: int
    verdict: str
    """The worst verdict of all attacks."""
    attack: int
    """The attack with this verdict."""
    how: str
    """The damage, or how the process ended; empty if the process went on without damage."""


class MisuseTable(Struct, frozen=True):
    """All cells, ordered by contender, scenario and size."""

    contenders: tuple[str, ...]
    titles: tuple[str, ...]
    """The contenders' names with versions."""
    scenarios: tuple[MisuseScenario, ...]
    blocks: tuple[int, ...]
    """The sizes of the blocks in bytes."""
    cells: tuple[MisuseCell, ...]

    def count(self, contender: str, verdict: str) -> int:
        """The number of the contender's cells with this verdict."""
        return sum(cell.contender == contender and cell.verdict == verdict for cell in self.cells)


class NotJudged(Exception):
    """The process did not carry out the misuse, so its end says nothing about the allocator."""


def judge(output: str, errors: str, code: int) -> tuple[str, str]:
    """Returns the verdict on one attack, and how the damage showed or the process ended.

    output, errors: the process's stdout and stderr.
    code: its exit code, or the negative number of the signal that killed it.

    Raises NotJudged if the misuse was not reached.
    """
    lines = output.splitlines()
    last = lines[-1] if lines else ""
    if last.startswith("impossible "):
        raise NotJudged(last.removeprefix("impossible "))
    ending = signal_name(-code) if code < 0 else f"exit code {code}"
    if "ready" not in lines or ending == _KILLED:
        said = _first_line(errors)
        raise NotJudged(f"it ended with {ending}{f': {said}' if said else ''}")
    if last.startswith("exploitable "):
        return EXPLOITABLE, last.removeprefix("exploitable ")
    if last == "refused":
        return CAUGHT, "the call failed"
    if last == "neutral" and code == 0:
        return NEUTRAL, ""
    # The program's own time limit ended the process: the allocator hung, and detected nothing.
    if ending == _STOOD_STILL:
        return NEUTRAL, "the process made no progress"
    return CAUGHT, _first_line(errors) or ending


def _first_line(errors: str) -> str:
    return next((line.strip() for line in errors.splitlines() if line.strip()), "")


def worst(found: Sequence[tuple[int, str, str]]) -> tuple[int, str, str]:
    """Returns the first of the (attack, verdict, how) that have the worst verdict."""
    return max(found, key=lambda one: VERDICTS.index(one[1]))
