"""Tests of the page of a profile, and of the commands that write pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support import pages
from support.comparisons import EVIL
from support.pages import Element, parsed
from support.probes import busy, locking

from cairn.cli import cli
from cairn.cli import measurement as measuring
from cairn.errors import UsageError
from cairn.page import profile as profile_pages
from cairn.profile import reader
from cairn.profile.tally import ClockRun, FunctionTime, KernelClock, MomentCalls, Profile, Scope
from cairn.report import profile, profile_export
from cairn.report.formatting import printable
from cairn.report.view import View


def a_clock(scope: Scope = "processors") -> KernelClock:
    functions = (
        FunctionTime("_int_malloc", "libc.so.6", 1_400, 140e6, 49e12),
        FunctionTime(f"free{EVIL}", "libc.so.6", 700, 70e6, 25e12),
    )
    run = ClockRun(
        probed=True, scope=scope, samples=4_000, own_ns=300e6, calls_ns=40e6, faults_ns=50e6,
        program_ns=600e6, probe_ns=200e6, inside_squares=100e12, squares=250e12, cpu_ns=1.2e9,
        interrupts_ns=10e6, functions=functions,
    )  # fmt: skip
    return KernelClock((run,))


def a_profile(folder: Path, moments: int = 40) -> Profile:
    busy().write(folder)
    found = reader.gather(folder)
    one = found.moments[0]
    made = tuple(
        replace(
            one, ns=(place + 1) * 10**7, live_bytes=(place % 7 + 1) << 20,
            held_bytes=(place + 8) << 20, resident_bytes=(place + 9) << 20,
        )
        for place in range(moments)
    )  # fmt: skip
    return replace(found, moments=made, clock=a_clock())


def both(found: Profile) -> tuple[Element, dict[str, Any]]:
    """Returns the page and the JSON document of a profile."""
    page = profile_pages.page(found, allocator="glibc", made_by="cairn profile -- prog")
    document = profile_export.document(found, allocator="glibc", cairn="0")
    return parsed(page), json.loads(document)


def values(figure: Element, name: str = "rect") -> list[float]:
    return [float(one.attributes["data-value"]) for one in figure.all(name)]


def test_time_that_is_not_attributed_makes_the_other_bars_shorter(tmp_path: Path) -> None:
    """Shares of the attributed time were once added to a share of all time."""
    found = a_profile(tmp_path)
    assert found.clock is not None
    # Half of the time of all samples outside the probe is not attributed.
    run = replace(found.clock.runs[0], unknown_ns=1_000e6, cpu_ns=0.0)
    page, _ = both(replace(found, clock=KernelClock((run,))))
    figure = page.first("figure", data_of="shares")
    bars = [float(one.attributes["width"].rstrip("%")) for one in figure.all("rect")]
    shares = values(figure)
    unknown = shares.index(pytest.approx(0.5))
    whole = sum(bars)
    assert bars[unknown] == pytest.approx(0.5 * whole, rel=0.02)
    assert bars[-1] == pytest.approx(0.5 * shares[-1] * whole, rel=0.02)
    assert 'The part "not attributed" is a share of all CPU time' in figure.text


def test_the_bars_of_a_profile_are_the_numbers_of_the_json(tmp_path: Path) -> None:
    page, known = both(a_profile(tmp_path))
    share = known["cpu_share"]
    parts = [share[name] for name in ("own", "system_calls", "page_faults", "interrupts")]
    shares = values(page.first("figure", data_of="shares"))
    assert shares[:-1] == pytest.approx(parts)
    assert sum(shares) == pytest.approx(1.0) and shares[-1] == pytest.approx(1 - share["value"])
    functions = values(page.first("figure", data_of="functions"))
    assert functions == pytest.approx([one["share"]["value"] for one in known["hot_functions"]])
    calls = values(page.first("figure", data_of="calls"))
    assert calls == pytest.approx([one["total_ns"] for one in known["kernel_calls"]])


def test_the_lines_of_memory_have_each_moment_at_its_place(tmp_path: Path) -> None:
    page, known = both(a_profile(tmp_path))
    figure = page.first("figure", data_of="curves")
    lines = {one.attributes["data-name"]: one for one in figure.all("polyline")}
    assert set(lines) == {"live", "held", "resident"}
    most = max(one["resident_bytes"] for one in known["moments"])
    end = known["moments"][-1]["ns"]
    for name, line in lines.items():
        points = [tuple(map(float, one.split(","))) for one in line.attributes["points"].split()]
        assert len(points) == len(known["moments"])
        for (across, down), moment in zip(points, known["moments"], strict=True):
            assert across == pytest.approx(4 + 92 * moment["ns"] / end, abs=0.01)
            height = 4 + 92 * moment[f"{name}_bytes"] / most
            assert down == pytest.approx(100 - height, abs=0.011)


def test_the_lines_of_system_calls_are_the_rates_between_moments(tmp_path: Path) -> None:
    """In each pair of moments, the first has 100 new calls for memory, and the second has none."""
    found = a_profile(tmp_path)
    counts = [100 * ((number + 2) // 2) for number in range(len(found.moments))]
    moments = tuple(
        replace(one, calls=MomentCalls(memory, 7, 0))
        for one, memory in zip(found.moments, counts, strict=True)
    )
    page, known = both(replace(found, moments=moments))
    assert [one["calls"]["memory"] for one in known["moments"]] == counts
    figure = page.first("figure", data_of="rates")
    lines = {one.attributes["data-name"]: one for one in figure.all("polyline")}
    assert set(lines) == {"for memory", "waiting", "other"}
    ends = [0, *(one.ns for one in moments)]
    rates = [
        (after - before) / (end - begin)
        for (before, after), (begin, end) in zip(
            pairwise([0, *counts]), pairwise(ends), strict=True
        )
    ]
    points = [tuple(map(float, one.split(","))) for one in points_of(lines["for memory"])]
    assert len(points) == 2 * len(moments)
    for place, (across, down) in enumerate(points):
        assert across == pytest.approx(4 + 92 * ends[(place + 1) // 2] / ends[-1], abs=0.01)
        height = 4 + 92 * rates[place // 2] / max(rates)
        assert down == pytest.approx(100 - height, abs=0.011)
    (level,) = {one.split(",")[1] for one in points_of(lines["other"])}
    assert float(level) == pytest.approx(96)


def test_a_profile_without_system_calls_has_no_rates(tmp_path: Path) -> None:
    found = a_profile(tmp_path)
    none = MomentCalls(0, 0, 0)
    page, _ = both(replace(found, moments=tuple(replace(m, calls=none) for m in found.moments)))
    assert not list(page.all("figure", data_of="rates"))
    page, _ = both(replace(found, moments=tuple(replace(m, calls=None) for m in found.moments)))
    assert not list(page.all("figure", data_of="rates"))


def points_of(line: Element) -> list[str]:
    return line.attributes["points"].split()


def test_the_page_of_a_profile_has_the_sentences_and_tables_of_the_terminal(
    tmp_path: Path,
) -> None:
    found = a_profile(tmp_path)
    page, _ = both(found)
    text = " ".join(page.first("main").text.replace("\u00a0", " ").split())
    told = profile.render(found, View(full=True, width=100_000), allocator="glibc")
    # The page must have each sentence of the text for a terminal. A sentence ends with a full stop.
    # Headings and rows of tables are no sentences, and have two spaces somewhere.
    lines = [line.strip() for line in told.splitlines()]
    sentences = [line for line in lines if line.endswith(".") and "  " not in line]
    assert sentences
    for sentence in sentences:
        assert sentence in text
    words = set(told.split())
    section = page.first("section", id="operations")
    cells = [cell.text for cell in section.all("td")]
    assert len(cells) > 20 and {word for cell in cells for word in cell.split()} <= words
    assert printable(f"free{EVIL}") in text and "\x1b" not in text


def test_a_profile_without_a_clock_or_moments_has_a_page(tmp_path: Path) -> None:
    locking().write(tmp_path)
    found = reader.gather(tmp_path)
    page, _ = both(replace(found, moments=()))
    assert "not known" in page.first("main").text
    assert not list(page.all("figure", data_of="shares"))
    assert page.first("section", id="locks")


def test_a_profile_by_timers_has_one_bar_for_the_allocator(tmp_path: Path) -> None:
    found = replace(a_profile(tmp_path), clock=a_clock("timers"))
    page, _ = both(found)
    names = [
        one.attributes["data-name"]
        for one in page.first("figure", data_of="shares").all("div")
        if "data-name" in one.attributes
    ]
    assert names == ["the allocator", "the program itself"]


def test_a_kept_profile_is_written_as_a_page(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "page.html"
    raw.mkdir()
    busy().write(raw)
    words = ["profile", "--read", str(raw), "-o", str(out)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert parsed(out.read_text(encoding="utf-8")).first("h1").text.startswith("/usr/bin/prog")
    assert CliRunner().invoke(cli, words).exit_code == 1, "it exists"
    other = CliRunner().invoke(cli, [*words[:-1], str(tmp_path / "page.txt")])
    assert isinstance(other.exception, UsageError)
    assert "does not end in .html" in str(other.exception)


def test_a_plan_is_written_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cairn.run import store

    monkeypatch.setattr(store, "find", lambda *_: None)
    monkeypatch.setattr(measuring, "measured", lambda *_, **__: pages.plan_run())
    out = tmp_path / "page.html"
    words = ["matrix", "report", "last", "--only", "program 0", "-o", str(out)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    page = parsed(out.read_text(encoding="utf-8"))
    assert page.first("h1").text == "5 contenders on 1 program"
    assert not list(page.all("section", id="command")), "a plan of the user has no name"


def test_misuse_keeps_no_run_and_has_no_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["bench", "misuse", "-o", str(tmp_path / "page.html")])
    assert isinstance(done.exception, UsageError)
    assert "page.html chooses no form; use .json, .csv, .md or .txt" in str(done.exception)


def test_golden_of_the_texts_of_the_page_of_a_profile(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    page, _ = both(a_profile(tmp_path))
    names = ("p", "h1", "h2", "figcaption", "summary", "dt", "dd", "code", "li")
    lines = [
        f"{one.name}: {' '.join(one.text.split())}"
        for one in page.first("body").all()
        if one.name in names
    ]
    golden("page-profile", "\n".join(lines) + "\n")
