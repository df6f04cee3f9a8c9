"""Reads the probe's files, one for each program image of a process. Contract: src/record/profile.h.

A file may be cut off, damaged or foreign, so every value is checked before it is used. Reading any
file ends soon, with a result or with an error of one sentence. Reading takes little memory, because
no file is read as a whole.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from cairn.errors import CairnError, UsageError, cannot
from cairn.profile import held_memory, live, lock_records
from cairn.profile.call_stacks import StacksFile, stacks_of
from cairn.profile.early_ends import lived_to_the_end
from cairn.profile.layout import has_file, why_missing
from cairn.profile.layout import of as layout_of
from cairn.profile.old_files import later_counts, without_unequal_frees
from cairn.profile.tally import (  # fmt: skip
    ALLOCATING,
    BUCKETS,
    CALLS,
    EVENTS,
    FUNCTIONS,
    GROUPS,
    LIFE_BUCKETS,
    LOCKS,
    PATHS,
    PHASES,
    RELEASING,
    SAMPLED,
    SIZE_BUCKETS,
    SLOTS,
    WHOSE,
    Kernel,
    Locks,
    Moment,
    MomentCalls,
    Peak,
    Process,
    ProcessProfile,
    Profile,
    Seen,
    State,
    Tally,
    Timed,
    Tree,
    as_counts,
)

if TYPE_CHECKING:
    from cairn.profile.tally import Exact

SUFFIX = ".probe"
_TREE = "run.json"
_TREE_MAX = 256 << 20
MAGIC = b"cairnpro"
VERSION, BEFORE = 9, 8
"""The versions that are read. The head of a file of version BEFORE lacks the field _APPENDED and
those after it, which are taken to be 0."""
_APPENDED = "held_most"
ORDER = 0x01020304
PATH_BYTES = 1024
CHUNK_THREADS, CHUNKS = 8, 20
OTHER_CALLS = 32
MOMENTS = 384
MOMENT = (
    *("ns", "live_bytes", "live_usable_bytes", "live_error_bytes", "held_bytes"),
    *("resident_bytes", "unasked_bytes", "unwritten_bytes", "huge_bytes", "own_bytes"),
    *("memory_calls", "waiting_calls", "other_calls"),
)
_UNKNOWN = 2**64 - 1

_FILE_MAX = 256 << 20
"""The most bytes of a file. They are enough for 200,000 threads at once."""
_FILES_MAX = 200_000
_THREADS_AT_ONCE = 4096

_STATES: dict[int, State] = {1: "running", 2: "ended"}
_SEEN: dict[int, Seen] = {0: "unseen", 1: "dispatch", 2: "interpose", 3: "unseen"}

_COUNTS = (
    *("calls", "bytes", "released", "fresh", "frees"),
    *("cpu_samples", "cpu_samples_inside", "cpu_samples_probe", "lived_ticks"),
)
"""The fields of struct profile_thread that are simply summed over the threads."""

Records = NDArray[np.void]


class Layouts(Struct, frozen=True):
    """The structs of profile.h as numpy types, for one byte order."""

    head: np.dtype[np.void]
    thread: np.dtype[np.void]
    samples: np.dtype[np.void]


def _fields(of: str, names: str) -> list[tuple[str, str]]:
    return [(name, of) for name in names.split()]


def layouts(order: str) -> Layouts:
    """The structs for byte order "<" or ">". `align=True` aligns their fields as C does."""
    u4, u8 = order + "u4", order + "u8"
    per_group = (len(ALLOCATING), len(PHASES), len(GROUPS))
    call = np.dtype(
        [(name, u8) for name in ("calls", "failed", "bytes", "ticks", "max_ticks", "cpu_ns")],
        align=True,
    )
    other = np.dtype([("number", u8), ("calls", u8)], align=True)
    head = np.dtype(
        [
            ("magic", "S8"),
            *_fields(u4, "order version head_bytes thread_bytes samples_bytes state"),
            ("file_bytes", u8),
            *_fields(u4, "process parent forked dispatch dispatch_errno exit_code"),
            *_fields(u8, "gap began_unix_ns ticks_begin ns_begin ticks_last ns_last"),
            *_fields(u8, "pair_ticks alone_pair_ticks dispatch_ticks timer_ns"),
            *_fields(u4, "timer_errno exact"),
            ("timers_refused", u8),
            ("events", u4, SLOTS),
            ("event_errnos", u4, SLOTS),
            ("event_nothing", u8, SLOTS),
            *_fields(u8, "has_event_nothing threads_started threads_live threads_most"),
            ("threads_lost", u8),
            ("chunks", u8, CHUNKS),
            ("sealed_bytes", u8),
            ("fresh_others", u8, len(GROUPS)),
            *_fields(u8, "samples live_way live_peak_usable live_granted live_noted_usable"),
            *_fields(u8, "live_noted_bytes live_noted_error live_looks"),
            ("failed", u8, len(ALLOCATING)),
            ("late_calls", u8, len(FUNCTIONS)),
            ("late_bytes", u8, len(ALLOCATING)),
            *_fields(u8, "minor_faults major_faults user_us system_us peak_resident_bytes"),
            *_fields(u8, "peak_own_bytes contended_locks"),
            ("calls", call, len(CALLS)),
            ("other_calls", other, OTHER_CALLS),
            ("program", f"S{PATH_BYTES}"),
            ("allocator", f"S{PATH_BYTES}"),
            (_APPENDED, u8),
            ("freed_copies", u8, (len(WHOSE), len(GROUPS), len(PHASES))),
            ("freed_squares", u8, (len(WHOSE), len(GROUPS), len(PHASES))),
        ],
        align=True,
    )
    lock = np.dtype(
        [
            *(
                (name, u8)
                for name in ("taken", "contended", "wait_ticks", "max_wait_ticks", "refused")
            ),
            *((name, u8) for name in ("sections", "section_ticks", "max_section_ticks")),
        ],
        align=True,
    )
    thread = np.dtype(
        [
            ("thread", u4),
            ("users", u4),
            *((name, u8) for name in ("next", "since_ticks", "lived_ticks")),
            ("calls", u8, per_group),
            ("bytes", u8, per_group),
            ("released", u8, (len(RELEASING), len(PHASES))),
            ("fresh", u8, (len(PHASES), len(GROUPS))),
            ("frees", u8, (len(WHOSE), len(PHASES), len(GROUPS))),
            ("cpu_samples", u8),
            ("cpu_samples_inside", u8, len(SAMPLED)),
            ("cpu_samples_probe", u8),
            ("locks", lock, len(LOCKS)),
        ],
        align=True,
    )
    times = np.dtype(
        [
            *(
                (name, u8)
                for name in ("count", "ticks", "max_ticks", "alone", "alone_ticks", "switched")
            ),
            *((name, u8) for name in ("switched_ticks", "kernel", "kernel_ticks")),
            *((name, u8) for name in ("fault_operations", "faults", "faults_squared")),
            ("event_operations", u8),
            ("events", u8, SLOTS),
            ("events_squared", u8, SLOTS),
            ("buckets", u4, BUCKETS),
        ],
        align=True,
    )
    moment = np.dtype([(name, u8) for name in MOMENT], align=True)
    samples = np.dtype(
        [
            ("times", times, len(PATHS)),
            ("sizes", u8, SIZE_BUCKETS),
            ("lives", u8, (len(GROUPS), LIFE_BUCKETS)),
            ("freed", u8, len(GROUPS)),
            ("freed_elsewhere", u8, len(GROUPS)),
            *((name, u8) for name in ("usable_bytes", "asked_bytes", "moment_ns")),
            ("moments", moment, MOMENTS),
            ("locks", lock_records.layout(order)),
        ],
        align=True,
    )
    return Layouts(head, thread, samples)


_LAYOUTS = (layouts("<"), layouts(">"))
_HEAD_BYTES = {
    BEFORE: int(_LAYOUTS[0].head.fields[_APPENDED][1]),  # type: ignore[index]
    VERSION: _LAYOUTS[0].head.itemsize,
}
"""The size of the head in files of each version."""


class NoProfile(UsageError):
    """The folder has no file of the probe, or only empty ones."""


class _Damaged(Exception):
    """The file is not one that the probe wrote. The message says why."""


def read(path: Path) -> ProcessProfile:
    """Reads one file. Raises CairnError if it is not a complete file of the probe."""
    profile = read_begun(path)
    if profile is None:
        raise CairnError(f"{path} is empty: its process ended before the probe counted anything")
    return profile


def gather(
    folder: Path, others: Iterable[ProcessProfile | None] = (), tree: Tree | None = None
) -> Profile:
    """Reads and adds up the probe's files in a folder, which are those of one run.

    `others` are processes without a file in the folder. If `tree` is None, the folder's `run.json`
    is read instead.

    Raises NoProfile if no file has content, and CairnError for a damaged file.
    """
    found = added_up(chain((read_begun(folder / name) for name in names(folder)), others))
    if found is None:
        raise NoProfile(
            f"{folder} holds no profile; 'cairn profile --keep {folder} -- PROG' makes one"
        )
    tree = tree or _read_tree(folder)
    clock = tree.clock if tree is not None else None
    largest = found.largest
    lies, problem, stacks_problem = None, None, None
    try:
        lies = layout_of(folder, largest.pid, largest.begin_ns)
    except CairnError as error:
        problem = str(error)
    absent = None
    if ((tree is not None and tree.layout) or has_file(folder)) and (lies, problem) == (None, None):
        absent = why_missing(folder, largest.program, largest.pid, forked=largest.forked)
    programs = {(one.pid, one.begin_ns): one.program for one in found.processes}
    stacks: tuple[StacksFile, ...] = ()
    try:
        stacks = stacks_of(folder, programs)
    except CairnError as error:
        stacks_problem = str(error)
    found = lived_to_the_end(replace(found, tree=tree))
    return replace(
        found,
        clock=clock,
        layout=lies,
        layout_problem=problem,
        layout_missing=absent,
        stacks=stacks,
        stacks_problem=stacks_problem,
    )


def _escaped(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def write_tree(folder: Path, tree: Tree) -> None:
    """Writes `run.json`: facts that the probe's files lack. Escapes bytes that are not UTF-8."""
    plain = replace(
        tree,
        command=tuple(map(_escaped, tree.command)),
        allocator=_escaped(tree.allocator),
        knobs=tuple((_escaped(key), _escaped(value)) for key, value in tree.knobs),
    )
    try:
        (folder / _TREE).write_bytes(msgspec.json.encode(plain) + b"\n")
    except OSError as error:
        raise cannot("write", folder / _TREE, error) from error


def _read_tree(folder: Path) -> Tree | None:
    """Reads `run.json`; None without it, because users may copy only the probe's files."""
    path = folder / _TREE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CairnError(f"{path} does not describe a run: it is not a regular file")
            content = file.read(_TREE_MAX + 1)
        if len(content) > _TREE_MAX:
            raise CairnError(
                f"{path} does not describe a run: it is larger than {_TREE_MAX >> 20} MiB"
            )
        return msgspec.json.decode(content, type=Tree)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_read(path, error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CairnError(f"{path} does not describe a run: {error}") from error


def added_up(files: Iterable[ProcessProfile | None]) -> Profile | None:
    """Adds up the files of many processes; None if all are empty.

    Each file is added to the sum as soon as it is read. So the counts of 100,000 processes take no
    more memory than those of one process.
    """
    processes: list[Process] = []
    tally: Tally | None = None
    largest: ProcessProfile | None = None
    most, empty = (-1, 0), 0
    for found in files:
        if found is None:
            empty += 1
            continue
        processes.append(found.process)
        tally = found.tally if tally is None else tally + found.tally
        # `Profile.largest` must return this process. If several processes have equal peaks, it is
        # the one that began first.
        size = (found.process.peak_live_bytes, -found.process.begin_ns)
        if size > most:
            most, largest = size, found
    if tally is None or largest is None:
        return None
    processes.sort(key=lambda process: process.begin_ns)
    return Profile(
        tuple(processes),
        tally,
        largest.moments,
        empty,
        "x86_64",  # only syscall user dispatch counts other calls
        largest_tally=largest.tally if len(processes) > 1 else None,
    )


def names(folder: Path) -> list[str]:
    """The names of the probe's files in a folder, sorted. Raises UsageError or CairnError."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in entries if entry.name.endswith(SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        what = f"{folder} is not a folder" if folder.exists() else f"there is no {folder}"
        raise UsageError(f"{what}; name a folder that 'cairn profile --keep' made") from None
    except OSError as error:
        raise _cannot_read(folder, error) from error
    if len(found) > _FILES_MAX:
        raise CairnError(
            f"{folder} holds {len(found):,} profiles; more than {_FILES_MAX:,} cannot be added up"
        )
    return found


def _cannot_read(path: Path, error: OSError) -> CairnError:
    return cannot("read", path, error)


def read_begun(path: Path) -> ProcessProfile | None:
    """Reads one file. Returns None if it is not begun yet.

    A file begins with zeroes until the probe has written all the rest of its head.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise _Damaged("it is not a regular file")
            if about.st_size > _FILE_MAX:
                raise _Damaged(f"it is larger than {_FILE_MAX >> 20} MiB")
            return _content(_Source(descriptor, 0, about.st_size))
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CairnError(f"{path} is a symbolic link and not a profile") from error
        raise _cannot_read(path, error) from error
    except _Damaged as error:
        raise CairnError(
            f"{path} is not a readable profile: {error}; profile the program again"
        ) from error


def trim(path: Path) -> None:
    """Cuts off the part of a file that the probe reserved and did not use."""
    try:
        with path.open("r+b") as file:
            source = _Source(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            os.ftruncate(file.fileno(), int(_head(source)[0]["file_bytes"]))
    except OSError as error:
        raise cannot("shorten", path, error) from error
    except _Damaged:
        return  # the report will say that the file is damaged


def read_part(descriptor: int, place: int, size: int) -> ProcessProfile | None:
    """Reads a record within an open file as read_begun() reads a whole file.

    The record begins at `place`, and has at most `size` bytes.
    """
    try:
        return _content(_Source(descriptor, place, size))
    except OSError as error:
        raise CairnError(f"cannot read spare memory: {error.strerror or error}") from error
    except _Damaged as error:
        raise CairnError(f"a record in spare memory is damaged: {error}") from error


def part_bytes(descriptor: int, place: int, size: int) -> bytes:
    """The bytes of a record in an open file. They could be a file of the probe by themselves."""
    source = _Source(descriptor, place, size)
    return source.read(int(_head(source)[0]["file_bytes"]), 0)


class _Source(Struct, frozen=True):
    """The bytes of one process's record, which is a whole file or a part of one."""

    descriptor: int
    place: int
    size: int

    def read(self, count: int, offset: int) -> bytes:
        """Reads up to `count` bytes, from `offset` bytes after the beginning of the record."""
        return os.pread(self.descriptor, min(count, self.size - offset), self.place + offset)


def _content(file: _Source) -> ProcessProfile | None:
    magic = file.read(len(MAGIC), 0)
    if not magic.strip(b"\0"):
        return None
    if magic != MAGIC:
        raise _Damaged("its first bytes are not those of a profile")
    head, layout = _head(file)
    threads = _Threads(layout.thread, int(head["ticks_last"]))
    for records in _thread_records(file, head, layout.thread):
        threads.add(records)
    place = int(head["samples"])
    samples = (
        _records(file, head, layout.samples, 1, place) if place else np.zeros(1, layout.samples)
    )
    moments = tuple(_moments(head, samples[0]["moments"]))
    if head["version"] == BEFORE:
        samples = without_unequal_frees(samples, int(head["gap"]))
    tally = _tally(head, threads, samples[0])
    return ProcessProfile(_process(head, tally, moments, samples), tally, moments)


def _events(head: np.void) -> tuple[str, ...]:
    """The name of the event in each slot; "" for an unused slot."""
    return tuple(EVENTS[number - 1] if number else "" for number in head["events"].tolist())


def _head(file: _Source) -> tuple[np.void, Layouts]:
    """Reads the head and returns it with the layouts of its byte order. Raises _Damaged."""
    content = file.read(_LAYOUTS[0].head.itemsize, 0)
    if len(content) < _HEAD_BYTES[BEFORE]:
        raise _Damaged("it is cut off")
    for layout in _LAYOUTS:
        head = _padded(content, layout.head)
        if head["order"] == ORDER:
            break
    else:
        raise _Damaged("its byte order is unknown")
    version = int(head["version"])
    if version not in _HEAD_BYTES:
        raise _Damaged(
            f"it has version {version}, and this cairn reads versions {BEFORE} and {VERSION}"
        )
    head = _padded(content[: _HEAD_BYTES[version]], layout.head)
    sizes = [int(head[f"{name}_bytes"]) for name in ("head", "thread", "samples")]
    if sizes != [_HEAD_BYTES[version], layout.thread.itemsize, layout.samples.itemsize]:
        raise _Damaged("its structures have other sizes: its probe was built from other sources")
    if head["file_bytes"] > file.size:
        raise _Damaged("it is cut off")
    if int(head["state"]) not in _STATES or int(head["dispatch"]) not in _SEEN or not head["gap"]:
        raise _Damaged("its head is damaged")
    if max(head["events"].tolist()) > len(EVENTS):
        raise _Damaged("it names counters that do not exist")
    if head["ticks_last"] < head["ticks_begin"] or head["ns_last"] < head["ns_begin"]:
        raise _Damaged("its clocks run backwards")
    return head, layout


def _padded(content: bytes, layout: np.dtype[np.void]) -> np.void:
    """The struct at the beginning of `content`. Bytes that `content` lacks are 0."""
    found: np.void = np.frombuffer(content.ljust(layout.itemsize, b"\0"), layout)[0]
    return found


def _records(
    file: _Source, head: np.void, layout: np.dtype[np.void], count: int, offset: int
) -> Records:
    """Reads `count` structs from `offset` on; raises _Damaged if the file does not have them."""
    if not _fits(head, layout, count, offset):
        raise _Damaged("it refers to data outside the file")
    content = file.read(count * layout.itemsize, offset)
    if len(content) < count * layout.itemsize:
        raise _Damaged("it is cut off")
    return np.frombuffer(content, layout)


def _fits(head: np.void, layout: np.dtype[np.void], count: int, offset: int) -> bool:
    """Whether `count` structs at `offset` lie after the head and within the file."""
    return int(head["head_bytes"]) <= offset and offset + count * layout.itemsize <= int(
        head["file_bytes"]
    )


def _thread_records(file: _Source, head: np.void, layout: np.dtype[np.void]) -> Iterator[Records]:
    """The thread structs of all chunks, at most _THREADS_AT_ONCE at a time."""
    for k in range(CHUNKS):
        count, offset = CHUNK_THREADS << k, int(head["chunks"][k])
        if offset and not _fits(head, layout, count, offset):
            raise _Damaged("it refers to data outside the file")
        for first in range(0, count if offset else 0, _THREADS_AT_ONCE):
            yield _records(
                file,
                head,
                layout,
                min(_THREADS_AT_ONCE, count - first),
                offset + first * layout.itemsize,
            )


class _Threads:
    """Adds up the thread structs of one file."""

    def __init__(self, layout: np.dtype[np.void], last: int) -> None:
        empty = np.zeros(1, layout)
        self.counts = {name: _sum(empty[name]) for name in _COUNTS}
        self.locks = _locks(empty["locks"])
        self.last, self.living_ticks = last, 0

    def add(self, records: Records) -> None:
        since = records["since_ticks"]
        # A thread that began after the probe's last look at the clock has lived for no time yet.
        living = since[(since != 0) & (since < self.last)]
        self.living_ticks += len(living) * self.last - int(_sum(living))
        self.counts = {name: total + _sum(records[name]) for name, total in self.counts.items()}
        self.locks += _locks(records["locks"])

    @property
    def lived_ticks(self) -> int:
        """The life time of all threads until the probe's last look at the clock, summed."""
        return int(self.counts["lived_ticks"]) + self.living_ticks


def _locks(of: Records) -> Locks:
    return Locks(
        taken=_sum(of["taken"]),
        refused=_sum(of["refused"]),
        contended=_sum(of["contended"]),
        wait_ticks=_sum(of["wait_ticks"]),
        most_wait_ticks=as_counts(of["max_wait_ticks"].max(axis=0)),
        sections=_sum(of["sections"]),
        section_ticks=_sum(of["section_ticks"]),
        most_section_ticks=as_counts(of["max_section_ticks"].max(axis=0)),
    )


def _sum(column: NDArray[np.uint64]) -> Exact:
    """The exact sum over the first axis.

    The halves of 32 bits are summed separately, so that neither sum overflows.
    """
    low, high = (
        half.sum(axis=0, dtype=np.uint64).astype(object)
        for half in (column & 0xFFFFFFFF, column >> 32)
    )
    total: Exact = low + high * 2**32
    return total


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _moments(head: np.void, records: Records) -> Iterator[Moment]:
    seen = _SEEN[int(head["dispatch"])] != "unseen"
    for ns, asked, usable, error, held, resident, *more in sorted(
        records[records["ns"] != 0].tolist()
    ):
        *closely, memory, waiting, other = more
        unasked, unwritten, huge, own = (_known(one) if seen else None for one in closely)
        calls = MomentCalls(memory, waiting, other) if seen else None
        yield Moment(
            ns, asked, _known(usable), error, held if seen else None, resident or None,
            unasked, unwritten, huge, own, calls,
        )  # fmt: skip


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def _process(head: np.void, tally: Tally, moments: Sequence[Moment], samples: Records) -> Process:
    number = {
        name: int(head[name]) for name in head.dtype.names or () if head.dtype[name].kind == "u"
    }
    asked = int(tally.asked.sum() + tally.late_asked.sum())
    held = number[_APPENDED] if _SEEN[number["dispatch"]] != "unseen" else 0
    counted, usable, requested = bool(number["live_way"]), None, None
    if counted:
        usable = live.counted_usable(number["live_peak_usable"], number["live_granted"])
        noted, bytes_, error = (
            number[f"live_noted_{name}"] for name in ("usable", "bytes", "error")
        )
        # A child of a fork has the live blocks of its parent, and did not request them.
        most = usable.high if number["forked"] else asked
        requested = live.counted_requested(usable, noted, bytes_, error, most)
    else:
        highest = (number[f"live_{name}"] for name in ("noted_bytes", "noted_error", "looks"))
        requested = estimated_peak(tally, moments, number["gap"], *highest)
    live_least = usable.low if usable is not None else 0
    held_counted = _SEEN[number["dispatch"]] == "dispatch" and held >= max(1, live_least)
    at_moments = held_memory.most_bytes(tally, moments)
    ended_unix_ns = number["began_unix_ns"] + number["ns_last"] - number["ns_begin"]
    return Process(
        pid=number["process"],
        parent=number["parent"],
        program=_text(head["program"]),
        allocator=_text(head["allocator"]),
        state=_STATES[number["state"]],
        seen=_SEEN[number["dispatch"]],
        seen_errno=number["dispatch_errno"],
        gap=number["gap"],
        forked=bool(number["forked"]),
        exact=bool(number["exact"]),
        timer_ns=number["timer_ns"],
        timer_errno=number["timer_errno"],
        events=_events(head),
        event_errnos=tuple(head["event_errnos"].tolist()),
        timers_refused=number["timers_refused"],
        begin_ns=number["ns_begin"],
        end_ns=number["ns_last"],
        ended_unix_ns=ended_unix_ns,
        asked_bytes=None if tally.failed.any() else asked,
        threads=number["threads_started"],
        threads_most=number["threads_most"],
        threads_lost=number["threads_lost"],
        cpu_ns=(number["user_us"] + number["system_us"]) * 1000,
        minor_faults=number["minor_faults"],
        major_faults=number["major_faults"],
        peak_resident_bytes=max(0, number["peak_resident_bytes"] - number["peak_own_bytes"])
        or None,
        live_counted=counted,
        peak_requested=requested,
        peak_usable=usable,
        held_bytes=max(held or at_moments, live_least),
        held_counted=held_counted,
        # Without moments, `at_moments` is a bound: the bytes of all calls that got memory.
        held_is_least=not held_counted
        and (held > 0 or len(moments) > 0 or live_least > at_moments),
        shrunk_bytes=held_memory.shrunk_bytes(tally, moments),
        locks=lock_records.counted(samples["locks"], _text(head["program"]), ended_unix_ns),
    )


def estimated_peak(
    tally: Tally,
    moments: Sequence[Moment],
    gap: int,
    highest: int = 0,
    error: int = 0,
    looks: int = 0,
) -> Peak | None:
    """The peak of requested live bytes, for a process whose live bytes were estimated.

    `highest` is the highest of the probe's estimates, `error` is its standard error, and `looks` is
    the number of estimates. A window has only the estimates at its moments, and not these numbers.
    Returns None if there is no estimate.
    """
    calls, asked = int(tally.calls.sum()), int(tally.asked.sum() + tally.late_asked.sum())
    each = gap * asked / calls if calls else 0.0
    looked = [(one.live_bytes, one.live_error_bytes) for one in moments]
    if looks:
        looked.append((highest, error))
    return live.estimated(looked, len(moments) + looks, each, asked) if looked else None


def _tally(head: np.void, threads: _Threads, samples: np.void) -> Tally:
    pair, alone_pair = int(head["pair_ticks"]), int(head["alone_pair_ticks"])
    nothing = as_counts(head["event_nothing"])
    timed, kernel = (
        _timed(samples["times"], head, pair, alone_pair, nothing),
        _kernel(head["calls"], alone_pair),
    )
    detours = int(kernel.count.sum()) if _SEEN[int(head["dispatch"])] == "dispatch" else 0
    detour_ticks = detours * int(head["dispatch_ticks"])
    sealed_bytes, fresh_others = later_counts(head, is_old=head["version"] == BEFORE)
    return Tally(
        span_ticks=int(head["ticks_last"]) - int(head["ticks_begin"]),
        span_ns=int(head["ns_last"]) - int(head["ns_begin"]),
        lived_ns=int(head["ns_last"]) - int(head["ns_begin"]),
        probe_ticks=int(timed.once(timed.clock_ticks + timed.alone_clock_ticks).sum())
        + detour_ticks,
        detour_ticks=detour_ticks,
        threads_ticks=threads.lived_ticks,
        calls=threads.counts["calls"],
        asked=threads.counts["bytes"],
        released=threads.counts["released"],
        fresh=threads.counts["fresh"],
        fresh_others=fresh_others,
        frees=threads.counts["frees"],
        cpu_samples=int(threads.counts["cpu_samples"]),
        cpu_samples_inside=threads.counts["cpu_samples_inside"],
        cpu_samples_probe=int(threads.counts["cpu_samples_probe"]),
        failed=as_counts(head["failed"]),
        late_calls=as_counts(head["late_calls"]),
        late_asked=as_counts(head["late_bytes"]),
        timed=timed,
        kernel=kernel,
        sealed_bytes=sealed_bytes,
        locks=threads.locks,
        contended_locks=int(head["contended_locks"]),
        other_calls=Counter(
            {number - 1: calls for number, calls in head["other_calls"].tolist() if number}
        ),
        sizes=samples["sizes"].astype(float),
        lives=samples["lives"].astype(float),
        freed=samples["freed"].astype(float),
        freed_elsewhere=samples["freed_elsewhere"].astype(float),
        usable_bytes=float(samples["usable_bytes"]),
        watched_bytes=float(samples["asked_bytes"]),
    )


def _timed(times: Records, head: np.void, pair: int, alone_pair: int, nothing: Exact) -> Timed:
    count, alone = as_counts(times["count"]), as_counts(times["alone"])
    copies, squares = count.copy(), count.copy()
    of_frees = as_counts(head["freed_copies"]).ravel()
    known = np.flatnonzero(of_frees)
    first = len(PATHS) - len(of_frees)
    copies[first + known] = of_frees[known]
    squares[first + known] = as_counts(head["freed_squares"]).ravel()[known]
    looked_at, events = as_counts(times["event_operations"]), as_counts(times["events"])
    off = looked_at[:, None] * nothing
    return Timed(
        count=count,
        ticks=as_counts(times["ticks"]),
        clock_ticks=count * pair,
        most_ticks=as_counts(times["max_ticks"]),
        alone=alone,
        alone_ticks=as_counts(times["alone_ticks"]),
        alone_clock_ticks=alone * alone_pair,
        copies=copies,
        squares=np.maximum(squares, copies),
        switched=as_counts(times["switched"]),
        switched_ticks=as_counts(times["switched_ticks"]),
        kernel=as_counts(times["kernel"]),
        kernel_ticks=as_counts(times["kernel_ticks"]),
        fault_operations=as_counts(times["fault_operations"]),
        faults=as_counts(times["faults"]),
        faults_squared=as_counts(times["faults_squared"]),
        event_operations=looked_at,
        events=np.maximum(events - off, 0),
        events_squared=np.maximum(
            as_counts(times["events_squared"]) - 2 * events * nothing + off * nothing, 0
        ),
        buckets=np.where(times["buckets"] < 2**32 - 1, times["buckets"], np.nan),
    )


def _kernel(calls: Records, pair: int) -> Kernel:
    count = as_counts(calls["calls"])
    return Kernel(
        count=count,
        failed=as_counts(calls["failed"]),
        bytes=as_counts(calls["bytes"]),
        ticks=as_counts(calls["ticks"]),
        clock_ticks=count * pair,
        most_ticks=as_counts(calls["max_ticks"]),
        cpu_ns=as_counts(calls["cpu_ns"]),
    )
