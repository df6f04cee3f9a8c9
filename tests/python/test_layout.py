"""Tests of the reader of the file in which the probe records where blocks lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from support.probes import Made

from cairn.errors import CairnError
from cairn.profile import layout
from cairn.profile.layout import Figure
from cairn.profile.reader import gather, write_tree
from cairn.profile.tally import Tree
from cairn.report import profile_notes
from cairn.report.layout_table import layout_table, rows

TRIES = 400
PID, BEGIN_NS = Made.pid, Made.begin_ns


def made(byte_order: str = "<", **fields: Any) -> np.ndarray[Any, np.dtype[np.void]]:
    """Returns a file's content: eight regions, with two pages each of 2,048 live bytes."""
    file = np.zeros(1, layout.layout_type(byte_order))
    file["magic"], file["order"], file["version"] = layout.MAGIC, layout.ORDER, layout.VERSION
    file["bytes"], file["way"], file["process"] = file.itemsize, 1, PID
    file["ns_begin"], file["gap"], file["snapshot_ns"] = BEGIN_NS, 256, 1
    file["threshold"] = file["snapshot_threshold"] = 2**31
    pages = file["pages"][0][:16]
    pages["region"], pages["bytes"], pages["lines"] = np.arange(16) // 2, 2048, 64
    pages["active"], pages["passive"] = 16, 8
    file["page_count"] = 16
    sums = {"regions": 8, "pages": 16, "lines": 1024, "bytes": 32768, "active": 256, "passive": 128}
    for name, value in sums.items():
        file["totals"][name] = value
    for name, value in fields.items():
        file[name] = value
    return file


def test_figures_of_equal_regions_are_read_in_either_byte_order(tmp_path: Path) -> None:
    """Half of the regions is tracked.

    If 0.31 of all regions were of another kind, then with a probability of 5 % none of the eight
    tracked ones would be: 0.05 ** (1 / 8) is 0.69.
    """
    unseen = 0.5 * (1 - 0.05 ** (1 / 8))
    for order in "<>":
        (tmp_path / f"{PID}.1.layout").write_bytes(made(order).tobytes())
        found = layout.of(tmp_path, PID, BEGIN_NS)
        assert found is not None
        assert found.way == "sampled" and found.regions == 8 and found.pages == 16
        for figure in (found.page_use, found.line_use):
            assert figure == Figure(0.5, 0.5 * (1 - unseen), 0.5 * (1 + unseen))
        assert found.pages_per_mib == Figure(512, 512 * (1 - unseen), 512 / (1 - unseen))
        assert found.active_conflicts == Figure(0.25, 0.25 * (1 - unseen), 0.25 + 0.75 * unseen)
        assert found.passive_conflicts is not None and found.passive_conflicts.value == 0.125
        assert found.reuse_operations is None and found.set_share is None


def test_a_file_of_another_process_or_without_a_snapshot_is_none(tmp_path: Path) -> None:
    path = tmp_path / f"{PID}.1.layout"
    assert layout.of(tmp_path, PID, BEGIN_NS) is None
    for content in (made(ns_begin=7), made(writing=3), made(snapshot_ns=0), made(magic=b"")):
        path.write_bytes(content.tobytes())
        assert layout.of(tmp_path, PID, BEGIN_NS) is None


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda: made().tobytes()[:-1], "it is cut off"),
        (lambda: made(magic=b"otherlay").tobytes(), "first bytes are not those of one"),
        (lambda: made(order=7).tobytes(), "its byte order is unknown"),
        (lambda: made(version=9).tobytes(), "its probe was built from other sources"),
        (lambda: made(way=3).tobytes(), "its head is damaged"),
        (lambda: made(page_count=5000).tobytes(), "its head is damaged"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(
    damaged: Callable[[], bytes], why: str, tmp_path: Path
) -> None:
    (tmp_path / f"{PID}.1.layout").write_bytes(damaged())
    with pytest.raises(CairnError, match=why):
        layout.of(tmp_path, PID, BEGIN_NS)


def test_no_number_in_a_file_makes_the_reader_fail(tmp_path: Path) -> None:
    random = np.random.default_rng(20261126)
    path = tmp_path / f"{PID}.1.layout"
    for _ in range(30):
        file = made()
        for name in ("pages", "blocks", "warmth", "totals", "seen"):
            raw = file[0][name].tobytes()
            noise = np.frombuffer(random.bytes(len(raw)), file.dtype[name].base)
            file[name] = noise.reshape(file[name].shape)
        path.write_bytes(file.tobytes())
        found = layout.of(tmp_path, PID, BEGIN_NS)
        assert found is not None
        for row in rows(found):
            assert row.figure.low <= row.figure.value <= row.figure.high


def test_blocks_of_which_none_was_sampled_have_no_fullest_set() -> None:
    """For such a forged file, Cairn once reported the share NaN, which JSON does not have."""
    file = made()
    blocks = file["blocks"][0][1][:100]
    blocks["bytes"], blocks["address"] = 8192, np.arange(100) * 4096
    with np.errstate(all="raise"):
        assert layout.layout(file[0]).set_share is None
    file["seen"] = 1
    assert layout.layout(file[0]).set_share is not None


def test_a_share_above_one_is_not_shown() -> None:
    file = made()
    file["totals"]["bytes"] = 16 * 4096 + 1
    found = layout.layout(file[0])
    assert found.page_use is None and found.active_conflicts is not None


def test_a_damaged_file_costs_its_table_alone(tmp_path: Path) -> None:
    Made().write(tmp_path)
    (tmp_path / f"{PID}.1.layout").write_bytes(made().tobytes()[:5000])
    found = gather(tmp_path)
    assert found.layout is None
    (note,) = [note for note in profile_notes.notes(found) if "blocks lie" in note]
    assert note.startswith("▲ where blocks lie is not shown: ") and "it is cut off" in note


def absence(folder: Path) -> list[str]:
    return [note for note in profile_notes.notes(gather(folder)) if "blocks lie" in note]


def test_a_layout_that_is_missing_has_its_reason(tmp_path: Path) -> None:
    """It was once left out without a word."""
    largest = Made(head={"forked": 1})
    largest.moments((1, 1 << 20, 1 << 20, 1 << 20))
    path = tmp_path / f"{PID}.1.layout"
    Made().write(tmp_path)
    assert absence(tmp_path) == []
    path.write_bytes(made(writing=3).tobytes())
    why = "▲ where blocks lie is not known, because prog (100), the process with the most live bytes, "
    assert absence(tmp_path) == [
        f"{why}ended before the probe had looked at its blocks, or while it did"
    ]
    path.rename(tmp_path / "7.1.layout")
    (note,) = absence(tmp_path)
    assert note.endswith(
        "because there is no file of the blocks of prog (100): it could not be made (the disk is "
        "full, the limit of file sizes is too low, or the program has a filter of system calls by "
        "seccomp), or it was not copied with the other files"
    ), "the files of a profile may have been copied to another place"
    largest.write(tmp_path)
    assert absence(tmp_path) == [f"{why}is a child of fork"]
    (tmp_path / "7.1.layout").unlink()
    tree = Tree(("prog",), "system", 1, 1, 0, 0, 0, 0, 0, {}, user_mode_only=False)
    assert absence(tmp_path) == []
    write_tree(tmp_path, replace(tree, layout=True))
    assert absence(tmp_path) == [f"{why}is a child of fork"]


@pytest.mark.parametrize("tracked", [5, 8, 16, 40])
@pytest.mark.parametrize(("empty", "least"), [(0.125, 2_000), (0.33, 2_000), (0.33, 4_090)])
def test_the_interval_of_a_ratio_holds_the_truth_of_unequal_regions(
    tracked: int, empty: float, least: int
) -> None:
    """The simulated program has 1,000 regions of 1 to 8 pages, of which the probe tracks a few.

    A part of the regions is nearly empty, and the others have `least` bytes or more on each page.
    If all of five regions were full, the interval once was "100 % to 100 %".
    """
    random, part, held = np.random.default_rng(5), tracked / 1000, 0
    for _ in range(TRIES):
        pages = random.integers(1, 9, 1000)
        each = np.where(random.random(1000) < empty, 200, random.integers(least, 4097, 1000))
        truth = float((pages * each).sum() / pages.sum() / 4096)
        drawn = random.choice(1000, tracked, replace=False)
        seen = np.zeros(int(pages[drawn].sum()), layout.layout_type("<")["pages"].base)
        seen["region"] = np.repeat(np.arange(tracked), pages[drawn])
        seen["bytes"] = np.repeat(each[drawn], pages[drawn])
        totals = {"bytes": int(seen["bytes"].astype(int).sum()), "pages": len(seen)}
        found = layout._ratio(seen, totals, "bytes", "pages", 1 / 4096, part)
        assert found is not None
        held += found.low <= truth <= found.high
    assert held >= 0.9 * TRIES


def test_quantiles_of_few_regions_are_those_of_student() -> None:
    known = {1: 12.706, 3: 3.182, 4: 2.776, 7: 2.365, 15: 2.131, 60: 2.000}
    for freedom, quantile in known.items():
        assert layout._t_quantile(freedom) == pytest.approx(quantile, abs=0.006)


def test_the_fullest_set_of_evenly_spread_blocks_is_not_full() -> None:
    random = np.random.default_rng(3)
    file = made(seen=[0, 2000, 0])
    blocks = file["blocks"][0][1][:2000]
    blocks["bytes"], blocks["address"] = 8192, random.integers(0, 2**26, 2000) * 64
    spread = layout.layout(file[0]).set_share
    blocks["address"] = random.integers(0, 2**20, 2000) * 4096
    packed = layout.layout(file[0]).set_share
    assert spread is not None and packed is not None
    assert spread.low < 1 / 64 < spread.high < 0.05
    assert packed.value == 1


def test_the_table_says_when_the_figures_were_not_those_of_the_peak(tmp_path: Path) -> None:
    probe = Made()
    probe.live(10_000, 100, (9_000, 8_000, 10))
    probe.called("malloc", "small", 100, 100)
    probe.write(tmp_path)
    (tmp_path / f"{PID}.1.layout").write_bytes(made(snapshot_bytes=10).tobytes())
    profile = gather(tmp_path)
    found = profile.layout
    assert found is not None
    table = layout_table(profile, full=False)
    assert table.heads[1] == "when 10 B were live"
    assert [cell.text for cell in table.rows[0]] == [
        "  live bytes on the OS pages they touch",
        "50.0 % (42.2 to 57.8)",
    ]
    peak = replace(found, snapshot_bytes=profile.largest.peak_live_bytes)
    assert layout_table(replace(profile, layout=peak), full=False).heads[1] == "at the peak"
    assert not layout_table(replace(profile, layout=None), full=True).rows
