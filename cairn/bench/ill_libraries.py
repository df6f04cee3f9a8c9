"""Compiles the ill allocators of cairn/bench/ill/ and describes the runs in which they are tried.

The sources are part of the package. The libraries are kept in the cache folder, by the digest of
the sources.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from cairn import units
from cairn.allocators.discover import cache_folder
from cairn.allocators.tool_runner import Progress, build_environment, find_tool, packages_of
from cairn.errors import CairnError
from cairn.why.ill_allocators import ILL

FOLDER = Path(__file__).resolve().parent / "ill"
"""The sources."""
FLAGS = (
    "-O2", "-shared", "-fPIC", "-fno-builtin", "-ftls-model=initial-exec", "-D_GNU_SOURCE",
    "-Wall", "-Wextra", "-Werror", "-pthread",
)  # fmt: skip


def sources_and_compiler() -> tuple[list[Path], str]:
    """The files of the sources, and the path of the C compiler.

    Raises CairnError if the sources or a C compiler are missing.
    """
    files = sorted(FOLDER.glob("*.[ch]")) if FOLDER.is_dir() else []
    missing = [one.name for one in ILL if FOLDER / f"{one.name}.c" not in files]
    if missing:
        raise CairnError(
            f"this installation of cairn lacks the sources of {len(missing)} of the allocators "
            "that are ill on purpose; install it again with 'make install' or pip."
        )
    compiler = find_tool("cc")
    if compiler is None:
        raise CairnError(
            "this experiment compiles its allocators, and there is no C compiler here; "
            f"Debian: apt-get install {packages_of(['cc'])}."
        )
    return files, compiler


def specs(say: Progress) -> tuple[str, ...]:
    """The ill allocators as arguments of -a. Compiles those that the cache folder lacks.

    Raises CairnError if the sources or a C compiler are missing, or if the compiler fails.
    """
    files, compiler = sources_and_compiler()
    text = b"".join(file.name.encode() + file.read_bytes() for file in files)
    digest = hashlib.sha256(text + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    home = cache_folder().parent / "experiments" / f"ill-{digest}"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CairnError(
            f"cannot make {home}: {error.strerror or error}; free some space, or set "
            "XDG_CACHE_HOME."
        ) from error
    wanted = [one for one in ILL if not (home / f"{one.name}.so").is_file()]
    if wanted:
        say(f"compiling {units.counted(len(wanted), 'ill allocator')}")
    for one in wanted:
        _compile(compiler, FOLDER / f"{one.name}.c", home / f"{one.name}.so")
    return tuple(f"{one.name}={home / one.name}.so:ILL={one.strength}" for one in ILL)


def _compile(compiler: str, source: Path, made: Path) -> None:
    """Compiles a library. The file gets its final name only when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".new-", dir=made.parent) as folder:
        draft = Path(folder) / made.name
        command = [compiler, *FLAGS, str(source), "-o", str(draft), "-ldl"]
        done = subprocess.run(
            command, env=build_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stderr.strip() or "(none)").splitlines()[-1]
            raise CairnError(
                f"the C compiler cannot compile {source.name}; check that it works. Its last line "
                f"of output: {last}"
            )
        os.replace(draft, made)
