"""Looks at a process once, or for some time."""

from __future__ import annotations

import os
import time

from cairn.allocators.catalog import load_catalog
from cairn.inspect import glibc_heap, limits, mappings, settings
from cairn.inspect.allocator import ProgramFiles, examine
from cairn.inspect.facts import Heap, Inspection, InUse, ProcessFacts
from cairn.inspect.growth import measure
from cairn.inspect.memory import ProcessMemory
from cairn.inspect.process import NotPermitted, Target, find, inner_pid, stat_of, threads

_UNSEEN = {
    "jemalloc": "it tells them at the program's end with MALLOC_CONF=stats_print:true",
    "mimalloc": "it tells them at the program's end with MIMALLOC_SHOW_STATS=1",
    "mimalloc3": "it tells them at the program's end with MIMALLOC_SHOW_STATS=1",
    "cairn": "the program can ask for them with cairn_statistics(), and CAIRN_STATS=1 prints them "
    "at its end",
    "cairn-hardened": "the program can ask for them with cairn_statistics(), and CAIRN_STATS=1 "
    "prints them at its end",
    "tcmalloc": "the program can ask for them with MallocExtension_GetStats()",
}


def look(pid: int, seconds: float | None = None) -> Inspection:
    """Everything that is known about a process.

    seconds: how long the process is watched for its growth; None to look only once. Raises
    UsageError, NotPermitted or ProcessEnded (see `process`).
    """
    target = find(pid)
    if seconds is not None:
        target.check_readable()  # the user should not wait first
    growth = None if seconds is None else measure(target, seconds)
    environment = settings.read(target)
    smaps = mappings.read_smaps(target)
    stacks = mappings.stacks(target, smaps)
    try:
        memory: ProcessMemory | None = ProcessMemory(target)
    except NotPermitted:
        memory = None
    count = len(threads(target))
    try:
        program = examine(target, smaps, (environment or {}).get("LD_PRELOAD", ""), memory)
        heap, in_use, why_not = _heap(program, memory, smaps, count)
    finally:
        if memory is not None:
            memory.__exit__()
    serving = program.serving
    entry = load_catalog().find(serving.entry) if serving.entry else None
    found = Inspection(
        process=_facts(target, program, count),
        allocator=serving,
        environment=None
        if environment is None
        else settings.settings(environment, entry, serving.runtime),
        unused_preload=settings.allocators_of((environment or {}).get("LD_PRELOAD", ""))
        if serving.how != "preloaded"
        else (),
        in_use=in_use,
        mappings=mappings.sums(smaps, stacks),
        heap=heap,
        heap_why_not=why_not,
        growth=growth,
        limits=limits.read(target, len(smaps)),
        transparent_huge_pages=limits.transparent_huge_pages(),
    )
    target.check()
    return found


def _heap(
    program: ProgramFiles,
    memory: ProcessMemory | None,
    smaps: tuple[mappings.Mapping, ...],
    threads: int,
) -> tuple[Heap | None, tuple[InUse, ...], str]:
    """The allocator's own statistics, the settings in use, and why there are none."""
    serving = program.serving
    if serving.name == "not known":
        return None, (), "Live memory is not known, because the allocator is not."
    if serving.name != "glibc" or program.owner is None:
        how = _UNSEEN.get(serving.entry or "")
        return None, (), (
            f"Live memory is not known: {serving.name} exports no statistics that can be read from "
            f"outside{'' if how is None else '; ' + how}."
        )  # fmt: skip
    if program.bits != 64:
        return None, (), (
            "Live memory is not known: the process is a 32-bit one, and Cairn reads glibc's "
            "statistics of 64-bit processes only."
        )  # fmt: skip
    if memory is None:
        return None, (), (
            "Live memory is not known: the kernel does not let you read the memory of this process."
        )  # fmt: skip
    try:
        heap, in_use = glibc_heap.read(memory, program.owner, smaps, threads, program.libc)
    except glibc_heap.NotFound as why:
        return None, (), str(why)
    return heap, in_use, ""


def _facts(target: Target, program: ProgramFiles, threads: int) -> ProcessFacts:
    fields, ticks = stat_of(target), limits.ticks_per_s()
    served_by = (program.loaded[0], program.owner)
    old = [one for one in served_by if one is not None and one.is_deleted]
    started_s = target.started_ticks / ticks
    command = target.text("cmdline").split("\0")
    return ProcessFacts(
        pid=target.pid,
        name=target.name,
        command=tuple(command[:-1] if command and not command[-1] else command),
        program=program.loaded[0].path,
        bits=program.bits,
        is_static=program.is_static,
        libc=program.libc,
        threads=threads,
        running_s=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s),
        user_s=int(fields[11]) / ticks,
        system_s=int(fields[12]) / ticks,
        minor_faults=int(fields[7]),
        inner_pid=inner_pid(target),
        is_replaced=bool(old),
        is_deleted=any(not os.path.lexists(target.path(one.path)) for one in old),
    )
