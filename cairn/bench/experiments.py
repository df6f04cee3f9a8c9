"""The built-in experiments as data: workloads, contenders, number of rounds, and kind of report.

Most experiments run built-in workloads at sizes of their own (`Size.variants`). The experiment
`suite` runs the catalog of `cairn/run/workloads.toml`. The experiment `build` runs a build command;
`Experiment.prepare` fetches the source for it.
`cairn.bench.run_settings` turns an experiment into a run, which is then stored and reported like
any other.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cairn.allocators.discover import cache_folder
from cairn.allocators.download import NotObtained, obtain_archive, unpack
from cairn.allocators.sources import Source
from cairn.allocators.tool_runner import Progress, build_environment, find_tool, packages_of
from cairn.errors import CairnError
from cairn.model import Settings, StopRule, Workload
from cairn.why import CALIBRATING
from cairn.why.ill_allocators import HEALTHY, ILL

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
    "-DCMAKE_BUILD_TYPE=Debug", "-DBUILD_TESTS=OFF", "-DBUILD_CLI=OFF", "-DUSE_HTTPS=OFF",
    "-DUSE_SSH=OFF", "-DUSE_NTLMCLIENT=OFF", "-DREGEX_BACKEND=builtin", "-DUSE_BUNDLED_ZLIB=ON",
    "-DUSE_HTTP_PARSER=builtin",
)  # fmt: skip


Report = Literal[
    "comparison", "standings", "scenarios", "founding", "calibration", "findings", "predictions",
    "matrix",
]  # fmt: skip
"""The kind of report that a run gets:

- comparison: each workload by itself.
- standings: geometric means over all workloads.
- scenarios: time per operation, with a ranking by points.
- founding: the founding cases (see `cairn.why.founding_cases`), with their recorded causes and
  the causes that this run found.
- calibration: the costs of each allocator.
- findings: how often the cause of a known illness was found (see `cairn.why.ill_allocators`).
- predictions: how often predicted savings were right (see `cairn.why.prediction_score`).
- matrix: programs × contenders, divided by the baseline (see `cairn.compare.matrix`).
"""


class Variant(Struct, frozen=True):
    """A built-in workload at the size of an experiment."""

    name: str
    program: str
    """The file in workloads/."""
    arguments: str
    """`{threads}` stands for the number of processors, at least 2."""
    seconds: float
    """Duration of one run under glibc."""
    memory: int
    """High estimate of the peak memory of one run, in bytes."""


class Size(Struct, frozen=True):
    """The full or the quick form of an experiment."""

    rule: StopRule
    contenders: tuple[str, ...] = ()
    """Catalog names of allocators. Those that are not available here are left out, with a note. If
    the tuple is empty, every available allocator that is not hardened takes part."""
    replaceable: bool = False
    """True if other allocators of the catalog replace those that are not available here."""
    beside: tuple[str, ...] = ()
    """Further contenders, written as for `-a`. They are added last, and are always available."""
    variants: tuple[Variant, ...] = ()
    """The workloads. The tuple is empty if the catalog or `Experiment.prepare` provides them."""


class Experiment(Struct, frozen=True):
    """A built-in experiment."""

    name: str
    title: str
    """Its line in `cairn bench list`, and the title of its pictures."""
    full: Size
    quick: Size
    report: Report = "comparison"
    compared: tuple[tuple[str, str], ...] = ()
    """Pairs of contenders whose CPU times are compared, besides comparisons with the baseline."""
    why: bool = False
    """True if each contender also runs with the probe preloaded. These runs are never ranked."""
    cpu_s: float | None = None
    """The CPU seconds of one run, for an experiment whose program keeps every processor busy. None
    if the duration of a run follows from the durations of the workloads."""
    ill: bool = False
    """True if the ill allocators of `cairn.why.ill_allocators` compete, each on its own programs.
    The contenders of the sizes are then the healthy ones."""
    programs: bool = False
    """True if the workloads of the suite run, too, and the programs of `cairn.bench.real_programs`.
    """
    prepare: Callable[[Progress], Settings] | None = None
    """Fetches and builds the material of the experiment, and returns the settings of its run. None:
    the experiment runs built-in workloads."""


def rounds(number: int) -> StopRule:
    """The rule for a fixed number of rounds. The duration of the run is then known in advance."""
    return StopRule(precision=None, min_rounds=number, max_rounds=number)


def _prepare_build(progress: Progress) -> Settings:
    """Fetches and configures libgit2, and returns the settings of a run that builds it with ninja.

    The configured source stays in the cache folder for later runs. Before each trial, `ninja -t
    clean` removes the files of the last build. The build is a debug build, without optimisation,
    because developers make that kind of build most often. A second reason is that allocations take
    a larger share of the compiler's time in a debug build than in an optimised one. Raises
    CairnError if a tool is missing, or if the source cannot be fetched, unpacked or configured.
    """
    tools = {name: find_tool(name) for name in ("cmake", "ninja", "cc")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        raise CairnError(
            f"this experiment needs {' and '.join(missing)}, which cannot be found here; "
            f"Debian: apt-get install {packages_of(missing)}."
        )
    home = cache_folder().parent / "experiments"
    folder = home / f"libgit2-{_LIBGIT2.version}"
    build = folder / "build"
    if not (build / "build.ninja").exists():
        try:
            archive = obtain_archive(_LIBGIT2, cache_folder(), progress)
            _unpack_source(archive, folder)
        except NotObtained as error:
            raise CairnError(f"libgit2 is not obtainable here: {error}.") from None
        except (OSError, tarfile.TarError) as error:
            raise CairnError(
                f"libgit2 cannot be unpacked into {folder}: {error}. "
                "Free some space, or set XDG_CACHE_HOME."
            ) from error
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
            last = (done.stderr.strip() or done.stdout.strip() or "(none)").splitlines()[-1]
            raise CairnError(
                "cmake cannot configure libgit2; check that cmake and the C compiler work. "
                f"Its last line of output: {last}"
            )
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


def _unpack_source(archive: Path, folder: Path) -> None:
    """Unpacks the archive and moves the source to `folder/source`.

    `folder` itself is moved into place by one rename, so an interruption leaves no partial source.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as name:
        fresh = Path(name) / "fresh"
        fresh.mkdir()
        os.replace(unpack(_LIBGIT2, archive, Path(name)), fresh / "source")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(fresh, folder)


_QUICK_CONTENDERS = ("system", "cairn", "mimalloc", "jemalloc", "tcmalloc")
_ARENAS = tuple(
    f"{name}=system:MALLOCTEST_WITH={name}" for name in ("arena", "arena-huge", "bump", "bump-huge")
)
"""Contenders for which the workload malloctest uses its own bulk allocators instead of malloc."""
_GIB = 1 << 30


def _malloctest(repeats: int) -> tuple[Variant, ...]:
    """The workload malloctest with `repeats` repetitions, for each setting of --touch.

    The experiment that started the project repeats 500 times, which takes minutes. A single
    repetition would measure something else: an allocator that keeps its pages causes the page
    faults of 500 MB in the first repetition only.
    """
    return tuple(
        Variant(
            f"malloctest-{state}", "malloctest", f"1 {repeats} 1000000 10 1000 --touch {touch}",
            seconds * repeats, 700 << 20,
        )
        for state, touch, seconds in (
            ("untouched", "none", 0.15), ("headers", "header", 0.17), ("touched", "all", 0.25),
        )
    )  # fmt: skip


def _fill(gib: float) -> tuple[Variant, ...]:
    """The workload fill with `gib` GiB of blocks, by one thread and by a thread per processor."""
    size = round(gib * _GIB)
    return tuple(
        Variant(
            f"fill-{threads}-{state}", "fill",
            f"--bytes {size} --threads {number} --touch {touch}", seconds * gib, round(1.4 * size),
        )
        for threads, number, factor in (("1", "1", 1.0), ("n", "{threads}", 0.7))
        for state, touch, seconds in (
            ("untouched", "none", 1.2 * factor), ("touched", "all", 1.4 * factor),
        )
    )  # fmt: skip


def _mixed(mib: int, live: int, seconds: float) -> tuple[Variant, ...]:
    """The workload mixed, which allocates `mib` MiB in total with `live` MiB alive at once."""
    return (Variant("mixed", "mixed", f"--bytes {mib}M --live {live}M", seconds, 2 * live << 20),)


_FROZEN = "cairn-frozen=cairn:CAIRN_POLICY=frozen"
"""Cairn's own allocator, which then learns nothing about the program (docs/allocator.md). The
comparison with the contender `cairn` shows the effect of learning."""


_SCENARIO_CONTENDERS = (
    *("system", "cairn", "jemalloc", "mimalloc"),
    *("mimalloc3", "rpmalloc", "tcmalloc", "snmalloc"),
)
"""The contenders of the scenarios. The first four take part in the quick form."""


def _scenarios() -> tuple[Variant, ...]:
    """The workload scenario with each of its four kinds of buffers.

    Only the first bytes of a buffer are written, because filling 2 MiB takes ten times as long as
    the work of the allocator.
    """
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


_OWN_VARIANTS = (
    _FROZEN,
    "cairn-ucb1=cairn:CAIRN_POLICY=ucb1",
    "cairn-sites=cairn:CAIRN_BIG_CACHE=sites",
)
"""Cairn's own allocator without learning, with a further learnt value, and with its cache of large
blocks by call site (docs/allocator.md)."""

_FORMS = (
    ("header", "--touch header", {"json": "200K", "mir": "100K", "vm": "60K", "mixed": "80K"}),
    ("pages", "--touch header --pages yes", {"json": "8K", "mir": "2K", "vm": 600, "mixed": 900}),
    ("all", "--touch all", {"json": "6K", "mir": "1500", "vm": 300, "mixed": 600}),
)
"""The forms of the four scenarios: the name, the arguments, and the operations of each scenario.

A form decides how much of each buffer the program writes. The first form writes its first bytes, as
the original measurement did. It shows mostly the work of the allocator, because a buffer causes one
page fault at most. The second form also writes to each page. So it shows the page faults of memory
that the allocator had returned to the kernel. The third form writes the whole buffer, and is
closest to a program that uses its buffers."""


def _scenario_forms() -> tuple[Variant, ...]:
    """The four scenarios in three forms, with 1, 2 and 8 threads."""
    return tuple(
        Variant(
            f"{which.upper()}-{form}-{threads}",
            "scenario",
            f"--which {which} --threads {threads} {arguments} --operations {numbers[which]}",
            0.1,
            (16 + threads * 16) << 20,
        )
        for which in ("json", "mir", "vm", "mixed")
        for form, arguments, numbers in _FORMS
        for threads in (1, 2, 8)
    )


_FOUNDING_WORKLOADS = (
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
"""The applications of the founding cases (see `cairn.why.founding_cases`), each with a workload.

The workload allocates like the application: its blocks have similar sizes and lifetimes, and
similar threads free them. The rest of its work differs from that of the application.
"""

_CALIBRATION_WORKLOADS = (
    ("small", "hash_table", "--operations 1M"),
    ("nodes", "document", "--operations 2M"),
    ("mixed", "mixed", "--bytes 512M --live 32M --lifetimes generational"),
    ("sessions", "fragmentation", "--kind server --operations 60K"),
    ("buffers", "scenario", "--which mixed --operations 20K"),
    ("growing", "realloc_growth", "--largest 4M"),
    ("large", "large_churn", "--operations 400"),
    ("threads", "producer_consumer", "--threads 2 --operations 1M"),
)
"""The workloads of a calibration. Most kinds of operations occur in several of them, because the
time of an operation depends on the operations around it."""


def _calibration() -> tuple[Variant, ...]:
    return tuple(
        Variant(name, program, arguments, 0.5, 256 << 20)
        for name, program, arguments in _CALIBRATION_WORKLOADS
    )


_PROGRAMS = (
    ("table", "hash_table", "--operations 1M"),
    ("cache", "lru_cache", "--operations 400K"),
    ("server", "fragmentation", "--kind server --operations 120K"),
    ("mixed", "mixed", "--bytes 1G --live 8M --least 64 --most 8K"),
    ("buffers", "mixed", "--bytes 2G --live 16M --least 1K --most 32K"),
    ("nodes", "document", "--operations 2M"),
    ("tree", "syntax_tree", "--operations 1M"),
    ("integers", "big_integers", "--operations 6M"),
    ("zeroed", "calloc_sweep", "--least 16 --most 1K --bytes 1M"),
    ("zeroed-large", "calloc_sweep", "--least 1K --most 32K --bytes 8M"),
    ("strings", "realloc_growth", "--kind small --operations 3M"),
    ("vectors", "realloc_growth", "--kind doubling --largest 64K --vectors 100 --operations 300K"),
    (
        "logs",
        "realloc_growth",
        "--kind step --step 256 --largest 16K --vectors 500 --operations 400K",
    ),
    ("lines", "aligned", "--most 1K --alignment 1K --operations 600K"),
    ("pages", "aligned", "--most 4K --alignment 4K --blocks 2000 --operations 500K"),
    ("larson", "larson", "--threads 4 --operations 2M"),
    ("threads", "mixed", "--threads 4 --bytes 512M --live 32M"),
    ("births", "thread_birth", "--threads 4 --operations 2000"),
    ("zeroed-threads", "calloc_sweep", "--threads 2 --least 16 --most 4K --bytes 1M"),
    ("lines-threads", "aligned", "--threads 2 --most 512 --alignment 128 --operations 1M"),
    ("pipeline", "producer_consumer", "--threads 4 --operations 1500K"),
    ("freeing", "free_only", "--operations 500K"),
    ("counters", "false_sharing", "--kind active --objects 2 --size 24 --operations 200K"),
    ("words", "false_sharing", "--kind active --objects 1 --size 8 --operations 600K"),
    ("records", "false_sharing", "--kind active --objects 4 --size 24 --operations 100K"),
)
"""The programs on which the findings are tried. Those with one thread come first."""


def _findings(*, quick: bool = False) -> tuple[Variant, ...]:
    """The programs; in the quick size only the first program of each ill allocator."""
    first = {one.programs[0] for one in ILL}
    return tuple(
        Variant(name, program, arguments, 0.3, 256 << 20)
        for name, program, arguments in _PROGRAMS
        if name in first or not quick
    )


def _predictions() -> tuple[Variant, ...]:
    """The workloads of a calibration, with names by which `prediction_score` knows them."""
    return tuple(replace(one, name=CALIBRATING + one.name) for one in _calibration())


def _founding() -> tuple[Variant, ...]:
    return tuple(
        Variant(name, program, arguments, 0.7, 512 << 20)
        for name, program, arguments in _FOUNDING_WORKLOADS
    )


EXPERIMENTS = (
    Experiment(
        name="build",
        title="a ninja build of libgit2, about 200 C files",
        full=Size(
            rounds(12),
            (
                "system", "cairn", "mimalloc", "mimalloc3", "rpmalloc", "jemalloc", "snmalloc",
                "tcmalloc", "google-tcmalloc", "google-tcmalloc-rseq", "tbbmalloc", "hoard",
                "scudo",
            ),
        ),
        quick=Size(rounds(8), _QUICK_CONTENDERS),
        cpu_s=18.0,
        prepare=_prepare_build,
    ),
    Experiment(
        name="malloctest",
        title="bulk release of a million objects, repeated: malloc against arenas",
        full=Size(rounds(12), beside=_ARENAS, variants=_malloctest(20)),
        quick=Size(
            rounds(6), ("system", "cairn", "mimalloc", "jemalloc"),
            beside=_ARENAS, variants=_malloctest(3),
        ),
        compared=(
            ("arena", "system"), ("arena", "bump"),
            ("arena-huge", "system"), ("arena-huge", "bump-huge"),
        ),
    ),
    Experiment(
        name="fill",
        title="3 GiB of small blocks, by one thread and by several, untouched and touched",
        full=Size(rounds(12), variants=_fill(3.0)),
        quick=Size(rounds(6), _QUICK_CONTENDERS, variants=_fill(0.25)),
    ),
    Experiment(
        name="mixed",
        title="3 GiB of allocations and frees, with 760 MiB alive at once",
        full=Size(rounds(12), variants=_mixed(3072, 760, 4.0)),
        quick=Size(rounds(6), _QUICK_CONTENDERS, variants=_mixed(256, 64, 0.4)),
    ),
    Experiment(
        name="scenarios",
        title="JSON, MIR, VM and MIXED: time per operation, page faults, and a ranking by points",
        full=Size(
            rounds(50),
            _SCENARIO_CONTENDERS,
            beside=(_FROZEN,), variants=_scenarios(),
        ),
        quick=Size(
            rounds(10), _SCENARIO_CONTENDERS[:4],
            beside=(_FROZEN,), variants=_scenarios(),
        ),
        report="scenarios",
    ),
    Experiment(
        name="scenario-forms",
        title="the scenarios, with more of each buffer written and with threads",
        full=Size(
            rounds(50),
            _SCENARIO_CONTENDERS,
            beside=_OWN_VARIANTS, variants=_scenario_forms(),
        ),
        quick=Size(
            rounds(6), _SCENARIO_CONTENDERS[:4],
            beside=_OWN_VARIANTS, variants=_scenario_forms()[::5],
        ),
        report="scenarios",
    ),
    Experiment(
        name="founding-cases",
        title="recorded cases of slow and fast allocators, measured again with their causes",
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
        title="the costs of each allocator here, from which 'cairn profile' predicts savings",
        full=Size(rounds(6), variants=_calibration()),
        quick=Size(rounds(3), _QUICK_CONTENDERS, variants=_calibration()),
        report="calibration",
        why=True,
    ),
    Experiment(
        name="findings",
        title="how often the cause of a known illness of an allocator is found",
        full=Size(rounds(6), HEALTHY, variants=_findings()),
        quick=Size(rounds(6), ("system", "cairn"), variants=_findings(quick=True)),
        report="findings",
        why=True,
        ill=True,
    ),
    Experiment(
        name="predictions",
        title="how exact predicted savings are",
        full=Size(rounds(6), variants=_predictions()),
        quick=Size(rounds(2), _QUICK_CONTENDERS, variants=_predictions()),
        report="predictions",
        why=True,
        programs=True,
    ),
    Experiment(
        name="suite",
        title="the suite of workloads: geometric means of time and memory",
        full=Size(
            StopRule(
                precision=0.03, min_rounds=4, max_rounds=12, budget_s=55 * 60, judged="active",
            )
        ),
        quick=Size(
            replace(rounds(4), judged="active"),
            ("system", "cairn", "mimalloc", "jemalloc", "tcmalloc", "snmalloc"),
            replaceable=True,
        ),
        report="standings",
    ),
)  # fmt: skip

SUITE = "suite"
"""The name of the experiment that runs the catalog of workloads."""

SINGLE = Experiment(
    name="workloads",
    title="workloads by name",
    full=Size(StopRule(precision=0.01, min_rounds=10, max_rounds=40, budget_s=10 * 60)),
    quick=Size(rounds(6), _QUICK_CONTENDERS),
)
"""The experiment for a single workload of the catalog that is named on the command line."""

SEVERAL = replace(SINGLE, full=EXPERIMENTS[-1].full, report="standings")
"""The experiment for several workloads that are named on the command line."""


def find(name: str) -> Experiment | None:
    """The experiment of that name; None if there is none."""
    return next((experiment for experiment in EXPERIMENTS if experiment.name == name), None)
