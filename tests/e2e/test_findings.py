"""Tests of the findings with the allocators of cairn/bench/ill/, which have one illness each.

An illness is a known weakness. Cairn must find it, and must find nothing in a healthy allocator.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.places import ILL, PROGRAMS
from support.preloadable_path import carried

from cairn import native
from cairn.findings import find
from cairn.profile.reader import gather
from cairn.profile.tally import Tree

WORKLOADS = {
    "hash_table": ("--operations", "2M"),
    "lru_cache": ("--operations", "1M"),
    "fragmentation": ("--kind", "server", "--operations", "100K"),
    "larson": ("--threads", "4", "--operations", "1M"),
    "mixed": ("--threads", "4", "--bytes", "256M", "--live", "32M"),
    "thread_birth": ("--threads", "4", "--operations", "2000"),
    "producer_consumer": ("--threads", "4", "--operations", "500K"),
    "free_only": ("--operations", "500K"),
}
ALONE = ("hash_table", "lru_cache", "fragmentation")
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
needs_huge_pages = pytest.mark.skipif(
    not HUGE.exists() or "[never]" in HUGE.read_text(),
    reason="the kernel gives programs no huge pages",
)
ILLNESSES = [
    ("madvise_storm", 32, "returns-what-it-needs"),
    ("mmap_storm", 4, "asks-too-often"),
    ("not_reused", 60, "not-reused"),
    ("coarse_sizes", 150, "sizes-too-coarse"),
    ("metadata_heavy", 70, "touches-more-than-it-gives"),
    pytest.param("huge_bloat", 70, "huge-page-bloat", marks=needs_huge_pages),
]
DECLARED = {"not_reused": ["asks-too-often"]}
"""By illness: additional findings that follow from the illness itself."""
THREADED = [
    ("remote_kept", 60, "not-reused", ("larson", "producer_consumer", "free_only")),
    ("spinning_lock", 2000, "queues", ("larson", "mixed", "thread_birth")),
    ("global_lock", 2000, "queues", ("larson", "mixed", "thread_birth")),
]
QUICK = [("remote_kept", "producer_consumer")]


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., list[str]]:
    """Returns findings(program, illness, strength, over), which profiles a run of a workload.

    findings() preloads the library with the illness before the allocator `over`, by default that of
    the system. It returns the names of the findings, the one with the largest effect first.
    """

    def look(
        program: str, illness: str | None = None, strength: int = 0, over: Path | None = None
    ) -> list[str]:
        preload = [carried(native.probe())]
        if illness is not None:
            library = tmp_path / f"{illness}.so"
            flags = [
                "-O2",
                "-shared",
                "-fPIC",
                "-fno-builtin",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-D_GNU_SOURCE",
            ]
            subprocess.run(["gcc", *flags, ILL / f"{illness}.c", "-o", library], check=True)
            preload.append(str(library))
        if over is not None:
            preload.append(carried(over))
        out = Path(tempfile.mkdtemp(dir=tmp_path))
        command = [native.workload(program), *WORKLOADS[program]]
        started = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "CAIRN_PROBE": str(out),
                "ILL": str(strength),
                "LD_PRELOAD": ":".join(preload),
            },
        )
        _, status, used = os.wait4(started.pid, 0)
        assert status == 0
        user_ns, system_ns = round(used.ru_utime * 1e9), round(used.ru_stime * 1e9)
        tree = Tree(
            tuple(map(str, command)), "", None, user_ns, system_ns, used.ru_nvcsw, used.ru_nivcsw,
            used.ru_minflt, used.ru_majflt, {}, user_mode_only=False,
        )  # fmt: skip
        found = find(replace(gather(out), tree=tree))
        # pytest shows this output if the test fails.
        print(*found, sep="\n")
        return [finding.name for finding in found]

    return look


@pytest.mark.parametrize(
    "program", [ALONE[0], *(pytest.param(one, marks=pytest.mark.long) for one in ALONE[1:])]
)
def test_the_systems_allocator_has_no_finding(
    findings: Callable[..., list[str]], program: str
) -> None:
    assert findings_twice(findings, program) == set()


def findings_twice(findings: Callable[..., list[str]], *ill: object, **over: object) -> set[str]:
    """Returns the findings of one run that a second run has, too.

    A machine that stalls may cause a finding in one run. A false finding comes again.
    """
    found = set(findings(*ill, **over))
    return found & set(findings(*ill, **over)) if found else found


@pytest.mark.parametrize("program", WORKLOADS)
def test_cairn_has_no_finding(findings: Callable[..., list[str]], program: str) -> None:
    assert findings_twice(findings, program, over=native.allocator()) == set()


@pytest.mark.parametrize(
    "program", [ALONE[0], *(pytest.param(one, marks=pytest.mark.long) for one in ALONE[1:])]
)
@pytest.mark.parametrize(("illness", "strength", "name"), ILLNESSES)
def test_an_illness_is_found_and_nothing_else(
    findings: Callable[..., list[str]], program: str, illness: str, strength: int, name: str
) -> None:
    """One of two runs must find the illness.

    The probe may miss the peak of a short program if the machine stalls.
    """
    found = findings(program, illness, strength) or findings(program, illness, strength)
    assert found and found[0] == name
    assert found[1:] in ([], DECLARED.get(illness, []))


@pytest.mark.parametrize(
    ("program", "illness", "strength", "name"),
    [
        pytest.param(
            program,
            illness,
            strength,
            name,
            marks=[] if (illness, program) in QUICK else pytest.mark.long,
        )
        for illness, strength, name, programs in THREADED
        for program in programs
    ],
)
def test_an_illness_of_threads_is_found_and_nothing_else(
    findings: Callable[..., list[str]], program: str, illness: str, strength: int, name: str
) -> None:
    """The allocator below the illness is Cairn. One of two runs must find the illness.

    With glibc there would be a second finding, because its arenas make many system calls in
    threads.
    """
    ill = (program, illness, strength, native.allocator())
    assert (findings(*ill) or findings(*ill)) == [name]


@pytest.mark.parametrize("illness", [None, "not_reused", "coarse_sizes"])
def test_a_program_that_frees_nothing_has_no_memory_that_is_not_reused(
    tmp_path: Path, illness: str | None
) -> None:
    """Cairn once answered "Freed memory is not reused" for a program that frees nothing."""
    program, out = tmp_path / "never_frees", tmp_path / "raw"
    flags = ["-O2", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, PROGRAMS / "never_frees.c", "-o", program], check=True)
    out.mkdir()
    preload = [carried(native.probe())]
    if illness is not None:
        library = tmp_path / f"{illness}.so"
        subprocess.run(
            ["gcc", *flags, "-shared", "-fPIC", ILL / f"{illness}.c", "-o", library], check=True
        )
        preload.append(str(library))
    environment = {
        **os.environ, "CAIRN_PROBE": str(out), "LD_PRELOAD": ":".join(preload), "ILL": "100",
    }  # fmt: skip
    subprocess.run([program], check=True, timeout=60, env=environment)
    found = find(gather(out))
    assert "not-reused" not in [finding.name for finding in found]


@pytest.mark.parametrize("over", [None, native.allocator()], ids=["glibc", "cairn"])
def test_growing_blocks_and_the_programs_own_mappings_do_not_count_as_waste(
    tmp_path: Path, over: Path | None
) -> None:
    program, out = tmp_path / "neighbours", tmp_path / "raw"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, PROGRAMS / "probe_own_mappings.c", "-o", program], check=True)
    out.mkdir()
    preload = [carried(native.probe()), *([carried(over)] if over else [])]
    environment = {**os.environ, "CAIRN_PROBE": str(out), "LD_PRELOAD": ":".join(preload)}
    subprocess.run([program], check=True, timeout=60, env=environment)
    profile = gather(out)
    looks = [moment.unasked_bytes for moment in profile.moments if moment.unasked_bytes is not None]
    assert max(moment.resident_bytes for moment in profile.moments) > 128 << 20
    assert looks
    assert max(looks) < 4 << 20
