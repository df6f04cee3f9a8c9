"""The built-in experiments: what each runs, and how its material is had. A run of one is a run like any other."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cairn.discover import cache_folder
from cairn.download import NotObtained, obtain_archive, unpack
from cairn.errors import CairnError
from cairn.model import Settings, Workload
from cairn.sources import Source
from cairn.tools import Progress, build_environment, find_tool, packages_of

_LIBGIT2 = Source(
    allocator="",
    version="1.9.7",
    kind="crate",
    package="libgit2-sys",
    release="0.18.8+1.9.7",
    sha256="7f7c568b25d7489bc3fb2988ed69ab111d2944d2f5fec3d5c987fe545ea97b50",
    recipe="",
    stand_ins=(
        "libc 0.2.9999",
        "cc 1.9999.0 parallel",
        "pkg-config 0.3.9999",
        "libz-sys 1.9999.0 libc zlib-ng",
        "libssh2-sys 0.3.9999 zlib-ng-compat",
        "openssl-sys 0.9.9999 vendored",
    ),
)
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Debug", "-DBUILD_TESTS=OFF", "-DBUILD_CLI=OFF", "-DUSE_HTTPS=OFF", "-DUSE_SSH=OFF",
    "-DUSE_NTLMCLIENT=OFF", "-DREGEX_BACKEND=builtin", "-DUSE_BUNDLED_ZLIB=ON", "-DUSE_HTTP_PARSER=builtin",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment by name."""

    name: str
    title: str
    contenders: tuple[str, ...]
    """Those of the full experiment; what is not here is left out, and said."""
    quick: tuple[str, ...]
    cpu_s: float
    """Processor seconds of one run on the machine of docs/results, for the expected duration."""
    prepare: Callable[[Progress], Settings]


def _prepare_build(progress: Progress) -> Settings:
    """Fetches and configures libgit2 once; each trial then builds it from nothing with ninja.

    Compiled without optimisation, as developers build all day: the compiler's own memory shows most there.
    """
    tools = {name: find_tool(name) for name in ("cmake", "ninja", "cc")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        raise CairnError(
            f"{' and '.join(missing)} missing for this experiment; Debian: apt-get install {packages_of(missing)}"
        )
    home = cache_folder().parent / "experiments"
    folder = home / f"libgit2-{_LIBGIT2.version}"
    build = folder / "build"
    if not (build / "build.ninja").exists():
        try:
            archive = obtain_archive(_LIBGIT2, cache_folder(), progress)
            _unpack_whole(archive, folder)
        except NotObtained as error:
            raise CairnError(f"libgit2 is not obtainable here: {error}") from None
        except (OSError, tarfile.TarError) as error:
            raise CairnError(f"cannot unpack libgit2 into {folder}: {error}") from error
        progress(f"configuring libgit2 {_LIBGIT2.version}")
        command = [
            str(tools["cmake"]), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}", *_OPTIONS,
            "-S", str(folder / "source" / "libgit2"), "-B", str(build),
        ]  # fmt: skip
        done = subprocess.run(command, env=build_environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(build, ignore_errors=True)
            last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise CairnError(f"cmake cannot configure libgit2: {last}")
    ninja = str(tools["ninja"])
    return Settings(
        workloads=(Workload(name=f"ninja build of libgit2 {_LIBGIT2.version}", command=(ninja, "-C", str(build))),),
        folder=str(folder),
        prepare=f"{shlex.quote(ninja)} -C {shlex.quote(str(build))} -t clean",
    )


def _unpack_whole(archive: Path, folder: Path) -> None:
    """Puts the source into `folder`, by one rename: never half."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as name:
        fresh = Path(name) / "fresh"
        fresh.mkdir()
        os.replace(unpack(_LIBGIT2, archive, Path(name)), fresh / "source")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(fresh, folder)


EXPERIMENTS = (
    Experiment(
        name="build",
        title="a ninja build of libgit2, some 200 C files",
        contenders=(
            "system", "mimalloc", "mimalloc3", "rpmalloc", "jemalloc", "snmalloc", "tcmalloc", "google-tcmalloc",
            "google-tcmalloc-rseq", "tbbmalloc", "hoard", "scudo",
        ),
        quick=("system", "mimalloc", "jemalloc", "tcmalloc"),
        cpu_s=18.0,
        prepare=_prepare_build,
    ),
)  # fmt: skip


def find(name: str) -> Experiment | None:
    """The experiment of that name."""
    return next((experiment for experiment in EXPERIMENTS if experiment.name == name), None)


def expected_s(experiment: Experiment, contenders: int, blocks: int, warmup: int, cpus: int) -> float:
    """Seconds that the whole run will take, from the processor time of one trial; machines differ by two and more."""
    return experiment.cpu_s / cpus * 1.1 * contenders * (blocks + warmup)
