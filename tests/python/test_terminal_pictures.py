"""Tests of the pictures of differences and of memory over time, as text for a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from support import pages
from support.comparisons import a_run, a_sample, compared
from support.probes import busy

from cairn.memory import Memory
from cairn.model import PEAK, WALL, Contender, Sample
from cairn.profile import reader
from cairn.profile.tally import Profile
from cairn.report import interval_picture, profile, sparkline, tables, terminal
from cairn.report.run import comparisons, rendered
from cairn.report.terminal import FIRST_SCREEN
from cairn.report.view import View


def picture(width: int, metric: object = WALL) -> list[str]:
    measured = pages.compared_run()
    (found,) = comparisons(measured)
    names = tables.names(measured.run, found)
    return interval_picture.drawn(found, metric, names, width)  # type: ignore[arg-type]


def signs(line: str, *wanted: str) -> list[int]:
    return [place for place, letter in enumerate(line) if letter in wanted]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_each_contender_has_a_dot_in_its_interval(width: int) -> None:
    head, *rows, axis = picture(width)
    assert head.endswith("● proven, ○ not proven")
    assert [row.split()[0] for row in rows] == ["quick", "fast", "lean"]
    for row in rows:
        (dot,) = signs(row, "●", "○")
        ends = signs(row, "├", "┤")
        assert all(cell_len(line) <= width for line in (head, row, axis))
        assert len(ends) < 2 or ends[0] < dot < ends[1]
    assert "●" in rows[0] and "○" in rows[1] and "○" in rows[2]
    quick, fast, lean = (signs(row, "●", "○")[0] for row in rows)
    assert quick < fast < lean


def test_less_is_to_the_left_of_the_baseline_and_more_to_the_right() -> None:
    _, *rows, _ = picture(80, PEAK)
    quick, fast, lean = (signs(row, "●", "○")[0] for row in rows)
    assert lean < fast < quick
    assert rows[0].index("│") == rows[2].index("│") == fast


def test_a_picture_without_room_is_left_out() -> None:
    assert picture(40) == []


def of_several(fast_ms: float, count: int = 2) -> str:
    names = [f"fast{number}" for number in range(count)]
    run = a_run(*(Contender(name, "custom", f"{name} 1") for name in ("system", *names)))
    samples: list[Sample] = []
    for round_ in range(1, 13):
        samples.append(a_sample(round_, "system", 100 + round_ % 3))
        for place, name in enumerate(names):
            memory = Memory("cgroup v1", (50 + place) << 20, (50 + place) << 20, 0)
            samples.append(a_sample(round_, name, fast_ms + round_ % 4, memory=memory))
    return terminal.render(run, [compared(run, samples)], View(width=80))  # type: ignore[list-item]


def test_a_comparison_draws_what_is_proven_if_it_fits_on_the_first_screen() -> None:
    text = of_several(80.0)
    assert "wall time compared with system: ● proven" in text
    assert len(text.splitlines()) <= FIRST_SCREEN
    assert "● proven" not in of_several(80.0, count=14)
    assert "● proven" not in of_several(80.0, count=1)


def test_measures_without_a_proven_difference_are_not_drawn() -> None:
    text = of_several(100.0)
    assert "wall time compared" not in text and "peak memory compared" in text


def test_the_full_report_has_every_interval_as_numbers_and_no_picture() -> None:
    measured = pages.explained_run()
    text = rendered(measured, comparisons(measured), View(full=True, width=100))
    assert "● proven" not in text


def a_profile(folder: Path, live: list[int], resident: list[int | None]) -> Profile:
    busy().write(folder)
    found = reader.gather(folder)
    one = found.moments[0]
    moments = tuple(
        replace(one, ns=(place + 1) * 10**7, live_bytes=of, resident_bytes=its)
        for place, (of, its) in enumerate(zip(live, resident, strict=True))
    )
    return replace(found, moments=moments)


def test_memory_over_time_is_a_line_of_bars(tmp_path: Path) -> None:
    mib = 1 << 20
    rising = [place * mib for place in range(1, 11)]
    found = a_profile(tmp_path, rising, [20 * mib] * 10)
    head, live, resident = sparkline.drawn(found, 80)
    assert head == "memory over 100 ms, from 0 to 20.0 MiB"
    bars = live.split()[1]
    assert len(bars) == 55, "nothing is drawn before the first moment"
    assert list(bars) == sorted(bars)
    assert bars[0] == "▁" and bars[-1] in "▄▅"
    assert set(resident.split()[1]) == {"█"}
    assert all(cell_len(line) <= 40 for line in sparkline.drawn(found, 40))
    text = profile.render(found, View(width=80))
    assert text.index(live.strip()) < text.index("memory, one process")


def test_a_peak_between_two_columns_is_not_lost(tmp_path: Path) -> None:
    live = [1] * 500
    live[333] = 1000
    found = a_profile(tmp_path, live, [None] * 500)
    (_, line) = sparkline.drawn(found, 60)
    assert line.split()[1].count("█") == 1


def test_few_moments_have_no_line(tmp_path: Path) -> None:
    assert sparkline.drawn(a_profile(tmp_path, [1, 2, 3], [1, 2, 3]), 80) == []
