"""Tests of `cairn profile --instructions` on an allocator whose instructions are known."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from support.places import PROGRAMS
from support.small_disk import run_on_small_disk

from cairn import native

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None or platform.machine() != "x86_64",
    reason="valgrind is not here, or the known allocator is not for this processor",
)

SIZES = ("small", "medium", "large")
EACH = {
    "new": (8, 20, 111),
    "reused": (7, 19, 110),
    "realloc": (4, 4, 4),
    "free": (5, 8, 10),
}
"""Instructions of each path of path_malloc.S, by size."""
NEW, REUSED = 30, 400


@pytest.fixture
def calls(compiled) -> Path:
    return compiled("path_calls.c", "-pthread")


@pytest.fixture
def toy(compiled) -> Path:
    return compiled("path_malloc.S", "-shared")


def paths_of(document: str) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (one["path"], one["size"]): (one["operations"], one["instructions"])
        for one in json.loads(document)["paths"]
    }


def test_every_path_has_exactly_its_instructions(cairn, calls: Path, toy: Path) -> None:
    result = cairn("profile", "--instructions", "-a", f"toy={toy}", "--json", "-", "--",
                   calls, NEW, REUSED)  # fmt: skip
    assert result.code == 7, result.err
    operations = {"new": NEW, "reused": REUSED, "free": REUSED, "realloc": 2}
    assert paths_of(result.out) == {
        (path, size): (operations[path], operations[path] * EACH[path][place])
        for path in EACH
        for place, size in enumerate(SIZES)
    }
    found = json.loads(result.out)
    assert (found["processes"], found["allocations_in_wrong_path"]) == (1, 0)
    assert found["allocator_instructions"] == sum(one["instructions"] for one in found["paths"])
    assert found["program_instructions"] > found["allocator_instructions"]


def test_the_table_and_the_csv_have_the_same_figures(
    cairn, calls: Path, toy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    result = cairn("profile", "--instructions", "-a", f"toy={toy}", "--csv", out, "--",
                   calls, NEW, REUSED)  # fmt: skip
    assert result.code == 7
    rows = {(row["path"], row["size"]): row for row in csv.DictReader(io.StringIO(out.read_text()))}
    assert rows["reused", "large"]["instructions"] == str(110 * REUSED)
    table = [line.split() for line in result.err.splitlines()]
    assert ["new,", "medium", "30", "600", "20.0"] in [words[:5] for words in table]
    assert ["freed,", "large", "400", "4,000", "10.0"] in [words[:5] for words in table]


def test_a_single_run_does_not_tell_new_from_reused(cairn, calls: Path, toy: Path) -> None:
    result = cairn("profile", "--instructions", "--runs", 1, "-a", f"toy={toy}", "--json", "-",
                   "--", calls, NEW, REUSED)  # fmt: skip
    found = paths_of(result.out)
    assert found["untold", "large"] == (NEW + REUSED, 111 * NEW + 110 * REUSED)
    assert not {"new", "reused"} & {path for path, _ in found}
    assert "runs twice" not in result.err
    assert "no earlier run says" in " ".join(result.err.split())


def test_each_start_of_a_program_has_its_own_paths(cairn, calls: Path, toy: Path) -> None:
    """The same program runs twice, with other numbers of new and of reused blocks."""
    both = f"{calls} {NEW} {REUSED}; {calls} {2 * NEW} {REUSED // 4}"
    result = cairn("profile", "--instructions", "-a", f"toy={toy}", "--json", "-", "--",
                   "sh", "-c", both)  # fmt: skip
    assert result.code == 7, result.err
    found = paths_of(result.out)
    for size in ("medium", "large"):
        assert found["new", size][0] == 3 * NEW
        assert found["reused", size][0] == REUSED + REUSED // 4


@pytest.mark.parametrize(("children", "threads"), [(3, 0), (0, 4), (2, 2)])
def test_children_and_threads_are_counted(cairn, calls: Path, children: int, threads: int) -> None:
    """Each child has an account of its own, and its own allocations tell their paths.

    No two children allocate the same number of blocks. If two children shared a name, one of them
    would read the paths of the other one, and some of its allocations would be in the wrong path.
    """
    more = sum(range(children))
    result = cairn("profile", "--instructions", "--json", "-", "--",
                   calls, NEW, REUSED, children, threads)  # fmt: skip
    assert result.code == 7, result.err
    found = paths_of(result.out)
    workers = children + threads
    for size in SIZES:
        assert found["free", size][0] == REUSED * workers
        assert found["realloc", size][0] == 2 * workers
    for size in ("medium", "large"):
        both = sum(found.get((path, size), (0, 0))[0] for path in ("new", "reused"))
        assert both == (NEW + REUSED) * workers + more
    assert json.loads(result.out)["processes"] == 1 + children
    assert json.loads(result.out)["allocations_in_wrong_path"] == 0


def test_operations_after_an_exception_of_operator_new_are_counted(cairn, tmp_path: Path) -> None:
    """The allocator is in C++, so that the exception passes through the counting library."""
    program, allocator = tmp_path / "program", tmp_path / "allocator.so"
    command = ["g++", "-O1", "-fno-builtin", "-o"]
    subprocess.run([*command, program, PROGRAMS / "path_throws.cpp"], check=True)
    subprocess.run([*command, allocator, "-shared", "-fPIC", PROGRAMS / "path_new.cpp"], check=True)
    result = cairn("profile", "--instructions", "-a", f"new={allocator}", "--json", "-", "--",
                   program, 500)  # fmt: skip
    assert result.code == 7, result.err
    found = paths_of(result.out)
    assert found["free", "small"][0] >= 1000
    assert found["new", "small"][0] + found["reused", "small"][0] >= 1000
    assert found["free", "small"][0] <= 1010


@pytest.mark.long
def test_a_limit_of_file_sizes_does_not_end_the_program(
    cairn, calls: Path, toy: Path, tmp_path: Path
) -> None:
    """The library once made its file longer than the limit, so that SIGXFSZ ended the first run.

    The limit is 900 KiB. Valgrind's files are smaller. The library's file becomes 512 KiB long, and
    then not 1 MiB.
    """
    codes, reused = tmp_path / "codes", 262_000
    limited = f"ulimit -f 1800; {calls} {NEW} {reused}; echo $? >> {codes}"
    result = cairn("profile", "--instructions", "-a", f"toy={toy}", "--json", "-", "--",
                   "sh", "-c", limited)  # fmt: skip
    assert result.code == 0, result.err
    assert codes.read_text().split() == ["7", "7"]
    found = paths_of(result.out)
    assert found["untold", "large"][0] == 3 * (NEW + reused) - (512 << 10)
    assert found["reused", "medium"] == (reused, EACH["reused"][1] * reused)


def test_threads_take_little_room_on_the_disk(calls: Path, tmp_path: Path) -> None:
    """The file of each thread once took 1 MiB of the disk, however little the thread allocated."""
    for name in ("learnt", "starts", "told"):
        (tmp_path / name).mkdir()
    preloaded = native.instructions()
    valgrind = ["valgrind", "--tool=none", "-q", "--trace-children=yes"]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(preloaded),
        "CAIRN_INSTRUCTIONS": str(tmp_path),
        "CAIRN_INSTRUCTIONS_RUN": "learn",
    }
    done = subprocess.run([*valgrind, calls, "3", "4", "1", "8"], env=environment, check=False)
    assert done.returncode == 7
    files = [file.stat() for file in (tmp_path / "learnt").iterdir()]
    assert len(files) >= 9
    assert sum(one.st_blocks * 512 for one in files) <= len(files) * (64 << 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_does_not_end_the_program(cairn, calls: Path, tmp_path: Path) -> None:
    """The library's files once had no blocks on the disk, so that SIGBUS ended the program.

    The disk has the library's files. In the first run it is full while the program runs.
    """
    disk, codes, out = tmp_path / "disk", tmp_path / "codes", tmp_path / "out.json"
    program = (
        f"[ -e {codes} ] || head -c 90000000 /dev/zero > {disk}/full 2> /dev/null;"
        f"{calls} {NEW} {REUSED}; echo $? >> {codes}; rm -f {disk}/full"
    )
    counting = [*cairn.argv, "profile", "--instructions", "--json", out, "--", "sh", "-c", program]
    run_on_small_disk(counting, disk, "16m", cairn.env)
    assert codes.read_text().split() == ["7", "7"]
    assert paths_of(out.read_text())["untold", "large"][0] >= NEW + REUSED


def test_without_valgrind_the_error_says_how_to_install_it(cairn, tmp_path: Path) -> None:
    result = cairn("profile", "--instructions", "--", "/bin/true", PATH=str(tmp_path))
    assert result.code == 125
    assert "apt-get install valgrind" in result.sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gap", 5), "leave out --gap"),
        (("--counters", "cycles"), "leave out --counters"),
        (("--keep", "raw"), "leave out --keep"),
        (("--full",), "leave out --full"),
        (("--runs", 3), "runs the program twice"),
        (("--json", "-", "--csv", "-"), "mixed on standard output"),
    ],
)
def test_options_that_do_not_belong_to_it_are_one_sentence(cairn, options, words: str) -> None:
    result = cairn("profile", "--instructions", *options, "--", "/bin/true")
    assert result.code == 2
    assert words in " ".join(result.err.split())
