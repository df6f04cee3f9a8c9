"""Tests of the allocator in processes that may do little.

The process has little address space, many mappings, no /proc, or a filter for system calls.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Library, Program, archive_later

MIB = 1 << 20
LIMITS = [resource.RLIMIT_AS, resource.RLIMIT_DATA]
KINDS = ["address space", "data"]


def never_moves(mode: str) -> dict[str, str]:
    """Returns the environment variables that a program needs if a filter forbids mremap().

    The shared library notices a filter by itself. With the archive, CAIRN_MOVE=0 must tell it.
    """
    return {"CAIRN_MOVE": "0"} if mode == "archive" else {}


def calls(
    run: Program, trace: Path, names: str, *arguments: object, **environment: str
) -> list[str]:
    """Runs a program under strace. Returns strace's lines for the system calls in `names`."""
    if not shutil.which("strace"):
        pytest.skip("strace is not here")
    given = dict(environment)
    if run.preload is not None:
        given["LD_PRELOAD"] = str(run.preload)
    words = [word for name, value in given.items() for word in ("-E", f"{name}={value}")]
    command = ["strace", "-f", "-qq", "-e", f"trace={names}", "-o", str(trace), *words]
    done = subprocess.run(
        [*command, str(run.path), *map(str, arguments)], capture_output=True, check=False
    )
    if b"PTRACE" in done.stderr or b"not permitted" in done.stderr:
        pytest.skip("strace is not allowed here")
    assert done.returncode == 0, done.stderr
    return trace.read_text().splitlines()


# --- filters for system calls ---


@archive_later
def test_a_filter_that_the_program_installs_may_kill_it_for_mremap(
    program: Callable[..., Program], mode: str
) -> None:
    run = program("sandbox.c", mode)
    said = run.succeed("deadly-mremap", **never_moves(mode)).strip()
    if said == "not allowed":
        pytest.skip("a filter is not allowed here")
    assert said == "confined"


@archive_later
def test_an_inherited_filter_may_kill_the_program_for_mremap(
    program: Callable[..., Program], compiled_here: Callable[..., Path], mode: str
) -> None:
    grown = program("grown.c", mode)
    said = grown.succeed(under=[str(compiled_here("confine.c"))], **never_moves(mode)).strip()
    if said == "not allowed":
        pytest.skip("a filter is not allowed here")
    assert said == "grown"


@archive_later
def test_an_inherited_filter_may_kill_the_program_for_mincore(
    program: Callable[..., Program], compiled_here: Callable[..., Path], mode: str
) -> None:
    sparse = program("sparse.c", mode)
    said = sparse.succeed(5000, 20_000, under=[str(compiled_here("confine.c"))]).strip()
    if said == "not allowed":
        pytest.skip("a filter is not allowed here")
    grown_kb, written_kb = map(int, said.split())
    assert grown_kb <= 1.3 * written_kb + 2048


@archive_later
def test_without_a_filter_pages_are_moved_unless_the_option_forbids_it(
    program: Callable[..., Program], tmp_path: Path, mode: str
) -> None:
    grown = program("grown.c", mode)
    assert len(calls(grown, tmp_path / "free", "mremap")) >= 3
    assert calls(grown, tmp_path / "never", "mremap", CAIRN_MOVE="0") == []
    read = calls(grown, tmp_path / "read", "openat")
    assert sum("/proc/self/status" in line for line in read) == (mode == "preloaded")


def test_a_process_that_cannot_read_its_status_is_taken_for_confined(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    grown = program("grown.c", "preloaded")
    lines = calls(grown, tmp_path / "trace", "mremap,openat", "no-files")
    assert any("/proc/self/status" in line and "EMFILE" in line for line in lines)
    assert not any("mremap(" in line for line in lines)


@archive_later
def test_a_small_program_whose_blocks_do_not_move_reads_no_file(
    program: Callable[..., Program], tmp_path: Path, mode: str
) -> None:
    read = calls(program("early.c", mode), tmp_path / "trace", "openat")
    assert not any("/proc" in line or "/sys" in line for line in read)


@archive_later
def test_the_setting_of_huge_pages_is_read_once_outside_a_sandbox(
    program: Callable[..., Program], compiled_here: Callable[..., Path], tmp_path: Path, mode: str
) -> None:
    sparse = program("sparse.c", mode)
    read = calls(sparse, tmp_path / "free", "openat", 2000, 20_000)
    assert sum("transparent_hugepage" in line for line in read) == (mode == "preloaded")


@archive_later
def test_the_allocator_never_calls_prctl(
    program: Callable[..., Program], tmp_path: Path, mode: str
) -> None:
    background = program("background.c", mode)
    lines = calls(background, tmp_path / "trace", "prctl", CAIRN_BACKGROUND="1")
    assert [line for line in lines if "prctl(" in line] == []


def test_calls_before_the_first_constructor_are_passed_on(
    library: Library, compiled_here: Callable[..., Path]
) -> None:
    """The library defines prctl() and syscall(), and looks up those of libc in a constructor."""
    early = compiled_here("early_calls.c", "-shared", "-fPIC", "-Wl,-z,initfirst")
    ended = Program(Path("/bin/true"), None)(under=["env", f"LD_PRELOAD={library.shared} {early}"])
    assert (ended.code, ended.out, ended.err) == (0, "early\n", "")


# --- limits ---


@pytest.mark.plain("has no bytes between blocks")
@archive_later
@pytest.mark.parametrize("size", [16, 1000, 40_000, 1_000_000])
@pytest.mark.parametrize("kind", LIMITS, ids=KINDS)
def test_in_64_mebibytes_most_of_the_memory_can_be_used(
    program: Callable[..., Program], mode: str, size: int, kind: int
) -> None:
    """Under a limit of 64 MiB, the program's blocks can take 70 % of the limit.

    After the program has freed them, new blocks can take nearly as much. The limit is on addresses
    (RLIMIT_AS) or on private memory that can be written (RLIMIT_DATA), which is also what
    vm.overcommit_memory=2 counts.
    """
    said = program("exhausted.c", mode).succeed(size, limits={kind: 64 * MIB})
    first, second = map(int, said.split())
    assert first > 0.7 * 64 * MIB, f"only {first:,} bytes could be used"
    assert second > 0.95 * first


@archive_later
@pytest.mark.parametrize("kind", LIMITS, ids=KINDS)
def test_requests_that_no_limit_allows_take_nothing_from_those_that_follow(
    program: Callable[..., Program], mode: str, kind: int
) -> None:
    """The records of a refused block once stayed mapped: 40 MiB for a request of 20 GiB."""
    assert int(program("tight.c", mode).succeed(64, limits={kind: 64 * MIB})) >= 45


@archive_later
def test_sixty_thousand_mappings_leave_room_for_the_allocator(
    program: Callable[..., Program], mode: str
) -> None:
    said = program("mappings.c", mode).succeed().strip()
    if said == "not allowed":
        pytest.skip("the system allows fewer than 60,000 mappings")
    assert int(said) >= 60_000


@archive_later
def test_a_program_without_proc_allocates(program: Callable[..., Program], mode: str) -> None:
    """The program runs in a mount namespace in which /proc is empty."""
    hide = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    emptied = 'mount -t tmpfs none /proc && test ! -e /proc/self && exec "$0" "$@"'
    if subprocess.run([*hide, emptied, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a mount namespace is not allowed here")
    for source, arguments in (("grown.c", ()), ("random_calls.c", (80, 100_000, 4, "fork"))):
        run = program(source, mode)
        preload = [] if run.preload is None else ["env", f"LD_PRELOAD={run.preload}"]
        plain = Program(run.path, None)
        assert plain.succeed(*arguments, under=[*hide, emptied, *preload])


# --- addresses ---


@pytest.mark.plain("has no map of blocks")
@archive_later
def test_a_large_alignment_takes_no_addresses_but_those_of_the_records(
    program: Callable[..., Program], tmp_path: Path, mode: str
) -> None:
    """A block at a multiple of 4 GiB takes few system calls, and addresses only for its records.

    An earlier version took 4 GiB of addresses, 256 system calls and half a millisecond. The five
    blocks lie within 256 GiB. Records take one byte for each 256 bytes of addresses. Each block may
    take three system calls, and four more are allowed for all of them.
    """
    run = program("aligned_far.c", mode)
    assert int(run.succeed()) < 1 << 20, "in kilobytes; the records of 256 GiB take 1 GiB"
    lines = calls(run, tmp_path / "trace", "mmap,munmap,madvise")
    begun = next(i for i, line in enumerate(lines) if "MAP_FIXED_NOREPLACE" in line)
    assert len(lines[begun:]) <= 4 + 5 * 3, "\n".join(lines[begun:])


# --- RTLD_DEEPBIND ---


def test_deepbind_is_dropped_only_where_a_plugin_could_free_our_blocks(
    library: Library, compiled_here: Callable[..., Path]
) -> None:
    """Cairn's dlopen and dlmopen call those of the next library, here shown_flags.c.

    That library prints whether the flag RTLD_DEEPBIND has reached it.
    """
    shown = compiled_here("shown_flags.c", "-shared", "-fPIC")
    asks = compiled_here("asks_deepbind.c")
    preload = f"LD_PRELOAD={library.shared} {shown}"
    said = Program(asks, None).succeed(under=["env", preload])
    kept = Program(asks, None).succeed(under=["env", preload, "CAIRN_KEEP_DEEPBIND=1"])
    assert re.findall(r"(\w+) (\w+)", said) == [
        ("plugin", "dropped"),
        ("program", "kept"),
        ("noload", "kept"),
        ("namespace", "kept"),
        ("base", "dropped"),
    ]
    assert "dropped" not in kept
