"""Facts about a process that does not exist, for tests of the reports."""

from __future__ import annotations

from cairn.binary.embedded import NOTHING
from cairn.inspect.allocator import ProgramFiles
from cairn.inspect.attached import AttachedShare, attached
from cairn.inspect.facts import (
    EnvironmentVariable,
    GrowthOf,
    Heap,
    Inspection,
    InUse,
    Limits,
    MappingSum,
    ProcessFacts,
    Serving,
)
from cairn.inspect.process import Target
from cairn.inspect.sampled import Sampled
from cairn.profile.tally import ClockRun, FunctionTime

MIB = 1 << 20
SERVING = Serving(
    "glibc", "system", "2.36", "C library", "/usr/lib/x86_64-linux-gnu/libc.so.6", "93ac61ec",
    "No file before libc.so.6 defines malloc.",
)  # fmt: skip
INSPECTION = Inspection(
    process=ProcessFacts(
        1276, "worker", ("./worker", "--all"), "/srv/worker", 64, False, "glibc 2.36", 9, 7860.0,
        12.5, 0.5, 61_000, 7, False, False,
    ),
    allocator=SERVING,
    environment=(
        EnvironmentVariable("MALLOC_ARENA_MAX", "16", True),
        EnvironmentVariable("MALLOC_CONF", "narenas:1", False),
        EnvironmentVariable("MALLOC_UNHEARD_OF", "1", None),
    ),
    unused_preload=(),
    in_use=(InUse("mmap_threshold", 131072), InUse("arena_max", 16)),
    mappings=(
        MappingSum("heap", 1, 30 * MIB, 29 * MIB, 29 * MIB, 29 * MIB, 0, 0, 0),
        MappingSum("anonymous", 28, 578 * MIB, 203 * MIB, 203 * MIB, 203 * MIB, 2 * MIB, 4 * MIB,
                   64 * MIB),
        MappingSum("stacks", 9, 64 * MIB, 77824, 77824, 77824, 0, 0, 0),
        MappingSum("files", 15, 2 * MIB, MIB, 90_000, 60_000, 0, 0, 0),
        MappingSum("kernel", 4, 36864, 8192, 0, 0, 0, 0, 0),
    ),
    heap=Heap(235 * MIB, 60 * MIB, 58 * MIB, 175 * MIB, 163_664, MIB, 8, 9, True, 168 * MIB, 40_960,
              150 * MIB),
    heap_why_not="",
    growth=GrowthOf(30.0, 193, 232 * MIB, 233 * MIB, 33_000.0, 31_000.0, 35_000.0, "", 8.1),
    limits=Limits(512 * MIB, 300 * MIB, 57, 65530, None, 40 * MIB),
    transparent_huge_pages="madvise",
)  # fmt: skip
_PERIOD_NS = 1e6
SAMPLED = Sampled(
    Target(1276, "worker", 1, ""),
    ProgramFiles((), True, 64, False, NOTHING, "glibc 2.36", SERVING, None),
    10.0,
    "processors",
    ClockRun(
        False, "processors", 8000, own_ns=3.2e9, calls_ns=1e8, faults_ns=2e8, program_ns=4.4e9,
        unknown_ns=5e7, inside_squares=3.55e9 * _PERIOD_NS, squares=8e9 * _PERIOD_NS,
        interrupts_ns=5e7,
        functions=(
            FunctionTime("_int_malloc", "libc.so.6", 2000, 2e9, 2e9 * _PERIOD_NS),
            FunctionTime("_int_free", "libc.so.6", 900, 9e8, 9e8 * _PERIOD_NS),
            FunctionTime("clear_page_erms", "libcrypto.so.3", 300, 3e8, 3e8 * _PERIOD_NS),
        ),
    ),
    "",
    ((("cache_insert", "main"), 2500), (("parse_node", "main"), 900), ((), 150)),
    3, 8.1e9, 0.0, False,
)  # fmt: skip


def attached_share() -> AttachedShare:
    """The share of the allocator that the invented samples show."""
    return attached(SAMPLED)
