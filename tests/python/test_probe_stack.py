"""Tests that the probe takes little of the program's stack in every allocation call.

gcc reports the frame of each function and the calls between the functions. The test adds up the
frames on every chain of calls that begins at an interposed function.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "src" / "probe"

MOST_BYTES = 512
MOST_BYTES_OF_LAYOUT = 800
"""The most bytes of stack that the probe may use in a call: without --layout, and with it."""
SMALL_BYTES = 64
"""The assumed stack of the functions in SMALL. They call nothing and have few variables."""
SMALL = {
    *("__errno_location", "direct_call", "direct_return_from_signal", "getauxval", "pthread_self"),
    *("memchr", "memcmp", "memcpy", "memset", "strchr", "strcmp", "strlen", "strncmp", "strnlen"),
    *("__popcountdi2", "sigdelset"),
}
APART = {
    "__indirect_call": "the allocator's function, which the program would call without the probe",
    "own_stack_switch": "it runs on a stack of the probe",
    "next_found": "all functions were found before main, so it only reads a table",
    "next_find": "all functions were found before main, so nothing calls it later",
    "next_operator": "it is called only for an operator of a plugin's own runtime",
}
ALLOCATING = (
    *("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "memalign"),
    *("valloc", "pvalloc", "free", "free_sized", "free_aligned_sized", "malloc_usable_size"),
    *("malloc_trim", "_Znwm", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZdlPv", "_ZdaPvm"),
)
BESIDE = (
    *(
        "mmap",
        "munmap",
        "madvise",
        "mprotect",
        "sbrk",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
    ),
    *("pthread_mutex_trylock", "pthread_spin_lock", "pthread_rwlock_wrlock"),
)
"""Interposed functions that an allocator calls while it serves a function of ALLOCATING. The test
adds up their frames separately, without the frames of that function."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Returns the bytes of each function's frame, and the functions that each function calls."""
    folder = tmp_path_factory.mktemp("frames")
    flags = "-O2 -std=gnu11 -fPIC -fno-builtin -ftls-model=initial-exec -fexceptions"
    flags += " -fvisibility=hidden -fno-strict-aliasing -fcallgraph-info=su"
    frames: dict[str, int] = {}
    called: dict[str, set[str]] = {}
    for source in sorted(PROBE.glob("*.c")):
        made = folder / f"{source.stem}.o"
        command = ["gcc", *flags.split(), "-D_GNU_SOURCE=1", f"-I{ROOT / 'src'}", "-c", source]
        done = subprocess.run(
            [*command, "-o", made], cwd=folder, capture_output=True, text=True, check=False
        )
        if "unrecognized command" in done.stderr:
            pytest.skip("this gcc reports no call graph")
        assert done.returncode == 0, done.stderr
        graph = made.with_suffix(".ci").read_text()
        for name, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', graph):
            if size := re.search(r"(\d+) bytes", label):
                frames[name] = int(size[1])
        for name, target in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
            called.setdefault(name, set()).add(target)
    return frames, called


def deepest(
    frames: dict[str, int], called: dict[str, set[str]], name: str, above: tuple[str, ...] = ()
) -> tuple[int, tuple[str, ...]]:
    """Returns the largest sum of frames on a chain of calls from `name` on, and this chain."""
    if name in APART:
        return 0, ()
    if name not in frames:
        assert name in SMALL, f"{above} call {name}, whose stack is not known"
        return SMALL_BYTES, (name,)
    assert name not in above, f"{name} calls itself"
    below = max(
        (deepest(frames, called, one, (*above, name)) for one in called.get(name, ())),
        default=(0, ()),
    )
    return frames[name] + below[0], (f"{name.rpartition(':')[2]} {frames[name]}", *below[1])


@pytest.mark.parametrize("name", (*ALLOCATING, *BESIDE))
def test_frames_on_the_programs_stack_are_small(
    calls: tuple[dict[str, int], dict[str, set[str]]], name: str
) -> None:
    frames, called = calls
    assert name in frames
    without = {
        caller: {one for one in those if not one.startswith("layout_")}
        for caller, those in called.items()
    }
    depth, chain = deepest(frames, without, name)
    assert depth < MOST_BYTES, " > ".join(chain)
    depth, chain = deepest(frames, called, name)
    assert depth < MOST_BYTES_OF_LAYOUT, " > ".join(chain)


def test_what_runs_apart_exists(calls: tuple[dict[str, int], dict[str, set[str]]]) -> None:
    _, called = calls
    everything = set().union(*called.values())
    assert everything >= set(APART), set(APART) - everything
