"""Tests of the screen of 'cairn profile --live': its lines, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.cells import cell_len
from support.comparisons import EVIL
from support.probes import busy
from support.stacks import a_stack

from cairn.cli import cli
from cairn.errors import UsageError
from cairn.profile import reader
from cairn.profile.tally import CALLS, Profile
from cairn.report import live_screen
from cairn.report.live_screen import LEAVE, Seen, lines

SECOND = 10**9
STACKS = (a_stack(900, "main", "parse"), a_stack(100, "main", f"node{EVIL}"))


def counts(folder: Path, times: int = 1) -> Profile:
    """Returns the counts of busy(), multiplied by `times`."""
    folder.mkdir(exist_ok=True)
    busy().write(folder)
    found = reader.gather(folder)
    tally = found.tally
    for _ in range(times - 1):
        tally = tally + found.tally
    return replace(found, tally=tally)


def two(folder: Path) -> tuple[Seen, Seen]:
    """Returns two looks at a program, two seconds apart. Its counts double between them."""
    return Seen(SECOND, counts(folder)), Seen(3 * SECOND, counts(folder, 2), STACKS)


def test_rates_are_differences_by_seconds_and_sums_are_those_since_the_start(
    tmp_path: Path,
) -> None:
    before, now = two(tmp_path)
    assert before.profile is not None and now.profile is not None
    shown = {
        line[2:28].strip(): line[28:].split("  ")
        for line in lines("title", before, now, "", 100, 40)
    }
    cells = {head: [cell.strip() for cell in row if cell.strip()] for head, row in shown.items()}
    each = before.profile.operations
    assert now.profile.operations == 2 * each
    assert cells["operations"] == [f"{each // 2:,}/s", f"{2 * each:,}"]
    calls = before.profile.tally.kernel.count
    place = int(calls.argmax())
    assert cells["system calls"] == [f"{round(calls.sum() / 2):,}/s", f"{2 * calls.sum():,}"]
    assert cells[CALLS[place]] == [f"{round(calls[place] / 2):,}/s", f"{2 * calls[place]:,}"]


def test_the_functions_that_allocate_are_named_with_their_shares(tmp_path: Path) -> None:
    found = lines("title", *two(tmp_path), "", 80, 30)
    place = next(n for n, line in enumerate(found) if "who allocates" in line)
    assert found[place + 1].split() == ["90.0", "%", "900", "B", "parse"]
    assert "\\x1b" in found[place + 2]


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (60, 24), (40, 10), (200, 60), (20, 3), (1, 1)]
)
def test_the_screen_is_never_larger_than_the_terminal(
    tmp_path: Path, width: int, height: int
) -> None:
    before, now = two(tmp_path)
    title = live_screen.title(f"prog{EVIL}" * 20, "glibc")
    for looks in ((None, Seen(0, None)), (None, before), (before, now)):
        for output in ("", f"a line{EVIL}" * 10):
            found = lines(title, *looks, output, width, height)
            assert len(found) <= height
            for line in found:
                assert cell_len(line) <= width and line.isprintable()
            if height >= 3 and width >= 60:
                assert found[-1] == LEAVE


def test_24_lines_have_all_that_matters(tmp_path: Path) -> None:
    text = "\n".join(lines("title", *two(tmp_path), "its last words", 80, 24))
    for word in (
        "share", "operations", "bytes requested", "CPU time", "page faults", "system calls",
        "live", "held", "resident", "who allocates", "parse", "its last words", LEAVE,
    ):  # fmt: skip
        assert word in text, word


def test_before_the_first_allocation_the_screen_says_so() -> None:
    found = lines("title", None, Seen(0, None), "", 80, 24)
    assert "Nothing is counted yet: the program has not allocated anything." in found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--live", "--", "true"], "standard error is not a terminal"),
        (["--live", "--duration", "5s", "--", "true"], "--live shows a whole run"),
        (["--live", "--overhead", "--", "true"], "--live shows a whole run"),
        (["--live", "--instructions", "--", "true"], "--live shows a whole run"),
        (["--live", "exact", "--", "true"], "use --live-bytes exact"),
        (["--live", "--read", "folder"], "leave out --live"),
    ],
)
def test_live_is_refused_where_there_is_no_screen(words: list[str], told: str) -> None:
    done = CliRunner().invoke(cli, ["profile", *words])
    assert isinstance(done.exception, UsageError)
    assert told in str(done.exception)
