"""Reads shared libraries, and decides whether one can be preloaded into a program.

`inspect_library` returns the facts, `refuse_library` judges them. Nothing here executes the file.
The system's own loader, in its listing mode, says which libraries are missing, within
LOADER_TIMEOUT_S.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import subprocess
from collections.abc import Sequence

from msgspec import Struct

from cairn.binary import elf
from cairn.binary.program import Program
from cairn.errors import ContenderFailed

LOADER_TIMEOUT_S = 1.5
"""The timeout of the loader, which lists a library in about a millisecond.

The documentation promises that a library is refused within two seconds.
"""


SPLITTERS = " :;$"
"""The characters that a path in LD_PRELOAD or LD_LIBRARY_PATH must not contain.

ld.so splits LD_PRELOAD at space and colon, LD_LIBRARY_PATH at colon and semicolon, and expands
$ORIGIN in both.
"""


_LOADERS = {
    ("x86-64", 64): "/lib64/ld-linux-x86-64.so.2",
    ("x86-64", 32): "/libx32/ld-linux-x32.so.2",
    ("i386", 32): "/lib/ld-linux.so.2",
    ("aarch64", 64): "/lib/ld-linux-aarch64.so.1",
    ("arm", 32): "/lib/ld-linux-armhf.so.3",
    ("riscv", 64): "/lib/ld-linux-riscv64-lp64d.so.1",
    ("ppc64", 64): "/lib64/ld64.so.2",
    ("s390x", 64): "/lib/ld64.so.1",
    ("loongarch", 64): "/lib64/ld-linux-loongarch-lp64d.so.1",
}
"""glibc's loader, by machine and word size.

The loader that a file names is never executed: it may be hostile.
"""


ESSENTIAL = ("malloc", "free", "calloc", "realloc")
"""The functions that a replacement of malloc must define (glibc's manual, "Replacing malloc"). A
block of one allocator would otherwise be given to another one."""


class Library(Struct, frozen=True):
    """The facts of a shared library."""

    given: str
    """The path as the user or the catalog wrote it."""
    path: str
    """The absolute path with symbolic links kept.

    A user may have made a link to avoid a name that LD_PRELOAD cannot carry.
    """
    realpath: str
    kind: str
    """The kind of ELF file: "library", "executable", "object file" or "core dump"."""
    elf_class: int
    machine: str
    build_id: str | None
    soname: str | None
    needs: tuple[str, ...]
    defines_malloc: bool
    missing: tuple[str, ...]
    """The functions of ESSENTIAL that the library does not define."""
    truncated: bool
    """Whether the headers promise more bytes than the file has."""
    noexec: bool
    """Whether the file lies on a file system from which no code may be mapped."""


def is_native(library: Library) -> bool:
    """Whether the library is built for the word size and machine of this process."""
    return (library.elf_class, library.machine) == elf.native()[:2]


def absolute(path: str) -> str:
    """The absolute path with symbolic links kept.

    ".." stays in the path if its removal would lead to another file, because a folder is a link.
    """
    joined = os.path.join(os.getcwd(), path)
    tidy = os.path.normpath(joined)
    return tidy if os.path.realpath(tidy) == os.path.realpath(joined) else joined


def inspect_library(path: str, *, or_name: bool = True) -> Library:
    """Reads the library at `path`. Raises ContenderFailed if it is not a valid ELF file.

    or_name: whether the user could give the name of an allocator instead.
    """
    again = "Build it, or install its package, again."
    try:
        if "\0" in path or not path:
            raise FileNotFoundError
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        name = ", or a name that 'cairn allocators' lists" if or_name else ""
        raise ContenderFailed(
            f"{path or 'an empty path'}: no such file. Give the path of a shared library{name}."
        ) from None
    except OSError as error:
        raise ContenderFailed(
            f"{path} cannot be read ({elf.reason(error)}). Give the path of a shared library."
        ) from None
    if stat.S_ISDIR(status.st_mode):
        raise ContenderFailed(
            f"{path} is a folder, not a shared library. Name the .so file inside it."
        )
    if not stat.S_ISREG(status.st_mode):
        raise ContenderFailed(f"{path} is not a regular file. Give the path of a shared library.")
    try:
        descriptor = elf.open_regular(path)
    except OSError as error:
        raise ContenderFailed(
            f"{path} cannot be read ({elf.reason(error)}). Make it readable, or name another."
        ) from None
    try:
        return _describe_library(
            path, elf.Image(descriptor), bool(os.fstatvfs(descriptor).f_flag & os.ST_NOEXEC)
        )
    except elf.NotElf as what:
        raise ContenderFailed(f"{path} {what}. Give the path of a shared library (.so).") from None
    except elf.Damaged:
        raise ContenderFailed(
            f"{path} is damaged or truncated: its ELF headers are invalid. {again}"
        ) from None
    except OSError as error:
        raise ContenderFailed(f"{path} cannot be read ({elf.reason(error)}). {again}") from None
    finally:
        os.close(descriptor)


def _describe_library(given: str, image: elf.Image, noexec: bool) -> Library:
    kind = {1: "object file", 2: "executable", 3: "library", 4: "core dump"}.get(image.type)
    if kind is None:
        raise elf.Damaged
    if kind == "library" and (image.is_pie or (not image.is_dynamic and not image.truncated)):
        kind = "executable"
    readable = not image.truncated
    return Library(
        given=given,
        path=absolute(given),
        realpath=os.path.realpath(given),
        kind=kind,
        elf_class=image.bits,
        machine=image.machine,
        build_id=image.build_id if readable else None,
        soname=image.soname if readable else None,
        needs=image.needs if readable else (),
        defines_malloc=readable and image.defines("malloc"),
        missing=tuple(one for one in ESSENTIAL if not (readable and image.defines(one))),
        truncated=image.truncated,
        noexec=noexec,
    )


def carries(path: str) -> bool:
    """Whether LD_PRELOAD and LD_LIBRARY_PATH can carry this path as one entry."""
    return not any(character in path for character in SPLITTERS)


def refuse_library(
    library: Library,
    program: Program | None = None,
    library_path: Sequence[str] = (),
    *,
    given_by_path: bool = False,
) -> None:
    """Raises ContenderFailed, with reason and next step, if the library cannot be preloaded.

    program: the program that will preload the library; None for any native program.
    library_path: folders that will be on LD_LIBRARY_PATH.
    given_by_path: the user named the file, so LD_PRELOAD must be able to carry its path. For a
    library that the catalog found, a link with a plain name is made instead.
    """
    name = library.given
    if library.kind != "library":
        article = "an" if library.kind[0] in "eo" else "a"
        raise ContenderFailed(
            f"{name} is {article} {library.kind}, not a shared library. Link it with -shared."
        )
    if library.truncated:
        raise ContenderFailed(
            f"{name} is truncated: its headers promise more bytes than it has. "
            "Build or fetch it again."
        )
    _refuse_machine(library, program)
    if library.noexec:
        raise ContenderFailed(
            f"{name} lies on a file system mounted noexec. Copy it to a file system without noexec."
        )
    if given_by_path and not carries(library.path):
        raise ContenderFailed(
            f"{library.path}: LD_PRELOAD cannot carry a path with a space, ':', ';' or '$'. "
            "Make a link with a plain name with ln -s, and give its path."
        )
    if not library.defines_malloc:
        raise ContenderFailed(
            f"{name} defines no malloc: it is not an allocator. Name the library that defines it."
        )
    if library.missing:
        gone = " and no ".join(library.missing)
        raise ContenderFailed(
            f"{name} defines malloc but no {gone}: programs would crash, because these come from "
            f"the C library then. Build it so that it exports {', '.join(ESSENTIAL)}."
        )
    if problem := loader_problem(library, tuple(library_path)):
        raise ContenderFailed(f"{name} {problem}")


def refuse_needs_by_path(library: Library, temporary: str = "") -> None:
    """Raises ContenderFailed if the library needs another one by a path that is not always valid.

    For a library without a SONAME, the linker records the path of its command line. The loader
    looks for a relative path in the current folder of each program.

    temporary: a folder that will be removed; "" if there is none.
    """
    for need in library.needs:
        if "/" in need and not os.path.isabs(need):
            how = "by a relative path, which begins in the current folder of each program"
            raise ContenderFailed(_needs_elsewhere(library, need, how))
        if "/" in need and _lies_in(need, temporary):
            raise ContenderFailed(_needs_elsewhere(library, need, _REMOVED))


def refuse_needs_in(library: Library, temporary: str) -> None:
    """Raises ContenderFailed if the loader finds a needed library only in this folder.

    temporary: a folder that will be removed. The own folder of the library may be a part of it, and
    stays.
    """
    own = os.path.dirname(library.path)
    for name, path in found_by_loader(library).items():
        if _lies_in(path, temporary) and not os.path.exists(os.path.join(own, name)):
            raise ContenderFailed(_needs_elsewhere(library, name, _REMOVED))


_REMOVED = "from the folder of the build, which is removed"


def _lies_in(path: str, folder: str) -> bool:
    return folder != "" and os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _needs_elsewhere(library: Library, need: str, how: str) -> str:
    return (
        f"{library.given} needs {need} {how}. Put {os.path.basename(need)} beside "
        f"{os.path.basename(library.given)}, and link it with -L and -l."
    )


def _refuse_machine(library: Library, program: Program | None) -> None:
    if program is not None and program.elf_class is not None and program.machine is not None:
        bits, machine, musl = program.elf_class, program.machine, program.musl
        whose = f"{program.command} is"
    else:
        bits, machine, musl = elf.native()
        whose = "programs here are"
    if (library.elf_class, library.machine) != (bits, machine):
        raise ContenderFailed(
            f"{library.given} is a {library.elf_class}-bit {library.machine} library, "
            f"and {whose} {bits}-bit {machine}. Build it for {machine}."
        )
    if musl and "libc.so.6" in library.needs:
        raise ContenderFailed(
            f"{library.given} is built for glibc, and {whose} built for musl. Build it for musl."
        )
    if not musl and any(need.startswith(("libc.musl", "ld-musl")) for need in library.needs):
        raise ContenderFailed(
            f"{library.given} is built for musl, and {whose} built for glibc. Build it for glibc."
        )


def loader_problem(library: Library, library_path: tuple[str, ...] = ()) -> str | None:
    """Why the dynamic loader refuses the library, as the end of a sentence; None if it accepts it.

    The answer is also None if no loader is known for the machine.
    """
    listed = _listed(library, library_path)
    return None if listed is None else _read_listing(*listed)


def found_by_loader(library: Library) -> dict[str, str]:
    """Returns the paths of the libraries that the loader maps for `library`, by their names."""
    listing, _ = _listed(library) or ("", 0)
    pairs = (line.strip().rpartition(" (")[0].partition(" => ") for line in listing.splitlines())
    return {name: path for name, _, path in pairs if os.path.isabs(path)}


@functools.lru_cache(maxsize=256)
def _listed(library: Library, library_path: tuple[str, ...] = ()) -> tuple[str, int] | None:
    """The loader's list of the libraries that it maps for `library`, and its exit status.

    The listing mode maps files and runs none of their code. Returns None if no loader is known for
    the machine. The answer is cached, since a file that hangs the loader costs the whole timeout.
    """
    loader = _LOADERS.get((library.machine, library.elf_class))
    if loader is None or not os.access(loader, os.X_OK):
        return None
    with contextlib.ExitStack() as opened:
        # Folders are passed as descriptors: a name may contain the colon that separates them.
        folders = []
        for folder in library_path:
            with contextlib.suppress(OSError):
                folders.append(os.open(folder, os.O_PATH | os.O_CLOEXEC))
                opened.callback(os.close, folders[-1])
        search = [f"/proc/self/fd/{descriptor}" for descriptor in folders]
        search += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
        environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LC_ALL": "C"}
        if search:
            environment["LD_LIBRARY_PATH"] = ":".join(search)
        try:
            answer = subprocess.run(
                [loader, library.realpath],
                env=environment,
                pass_fds=folders,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LOADER_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", _HANGS
        except (OSError, ValueError):
            return None
    return os.fsdecode(answer.stdout[: elf.READ_MAX]), answer.returncode


_HANGS = -1000
"""Stands for the exit status of a loader that did not end."""


def loaded_with(program: Program) -> tuple[str, ...]:
    """The libraries that the loader would map for this program, in its search order.

    Empty if the loader is not known or gives no answer.
    """
    if program.elf_class is None or program.machine is None or program.loader is None:
        return ()
    loader = _LOADERS.get((program.machine, program.elf_class))
    if loader is None or not os.access(loader, os.X_OK):
        return ()
    environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LC_ALL": "C"}
    if folders := os.environ.get("LD_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = folders
    try:
        answer = subprocess.run(
            [loader, program.file], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=LOADER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return ()
    lines = os.fsdecode(answer.stdout[: elf.READ_MAX]).splitlines()
    # "\tlibx.so => /lib/libx.so (0x7f…)"; no arrow if the program names the library by its path.
    found = (line.rpartition(" => ")[2].strip().rpartition(" (")[0] for line in lines)
    return tuple(path for path in found if os.path.isabs(path))


def _read_listing(listing: str, status: int) -> str | None:
    missing = [
        line.partition("=>")[0].strip()
        for line in listing.splitlines()
        if line.endswith("=> not found")
    ]
    if missing:
        return (
            f"needs {', '.join(missing)}, which the loader does not find. "
            "Install the package that provides it."
        )
    for line in listing.splitlines():
        _, found, rest = line.partition("version `")
        if found and "not found" in rest:
            version = rest.partition("'")[0]
            if version.startswith("GLIBC_"):
                return (
                    f"is built against a newer glibc than this machine's (it needs {version}). "
                    "Build it on this machine."
                )
            return (
                f"needs {version} of a library, but this machine has an older one. "
                "Build the allocator on this machine, or update that library."
            )
    if status == _HANGS:
        return "hangs the dynamic loader: it is damaged. Build it, or install its package, again."
    if status < 0:
        return "crashes the dynamic loader: it is damaged. Build it, or install its package, again."
    if status != 0:
        reason = (
            listing.strip().splitlines()[-1].rpartition(": ")[2]
            if listing.strip()
            else f"status {status}"
        )
        return (
            f"is refused by the dynamic loader ({reason}). Build it, or install its package, again."
        )
    return None
