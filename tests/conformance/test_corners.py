"""Tests of the return values and side effects of every function, and of the heap's statistics."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from support.compilers import ROOT

from .conftest import MODES, Program

in_both = pytest.mark.parametrize("mode", MODES)


@in_both
def test_every_corner_case_holds(program: Callable[..., Program], mode: str) -> None:
    assert program("corners.c", mode).succeed().endswith("passed, 0 failed\n")


@in_both
def test_every_alignment_holds_with_every_size(program: Callable[..., Program], mode: str) -> None:
    """The program asks for 22 alignments with more than 200 sizes each.

    Another allocator once misaligned a ninth of such blocks.
    """
    said = program("alignment.c", mode).succeed()
    assert int(said.split()[0]) > 22 * 200 and said.endswith("passed, 0 failed\n")


@in_both
def test_mallopt_returns_the_same_as_that_of_the_c_library(
    program: Callable[..., Program], mode: str
) -> None:
    """Cairn's mallopt has no effect, but it refuses the same values as glibc's mallopt.

    So a program that checks the result behaves the same with both.
    """
    theirs = Program(program("mallopt.c", "preloaded").path, None)
    assert program("mallopt.c", mode).succeed() == theirs.succeed()


@pytest.mark.plain("has no quarantine, which counts as live")
@pytest.mark.parametrize("mode", ["linked", "archive"])
def test_the_statistics_of_the_header_agree_with_each_other(
    program: Callable[..., Program], mode: str
) -> None:
    lines = program("statistics.c", mode).succeed().splitlines()
    assert lines[-1].endswith("passed, 0 failed")
    stats = json.loads(lines[0])
    assert stats["resident_bytes"] == stats["used_bytes"] + stats["idle_bytes"]
    assert (
        sum(entry["live_count"] for entry in stats["classes"]) + stats["large_count"]
        == stats["live_count"]
    )
    assert sum(entry["slab_count"] for entry in stats["classes"]) == stats["slab_count"]


@pytest.mark.parametrize("mode", ["linked", "archive"])
def test_heaps_and_walks_and_limits_are_as_the_header_says(
    program: Callable[..., Program], mode: str
) -> None:
    assert program("heaps.c", mode).succeed().splitlines()[-1].endswith("passed, 0 failed")


@pytest.mark.parametrize("mode", ["linked", "archive"])
def test_a_heap_without_memory_does_not_block_other_threads(
    program: Callable[..., Program], mode: str
) -> None:
    """A heap that found no memory once searched all other heaps while it held its own lock.

    The statistics lock the list of heaps and then each heap. So each of the two threads waited
    forever for a lock of the other thread.
    """
    program("full_heap_statistics.c", mode).succeed(timeout=60)


@in_both
def test_a_limit_in_the_environment_holds(program: Callable[..., Program], mode: str) -> None:
    """With a limit of 60 MiB, the program gets 60 blocks of 1 MiB, or 59 and a few small blocks."""
    run = program("limited.c", mode)
    assert run.succeed(100).split() == ["100", "100"]
    for size in ("60M", str(60 << 20), "61440K"):
        assert run.succeed(100, CAIRN_LIMIT=size).split() in (["59", "0"], ["60", "0"])
    assert run.succeed(100, CAIRN_LIMIT="1T").split() == ["100", "100"]
    for wrong in ("60 M", "much", "-1", "0", "M", "1Gi", "99999999999999999999", "99999999999T"):
        ended = run(100, CAIRN_LIMIT=wrong)
        assert ended.code == 0 and ended.out.split() == ["100", "100"]
        assert (
            ended.err
            == "cairn: CAIRN_LIMIT is not a size such as 800M or 2G, so there is no limit\n"
        )


@in_both
def test_malloc_info_writes_a_document_with_real_numbers(
    program: Callable[..., Program], mode: str
) -> None:
    document = ET.fromstring(program("inform.c", mode).succeed("info"))
    assert document.tag == "malloc" and document.get("version") == "1"
    heap = document.find("heap")
    assert heap is not None
    free = sum(int(size.get("total", 0)) for size in heap.iter("size"))
    rest = next(total for total in heap.iter("total") if total.get("type") == "rest")
    assert free == int(rest.get("size", 0)) > 0
    large = next(total for total in document.iter("total") if total.get("type") == "mmap")
    assert int(large.get("count", 0)) > 50 and int(large.get("size", 0)) > 50 * 32768
    # glibc's document has these totals, too, and programs look for them.
    kinds = {
        f"{one.tag} {one.get('type')}": int(one.get("size", 0))
        for one in document
        if one.tag in ("system", "aspace")
    }
    assert list(kinds) == ["system current", "system max", "aspace total", "aspace mprotect"]
    assert kinds["aspace mprotect"] == kinds["aspace total"] >= kinds["system max"]
    assert kinds["system max"] >= kinds["system current"] > 50 * 32768


@pytest.mark.plain("has blocks of the requested size")
@in_both
def test_malloc_stats_writes_lines_on_stderr(program: Callable[..., Program], mode: str) -> None:
    ended = program("inform.c", mode)("stats")
    assert ended.code == 0 and not ended.out
    assert all(line.startswith("cairn: ") for line in ended.err.splitlines())
    assert "live" in ended.err and "of 256 bytes: 1 live of" in ended.err
    nouns = "(block|large block|system call|slab)"
    assert re.search(rf"\b1 {nouns}\b", ended.err)
    assert not re.search(rf"\b1 {nouns}s", ended.err)
    assert not re.search(rf"\b([02-9]|\d\d+) {nouns}\b", ended.err)


def prometheus(text: str) -> dict[str, int]:
    """Parses the text as Prometheus does, and returns the samples by name.

    The samples of each metric must follow the line with its type.
    """
    samples, typed = {}, ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed, kind = line.split()[2:]
            assert (kind == "counter") == typed.endswith("_total"), line
        elif not line.startswith("# HELP "):
            name, value = re.fullmatch(r'(\w+(?:\{block_bytes="\d+"\})?) (\d+)', line).groups()  # type: ignore[union-attr]
            assert name.partition("{")[0] == typed and name not in samples, line
            samples[name] = int(value)
    return samples


@in_both
def test_statistics_at_exit_are_one_json_line_or_lines_or_nothing(
    program: Callable[..., Program], mode: str
) -> None:
    run = program("inform.c", mode)
    stats = json.loads(run(CAIRN_STATS="json").err)
    assert stats["live_count"] >= 200 and stats["thread_count"] == 1
    header = (ROOT / "include" / "cairn" / "cairn.h").read_text()
    members = header.split("struct cairn_stats {")[1].split("struct cairn_class_stats")[0]
    named = set(re.findall(r"^    (?:size_t|uint64_t) (\w+);", members, re.MULTILINE))
    assert len(named) > 25 and named == set(stats) - {"classes"}
    assert run(CAIRN_STATS="1").err.startswith("cairn: live ")
    samples = prometheus(run(CAIRN_STATS="prometheus").err)
    assert samples["cairn_live_count"] >= 200 and samples["cairn_thread_count"] == 1
    counted = {name for name in samples if name.endswith("_total")}
    assert counted == {
        f"cairn_{name}_total"
        for name in (
            *("purged_bytes", "map_calls", "purge_calls", "learnt", "refills", "slabs_made"),
            *("slabs_adopted", "remote_frees", "wakes", "claims"),
        )
    }
    assert named == {
        name.removeprefix("cairn_").removesuffix("_total")
        for name in samples
        if not name.startswith("cairn_class_")
    }
    small = sum(
        value for name, value in samples.items() if name.startswith("cairn_class_live_count{")
    )
    assert small == samples["cairn_live_count"] - samples["cairn_large_count"]
    for value in ("", "0", "yes"):
        run.succeed(CAIRN_STATS=value)


@in_both
def test_it_can_be_called_before_anything_is_initialised(
    program: Callable[..., Program], mode: str
) -> None:
    assert program("early.c", mode).succeed() == "ended\n"


@in_both
def test_the_smallest_stack_is_enough(program: Callable[..., Program], mode: str) -> None:
    program("small_stack.c", mode).succeed()
