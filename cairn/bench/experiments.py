"""The built-in experiments: what each runs, and how its material is had. A run of one is a run like any other.

An experiment runs built-in workloads at sizes of its own (`variants`), the catalog as it is (`suite`), or what its
`prepare` fetches (`build`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cairn.allocators.discover import cache_folder
from cairn.allocators.download import NotObtained, obtain_archive, unpack
from cairn.allocators.sources import Source
from cairn.allocators.tools import Progress, build_environment, find_tool, packages_of
from cairn.errors import CairnError
from cairn.model import Settings, StopRule, Workload

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


Report = Literal["comparison", "standings", "scenarios", "founding", "calibration"]
"""What a run is about: each workload by itself, means over all, ns per operation with a ranking, why, or costs."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A built-in workload at the size of an experiment; seconds and bytes are those of one run under glibc."""

    name: str
    program: str
    arguments: str
    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Size:
    """How much of an experiment is run."""

    rule: StopRule
    contenders: tuple[str, ...] = ()
    """What -a takes; what is not here is left out, and said. None at all: every allocator here that is not hardened."""
    replaceable: bool = False
    """Whether others of the catalog take the places of those that are not here."""
    beside: tuple[str, ...] = ()
    """Contenders that come after these and need nothing to be here."""
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment by name."""

    name: str
    title: str
    full: Size
    quick: Size
    report: Report = "comparison"
    compared: tuple[tuple[str, str], ...] = ()
    """Pairs of contenders whose CPU times are compared beside those with the baseline."""
    why: bool = False
    """Every contender runs behind the probe, too."""
    cpu_s: float | None = None
    """Processor seconds of one run that keeps every processor busy; None where the variants tell."""
    prepare: Callable[[Progress], Settings] | None = None


def rounds(number: int) -> StopRule:
    """A fixed number of rounds: one look, and a duration that is known."""
    return StopRule(precision=None, min_rounds=number, max_rounds=number)


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
        done = subprocess.run(
            command, env=build_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(build, ignore_errors=True)
            last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[
                -1
            ]
            raise CairnError(f"cmake cannot configure libgit2: {last}")
    ninja = str(tools["ninja"])
    return Settings(
        workloads=(
            Workload(
                name=f"ninja build of libgit2 {_LIBGIT2.version}", command=(ninja, "-C", str(build))
            ),
        ),
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


_QUICK_FEW = ("system", "cairn", "mimalloc", "jemalloc", "tcmalloc")
_ARENAS = tuple(
    f"{name}=system:MALLOCTEST_WITH={name}" for name in ("arena", "arena-huge", "bump", "bump-huge")
)
"""The same program with its own bulk allocators in malloc's place."""
_GIB = 1 << 30


def _malloctest(repeats: int) -> tuple[Variant, ...]:
    """The reference repeats 500 times, which takes minutes; one repetition would be another experiment.

    In the first, whoever keeps its pages takes the page faults of 500 MB, which all the others spare it.
    """
    return tuple(
        Variant(
            f"malloctest-{said}", "malloctest", f"1 {repeats} 1000000 10 1000 --touch {touch}", seconds * repeats,
            700 << 20,
        )
        for said, touch, seconds in (("untouched", "none", 0.15), ("headers", "header", 0.17), ("touched", "all", 0.25))
    )  # fmt: skip


def _fill(gib: float) -> tuple[Variant, ...]:
    """By one thread and by as many as there are processors."""
    size = round(gib * _GIB)
    return tuple(
        Variant(
            f"fill-{threads}-{said}", "fill", f"--bytes {size} --threads {number} --touch {touch}", seconds * gib,
            round(1.4 * size),
        )
        for threads, number, factor in (("1", "1", 1.0), ("n", "{threads}", 0.7))
        for said, touch, seconds in (("untouched", "none", 1.2 * factor), ("touched", "all", 1.4 * factor))
    )  # fmt: skip


def _mixed(mib: int, live: int, seconds: float) -> tuple[Variant, ...]:
    return (Variant("mixed", "mixed", f"--bytes {mib}M --live {live}M", seconds, 2 * live << 20),)


_FROZEN = "cairn-frozen=cairn:CAIRN_POLICY=frozen"
"""Our own allocator, which learns nothing: whether learning pays is read off beside it."""


def _scenarios() -> tuple[Variant, ...]:
    """Only the first bytes of a buffer are written: filling 2 MiB costs ten times what the allocator does."""
    return tuple(
        Variant(
            which.upper(),
            "scenario",
            f"--which {which} --touch header --operations {number}",
            0.4,
            64 << 20,
        )
        for which, number in (("json", "1M"), ("mir", "400K"), ("vm", "100K"), ("mixed", "300K"))
    )


_LIKE = (
    ("dedup", "producer_consumer", "--threads 4 --least 1K --most 64K --operations 120K"),
    ("freqmine", "hash_table", "--threads 2 --operations 2M"),
    ("reverse_index", "document", "--threads 2 --operations 3M"),
    (
        "swaptions",
        "mixed",
        "--threads 2 --bytes 3G --live 4M --least 64 --most 8K --lifetimes generational",
    ),
    ("raytrace", "lru_cache", "--operations 1M --bytes 128M"),
    ("canneal", "hash_table", "--operations 2M --tables 4 --most 200K"),
    ("aget", "larson", "--threads 4 --operations 400K"),
)
"""Programs of the founding table, and which workload allocates as they do: by whom blocks are freed, how large they
are, how long they live. What the programs do beside is another thing."""


_KINDS = (
    ("small", "hash_table", "--operations 1M"),
    ("nodes", "document", "--operations 2M"),
    ("mixed", "mixed", "--bytes 512M --live 32M --lifetimes generational"),
    ("sessions", "fragmentation", "--kind server --operations 60K"),
    ("buffers", "scenario", "--which mixed --operations 20K"),
    ("growing", "realloc_growth", "--largest 4M"),
    ("large", "large_churn", "--operations 400"),
    ("threads", "producer_consumer", "--threads 2 --operations 1M"),
)
"""What a calibration runs: each kind of operations, in more than one company."""


def _calibration() -> tuple[Variant, ...]:
    return tuple(
        Variant(name, program, arguments, 0.5, 256 << 20) for name, program, arguments in _KINDS
    )


def _founding() -> tuple[Variant, ...]:
    return tuple(
        Variant(name, program, arguments, 0.7, 512 << 20) for name, program, arguments in _LIKE
    )


EXPERIMENTS = (
    Experiment(
        name="build",
        title="a ninja build of libgit2, some 200 C files",
        full=Size(
            rounds(12),
            (
                "system", "cairn", "mimalloc", "mimalloc3", "rpmalloc", "jemalloc", "snmalloc", "tcmalloc",
                "google-tcmalloc", "google-tcmalloc-rseq", "tbbmalloc", "hoard", "scudo",
            ),
        ),
        quick=Size(rounds(8), _QUICK_FEW),
        cpu_s=18.0,
        prepare=_prepare_build,
    ),
    Experiment(
        name="malloctest",
        title="a million objects of 10 to 1000 bytes, then all released, again and again: malloc against arenas",
        full=Size(rounds(12), beside=_ARENAS, variants=_malloctest(20)),
        quick=Size(rounds(6), ("system", "cairn", "mimalloc", "jemalloc"), beside=_ARENAS, variants=_malloctest(3)),
        compared=(("arena", "system"), ("arena", "bump"), ("arena-huge", "system"), ("arena-huge", "bump-huge")),
    ),
    Experiment(
        name="fill",
        title="3 GiB of small blocks one after the other, by one thread and by several, untouched and touched",
        full=Size(rounds(12), variants=_fill(3.0)),
        quick=Size(rounds(6), _QUICK_FEW, variants=_fill(0.25)),
    ),
    Experiment(
        name="mixed",
        title="3 GiB of allocations and frees with 760 MiB alive",
        full=Size(rounds(12), variants=_mixed(3072, 760, 4.0)),
        quick=Size(rounds(6), _QUICK_FEW, variants=_mixed(256, 64, 0.4)),
    ),
    Experiment(
        name="scenarios",
        title="JSON, MIR, VM and MIXED: ns per operation, page faults, and a ranking by points",
        full=Size(
            rounds(50), ("system", "cairn", "jemalloc", "mimalloc", "mimalloc3", "rpmalloc", "tcmalloc", "snmalloc"),
            beside=(_FROZEN,), variants=_scenarios(),
        ),
        quick=Size(
            rounds(10), ("system", "cairn", "jemalloc", "mimalloc"), beside=(_FROZEN,), variants=_scenarios(),
        ),
        report="scenarios",
    ),
    Experiment(
        name="founding-cases",
        title="why an allocator was slow or fast on a program, as recorded when the project began, and as found here",
        full=Size(
            rounds(10), ("system", "hoard", "jemalloc", "tcmalloc", "hardened"),
            beside=("glibc-2.21=system:MALLOC_TRIM_THRESHOLD_=4096",), variants=_founding(),
        ),
        quick=Size(
            rounds(6), ("system", "jemalloc", "tcmalloc"),
            beside=("glibc-2.21=system:MALLOC_TRIM_THRESHOLD_=4096",), variants=_founding(),
        ),
        report="founding",
        why=True,
    ),
    Experiment(
        name="calibration",
        title="what each allocator costs on this machine: 'cairn profile' then tells what another would save",
        full=Size(rounds(6), variants=_calibration()),
        quick=Size(rounds(3), _QUICK_FEW, variants=_calibration()),
        report="calibration",
        why=True,
    ),
    Experiment(
        name="suite",
        title="the suite of workloads: geometric means of time and memory",
        full=Size(StopRule(precision=0.03, min_rounds=4, max_rounds=12, budget_s=55 * 60, judged="active")),
        quick=Size(
            replace(rounds(4), judged="active"), ("system", "cairn", "mimalloc", "jemalloc", "tcmalloc", "snmalloc"),
            replaceable=True,
        ),
        report="standings",
    ),
)  # fmt: skip

SUITE = "suite"
"""The experiment whose variants are the catalog of workloads."""

SINGLE = Experiment(
    name="workloads",
    title="workloads by name",
    full=Size(StopRule(precision=0.01, min_rounds=10, max_rounds=40, budget_s=10 * 60)),
    quick=Size(rounds(6), _QUICK_FEW),
)
"""One workload of the catalog, asked for by its name."""

SEVERAL = replace(SINGLE, full=EXPERIMENTS[-1].full, report="standings")
"""More than one."""


def find(name: str) -> Experiment | None:
    """The experiment of that name."""
    return next((experiment for experiment in EXPERIMENTS if experiment.name == name), None)
