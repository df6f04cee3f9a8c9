"""Tests of `cairn profile`: the command behaves like the program, and then reports."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from cairn import units
from cairn.allocators.discover import RECORD, RECORD_SCHEMA
from cairn.profile.tally import IDLE

SHARE = "of the CPU time. No other allocator can save more than this"


@pytest.fixture
def known(compiled) -> Path:
    return compiled("probe_known.c", "-pthread")


def test_the_report_is_on_stderr_and_stdout_belongs_to_the_program(cairn, known: Path) -> None:
    result = cairn("profile", "--", "sh", "-c", f"{known} counts 100; exit 7")
    assert result.code == 7
    assert json.loads(result.out)["malloc"] == 500
    assert result.err.startswith("profile  ")
    first = " ".join(result.err.split())[:600]
    assert SHARE in first or "The allocator's share of CPU time is not known" in first


def test_json_has_the_counts_of_the_program(
    cairn, known: Path, forward: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    result = cairn(
        "profile", "-a", f"passing={forward}", "--json", out, "--", known, "counts", 1000
    )
    assert result.code == 0, result.err
    found = json.loads(out.read_text())
    calls = {one["name"]: sum(by["calls"] for by in one["by"]) for one in found["functions"]}
    assert calls["posix_memalign"] == json.loads(result.out)["posix_memalign"]
    assert found["processes"][0]["allocator"] == str(forward)
    late = sum(one["late_calls"] for one in found["functions"] if one["name"] not in IDLE)
    assert found["lines"][-1]["operations"] == pytest.approx(found["operations"] - late)


def test_an_allocator_whose_folder_has_a_space_is_profiled(
    cairn, known: Path, forward: Path, tmp_path: Path
) -> None:
    """LD_PRELOAD cannot carry the path, so the library is preloaded through a link.

    The link was once gone when the profile was read, and the profile was refused.
    """
    folder = tmp_path / "with space" / "cairn" / "allocators" / "jemalloc" / "99"
    folder.mkdir(parents=True)
    shutil.copy(forward, folder / "lib.so")
    record = {"schema": RECORD_SCHEMA, "allocator": "jemalloc", "library": "lib.so"}
    (folder / RECORD).write_text(json.dumps(record | {"version": "99"}))
    cache = {"XDG_CACHE_HOME": str(tmp_path / "with space")}
    result = cairn("profile", "--runs", 1, "-a", "jemalloc", "--", known, "counts", 100, **cache)
    assert result.code == 0, result.err
    assert result.err.startswith("profile  ") and "jemalloc 99" in result.err


def test_a_kept_profile_is_read_again(cairn, known: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    result = cairn("profile", "--runs", 1, "--keep", keep, "--", known, "counts", 1000)
    again = cairn("profile", "--read", keep)
    assert (result.code, again.code) == (0, 0)
    # Only the first lines differ: the report from the kept files names the allocator's file.
    assert again.out.splitlines()[1:] == result.err.splitlines()[1:]
    rows = cairn("profile", "--read", keep, "--csv", "-").out.splitlines()
    assert "counted,memalign,small,parallel,4000" in {",".join(row.split(",")[:5]) for row in rows}


def test_a_program_that_cannot_be_profiled_is_one_sentence(cairn, compiled, known: Path) -> None:
    unknown = cairn("profile", "-a", "nosuch", "--", known, "counts", 1)
    static = cairn("profile", "--", compiled("churn.c", "-static"))
    assert (unknown.code, static.code) == (2, 126)
    assert "nosuch" in unknown.sentence
    assert "static" in static.sentence
    assert SHARE not in unknown.err + static.err


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ("cycels", "'cycels' is not an event; the events are cycles, instructions,"),
        ("", "is not an event"),
        ("cycles,instructions,branch-misses,cache-misses,page-faults", "at most 4 events"),
    ],
)
def test_counters_that_do_not_exist_are_one_sentence(
    cairn, known: Path, events: str, words: str
) -> None:
    result = cairn("profile", "--counters", events, "--", known, "counts", 100)
    assert result.code == 2 and words in " ".join(result.err.split())


def test_counters_are_reported_by_kind_of_operation(cairn, known: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = cairn(
        "profile",
        "--gap",
        "1",
        "--counters",
        "page-faults",
        "--json",
        out,
        "--",
        known,
        "counts",
        1000,
    )
    assert (
        result.code == 0
        and "counted, in user mode" in result.err
        and "page-faults each" in result.err
    )
    found = {one["name"]: one for one in json.loads(out.read_text())["counted"]}
    assert {"malloc", "calloc"} & set(found) or "reused" in found
    assert found["TOTAL"]["looked_at"] > 1000
    assert found["TOTAL"]["events"]["page-faults"]["total"]["value"] > 0


def test_the_report_says_that_the_program_was_killed(cairn, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    # The program computes for 0.3 s without an allocation before it is killed.
    script = """
import os, signal, time
while time.process_time() < 0.3:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = cairn("profile", "--keep", keep, "--", "python3", "-c", script)
    assert result.code == 137
    assert "1 process ended without a normal exit" in result.err
    found = json.loads(cairn("profile", "--read", keep, "--json", "-").out)
    assert len(found["cut_short"]) == 1
    assert found["cpu_ns"] >= 300_000_000
    assert "in the whole program" not in result.err


def test_system_calls_that_were_not_counted_are_not_reported_as_zero(cairn, known: Path) -> None:
    result = cairn("profile", "--kernel-calls", "off", "--", known, "counts", 100)
    assert result.code == 0
    text = " ".join(result.err.split())
    assert "The memory that the allocator held was not measured." in text
    assert "system calls were not counted. --kernel-calls auto sees more." in text
    assert "brk" not in result.err


def test_lock_waits_of_an_allocator_are_reported(cairn, compiled, tmp_path: Path) -> None:
    allocator = compiled("probe_scripted_malloc.c", "-shared", "-pthread")
    program = compiled("probe_sizes.c", "-pthread")
    result = cairn(
        "profile", "-a", allocator, "--json", tmp_path / "out", "--", program, 2, 128, 300
    )
    assert re.search(r"^ +mutex +600 ", result.err, re.MULTILINE), result.err
    found = json.loads((tmp_path / "out").read_text())
    (mutex,) = found["locks"]
    assert (mutex["taken"], mutex["refused"], found["contended_locks"]) == (600, 0, 1)


def server(tmp_path: Path) -> list[str]:
    """A program that allocates at intervals until it is told to end."""
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "while True: x = [bytes(700) for i in range(2000)]; time.sleep(0.002)\n"
    )
    file = tmp_path / "server.py"
    file.write_text(script)
    return ["python3", str(file)]


def test_a_server_is_profiled_for_a_while_and_keeps_running(cairn, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    process = cairn.start(
        "profile", "--delay", "0.5s", "--duration", "1s", "--json", out, "--", *server(tmp_path)
    )
    wait_for(out)
    assert process.poll() is None
    found = json.loads(out.read_text())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5
    assert 1e9 <= found["wall_ns"] < 3e9
    assert found["window"]["after_ns"] >= 0.5e9
    assert found["operations"] > 1000
    assert found["cut_short"] == []
    assert 0 < found["cpu_ns"] < found["wall_ns"] * 1.5
    told = " ".join(err.split())
    assert told.count(SHARE) + told.count("share of CPU time is not known") == 1


def test_the_wall_time_of_a_short_program_covers_its_cpu_time(cairn, tmp_path: Path) -> None:
    """A program with one thread cannot use more CPU time than wall time."""
    out = tmp_path / "out.json"
    result = cairn("profile", "--json", out, "--", "sort", "/etc/passwd")
    found = json.loads(out.read_text())
    assert [process["threads"] for process in found["processes"]] == [1]
    assert found["cpu_ns"] <= found["wall_ns"] == found["tree"]["wall_ns"]
    assert f"wall {units.time(found['wall_ns'])}" in " ".join(result.err.split())


def test_a_signal_starts_and_ends_the_counting(cairn, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    process = cairn.start("profile", "--signal", "USR2", "--json", out, "--", *server(tmp_path))
    assert process.stdout.readline() == "up\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGUSR2)
    time.sleep(1.5)  # a busy machine may delay the first signal by a second
    process.send_signal(signal.SIGUSR2)
    wait_for(out)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5
    assert 0.4e9 < json.loads(out.read_text())["wall_ns"] < 10e9
    assert f"to begin counting: kill -USR2 {process.pid}" in err


def test_a_report_that_cannot_be_written_is_one_sentence(cairn, known: Path) -> None:
    """The program removes the folder of the report. If it fails itself, its exit code is kept."""
    for end, code in (("exit 0", 125), ("exit 3", 3)):
        (cairn.home / "made").mkdir()
        result = cairn("profile", "--runs", 1, "--json", "made/out.json", "--",
                       "sh", "-c", f"rmdir made; {known} counts 1; {end}")  # fmt: skip
        assert result.code == code
        assert result.sentence == "✘ cannot write made/out.json: there is no folder made"


def test_a_program_that_ends_before_counting_began_is_one_sentence(cairn, known: Path) -> None:
    result = cairn("profile", "--delay", "1min", "--", known, "counts", 10)
    assert result.code == 125
    assert "before counting began" in result.sentence
    late = cairn("profile", "--duration", "1min", "--", known, "counts", 10)
    assert late.code == 0
    assert "counted for" in late.err


def test_the_cost_of_the_probe_is_compared(cairn, known: Path) -> None:
    result = cairn(
        "compare", "-a", "system,system+probe", "-r", "3", "--csv", "--", known, "counts", 1000
    )
    assert result.code == 0, result.err
    rows = [row for row in csv.DictReader(result.out.splitlines()) if row["counts"] == "1"]
    assert [row["contender"] for row in rows].count("system+probe") == 3
    assert {row["failure"] for row in rows} == {""}


def wait_for(file: Path) -> None:
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
