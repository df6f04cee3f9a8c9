"""Tests that every workload is in the catalog, repeats with its seed, and agrees with its help."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from support import peers
from support.allocator_under_test import under_test
from support.workload_runs import CPUS, Work, entry_of, names

from cairn.run import workloads


def test_the_catalog_names_every_program_and_no_other(work: Work) -> None:
    built = {
        file.name for file in work.folder.iterdir() if os.access(file, os.X_OK) and file.is_file()
    }
    assert built == {entry.program for entry in workloads.load()}


@pytest.mark.parametrize("name", names())
def test_the_seed_determines_the_contents(work: Work, name: str) -> None:
    """The same seed gives the same contents, and another seed gives other contents.

    That holds even for workloads that only fill memory in the order of addresses.
    """
    first, again = (work.smallest(name) for _ in range(2))
    assert first.code == again.code == 0, first.err + again.err
    assert (first.line["checksum"], first.line["operations"]) == (
        again.line["checksum"],
        again.line["operations"],
    )
    other = work.smallest(name, "--seed", "2")
    assert other.line["checksum"] != first.line["checksum"]


@pytest.mark.parametrize("touch", ["none", "header"])
@pytest.mark.parametrize("name", names())
def test_a_workload_can_touch_less_of_its_blocks(work: Work, name: str, touch: str) -> None:
    """The workload must find its contents unchanged, and do the same number of operations."""
    done = work.smallest(name, "--touch", touch)
    assert done.code == 0, done.err
    assert done.line["parameters"]["touch"] == touch
    assert done.line["operations"] == work.smallest(name).line["operations"]


@pytest.mark.parametrize("name", names())
def test_the_line_of_every_workload_is_complete(work: Work, name: str) -> None:
    line = work.smallest(name).line
    report = workloads.reported(json.dumps(line).encode())
    assert report.operations > 0
    assert 0 < report.median_ns <= report.p95_ns <= report.p99_ns
    assert report.live_peak_bytes > 0
    assert report.busy_ns > 0
    assert report.checksum is not None


@pytest.mark.parametrize("name", names())
def test_a_workload_can_run_for_a_fixed_time(work: Work, name: str) -> None:
    """The option --seconds sets the time.

    Arguments for the number of operations then have no effect, and there is no checksum.
    """
    words = [*workloads.words(entry_of(name).smallest, CPUS)]
    if "--operations" in words:
        place = words.index("--operations")
        del words[place : place + 2]
    done = work(entry_of(name).program, *words, "--seconds", "0.02")
    assert done.code == 0, done.err
    assert done.line["checksum"] is None
    assert done.line["operations"] > 0


@pytest.mark.parametrize(
    "allocator",
    [
        pytest.param(name, marks=[] if name == peers.NAMED[0] else pytest.mark.long)
        for name in peers.NAMED
    ],
)
@pytest.mark.parametrize("name", names())
def test_the_checksum_is_the_same_under_another_allocator(
    work: Work, name: str, allocator: str
) -> None:
    found = peers.peer(allocator)
    peers.skip_known_fault(found, name)
    base = work.smallest(name)
    done = work.smallest(name, **peers.preloading(found))
    assert (done.code, done.err) == (0, ""), "stderr has the loader's warning if the preload failed"
    assert (done.line["checksum"], done.line["operations"]) == (
        base.line["checksum"],
        base.line["operations"],
    )


@pytest.mark.parametrize("name", names())
def test_the_checksum_is_the_same_under_our_allocator(
    work: Work, name: str, tmp_path: Path
) -> None:
    base = work.smallest(name)
    done = work.smallest(name, LD_PRELOAD=str(under_test(tmp_path).shared))
    assert (done.code, done.err) == (0, ""), "stderr has the loader's warning if the preload failed"
    assert (done.line["checksum"], done.line["operations"]) == (
        base.line["checksum"],
        base.line["operations"],
    )


@pytest.mark.parametrize("program", sorted({entry.program for entry in workloads.load()}))
def test_help_names_every_parameter(work: Work, program: str) -> None:
    said = subprocess.run(
        [work.folder / program, "--help"], capture_output=True, text=True, check=True
    ).stdout
    name = next(entry.name for entry in workloads.load() if entry.program == program)
    for parameter in work.smallest(name).line["parameters"]:
        assert f"--{parameter}" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bytes"],
        ["--bytes", "abc"],
        ["--bytes", "-1"],
        ["--bytes", "99999999999999999999"],
        ["--touch", "some"],
        ["--threads", "0"],
        ["--threads", "1000000"],
        ["--nonsense", "1"],
        ["3", "4"],
        ["--seconds", "nan"],
        ["--seconds", "-1"],
        ["--operations", "1", "--threads", "2"],
        ["--bytes", "1Q"],
        ["--seed", ""],
    ],
)
def test_a_wrong_argument_is_one_sentence(work: Work, arguments: list[str]) -> None:
    done = subprocess.run(
        [work.folder / "fill", *arguments], capture_output=True, text=True, check=False, timeout=10
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("fill: ")


def test_out_of_memory_is_one_sentence(work: Work) -> None:
    command = f"ulimit -v 200000; exec {shlex.quote(str(work.folder / 'fill'))} --bytes 1G"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "memory" in done.stderr


def test_a_result_that_cannot_be_written_is_a_failure(work: Work) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [work.folder / "fill", "--bytes", "64K"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot write" in done.stderr
