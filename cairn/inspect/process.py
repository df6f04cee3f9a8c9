"""Finds a process by its id, and refuses threads, zombies and kernel threads.

Every function raises `ProcessEnded` if the process ends meanwhile. It raises `NotPermitted` if the
kernel does not let this user read the process, and `FileMissing` if this kernel lacks the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cairn.errors import CairnError, ProgramFailed, UsageError, cannot

_READ_MOST = 64 << 20
"""The most bytes that `Target.read` reads. It raises CairnError for a larger file."""
_BUFFER = 1 << 20
"""The bytes that are read ahead of the next line."""
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD, a flag in the ninth field of /proc/PID/stat."""
_CAP_SYS_PTRACE = 19
"""The number of the capability's bit in "CapEff" of /proc/PID/status."""


class ProcessEnded(ProgramFailed):
    """The process ended while it was read."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} ended while it was read")


class NotPermitted(CairnError):
    """The kernel does not let this user read the process."""


class FileMissing(CairnError):
    """The process runs, but the kernel has no such file of it."""


class Target(Struct, frozen=True):
    """A process that exists and has memory."""

    pid: int
    name: str
    started_ticks: int
    """The time of its start after the start of the machine, in clock ticks. It tells apart two
    processes that had the same id."""
    root: str
    """The prefix for paths of files as the process sees them. It is empty if the process has the
    same root folder and mounts as we have."""

    @property
    def folder(self) -> str:
        """Its folder of /proc, or the one of a living thread if its first thread has ended."""
        return _folder(self.pid)

    def read(self, name: str) -> bytes:
        """The content of a file in the process's folder of /proc."""
        try:
            with open(f"{self.folder}/{name}", "rb") as file:
                content = file.read(_READ_MOST + 1)
        except OSError as error:
            raise self.refused(error) from error
        if len(content) > _READ_MOST:
            raise CairnError(f"{self.folder}/{name} is larger than {_READ_MOST >> 20} MiB")
        return content

    def lines(self, name: str) -> Iterator[str]:
        """Yields the lines of a file in the process's folder of /proc, to its end."""
        try:
            with open(f"{self.folder}/{name}", "rb", buffering=_BUFFER) as file:
                for line in file:
                    yield os.fsdecode(line).removesuffix("\n")
        except OSError as error:
            raise self.refused(error) from error

    def text(self, name: str) -> str:
        """Like `read`, as text."""
        return os.fsdecode(self.read(name))

    def link(self, name: str) -> str:
        """The target of a link in the process's folder of /proc."""
        try:
            return os.readlink(f"{self.folder}/{name}")
        except OSError as error:
            raise self.refused(error) from error

    def check_readable(self) -> None:
        """Raises NotPermitted or ProcessEnded if the mappings of the process cannot be read."""
        try:
            os.close(os.open(f"{self.folder}/smaps", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise self.refused(error) from error

    def refused(self, error: OSError) -> CairnError:
        """The error for the user when the kernel refused to read the process."""
        if error.errno in (errno.EACCES, errno.EPERM):
            return not_permitted(self.pid)
        # A process that is ending may still be listed when it has no memory any more (ESRCH).
        if error.errno == errno.ESRCH:
            return ProcessEnded(self.pid)
        try:
            self.check()
        except ProcessEnded as ended:
            return ended
        says = str(cannot("read", error.filename or self.folder, error))
        return FileMissing(says) if error.errno == errno.ENOENT else CairnError(says)

    def check(self) -> None:
        """Raises ProcessEnded if the process has ended, or if another one has its id now."""
        fields = _stat(self.pid)
        if fields is None or _is_over(fields) or int(fields[19]) != self.started_ticks:
            raise ProcessEnded(self.pid)

    def path(self, path: str, inode: int | None = None) -> str:
        """The path by which this process can open a file that the target has mapped.

        If the file can be reached from our root, the kernel gives the path from there. Otherwise it
        gives the path from the root of the target's mounts. So the path may lead to a file in
        either place. `inode` decides which of the two is the mapped one.
        """
        if not self.root or not path.startswith("/"):
            return path
        there = f"{self.root}{path}"
        for one in (there, path):
            with contextlib.suppress(OSError):
                if inode is None or os.stat(one).st_ino == inode:
                    return one
        return there


def find(pid: int) -> Target:
    """The process with this id.

    Raises UsageError if there is none, or if it has no memory: a thread, a zombie or a thread of
    the kernel.
    """
    fields = _stat(pid)
    if fields is None:
        raise UsageError(f"there is no process {pid}{_elsewhere(pid)}")
    name = _name(pid)
    status = _status(pid)
    leader = int(status.get("Tgid", str(pid)))
    if leader != pid:
        raise UsageError(
            f"{pid} is a thread of process {leader} ({name}); give the process: {leader}"
        )
    if int(fields[6]) & _KERNEL_THREAD:
        raise UsageError(f"{pid} ({name}) is a thread of the kernel, which has no allocator")
    if _is_over(fields):
        parent = fields[1]
        raise UsageError(
            f"process {pid} ({name}) has ended, and its parent, process {parent}, has not asked "
            "for its exit status yet: it is a zombie, which has no memory"
        )
    return Target(pid, name, int(fields[19]), _root(pid))


def not_permitted(pid: int) -> NotPermitted:
    """The error for a process that this user may not read, with the way to read it."""
    if os.geteuid() == 0:
        return NotPermitted(_not_by_root(pid))
    with contextlib.suppress(OSError):
        owner = os.stat(f"/proc/{pid}").st_uid
        status = _status(pid)
        uid = int(status.get("Uid", str(owner)).split()[0])
        if uid != os.geteuid():
            return NotPermitted(
                f"process {pid} belongs to {_user(uid)}, and you are {_user(os.geteuid())}; run "
                "the command as that user, or as root (sudo)"
            )
    return NotPermitted(
        f"the kernel does not let you read process {pid}, although it is yours: it gained rights "
        "at its start, it forbids to be read (prctl PR_SET_DUMPABLE), or a security module "
        "forbids it; run the command as root (sudo)"
    )


def _not_by_root(pid: int) -> str:
    """Why root may not read the process: root lacks a right here, or a security module forbids."""
    rights = int(_status(os.getpid()).get("CapEff", "0"), 16)
    if not rights >> _CAP_SYS_PTRACE & 1:
        return (
            f"the kernel does not let you read process {pid}: root in this container lacks "
            "CAP_SYS_PTRACE; run the command on the host"
        )
    return (
        f"the kernel does not let root read process {pid}, so a security module forbids it; ask "
        "who administers this machine"
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _stat(pid: int | str) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on; None without such a process.

    With "PID/task/TID", they are those of a thread.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = os.fsdecode(file.read())
    except OSError:
        return None
    # The second field is the name in parentheses, which may itself contain parentheses.
    return content.rpartition(") ")[2].split() if ") " in content else None


def _is_over(fields: Sequence[str]) -> bool:
    """Whether these fields of /proc/PID/stat are those of a process without living threads.

    If only the first thread of a process has ended, its state is that of a zombie, too.
    """
    return fields[0] in "ZX" and int(fields[17]) <= 1


def _folder(pid: int) -> str:
    """As `Target.folder`."""
    fields = _stat(pid)
    if fields is not None and fields[0] in "ZX" and not _is_over(fields):
        with contextlib.suppress(OSError):
            for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
                # The kernel does not list /proc/TID, but it has the files of the process there.
                if (its := _stat(f"{pid}/task/{thread}")) is not None and its[0] not in "ZX":
                    return f"/proc/{thread}"
    return f"/proc/{pid}"


def stat_of(target: Target) -> list[str]:
    """The fields of /proc/PID/stat from the third on."""
    fields = _stat(target.pid)
    if fields is None:
        raise ProcessEnded(target.pid)
    return fields


def _status(pid: int) -> dict[str, str]:
    return _status_in(f"/proc/{pid}")


def _status_in(folder: str) -> dict[str, str]:
    try:
        with open(f"{folder}/status", "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key: value.strip() for key, _, value in pairs}


def status_of(target: Target) -> dict[str, str]:
    """The fields of /proc/PID/status."""
    found = _status_in(target.folder)
    if not found:
        raise ProcessEnded(target.pid)
    return found


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return os.fsdecode(file.read()).rstrip("\n")
    except OSError:
        return "?"


def _root(pid: int) -> str:
    """The prefix for paths as the target sees them; see `Target.root`."""
    folder = _folder(pid)
    try:
        same_mounts = os.readlink(f"{folder}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        same_root = os.path.samefile(f"{folder}/root", "/proc/self/root")
    except OSError:
        return ""
    return "" if same_mounts and same_root else f"{folder}/root"


def _elsewhere(pid: int) -> str:
    """A hint if the number is that of a process in another PID namespace."""
    found = [
        (number, status.get("Name", "?"))
        for number in _numbers()
        if str(pid) in (status := _status(number)).get("NSpid", "").split()[1:]
    ]
    if len(found) != 1:
        return ""
    return f"; {pid} is the number of process {found[0][0]} ({found[0][1]}) in its own namespace"


def _numbers() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if re.fullmatch("[0-9]+", name):
                yield int(name)


def inner_pid(target: Target) -> int | None:
    """The process's id in its own PID namespace; None if it is in ours."""
    # In the status of another thread, the last number is that of the thread.
    status = _status(target.pid)
    if not status:
        raise ProcessEnded(target.pid)
    numbers = status.get("NSpid", "").split()
    return int(numbers[-1]) if len(numbers) > 1 else None


def threads(target: Target) -> list[int]:
    """The ids of its threads now. The first thread is not among them if it has ended."""
    try:
        found = sorted(int(name) for name in os.listdir(f"/proc/{target.pid}/task"))
    except OSError as error:
        raise target.refused(error) from error
    if len(found) > 1 and target.folder != f"/proc/{target.pid}":
        return [one for one in found if one != target.pid]
    return found
