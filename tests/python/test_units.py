"""Numbers with units, in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import units


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5min", 90), ("200ms", 0.2), ("2h", 7200), (" 3 m ", 180)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("64K", 65536), ("1.5GiB", 3 << 29), ("2m", 2 << 20)])
def test_sizes_are_binary(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(("text", "ratio"), [("1%", 0.01), ("1", 0.01), ("0.5 %", 0.005)])
def test_percentages_are_always_in_percent(text: str, ratio: float) -> None:
    assert units.parse_percent(text) == pytest.approx(ratio)


def test_nothing_lasts_longer_than_a_hundred_years() -> None:
    assert units.parse_duration("876000h") == 876000 * 3600
    with pytest.raises(ValueError, match="longer than 100 years"):
        units.parse_duration("9999999h")


@given(st.text(max_size=12))
def test_what_is_no_number_is_refused_with_a_sentence(text: str) -> None:
    for parse in (units.parse_duration, units.parse_size, units.parse_percent):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert repr(text) in str(error)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ns"),
        (999.6, "1.00 µs"),
        (1_234_000, "1.23 ms"),
        (73_400_000_000, "73.4 s"),
        (999_950_000, "1.00 s"),
        (7_200_000_000_000, "7,200 s"),
    ],
)
def test_times_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert units.time(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1 << 20, "1.00 MiB"),
        (1_048_200, "1.00 MiB"),
        (2**41, "2.00 TiB"),
    ],
)
def test_memory_is_binary(value: float, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(-0.056, "−5.6 %"), (0.0003, "+0.03 %"), (0.0, "0 %"), (-0.00001, "0 %"), (2.5, "+250 %"), (0.001, "+0.1 %")],
)
def test_changes_carry_their_sign(ratio: float, text: str) -> None:
    assert units.percent(ratio) == text


@given(st.floats(min_value=0, max_value=1e18, allow_nan=False))
def test_every_number_has_at_most_three_digits_and_no_exponent(value: float) -> None:
    for shown in (units.time(value), units.size(value)):
        assert "e" not in shown.split()[0]
