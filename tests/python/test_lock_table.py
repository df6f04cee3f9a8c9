"""Tests of the table of single locks with invented files, in which every number is known."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace
from support.probes import TICKS_PER_NS, Made, busy

from cairn.findings.waiting import queues
from cairn.profile import lock_records, reader
from cairn.profile.lock_table import lock_table
from cairn.profile.tally import Window
from cairn.report import profile, profile_export
from cairn.report.view import View

BASE = 0x7F0000000000


def locked(made: Made, place: int, **numbers: int) -> Made:
    record = made.samples["locks"]["records"][0, place]
    for name, number in numbers.items():
        record[name] = number
    return made


def made() -> Made:
    """A library without symbols has one lock, and mapped memory has another and a futex word."""
    found = busy()
    mapped = found.samples["locks"]["objects"][0, 0]
    mapped["start"], mapped["end"], mapped["base"] = BASE + 0x1000, BASE + 0x9000, BASE
    mapped["path"] = b"/gone/libgone.so"
    early = {"early_sections": 64, "early_section_ticks": 64 * 100 * TICKS_PER_NS}
    sampled = {"sections": 10, "section_ticks": 10 * 200 * TICKS_PER_NS}
    squares = {"section_ticks_squared": 10 * (200 * TICKS_PER_NS) ** 2}
    waits = {"contended": 3, "wait_ticks": 5_000 * TICKS_PER_NS}
    locked(found, 0, address=BASE + 0x5040, taken=1064, **early, **sampled, **squares, **waits)
    locked(found, 7, address=0x5000, taken=2, early_sections=2, early_section_ticks=8)
    futex = {"futex_waits": 9, "futex_wait_ticks": 9_000 * TICKS_PER_NS}
    return locked(found, 9, address=0x6000, kind=16, **futex)


def test_each_lock_has_its_name_its_waits_and_its_held_time(tmp_path: Path) -> None:
    made().write(tmp_path)
    found = lock_table(reader.gather(tmp_path))
    assert found is not None and (found.locks, found.waited_for) == (3, 2)
    futex, named, record = found.uses
    assert (futex.name, futex.taken, futex.waits, futex.held_ns) == (
        "record at 0x6000",
        None,
        9,
        None,
    )
    assert futex.wait_ns == pytest.approx(9_000)
    assert (named.name, named.library, named.taken) == ("libgone.so+0x5040", "libgone.so", 1064)
    assert named.wait_ns == pytest.approx(5_000) and named.held_ns is not None
    # The first 64 sections take 100 ns each. Each sample of the other 1,000 is 200 ns. These
    # samples do not differ, so the interval is tight.
    assert named.held_ns.value == pytest.approx(64 * 100 + 1000 * 200)
    assert named.held_ns.interval.high == pytest.approx(named.held_ns.value, rel=1e-6)
    assert (record.name, record.library, record.taken) == ("record at 0x5000", "", 2)


def test_a_library_that_has_changed_since_names_no_lock(
    tmp_path: Path, compiled: Callable[..., Path]
) -> None:
    library = tmp_path / "lib.so"
    shutil.copy(compiled("never_frees.c"), library)
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab")
        lock = next(one for one in symbols.iter_symbols() if one["st_info"]["type"] == "STT_OBJECT")
    written = made()
    written.samples["locks"]["objects"][0, 0]["path"] = str(library).encode()
    locked(written, 0, address=BASE + lock["st_value"])
    written.samples["locks"]["objects"][0, 0]["start"] = BASE
    changed_ns = library.stat().st_ctime_ns
    for ended_ns, name in (
        (changed_ns, lock.name),
        (changed_ns - 1, f"lib.so+{lock['st_value']:#x} (file changed since)"),
    ):
        (first, *_) = lock_records.counted(written.samples["locks"], "", ended_ns)
        assert first.name == name


def test_the_report_and_the_csv_have_each_lock(tmp_path: Path) -> None:
    made().write(tmp_path)
    found = reader.gather(tmp_path)
    text = profile.render(found, View())
    assert "locks by name" in text and "libgone.so+0x5040" in text
    rows = list(csv.DictReader(io.StringIO(profile_export.rows(found))))
    single = [one for one in rows if one["table"] == "single locks"]
    assert [one["name"] for one in single][1] == "libgone.so+0x5040 in libgone.so"
    assert [one["operations"] for one in single] == ["", "1064", "2"]


def test_a_part_of_a_life_has_no_table_of_locks(tmp_path: Path) -> None:
    made().write(tmp_path)
    assert lock_table(replace(reader.gather(tmp_path), window=Window(1, 2, 1))) is None


def test_the_finding_and_the_table_divide_by_the_same_time(tmp_path: Path) -> None:
    """One lock has all 182 ms of waiting, which are 10 % of the threads' time.

    Two threads live for 1 s each, and use 900 ms of CPU time, of which the probe takes a fifth. An
    acquisition that waits makes three system calls.
    """
    written = locked(
        busy(),
        0,
        address=0x5040,
        taken=10_000,
        contended=200,
        wait_ticks=182_000_000 * TICKS_PER_NS,
    )
    written.locked("mutex", 10_000, [910_000 * TICKS_PER_NS] * 200)
    written.kernel("futex wait", 600, 100_000)
    written.sampled(1000, 100, own=200)
    written.threads["since_ticks"][0] = 7
    written.threads["lived_ticks"][0] = 1_000_000_000 * TICKS_PER_NS
    written.start["threads_most"], written.start["contended_locks"] = 2, 1
    written.write(tmp_path)
    found = reader.gather(tmp_path)
    table = lock_table(found)
    assert table is not None and table.uses[0].share == pytest.approx(0.1)
    finding = queues(found)
    assert finding is not None and finding.effect == pytest.approx(0.1, rel=1e-3)
    lock, waits, _ = finding.evidence
    assert lock == (
        "One lock (record at 0x5040) takes 10.0 % of the threads' time: 200 of 10,000 "
        "acquisitions waited for it"
    )
    assert waits == (
        "600 waiting system calls on one lock, 4.26 per 1,000 operations, 182 ms in all"
    )
