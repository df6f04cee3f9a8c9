"""Tests of the probe in programs with small stacks, and with signal stacks of their own.

The last tests are about the call stacks that the probe records.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.probing import Probed

from cairn.profile.callers import Stack, stacks
from cairn.profile.function_names import Names
from cairn.profile.tally import ALLOCATING

Compiled = Callable[..., Path]

MOST_BYTES = 512


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture(scope="module")
def small(compiled: Compiled) -> Path:
    return compiled("probe_small_stacks.c")


@pytest.mark.parametrize("first", [(), ("first",)], ids=["", "first"])
@pytest.mark.parametrize(
    "options", [{}, {"CAIRN_PROBE_GAP": "1", "CAIRN_PROBE_PATHS": "exact"}], ids=["", "all timed"]
)
def test_fibres_on_stacks_of_3584_bytes_finish(
    probed: Probed, small: Path, first: tuple[str, ...], options: dict[str, str]
) -> None:
    """In an earlier version, the frame of one signal of the probe was larger than such a stack."""
    assert probed(small, 3584, *first, **options) == "200 fibres finished\n"
    calls = dict(zip(ALLOCATING, probed.only.tally.calls.sum(axis=(1, 2)), strict=True))
    assert calls["calloc"] == 200 * 50


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"CAIRN_PROBE_GAP": "1", "CAIRN_PROBE_PATHS": "exact"},
        {"CAIRN_PROBE_GAP": "1", "CAIRN_PROBE_COUNTERS": "page-faults"},
        {"CAIRN_PROBE_GAP": "1", "CAIRN_PROBE_KERNEL": "interpose"},
    ],
    ids=["", "exact", "counters", "interpose"],
)
def test_a_call_takes_less_than_512_bytes_more_of_the_stack(
    probed: Probed, compiled: Compiled, options: dict[str, str]
) -> None:
    # Without "now", the loader would look for each function on the small stack at its first call.
    program = compiled("probe_small_stacks.c", "-Wl,-z,now")

    def depths(text: str) -> dict[str, int]:
        return {name: int(size) for name, size in (line.split("=") for line in text.splitlines())}

    alone = depths(subprocess.check_output([program, "depth"], text=True))
    behind = depths(probed(program, "depth", **options))
    more = {name: behind[name] - alone[name] for name in alone}
    assert max(more.values()) < MOST_BYTES, more


def test_signal_stacks_are_those_of_the_program(probed: Probed, compiled: Compiled) -> None:
    """A signal once had SA_ONSTACK again after signal() had set its handler."""
    program = compiled("probe_signal_stacks.c", "-pthread", "-Wno-deprecated-declarations")
    assert subprocess.check_output([program]) == b"went on\n"
    assert probed(program) == "went on\n"
    assert {process.state for process in probed.profile.processes} == {"ended"}


def test_a_timer_does_not_destroy_the_signal_stack_of_a_handler_that_allocates(
    probed: Probed, compiled: Compiled
) -> None:
    """The kernel begins a signal stack anew if the interrupted code is not on it.

    The probe once ran on a stack of its own during the handler's allocation. A timer in that moment
    then overwrote the frames of the handler on the program's signal stack.
    """
    program = compiled("allocates_on_signal_stack.c")
    options = {"CAIRN_PROBE_STACKS": "exact", "CAIRN_PROBE_TIMER": "on"}
    assert probed(program, **options) == "went on\n"
    assert probed.only.tally.calls.sum() > 1000


# --- call stacks ----------------------------------------------------------------------------------


def stacks_of(probed: Probed, function: str) -> list[Stack]:
    """Returns the recorded stacks whose innermost frame is the function."""
    found = stacks(probed.profile.stacks, Names().function_at)
    return [stack for stack in found if stack.function.function == function]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not here")
def test_the_tables_of_loaded_code_are_read_without_system_calls(
    probed: Probed, compiled: Compiled, tmp_path: Path
) -> None:
    """The kernel copies the head of the program's file, to recognise it, and no table."""
    trace = tmp_path / "trace"
    strace = ("strace", "-f", "-e", "trace=process_vm_readv", "-o", trace)
    if subprocess.run([*map(str, strace), "true"], check=False).returncode:
        pytest.skip("strace is not permitted")
    probed(*strace, compiled("failed_reallocs.c"), 5, 3, CAIRN_PROBE_STACKS="exact")
    assert stacks_of(probed, "takes_blocks")
    copied = re.findall(r"1, \[\{iov_base=0x(\w+), iov_len=1024\}\]", trace.read_text())
    # The kernel loads a program at 0x555555554000 or up to 16 TiB above it: vm.mmap_rnd_bits is at
    # most 32. Libraries lie outside this range.
    of_program = {one for one in copied if 0x555555554000 <= int(one, 16) < 0x655556000000}
    assert len(of_program) == 1 and all(address.endswith("000") for address in of_program)


def test_a_block_lives_on_after_a_realloc_that_fails(probed: Probed, compiled: Compiled) -> None:
    kept, freed, size = 5, 3, 1000
    probed(compiled("failed_reallocs.c"), kept, freed, CAIRN_PROBE_STACKS="exact")
    (stack,) = stacks_of(probed, "takes_blocks")
    sums = stack.sums
    assert (sums.allocated.blocks, sums.allocated.bytes) == (kept + freed, (kept + freed) * size)
    assert (sums.live.blocks, sums.live.bytes) == (kept, kept * size)
    assert sums.freed == freed


def test_a_freed_block_stays_dead_when_a_later_malloc_fails(
    probed: Probed, compiled: Compiled
) -> None:
    """Only a failing realloc keeps its block. A failing malloc once revived the last freed one."""
    probed(compiled("failed_mallocs.c"), 5, CAIRN_PROBE_STACKS="exact")
    (stack,) = stacks_of(probed, "takes_block")
    sums = stack.sums
    assert (sums.allocated.blocks, sums.freed) == (5, 5)
    assert (sums.live.blocks, sums.live.bytes) == (0, 0)


@pytest.mark.parametrize(("handlers", "is_whole"), [(8, True), (9, False)])
def test_a_stack_leads_through_eight_signal_handlers(
    probed: Probed, compiled: Compiled, handlers: int, is_whole: bool
) -> None:
    """The search for callers ends at the ninth handler.

    Only the step from a handler may lead to a lower address, so a damaged stack could otherwise
    lead in a circle.
    """
    flags = ("-O2", "-pthread", "-fno-builtin", "-D_GNU_SOURCE", "-ldl")
    probed(compiled("stacks_storm.c", *flags), "nested", handlers, CAIRN_PROBE_STACKS="exact")
    (stack,) = stacks_of(probed, "storm_allocates")
    names = [frame.function for frame in stack.frames]
    assert names.count("storm_interrupted") == handlers
    assert ("main" in names) == is_whole
