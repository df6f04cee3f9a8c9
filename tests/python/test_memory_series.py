"""Tests of the numbers that are made from the memory over time."""

from __future__ import annotations

from pathlib import Path

from cairn.run.memory_series import MemorySeries, read

RISES = "1000 0 0\n2000 1048576 512000\n4000 1048576 2560000\n"
"""The memory rises from 0 to 1 MiB in the first millisecond, and stays at 1 MiB for two more."""


def series(tmp_path: Path, text: str) -> MemorySeries:
    file = tmp_path / "memory"
    file.write_text(text)
    return read(file)


def test_the_mean_is_that_of_the_integral(tmp_path: Path) -> None:
    found = series(tmp_path, RISES)
    assert found.mean() == round((0.5 + 2) / 3 * (1 << 20))
    assert found.mean(2_000_000, 4_000_000) == 1 << 20


def test_a_mean_outside_the_readings_is_not_known(tmp_path: Path) -> None:
    found = series(tmp_path, RISES)
    assert found.mean(5_000_000, 6_000_000) is None
    assert found.mean(3_000_000, 3_000_000) is None


def test_memory_at_a_time_lies_between_its_readings(tmp_path: Path) -> None:
    found = series(tmp_path, RISES)
    assert found.at(1_500_000) == 1 << 19
    assert found.at(4_000_000) == 1 << 20
    assert found.at(999_999) is None and found.at(4_000_001) is None


def test_growth_compares_the_end_with_the_middle(tmp_path: Path) -> None:
    found = series(tmp_path, "0 100 0\n1000 500 0\n2000 400 0\n")
    assert found.growth() == -100
    assert found.growth(0, 1_000_000) == 200


def test_a_missing_or_damaged_file_gives_no_number(tmp_path: Path) -> None:
    for found in (read(tmp_path / "none"), *(series(tmp_path, t) for t in ("", "1 2", "x y z"))):
        assert found.mean() is None and found.growth() is None and found.at(1) is None


def test_a_single_reading_gives_no_mean(tmp_path: Path) -> None:
    assert series(tmp_path, "1000 5 0\n").mean() is None
