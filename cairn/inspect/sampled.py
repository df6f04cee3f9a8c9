"""Says from clock samples how much CPU time a running process's allocator takes, and for whom.

`profile.cpu_samples` divides the samples into places. This file adds two things: an allocator that
is a part of the program's file, and the call stacks of the samples in the allocator.
"""

from __future__ import annotations

import functools
import math
import os
import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, field

from cairn.binary import elf
from cairn.inspect import clock, mappings
from cairn.inspect.allocator import VALGRIND, LoadedFile, ProgramFiles, examine
from cairn.inspect.in_program import InProgram
from cairn.inspect.memory import ProcessMemory
from cairn.inspect.perf_map import PerfMap
from cairn.inspect.process import NotPermitted, ProcessEnded, Target, find, stat_of
from cairn.inspect.settings import read as read_environment
from cairn.profile.address_space import Space
from cairn.profile.code_owners import AllocatorCode, NotKnown, Owner
from cairn.profile.cpu_samples import MARK, SampleCounts, Spot, ordered, run_of
from cairn.profile.demangle import demangled, plain, without_arguments
from cairn.profile.function_names import Names
from cairn.profile.tally import ClockRun, Scope

DRAIN_S = 0.05
LOOK_S = 1.0
"""The interval at which a live screen gets new numbers."""
ANONYMOUS = "//anon"
"""The path that the kernel gives to memory without a file. Just-in-time compilers put code into
such memory."""
_NAMED = ("[anon", "/memfd:", "/dev/zero")
"""The beginnings of the paths of memory that has a name, although it has no file of a disk.
Just-in-time compilers use it, too: .NET has "/memfd:doublemapper"."""
_FORK, _SAMPLE, _MMAP2 = 7, 9, 10
_START_AT, _OFFSET_AT, _PATH_AT = 8, 24, 64
"""The offsets of address, file offset and path in a record of a mapping. After the path, the record
ends with 16 bytes of times and numbers."""
_AT = struct.Struct("<QIIQQQ")
_WORD = struct.Struct("<Q")
_CONTEXT_USER = (1 << 64) - 512
_CONTEXTS = (1 << 64) - 4095
"""Words of a call chain from this value on are marks and no addresses. A mark says whether the next
words are addresses in the kernel or in user mode."""
_INSIDE = frozenset((Spot.OWN, Spot.CALLS, Spot.OWN_FAULTS))
_WORDS = 32
"""If no unwind table leads to the caller, this many words of the stack are searched for it."""
_STACKS_MOST = 200_000
"""The most samples whose call stacks are resolved."""
_KEPT_MOST = 500_000
"""The most samples that wait to be counted. When there are more, half of them are dropped, and from
then on only one of 2^n samples is kept (see `_Backlog`). In ten minutes, 64 busy processors would
otherwise give 36 million samples, which need gigabytes of memory."""
_THINNING_SHIFT = 8
"""The place of n in the flags (`misc`) of a sample that stands for 2^n samples, as `cpu_samples`
reads it."""
_KEPT_BYTES = 512 << 20
"""When the samples that wait to be counted take this many bytes, further samples are kept without
their stacks."""


class Sampled(Struct, frozen=True):
    """The clock samples of a process over some time."""

    target: Target
    program: ProgramFiles
    seconds: float
    scope: Scope | None
    run: ClockRun | None
    why_not: str
    """Why `run` is None, as the end of a sentence."""
    stacks: tuple[tuple[tuple[str, ...], int], ...]
    """The functions that called the allocator, the innermost first, and the number of samples of
    each such call stack."""
    unwatched: int
    """The number of threads that had no clock (a perf event)."""
    cpu_ns: float
    """The CPU time of the process while it was sampled, by the account of the kernel."""
    lost_ns: float
    """At most this much of the CPU time of all processes has no samples, because the kernel had no
    room for them. It is a part of `run.unknown_ns`."""
    is_ended: bool
    """Whether the process ended before it had been sampled for the wanted time."""
    without_stack: int = 0
    """The number of samples in the allocator whose call stacks were not resolved, because they came
    after the first 200,000, or after 512 MiB of samples."""
    unwatched_refused: int = 0
    """The number of threads of `unwatched` to which the kernel refused a clock. For the others,
    there were too many threads."""
    refused: str = ""
    """Why the kernel refused a clock to threads, as a clause; empty if it refused none."""


class _StackCounts(SampleCounts):
    """Counts that also keep the call stacks of the samples in the allocator."""

    readable: Callable[[str], str] = str
    chains: Counter[tuple[tuple[str, int], ...]] = field(default_factory=Counter)
    bare_from_ns: float = math.inf
    """Samples from this time on, in the kernel's clock, count without a call stack, because
    `_KEPT_BYTES` was reached. Infinite if it was not."""
    resolved: int = 0
    """The number of samples in the allocator whose call stacks were resolved."""
    without_stack: int = 0
    """The number of samples in the allocator whose call stacks were not resolved."""
    _is_bare: bool = False
    _user: tuple[int, ...] = ()
    _registers: dict[int, int] = field(default_factory=dict)
    _stack: bytes = b""

    def add(self, kind: int, misc: int, body: bytes) -> None:
        """Like SampleCounts.add, but children of the process do not count."""
        if kind == _FORK:
            return
        if kind == _SAMPLE:
            self._is_bare = _AT.unpack_from(body)[3] >= self.bare_from_ns
            body = self._plain(body)
        if kind == _MMAP2 and body[_PATH_AT : _PATH_AT + 2] not in (b"//", b"[v"):
            body = self._mapped(body)
        SampleCounts.add(self, kind, misc, body)

    def _mapped(self, body: bytes) -> bytes:
        """The record of a mapping with a path by which we can open the file."""
        path = os.fsdecode(body[_PATH_AT : body.index(b"\0", _PATH_AT)])
        head = body[:_PATH_AT]
        if _is_anonymous(path):
            # For anonymous memory, the address stands in place of the offset.
            start = _WORD.unpack_from(body, _START_AT)[0]
            head = head[:_OFFSET_AT] + _WORD.pack(start) + head[_OFFSET_AT + _WORD.size :]
            path = ANONYMOUS
        else:
            path = self.readable(path)
        return head + os.fsencode(path) + b"\0" + body[-16:]

    def _plain(self, body: bytes) -> bytes:
        """The sample in the form that `cpu_samples` reads.

        The parts that `cpu_samples` does not need are kept for `_callers`.
        """
        length = _AT.unpack_from(body)[5]
        chain = struct.unpack_from(f"<{length}Q", body, _AT.size)
        at = _AT.size + 8 * length
        marks = [place for place, one in enumerate(chain) if one == _CONTEXT_USER]
        inner = chain[: marks[0]] if marks else chain
        user = chain[marks[0] + 1 :] if marks else ()
        self._user = tuple(one for one in user if one < _CONTEXTS)
        head = _AT.pack(*_AT.unpack_from(body)[:5], len(inner))
        head += struct.pack(f"<{len(inner)}Q", *inner)
        (width,) = _WORD.unpack_from(body, at)
        at += 8
        self._registers, self._stack = {}, b""
        if not width:
            return head + _WORD.pack(0)
        count = len(clock.REGISTERS)
        values = struct.unpack_from(f"<{count}Q", body, at)
        at += 8 * count
        registers = dict(zip(clock.REGISTERS, values, strict=True))
        (size,) = _WORD.unpack_from(body, at)
        at += 8
        there = _WORD.unpack_from(body, at + size)[0] if size else 0
        self._registers, self._stack = registers, body[at : at + min(size, there)]
        rest = struct.pack(
            "<QQQQ", registers[clock.BP], registers[clock.SP], registers[clock.IP], size
        )
        return head + _WORD.pack(width) + rest + body[at:]

    def _place(self, body: bytes, space: Space, is_dispatched: bool, in_kernel: bool) -> Spot:
        place = SampleCounts._place(self, body, space, is_dispatched, in_kernel)
        if place in _INSIDE and (self._is_bare or self.resolved == _STACKS_MOST):
            self.without_stack += 1
        elif place in _INSIDE:
            self.resolved += 1
            self.chains[tuple(self._callers(space))] += 1
        return place

    def _callers(self, space: Space) -> Iterator[tuple[str, int]]:
        """Yields file and offset of each call that led to the allocator, the innermost first."""
        addresses: Sequence[int] = ()
        if self._registers:
            addresses = tuple(self.unwinder.walk(space, self._registers, self._stack))
        if len(self._user) - 1 > len(addresses):
            addresses = self._user[1:]
        is_outside = False
        for address in addresses:
            # A call may be the last instruction of its function. The return address then lies
            # after the function, so the byte before this address is looked up.
            place = space.place(address - 1)
            if place is None:
                continue
            owner = self.allocator.owner(*place)
            if not is_outside and owner is not Owner.PROGRAM:
                continue
            is_outside = True
            yield place
        if is_outside or not self._stack:
            return
        words = struct.unpack(f"<{len(self._stack) // 8}Q", self._stack[: len(self._stack) & ~7])
        for word in words[:_WORDS]:
            place = space.place(word - 1)
            if (
                place is not None
                and self.allocator.owner(*place) is Owner.PROGRAM
                and _follows_call(*place)
            ):
                yield place
                return


@functools.lru_cache(1 << 12)
def _follows_call(path: str, offset: int) -> bool:
    """Whether the instruction that ends with the byte at an offset of a file can be a call.

    A call is E8 with 4 bytes of distance, or FF with a register or a place in memory.
    """
    try:
        descriptor = elf.open_regular(path)
    except OSError:
        return False
    try:
        before = os.pread(descriptor, 7, max(0, offset - 6))
    finally:
        os.close(descriptor)
    if len(before) < 7:
        return False
    direct = before[-5] == 0xE8
    return direct or any(
        before[-size] == 0xFF and before[-size + 1] >> 3 & 7 == 2 for size in (2, 3, 4, 6, 7)
    )


class Onlooker(Struct, frozen=True):
    """Two functions that `sample` calls while it samples."""

    look: Callable[[Sampled], None]
    """Is called about once a second with what is known so far."""
    is_over: Callable[[], bool]
    """Returns whether sampling ends now."""


def sample(pid: int, seconds: float, onlooker: Onlooker | None = None) -> Sampled:
    """Samples a process for `seconds`, or until the onlooker ends it.

    Raises UsageError, NotPermitted or ProcessEnded (see `process`).
    """
    target = find(pid)
    maps = mappings.read_maps(target)
    environment = read_environment(target) or {}
    try:
        memory: ProcessMemory | None = ProcessMemory(target)
    except NotPermitted:
        memory = None
    try:
        program = examine(target, maps, environment.get("LD_PRELOAD", ""), memory)
    finally:
        if memory is not None:
            memory.__exit__()

    with tempfile.TemporaryDirectory(prefix="cairn-") as folder, PerfMap(target) as perf_map:
        paths = _Paths(target, program, folder)
        return _sampled(target, program, maps, paths, perf_map, seconds, onlooker)


def _sampled(
    target: Target, program: ProgramFiles, maps: Sequence[mappings.Mapping], paths: _Paths,
    perf_map: PerfMap, seconds: float, onlooker: Onlooker | None,
) -> Sampled:  # fmt: skip
    def nothing(why: str) -> Sampled:
        return Sampled(target, program, 0.0, None, None, why, (), 0, 0.0, 0.0, False)

    code, why = _code(paths, maps, program)
    if code is None:
        return nothing(why)
    try:
        ticking = clock.opened(target, seconds)
    except clock.NoClock as error:
        return nothing(str(error))
    # `SampleCounts` takes the scope "processors" to mean that all clocks change their period
    # together. Here, that is also true of the clocks of threads.
    counts = _StackCounts(code, target.pid, ticking.period_ns, "processors", frozenset(), None)
    counts.readable = target.path
    counts.spaces[target.pid] = _space(paths, maps)
    watch = _Watch(ticking, seconds)
    backlog = _Backlog(code, counts.spaces[target.pid])

    def so_far() -> Sampled:
        counts.scope = ticking.scope
        run = run_of(counts, probed=False)
        counts.scope = "processors"
        perf_map.refresh()
        return Sampled(
            target, program, watch.length_s, ticking.scope, run, "",
            _named(counts.chains, perf_map, counts.names), ticking.unwatched, watch.cpu_ns,
            counts.lost_ns, watch.is_ended, counts.without_stack,
            ticking.unwatched_refused, ticking.refused,
        )  # fmt: skip

    try:
        # With an onlooker, samples are counted while the process runs, which takes CPU time beside
        # it. Otherwise they are counted afterwards.
        if onlooker is not None:
            records = watch.watched_by(onlooker, so_far)
        else:
            records = iter(backlog.all_kept(watch.records()))
            counts.bare_from_ns = backlog.bare_from_ns
        for kind, misc, body in ordered(records):
            counts.add(kind, misc, body)
    except NotKnown as error:
        return nothing(str(error))
    finally:
        ticking.close()
    return so_far()


_Record = tuple[int, int, bytes]


class _Backlog:
    """The samples that are kept until the sampling ends, and counted then.

    Most of their bytes are copies of stacks, in which the callers of the allocator are found. A
    sample in the program's own code is kept without its stack.

    At most `_KEPT_MOST` samples are kept. Each of them stands for 2^n samples: n begins as 0 and
    grows by 1 whenever there are too many. Those to drop are chosen at random, since periodic work
    could be in step with any other choice. So the time of each part is still right on average.
    """

    def __init__(self, code: AllocatorCode, space: Space) -> None:
        self.bare_from_ns = math.inf
        """As in `_StackCounts`."""
        self._bytes = 0

        @functools.lru_cache(1 << 16)
        def is_program(address: int) -> bool:
            place = space.place(address)
            return place is not None and code.owner(*place) is Owner.PROGRAM

        self._is_program = is_program

    def all_kept(self, records: Iterable[_Record]) -> list[_Record]:
        """Returns the records that are kept. The flags of each sample say for how many it stands.

        All records but samples are kept.
        """
        found: list[_Record] = []
        samples = thinning = 0
        for record in records:
            if record[0] == _SAMPLE:
                if thinning and random.getrandbits(thinning):
                    continue
                samples += 1
            found.append(self.kept(record))
            while samples > _KEPT_MOST:
                thinning += 1
                found = [one for one in found if one[0] != _SAMPLE or random.getrandbits(1)]
                samples = sum(one[0] == _SAMPLE for one in found)
                self._bytes = sum(len(body) for kind, _, body in found if kind == _SAMPLE)
        return [
            (kind, misc | thinning << _THINNING_SHIFT if kind == _SAMPLE else misc, body)
            for kind, misc, body in found
        ]

    def kept(self, record: _Record) -> _Record:
        """Returns the record as it is to be kept."""
        kind, misc, body = record
        if kind != _SAMPLE:
            return record
        address, *_, time_ns, _, length = _AT.unpack_from(body)
        at = _AT.size + 8 * length
        (width,) = _WORD.unpack_from(body, at)
        if width:
            (address,) = _WORD.unpack_from(body, at + 8 + 8 * clock.REGISTERS.index(clock.IP))
            if self._bytes >= _KEPT_BYTES:
                self.bare_from_ns = min(self.bare_from_ns, time_ns)
            if time_ns >= self.bare_from_ns or self._is_program(address):
                body = body[: at + 8 + 8 * len(clock.REGISTERS)] + _WORD.pack(0)
        self._bytes += len(body)
        return kind, misc, body


class _Watch:
    """Reads the clock of a process until the time is over, or until the process ends."""

    def __init__(self, ticking: clock.SampleClock, seconds: float) -> None:
        self.length_s = 0.0
        """The seconds so far."""
        self.cpu_ns = 0.0
        """The CPU time of the process in these seconds."""
        self.is_ended = False
        """Whether the process ended."""
        self._ticking, self._seconds = ticking, seconds

    def records(self) -> Iterator[_Record]:
        """Yields the records of the clock while they come, with marks as `ordered` needs them."""
        ticking = self._ticking
        begin_s, begin_ns = time.monotonic(), _cpu_ns(ticking.target)
        while self.length_s < self._seconds and not self.is_ended:
            time.sleep(min(DRAIN_S, self._seconds - self.length_s))
            try:
                ticking.target.check()
                self.cpu_ns = _cpu_ns(ticking.target) - begin_ns
                ticking.watch_new()
            except ProcessEnded:
                self.is_ended = True
            self.length_s = time.monotonic() - begin_s
            yield from ticking.drain()
            if not self.is_ended and (change := ticking.vary(time.monotonic_ns())) is not None:
                yield change
            yield MARK, 0, b""

    def watched_by(self, onlooker: Onlooker, so_far: Callable[[], Sampled]) -> Iterator[_Record]:
        """Yields the same records, and shows the onlooker what is known so far."""
        next_s = LOOK_S
        for record in self.records():
            yield record
            if record[0] == MARK:
                if onlooker.is_over():
                    return
                if self.length_s >= next_s:
                    began = time.monotonic()
                    onlooker.look(so_far())
                    # Meanwhile nothing reads the clock, so looks take at most half of the time.
                    took = time.monotonic() - began
                    next_s = self.length_s + took + max(LOOK_S, took)


def _cpu_ns(target: Target) -> float:
    fields = stat_of(target)
    return (int(fields[11]) + int(fields[12])) * 1e9 / os.sysconf("SC_CLK_TCK")


def _is_anonymous(path: str) -> bool:
    """Whether a mapping with this path has no file of a disk."""
    return not path or path.startswith(_NAMED)


class _Paths:
    """Paths by which we can open the mapped files. Each ends with the file's own name.

    An upgrade of a package may replace a file that is in use. The kernel then still gives access to
    the old file, under another name. So `folder` gets a link to the old file, with the name that
    the file had.
    """

    def __init__(self, target: Target, program: ProgramFiles, folder: str) -> None:
        self._target, self._folder = target, folder
        self._program = program.loaded[0].path
        self._known: dict[str, str] = {}

    def of(self, mapping: mappings.Mapping) -> str:
        """A path that opens the mapped file; ANONYMOUS for a mapping without a file.

        The program itself may be a file in memory ("/memfd:") that was executed.

        If the file was replaced and we may not read the old one, the path leads nowhere.
        """
        if _is_anonymous(mapping.path) and mapping.path != self._program:
            return ANONYMOUS
        if mapping.path not in self._known:
            self._known[mapping.path] = self._found(mapping)
        return self._known[mapping.path]

    def _found(self, mapping: mappings.Mapping) -> str:
        if not mapping.is_deleted:
            return self._target.path(mapping.path, mapping.inode)
        old = f"{self._target.folder}/map_files/{mapping.start:x}-{mapping.end:x}"
        if mapping.path == self._program:
            old = f"{self._target.folder}/exe"
        folder = os.path.join(self._folder, str(len(self._known)))
        link = os.path.join(folder, os.path.basename(mapping.path))
        try:
            os.stat(old)
            os.mkdir(folder)
            os.symlink(old, link)
        except OSError:
            return f"{mapping.path} (deleted)"
        return link

    def of_file(self, maps: Sequence[mappings.Mapping], file: LoadedFile) -> str:
        """A path that opens the file."""
        one = next((one for one in maps if one.path == file.path), None)
        return self._target.path(file.path) if one is None else self.of(one)


def _code(
    paths: _Paths, maps: Sequence[mappings.Mapping], program: ProgramFiles
) -> tuple[AllocatorCode | None, str]:
    """The code of the allocator, or None and the reason."""
    serving, owner = program.serving, program.owner
    if serving.name == VALGRIND:
        return None, "valgrind runs the program, and its times are not those of the program alone"
    if owner is None or serving.name == "not known":
        return None, "it is not known which allocator serves the process"
    if serving.how == "in the program" or program.is_static:
        code = InProgram.of_file(paths.of_file(maps, owner), owner.readable, serving.name)
        if code is None:
            return None, (
                f"{serving.name} is a part of the program's file, and the file has no symbols that "
                "tell the allocator's functions from the program's"
            )
        return code, ""
    if serving.how == "C library":
        return AllocatorCode(frozenset()), ""
    return AllocatorCode.of_libraries([paths.of_file(maps, owner)]), ""


def _space(paths: _Paths, maps: Sequence[mappings.Mapping]) -> Space:
    """The mappings with code, as the kernel would have recorded them when they were made."""
    space = Space()
    for one in maps:
        if one.is_executable:
            # For anonymous memory, the kernel's records have the address in place of an offset.
            path = paths.of(one)
            offset = one.start if path == ANONYMOUS else one.offset
            space.put(one.start, one.end - one.start, offset, path)
    return space


def _readable(name: str) -> str:
    """The name of a function of C++ without parameters; other names stay as they are."""
    if not name.startswith("_Z"):
        return name
    # The compiler appends a dot and a suffix to the name of a changed copy of a function.
    found = demangled(name.partition(".")[0])
    return name if found is None else without_arguments(plain(found))


def _named(
    chains: Counter[tuple[tuple[str, int], ...]], perf_map: PerfMap, names: Names
) -> tuple[tuple[tuple[str, ...], int], ...]:
    found: Counter[tuple[str, ...]] = Counter()
    for chain, count in chains.items():
        named = (
            perf_map.name(offset) if path == ANONYMOUS else _readable(names.function(path, offset))
            for path, offset in chain
        )  # fmt: skip
        found[tuple(named)] += count
    return tuple(sorted(found.items(), key=lambda one: (-one[1], one[0])))
