"""Tests of CAIRN_GUARDED=N: one in N small blocks lies on a page of its own, in both libraries."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import MODES, Ended, Library, Program

COUNT = 100_000
"""The number of blocks that guarded.c allocates."""

BUILDS = pytest.mark.parametrize("build", ["program", "hardened"])


@pytest.fixture
def guarded(request: pytest.FixtureRequest, build: str) -> Callable[[str], Program]:
    """Builds guarded.c for the plain or the hardened library."""
    made: Callable[..., Program] = request.getfixturevalue(build)
    return lambda mode: made("guarded.c", mode)


@BUILDS
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("every", "size", "kind"),
    [
        (100, 100, "none"),
        (1000, 24, "none"),
        (100, 4000, "none"),
        (1, 24, "none"),
        (10, 64, "aligned"),
        (100, 128, "aligned"),
    ],
)
def test_one_in_so_many_blocks_is_guarded(
    guarded: Callable[[str], Program], mode: str, every: int, size: int, kind: str
) -> None:
    """If N is less than the length of a list, far fewer blocks were guarded.

    The hardened build guarded no block with an alignment.
    """
    count = int(guarded(mode).succeed(kind, size, CAIRN_GUARDED=str(every)))
    # The number of blocks until the next guarded one is random, from 1 to 2 N - 1. Its standard
    # deviation is 0.58 N. So the count has a standard deviation of 0.58 times the root of its mean.
    mean = COUNT / every
    assert abs(count - mean) <= 5 * 0.58 * mean**0.5 + 0.05 * mean


@BUILDS
@pytest.mark.parametrize("size", [100, 4097])
def test_none_is_guarded_without_the_option_or_above_a_page(
    guarded: Callable[[str], Program], size: int
) -> None:
    environment = {"CAIRN_GUARDED": "100"} if size > 4096 else {}
    assert guarded("preloaded").succeed("none", size, **environment) == "0\n"


@BUILDS
@pytest.mark.parametrize("value", ["x", "0", "-1", "1.5", "12345678901234567890"])
def test_a_value_that_is_no_number_is_refused_in_one_sentence(
    guarded: Callable[[str], Program], value: str
) -> None:
    assert guarded("preloaded")("none", CAIRN_GUARDED=value) == Ended(
        0,
        "0\n",
        "cairn: CAIRN_GUARDED is not a number such as 1000, so no block is guarded\n",
    )


def function(program: Program, address: str) -> str:
    """Returns the name of the function in which the call before this return address lies."""
    done = subprocess.run(
        ["addr2line", "-f", "-e", program.path, hex(int(address, 16) - 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[0]


@BUILDS
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "says", "code", "freed"),
    [
        ("read", "a block is used after it was freed", signal.SIGSEGV, True),
        ("write", "a block is used after it was freed", signal.SIGSEGV, True),
        ("over", "a write beside a block", signal.SIGABRT, False),
        ("twice", "a block is used that was freed before", signal.SIGABRT, True),
        ("size", "a block is used that was freed before", signal.SIGABRT, True),
        ("inside", "a pointer that is not the start of a block", signal.SIGABRT, False),
    ],
)
def test_a_misuse_is_reported_with_the_stacks(
    guarded: Callable[[str], Program], mode: str, kind: str, says: str, code: int, freed: bool
) -> None:
    run = guarded(mode)
    ended = run(kind, 100, CAIRN_GUARDED="50")
    assert ended.code == -code, ended.err
    first, *stacks = ended.err.splitlines()
    assert re.fullmatch(
        rf"cairn: {says}: 0x[0-9a-f]+, byte -?\d+ of a guarded block of 100 bytes", first
    )
    assert [line.split(" at ")[0] for line in stacks] == [
        "cairn:   allocated",
        *(["cairn:   freed"] if freed else []),
    ]
    names = [
        {function(run, address) for address in re.findall(r"the program\+(0x\w+)", line)}
        for line in stacks
    ]
    assert "allocates" in names[0] and all("frees" in found for found in names[1:])


@BUILDS
def test_a_misuse_is_reported_while_another_thread_has_the_loaders_lock(
    guarded: Callable[[str], Program],
) -> None:
    """The report needs the loader's lock, whose holder may wait for the lock of guarded blocks.

    The program once hung.
    """
    ended = guarded("preloaded")("loader", 100, CAIRN_GUARDED="50")
    assert ended.code == -signal.SIGABRT, ended.err
    first, _, freed = ended.err.splitlines()
    assert "a block is used that was freed before" in first and "freed at " in freed


@BUILDS
def test_a_write_before_the_start_is_noticed(guarded: Callable[[str], Program]) -> None:
    # If the block lies at the start of its page, the write is a segmentation fault. Otherwise the
    # write changes the fill pattern before the block, and free() notices that and aborts.
    ended = guarded("preloaded")("under", 100, CAIRN_GUARDED="50")
    assert ended.code in (-signal.SIGSEGV, -signal.SIGABRT)
    assert re.match("cairn: (a write beside a block|an access beyond a block): 0x", ended.err)


@BUILDS
@pytest.mark.parametrize("mode", MODES)
def test_a_signal_that_a_process_sends_is_no_fault(
    guarded: Callable[[str], Program], mode: str
) -> None:
    """The signal ends the program, and is not reported as a misuse."""
    assert guarded(mode)("sent", CAIRN_GUARDED="50") == Ended(-signal.SIGSEGV, "", "")


@pytest.fixture
def shared(request: pytest.FixtureRequest, build: str) -> Path:
    """Returns the shared library of the plain or the hardened build."""
    made: Callable[..., Program] = request.getfixturevalue(build)
    preload = made("guarded.c", "preloaded").preload
    assert preload is not None
    return preload


@BUILDS
@pytest.mark.parametrize("command", ["env", "sh -c env"])
def test_the_environment_of_the_program_and_its_children_stays(shared: Path, command: str) -> None:
    """A library that is loaded before libc is initialised would empty it."""

    def variables(**more: str) -> set[str]:
        path = shutil.which(command.split(maxsplit=1)[0])
        assert path is not None
        words = [path, *command.split(maxsplit=2)[1:]]
        given = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(shared), "OTHER": "x"} | more
        done = subprocess.run(words, env=given, capture_output=True, text=True, check=True)
        assert not done.stderr
        return set(done.stdout.splitlines()) - {f"_={path}"}

    expected = variables()
    assert "OTHER=x" in expected and f"LD_PRELOAD={shared}" in expected
    assert variables(CAIRN_GUARDED="100") == expected | {"CAIRN_GUARDED=100"}


@BUILDS
def test_stacks_are_not_known_before_libc_is_initialised(
    shared: Path, compiled_here: Callable[..., Path]
) -> None:
    early = compiled_here("guarded_early.c", "-shared", "-fPIC")
    run = Program(Path("/bin/true"), None)
    ended = run(under=["env", f"LD_PRELOAD={shared} {early}"], CAIRN_GUARDED="1")
    assert ended.code == -signal.SIGABRT
    unknown = "an unknown place, because no stack could be read then"
    assert re.fullmatch(
        "cairn: a block is used that was freed before: 0x[0-9a-f]+, byte 0 of a guarded block of "
        f"100 bytes\ncairn:   allocated at {unknown}\ncairn:   freed at {unknown}\n",
        ended.err,
    )


@BUILDS
def test_a_stack_that_is_too_long_for_its_line_is_cut(
    shared: Path, compiled_here: Callable[..., Path], tmp_path: Path
) -> None:
    """Such a line once had no end, so the next one followed on it."""
    deep = compiled_here("guarded_deep.c", "-shared", "-fPIC")
    named = tmp_path / f"{'a' * 200}.so"
    named.symlink_to(deep)
    run = Program(Path("/bin/true"), None)
    ended = run(under=["env", f"LD_PRELOAD={shared} {named}"], CAIRN_GUARDED="1")
    assert ended.code == -signal.SIGABRT
    _, *stacks = ended.err.splitlines(keepends=True)
    assert [line[:18] for line in stacks] == ["cairn:   allocated", "cairn:   freed at "]
    assert [len(line) for line in stacks] == [1023, 1023]
    # A line has room for three or four frames, by the length of the paths.
    assert all(line.count(f"{named.name}+0x") >= 3 and line.endswith("\n") for line in stacks)


@pytest.mark.parametrize("words", [(), ("HANDLER",)], ids=["default", "handler"])
def test_a_library_that_is_closed_leaves_no_handler_behind(
    library: Library, compiled_here: Callable[..., Path], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The handler of a closed library with the archive was called at the program's next fault.

    The second library has found the handler of the first one, which is closed first.
    """
    first = compiled_here("plugin.c", "-DWITH_CAIRN_ITSELF", library.archive, "-shared", "-fPIC")
    second = tmp_path / "second.so"
    shutil.copy(first, second)
    run = Program(compiled_here("closes.c"), None)
    left = "before\n" if words else "default\n"
    assert run.succeed(*words, first, CAIRN_GUARDED="100") == left
    assert run.succeed(*words, first, second, CAIRN_GUARDED="100") == "default\n"


@pytest.mark.parametrize("build", ["program", "hardened"])
@pytest.mark.parametrize("mode", MODES)
def test_random_calls_do_what_the_shadow_says_while_blocks_are_guarded(
    request: pytest.FixtureRequest, build: str, mode: str
) -> None:
    run = request.getfixturevalue(build)("random_calls.c", mode, "-O2")
    said = run.succeed(62, 100_000, 4, "fork", "limit", timeout=600, CAIRN_GUARDED="20")
    assert " operations, " in said
