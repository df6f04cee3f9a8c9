"""Tests of the clock samples of running processes, and of what is needed to read them."""

from __future__ import annotations

import errno
import mmap
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.inspected import started

from cairn.binary import elf
from cairn.inspect import clock, sampled
from cairn.inspect.in_program import InProgram
from cairn.inspect.perf_map import CODE, PerfMap
from cairn.inspect.process import Target
from cairn.inspect.sampled import Sampled, sample
from cairn.profile.address_space import Space
from cairn.profile.code_owners import Owner
from cairn.profile.unwind import Unwinder

SECONDS = 0.3


def watched(*command: object) -> Sampled:
    with started(*command) as one:
        found = sample(one.pid, SECONDS)
    if found.run is None and "does not permit clock samples" in found.why_not:
        pytest.skip(found.why_not)
    assert found.run is not None, found.why_not
    if found.run.samples < 100:
        pytest.skip("the machine is too busy")
    return found


def callers(found: Sampled) -> set[str]:
    return {stack[0] for stack, count in found.stacks if stack and count > 5}


@pytest.mark.skipif(elf.native()[2], reason="the C library here is musl")
def test_a_static_program_has_its_allocator_and_callers(compiled: Callable[..., Path]) -> None:
    found = watched(compiled("inspected.c", "-O2", "-static", "-pthread"), "burn", 0)
    assert {one.name for one in found.run.functions[:3]} & {"malloc", "_int_free", "free", "cfree"}
    assert found.run.inside_ns > 0.1 * found.run.whole_ns
    assert callers(found) == {"take", "give"}
    assert next(stack[:3] for stack, _ in found.stacks)[1:] == ("serve", "main")


@pytest.mark.parametrize(
    ("code", "is_call"),
    [
        (b"\xe8\x01\x02\x03\x04", True),  # a distance of 4 bytes
        (b"\xff\xd0", True),  # a register
        (b"\xff\x15\x01\x02\x03\x04", True),  # a place in memory
        (b"\x48\x89\xc7\x90\x90\x90\x90", False),
        (b"\xe8\x01\x02\x03\x04\x90", False),  # one instruction later
    ],
)
def test_a_return_address_follows_a_call(tmp_path: Path, code: bytes, is_call: bool) -> None:
    file = tmp_path / "code"
    before, behind = bytes(100), b"\xe8\xff\xd0\xe8\xff\xd0\xe8\xff\xd0\xe8\xff\xd0"
    file.write_bytes(before + code + behind)
    opened = len(os.listdir("/proc/self/fd"))
    assert sampled._follows_call(str(file), len(before + code) - 1) == is_call
    assert len(os.listdir("/proc/self/fd")) == opened


def test_without_memory_for_stacks_the_share_stays_and_the_callers_end(
    compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "_KEPT_BYTES", 200_000)
    found = watched(compiled("inspected.c", "-O2", "-pthread"), "burn", 0)
    assert callers(found) == {"take", "give"}
    resolved = sum(count for _, count in found.stacks)
    assert 10 < resolved < 200_000 / 2_000
    assert found.without_stack > 10
    assert found.run.inside_ns > 0.1 * found.run.whole_ns


def test_without_the_right_to_processors_each_thread_has_a_clock(
    compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = clock._opened

    def refusing(of: clock.SampleClock, pid: int, processor: int) -> object:
        if pid < 0:
            raise PermissionError(errno.EACCES, "not permitted")
        return opened(of, pid, processor)

    monkeypatch.setattr(clock, "_opened", refusing)
    found = watched(compiled("inspected.c", "-O2", "-pthread"), "burn", 0)
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    sees_kernel = os.geteuid() == 0 or paranoid < 2
    assert found.scope == ("threads" if sees_kernel else "threads in user mode")
    assert callers(found) == {"take", "give"}


def test_without_any_right_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object) -> object:
        raise PermissionError(errno.EACCES, "not permitted")

    monkeypatch.setattr(clock, "_opened", refusing)
    with pytest.raises(clock.NoClock, match=r"root, or set kernel\.perf_event_paranoid to 2"):
        clock.opened(Target(os.getpid(), "me", 1, ""), 1.0)


def test_the_functions_of_an_allocator_are_told_from_those_of_the_program(
    compiled: Callable[..., Path],
) -> None:
    program = str(compiled("inspected.c", "-O2", "-static", "-pthread"))
    code = InProgram.of_file(program, program, "glibc")
    assert code is not None
    descriptor = os.open(program, os.O_RDONLY)
    try:
        image = elf.Image(descriptor)
        from cairn.profile.symbols import Functions

        named = Functions(image, ((".symtab", ".strtab"),)).named()
        owners = {name: code.owner(program, image.offset_of(start)) for start, _, name in named}
    finally:
        os.close(descriptor)
    # glibc 2.36 has one function _int_free(), and glibc 2.41 has several, such as _int_free_chunk().
    freeing = [name for name in owners if name.startswith("_int_free")]
    assert freeing
    for name in ("malloc", "_int_malloc", "sysmalloc", *freeing):
        assert owners[name] is Owner.ALLOCATOR
    for name in ("main", "serve", "take", "printf", "memcpy"):
        assert owners[name] is Owner.PROGRAM
    assert InProgram.of_file(program, program, "an allocator of the program") is None


def test_a_map_for_perf_names_functions_by_address(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    (folder / f"perf-{os.getpid()}.map").write_text(
        "7f0000001000 20 Lfoo;::bar(I)V\nno function\n7f0000001020 10 baz\n"
    )
    functions = PerfMap(Target(os.getpid(), "me", 1, str(tmp_path)))
    assert functions.name(0x7F0000001000) == functions.name(0x7F000000101F) == "Lfoo;::bar(I)V"
    assert functions.name(0x7F0000001025) == "baz"
    assert functions.name(0x7F0000001030) == functions.name(0x1000) == CODE


@pytest.mark.parametrize("size", [0, 8, 100, 4096])
def test_a_walk_of_nonsense_ends(compiled: Callable[..., Path], size: int) -> None:
    """The registers and the stack are invented and belong to no program."""
    program = str(compiled("inspected.c", "-O2", "-pthread"))
    space = Space()
    space.put(0x1000, os.path.getsize(program), 0, program)
    registers, unwinder = dict.fromkeys(clock.REGISTERS, 0x5000), Unwinder()
    for address in range(0x1000, 0x1000 + os.path.getsize(program), 97):
        registers[clock.IP] = address
        stack = struct.pack("<Q", address) * (size // 8)
        assert len(tuple(unwinder.walk(space, registers, stack))) <= 64


def test_a_ring_gives_each_record_once() -> None:
    """The kernel writes only where the reader has read, so the reader must say how far it is."""
    size = 4 * mmap.PAGESIZE
    area = mmap.mmap(-1, size + mmap.PAGESIZE)
    ring = clock._Ring(os.open("/dev/null", os.O_RDONLY), area, size)
    content = bytes(random.Random(3).randbytes(2 * size))

    def write(begin: int, end: int) -> None:
        for place in range(begin, end):
            area[mmap.PAGESIZE + place % size] = content[place]
        struct.pack_into("<Q", area, clock._HEAD, end)

    read = b""
    for begin, end in (
        (0, 100),
        (100, 100),
        (100, size),
        (size, size + 3000),
        (size + 3000, 2 * size),
    ):
        write(begin, end)
        read += clock._drained(ring)
        assert struct.unpack_from("<Q", area, clock._TAIL) == (end,)
    assert read == content
    ring.close()
