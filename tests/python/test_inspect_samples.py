"""Tests of the clock samples of running processes, and of what is needed to read them."""

from __future__ import annotations

import errno
import mmap
import os
import platform
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.inspected import started

from cairn.binary import elf
from cairn.inspect import clock, mappings, perf_map, process, sampled
from cairn.inspect.allocator import examine
from cairn.inspect.in_program import InProgram
from cairn.inspect.perf_map import CODE, PerfMap
from cairn.inspect.process import Target
from cairn.inspect.sampled import Sampled, sample
from cairn.profile.address_space import Space
from cairn.profile.code_owners import AllocatorCode, Owner
from cairn.profile.unwind import Unwinder

SECONDS = 0.3


def usable(found: Sampled) -> Sampled:
    """Skips the test if the kernel permits no samples, or if a busy machine gave too few."""
    if found.run is None and "does not permit clock samples" in found.why_not:
        pytest.skip(found.why_not)
    assert found.run is not None, found.why_not
    if found.run.samples < 100:
        pytest.skip("the machine is too busy for 100 samples")
    return found


def watched(*command: object) -> Sampled:
    with started(*command) as one:
        found = sample(one.pid, SECONDS)
    return usable(found)


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


def perf_map_of(folder: Path, text: str | None = None) -> PerfMap:
    """The map of this process, whose file has this text. The folder stands for the root folder."""
    (folder / "tmp").mkdir(exist_ok=True)
    if text is not None:
        (folder / "tmp" / f"perf-{os.getpid()}.map").write_text(text)
    return PerfMap(Target(os.getpid(), "me", 1, str(folder)))


def test_a_map_for_perf_names_functions_by_address(tmp_path: Path) -> None:
    text = "7f0000001000 20 Lfoo;::bar(I)V\nno function\n7f0000001020 10 baz\n"
    functions = perf_map_of(tmp_path, text)
    functions.refresh()
    assert functions.name(0x7F0000001000) == functions.name(0x7F000000101F) == "Lfoo;::bar(I)V"
    assert functions.name(0x7F0000001025) == "baz"
    assert functions.name(0x7F0000001030) == functions.name(0x1000) == CODE


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # Once, the longer of two functions at one address gave the name.
        ("1000 200 old\n1000 80 new\n", {0x1010: "new", 0x1090: "old", 0x1200: CODE}),
        # Once, a small old function hid the rest of the larger one that took its place.
        ("1100 20 old\n1000 400 new\n", {0x1110: "new", 0x1200: "new", 0x1000: "new"}),
        ("1000 400 old\n1100 20 new\n", {0x10FF: "old", 0x1110: "new", 0x1120: "old"}),
        ("1000 0 empty\n1000 10 full\n", {0x1000: "full"}),
    ],
)
def test_the_last_function_at_an_address_gives_the_name(
    tmp_path: Path, text: str, names: dict[int, str]
) -> None:
    functions = perf_map_of(tmp_path, text)
    functions.refresh()
    assert {address: functions.name(address) for address in names} == names


@pytest.mark.parametrize("seed", range(5))
def test_many_functions_that_overlap_are_named_like_one_by_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    made = [(chance.randrange(500), chance.randrange(-2, 80), f"f{n}") for n in range(100)]
    functions = perf_map_of(tmp_path, "".join(f"{a:x} {n:x} {name}\n" for a, n, name in made))
    functions.refresh()
    for address in range(600):
        there = [name for start, size, name in made if start <= address < start + size]
        assert functions.name(address) == (there[-1] if there else CODE)


def test_functions_that_are_compiled_later_are_named(tmp_path: Path) -> None:
    """Once, the map was read before the sampling."""
    with perf_map_of(tmp_path) as functions:
        functions.refresh()
        assert functions.name(0x1000) == CODE
        perf_map_of(tmp_path, "1000 10 first\n")
        functions.refresh()
        assert functions.name(0x1000) == "first"
        path = tmp_path / "tmp" / f"perf-{os.getpid()}.map"
        with path.open("a") as file:
            file.write("2000 10 second\n3000 10 thi")
        path.unlink()  # the open file stays readable
        functions.refresh()
        assert functions.name(0x2000) == "second"
        assert functions.name(0x3000) == CODE, "its line has no end yet"


def test_of_a_large_map_the_newest_functions_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_map, "_BYTES_MOST", 1000)
    functions = perf_map_of(tmp_path, "".join(f"{n:x}000 10 f{n}\n" for n in range(1, 500)))
    functions.refresh()
    assert functions.name(499 << 12) == "f499"
    assert functions.name(1 << 12) == CODE


NAMED_MEMORY = ["/memfd:doublemapper", "[anon:jit]", "[anon_shmem:jit]", "/dev/zero", ""]
"""Names of memory into which just-in-time compilers put code, as /proc/PID/maps shows them."""


@pytest.mark.parametrize("path", NAMED_MEMORY)
def test_code_in_memory_with_a_name_is_known_by_its_address(
    compiled: Callable[..., Path], path: str
) -> None:
    one = mappings.Mapping(0x7000, 0x9000, False, True, True, 0x3000, path)
    with started(compiled("inspected.c", "-O2", "-pthread"), "idle") as running:
        target = process.find(running.pid)
        program = examine(target, mappings.read_maps(target), "", None)
    space = sampled._space(sampled._Paths(target, program, ""), [one])
    assert space.place(0x7010) == (sampled.ANONYMOUS, 0x7010)


def test_a_program_that_was_executed_from_memory_is_a_file(compiled: Callable[..., Path]) -> None:
    with started(compiled("inspected.c", "-O2", "-pthread"), "idle") as running:
        target = process.find(running.pid)
        program = examine(target, mappings.read_maps(target), "", None)
    itself = replace(program.loaded[0], path="/memfd:program")
    paths = sampled._Paths(target, replace(program, loaded=(itself,)), "")
    one = mappings.Mapping(0x7000, 0x9000, False, True, False, 0x3000, "/memfd:program")
    assert sampled._space(paths, [one]).place(0x7010) == ("/memfd:program", 0x3010)


@pytest.mark.parametrize("path", ["/memfd:doublemapper (deleted)", "[anon:jit]", "/dev/zero"])
def test_new_code_in_memory_with_a_name_is_known_by_its_address(path: str) -> None:
    code = AllocatorCode(frozenset())
    counts = sampled._StackCounts(code, 7, 1_000_000, "processors", frozenset(), None)
    counts.spaces[7] = Space()
    for name, start in ((path, 0x7000), ("/lib/some.so", 0xA000)):
        head = struct.pack("<IIQQQIIQQII", 7, 7, start, 0x2000, 0x3000, 0, 0, 0, 0, 5, 2)
        counts.add(sampled._MMAP2, 0, head + name.encode() + b"\0" + bytes(16))
    assert counts.spaces[7].place(0x7010) == (sampled.ANONYMOUS, 0x7010)
    assert counts.spaces[7].place(0xA010) == ("/lib/some.so", 0x3010)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the program writes code of x86-64")
@pytest.mark.parametrize("memory", ["memfd", "anonymous"])
def test_code_that_is_compiled_while_it_is_sampled_has_its_name(
    compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """Like .NET, the program has its code in a file in memory."""
    opened = clock.opened
    with started(compiled("compiles_code.c", "-O2"), memory) as one:
        file = Path(f"/tmp/perf-{one.pid}.map")

        def writing(target: Target, seconds: float) -> clock.SampleClock:
            file.write_text(f"{one.told:x} 40 Main::allocates\n")
            return opened(target, seconds)

        monkeypatch.setattr(clock, "opened", writing)
        try:
            found = sample(one.pid, SECONDS)
        finally:
            file.unlink(missing_ok=True)
    assert callers(usable(found)) == {"Main::allocates"}


def test_a_process_whose_first_thread_has_ended_is_sampled(compiled: Callable[..., Path]) -> None:
    found = watched(compiled("first_thread_ends.c", "-O2", "-pthread"))
    assert callers(found) == {"works"}
    assert not found.is_ended
    assert found.unwatched == 0


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


@pytest.mark.parametrize("processors", [1, 8, 64, 512])
def test_a_longer_measurement_gives_more_samples(processors: int) -> None:
    """On many processors, the period once grew with the time, so a thread never had more samples.

    With 50 processors and --for 10min it was 60 ms, a whole number of milliseconds.
    """
    lengths_s = (6.0, 10.0, 60.0, 600.0)
    periods_ns = [clock.mean_period_ns(one, processors) for one in lengths_s]
    assert len(set(periods_ns)) == 1 and periods_ns[0] % 1_000_000
    assert processors * 1e9 / periods_ns[0] < 100_000
    assert clock.mean_period_ns(10.0, 64) == clock.PERIOD_NS


def test_only_living_threads_without_a_clock_are_counted_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that had just ended once counted as threads for which there was no clock."""
    ended, mine = 4_000_000, threading.get_native_id()
    errors: dict[int, int] = {}

    def refusing(_: clock.SampleClock, pid: int, __: int) -> object:
        raise OSError(errors[pid], os.strerror(errors[pid]))

    monkeypatch.setattr(clock, "_opened", refusing)
    monkeypatch.setattr(clock, "threads", lambda _: [mine, ended])
    ticking = clock.SampleClock(Target(os.getpid(), "me", 1, ""), "threads", 1, 4096)
    errors |= {mine: errno.ESRCH, ended: errno.ENOENT}
    ticking.watch_new()
    assert (ticking.unwatched, ticking.refused) == (0, "")
    errors[mine] = errno.EMFILE
    ticking.watch_new()
    assert (ticking.unwatched, ticking.unwatched_refused) == (1, 1)
    assert ticking.refused == "the kernel refused it: Too many open files"


def test_a_ring_that_the_kernel_permits_no_memory_for_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mapping of the ring fails with EPERM then. That was once told as "Operation not permitted"."""

    def refusing(*_: object) -> object:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    me = Target(os.getpid(), "me", 1, "")
    ticking = clock.SampleClock(me, "threads in user mode", clock.PERIOD_NS, 4096)
    clock._opened(ticking, threading.get_native_id(), -1).close()
    monkeypatch.setattr(mmap, "mmap", refusing)
    ticking.watch_new()
    assert ticking.unwatched == ticking.unwatched_refused >= 1
    assert ticking.refused == clock.NO_MEMORY
    with pytest.raises(clock.NoClock, match="there is no more memory for clocks"):
        clock.opened(me, 1.0)


def test_with_more_threads_than_clocks_the_kernel_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "THREADS_MOST", 0)
    ticking = clock.SampleClock(Target(os.getpid(), "me", 1, ""), "threads", 1, 4096)
    ticking.watch_new()
    assert ticking.unwatched >= 1
    assert (ticking.unwatched_refused, ticking.refused) == (0, "")
