"""What a shared library is, and whether it can be preloaded into a program.

Nothing here executes the file; what it still needs is asked of the system's own loader in its listing mode, for two
seconds at most. `inspect_library` tells facts, or why there are none; `refuse_library` judges them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.binary import elf
from cairn.binary.program import Program
from cairn.errors import ContenderFailed

LOADER_TIMEOUT_S = 1.5
"""A refusal is promised within two seconds; the loader lists a library in about a millisecond."""


SPLITTERS = " :;$"
"""ld.so splits LD_PRELOAD at space and colon, LD_LIBRARY_PATH at colon and semicolon, and expands $ORIGIN in both."""


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
"""glibc's loader by machine, never the one that a file names: naming a loader would be a way to have it executed."""


@dataclass(frozen=True, slots=True)
class Library:
    """What a shared library says of itself."""

    given: str
    """As the user or the catalog wrote it."""
    path: str
    """Absolute, symbolic links kept: a link is how a user avoids a name that LD_PRELOAD cannot carry."""
    realpath: str
    kind: str
    """"library", "executable", "object file" or "core dump"."""
    elf_class: int
    machine: str
    build_id: str | None
    soname: str | None
    needs: tuple[str, ...]
    defines_malloc: bool
    defines_free: bool
    truncated: bool
    """Its headers promise more bytes than the file has."""
    noexec: bool
    """It lies on a file system from which no code may be mapped."""


def is_native(library: Library) -> bool:
    """Whether it is built for the class and machine of this process."""
    return (library.elf_class, library.machine) == elf.native()[:2]


def absolute(path: str) -> str:
    """Absolute, links kept; ".." is left to the kernel where a link makes it mean something else than its text."""
    joined = os.path.join(os.getcwd(), path)
    tidy = os.path.normpath(joined)
    return tidy if os.path.realpath(tidy) == os.path.realpath(joined) else joined


def inspect_library(path: str) -> Library:
    """What the file at `path` is. Raises ContenderFailed when there is no ELF file to speak of."""
    again = "Build it, or install its package, again."
    try:
        if "\0" in path or not path:
            raise FileNotFoundError
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise ContenderFailed(
            f"{path or 'an empty path'}: no such file. Give the path of a shared library, or a name that "
            "'cairn allocators' lists."
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
            f"{path} is damaged or truncated: its ELF headers make no sense. {again}"
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
        defines_free=readable and image.defines("free"),
        truncated=image.truncated,
        noexec=noexec,
    )


def carries(path: str) -> bool:
    """Whether LD_PRELOAD and LD_LIBRARY_PATH can carry this path as one word."""
    return not any(character in path for character in SPLITTERS)


def refuse_library(
    library: Library,
    program: Program | None = None,
    library_path: Sequence[str] = (),
    *,
    given_by_path: bool = False,
) -> None:
    """Raises ContenderFailed, with one sentence, when preloading this library cannot work.

    `library_path`: folders that will be on LD_LIBRARY_PATH. `given_by_path`: the user named the file, so its very name
    must fit into LD_PRELOAD; libraries that the catalog found are linked to a plain name instead.
    """
    name = library.given
    if library.kind != "library":
        article = "an" if library.kind[0] in "eo" else "a"
        raise ContenderFailed(
            f"{name} is {article} {library.kind}, not a shared library. Link it with -shared."
        )
    if library.truncated:
        raise ContenderFailed(
            f"{name} is truncated: its headers promise more than it has. Build or fetch it again."
        )
    _refuse_machine(library, program)
    if library.noexec:
        raise ContenderFailed(
            f"{name} lies on a file system mounted noexec. Copy it to one without noexec."
        )
    if given_by_path and not carries(library.path):
        raise ContenderFailed(
            f"{library.path}: LD_PRELOAD cannot carry a path with a space, ':', ';' or '$'. Link it to another name "
            "with ln -s, and give that."
        )
    if not library.defines_malloc:
        raise ContenderFailed(
            f"{name} defines no malloc: it is not an allocator. Name the library that defines it."
        )
    if not library.defines_free:
        raise ContenderFailed(
            f"{name} defines malloc but no free: programs would crash. Export both from it."
        )
    if problem := loader_problem(library, tuple(library_path)):
        raise ContenderFailed(f"{name} {problem}")


def _refuse_machine(library: Library, program: Program | None) -> None:
    if program is not None and program.elf_class is not None and program.machine is not None:
        bits, machine, musl = program.elf_class, program.machine, program.musl
        whose = f"{program.command} is"
    else:
        bits, machine, musl = elf.native()
        whose = "programs here are"
    if (library.elf_class, library.machine) != (bits, machine):
        raise ContenderFailed(
            f"{library.given} is a {library.elf_class}-bit {library.machine} library, and {whose} {bits}-bit "
            f"{machine}. Build it for {machine}."
        )
    if musl and "libc.so.6" in library.needs:
        raise ContenderFailed(
            f"{library.given} is built for glibc, and {whose} built for musl. Build it for musl."
        )
    if not musl and any(need.startswith(("libc.musl", "ld-musl")) for need in library.needs):
        raise ContenderFailed(
            f"{library.given} is built for musl, and {whose} built for glibc. Build it for glibc."
        )


@functools.lru_cache(maxsize=256)
def loader_problem(library: Library, library_path: tuple[str, ...] = ()) -> str | None:
    """What the dynamic loader would stumble over, as the end of a sentence; None when it would load the library.

    The listing mode maps files and runs no code of theirs. An unknown machine's loader is not asked. The answer is
    kept: asking twice about a file that makes the loader spin would take twice the time.
    """
    loader = _LOADERS.get((library.machine, library.elf_class))
    if loader is None or not os.access(loader, os.X_OK):
        return None
    with contextlib.ExitStack() as opened:
        # As descriptors, since a folder's name may hold the very colon that separates folders.
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
            return "keeps the dynamic loader busy without end: it is damaged. Build it, or install its package, again."
        except (OSError, ValueError):
            return None
    return _read_listing(os.fsdecode(answer.stdout[: elf.READ_MAX]), answer.returncode)


def loaded_with(program: Program) -> tuple[str, ...]:
    """The libraries that the loader would map for this program, in its order of search; none where it cannot say."""
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
            [loader, program.file], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=LOADER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return ()
    lines = os.fsdecode(answer.stdout[: elf.READ_MAX]).splitlines()
    # "\tlibx.so => /lib/libx.so (0x7f…)", and without the arrow where the program names the library by its path.
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
            f"needs {', '.join(missing)}, which the loader does not find. Install what provides it."
        )
    for line in listing.splitlines():
        _, found, rest = line.partition("version `")
        if found and "not found" in rest:
            version = rest.partition("'")[0]
            if version.startswith("GLIBC_"):
                return f"is built against a newer glibc than this machine's (it wants {version}). Build it here."
            return f"wants {version} of a library whose version here is older. Build it here, or update that library."
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
