"""Tests of reading and printing numbers with units."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5min", 90), ("200ms", 0.2), ("2h", 7200), (" 3 m ", 180)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64K", 65536), ("1.5GiB", 3 << 29), ("2m", 2 << 20)]
)
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
def test_text_that_is_no_number_is_refused_with_a_sentence(text: str) -> None:
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
    [
        (-0.056, "−5.6 %"),
        (0.0003, "+0.03 %"),
        (0.0, "0 %"),
        (-0.00001, "0 %"),
        (2.5, "+250 %"),
        (0.001, "+0.1 %"),
    ],
)
def test_changes_carry_their_sign(ratio: float, text: str) -> None:
    assert units.percent(ratio) == text


@given(st.floats(min_value=0, max_value=1e18, allow_nan=False))
def test_every_number_has_at_most_three_digits_and_no_exponent(value: float) -> None:
    for shown in (units.time(value), units.size(value)):
        assert "e" not in shown.split()[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (0, "0 s"),
        (0.001, "1.00 ms"),
        (0.4, "400 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (59, "59 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7325, "2 h 2 min"),
    ],
)
def test_long_durations_are_printed_as_people_say_them(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.25, "0.2"),
        (99.9, "99.9"),
        (100.4, "100"),
        (100, "100"),
        (1234.5, "1,234"),
        (999_999, "999,999"),
        (1e6, "1.00 M"),
        (-2.5e6, "-2.50 M"),
        (123_456_789, "123 M"),
        (1e9, "1.00 G"),
        (-2.5e10, "-25.0 G"),
    ],
)
def test_counts_are_exact_up_to_a_million(number: float, text: str) -> None:
    assert units.count(number) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0009, "+0.09 %"),
        (0.001, "+0.1 %"),
        (-0.001, "−0.1 %"),
        (0.9994, "+99.9 %"),
        (0.9995, "+100 %"),
        (-0.9996, "−100 %"),
        (20.8, "+2080 %"),
        (0.000049, "0 %"),
        (-0.000049, "0 %"),
        (0.000051, "+0.01 %"),
    ],
)
def test_percentages_lose_digits_as_they_grow(ratio: float, text: str) -> None:
    assert units.percent(ratio) == text
    assert units.percent(ratio, signed=False) == text.replace("+", "")


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (999.5, "1.00 µs"),
        (999.4, "999 ns"),
        (999_500, "1.00 ms"),
        (999_400, "999 µs"),
        (999_500_000, "1.00 s"),
        (-1500, "-1.50 µs"),
        (9.994, "9.99 ns"),
        (9.996, "10.0 ns"),
        (99.96, "100 ns"),
    ],
)
def test_times_change_their_unit_where_their_digits_would_round_to_it(ns: float, text: str) -> None:
    assert units.time(ns) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1023, "1023 B"),
        (1023.4, "1023 B"),
        (1023.5, "1.00 KiB"),
        (1023.5 * 1024, "1.00 MiB"),
        (-(3 << 30), "-3.00 GiB"),
        (1 << 40, "1.00 TiB"),
        (1 << 51, "2,048 TiB"),
    ],
)
def test_sizes_beyond_the_last_unit_stay_in_it(number: float, text: str) -> None:
    assert units.size(number) == text


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (units.parse_duration, "3 d", "write for example 90s, 10min, 1h"),
        (units.parse_duration, "3%", "write for example 90s, 10min, 1h"),
        (units.parse_size, "3T", "write for example 512M or 2GiB"),
        (units.parse_size, "3%", "write for example 512M or 2GiB"),
        (units.parse_percent, "3s", "write for example 1% or 0.5%"),
        (units.parse_percent, "9" * 400, "is not a percentage"),
    ],
)
def test_a_unit_of_another_kind_is_refused(
    parse: Callable[[str], float], text: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_a_hundred_years_are_not_too_long() -> None:
    assert units.parse_duration(f"{100 * 365 * 24}h") == 100 * 365 * 86400


def test_a_noun_agrees_with_its_number() -> None:
    assert units.counted(1, "round") == "1 round"
    assert units.counted(0, "round") == "0 rounds"
    assert units.counted(2, "round") == "2 rounds"
    assert units.counted(1, "process", "processes") == "1 process"
    assert units.counted(1234, "process", "processes") == "1,234 processes"
