"""Tests of the texts of 'cairn inspect' and 'cairn profile --pid', with invented facts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO

import pytest
from msgspec.structs import replace
from support.documents import keys
from support.invented_process import INSPECTION, SAMPLED, attached_share
from support.widths import at_all_widths

from cairn.inspect.advice import advice
from cairn.inspect.attached import attached
from cairn.inspect.clock import NO_MEMORY
from cairn.inspect.facts import EnvironmentVariable, GrowthOf, Heap, Limits
from cairn.inspect.growth import growth_of
from cairn.report import attached as attached_report
from cairn.report import inspection

MIB = 1 << 20


def test_a_look_is_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    text = at_all_widths(lambda view: inspection.render(INSPECTION, view))
    golden("inspect", text)


def test_a_share_is_as_in_the_golden_file(golden: Callable[[str, str], None]) -> None:
    found = attached_share()
    golden("attached", at_all_widths(lambda view: attached_report.render(found, view)))


def test_every_sentence_of_advice_is_as_in_the_golden_file(
    golden: Callable[[str, str], None],
) -> None:
    """Each case changes one fact of a process that needs no advice."""
    quiet = replace(
        INSPECTION,
        environment=(),
        growth=None,
        heap=replace(
            INSPECTION.heap or Heap(0, 0, 0, 0, 0, 0, 0, 0, False),
            free=0,
            free_resident=0,
            top_resident=0,
            trimmed=0,
        ),
        mappings=tuple(replace(one, swapped=0, lazily_freed=0) for one in INSPECTION.mappings),
        limits=Limits(None, None, 100, 65530, None),
    )
    assert advice(quiet) == ()
    heap = quiet.heap
    assert heap is not None
    serving, process = quiet.allocator, quiet.process
    free = replace(heap, free=160 * MIB, free_resident=160 * MIB, trimmed=120 * MIB, arenas=1)
    growing = GrowthOf(30.0, 193, 0, 0, 1e6, 0.9e6, 1.1e6)
    near = Limits(512 * MIB, 511 * MIB, 100, 65530, None, 411 * MIB)
    own_pages = replace(quiet, mappings=tuple(
        replace(one, resident=900 * MIB, huge=0) if one.kind == "anonymous" else one
        for one in quiet.mappings))  # fmt: skip
    assert advice(own_pages) == (), "these pages are not glibc's, so it cannot make them huge"
    cases = {
        "mappings": replace(quiet, limits=replace(quiet.limits, mappings=60_000)),
        "cgroup": replace(quiet, limits=replace(
            quiet.limits, cgroup_bytes=512 * MIB, cgroup_used=500 * MIB, cgroup_cache=20 * MIB)),
        "swapped": replace(quiet, mappings=tuple(
            replace(one, swapped=40 * MIB) if one.kind == "heap" else one
            for one in quiet.mappings)),
        "grows": replace(quiet, growth=growing),
        "grows, static": replace(
            quiet, growth=growing, process=replace(process, is_static=True)),
        "grows, outside malloc": replace(quiet, growth=growing, heap=replace(heap, held=MIB)),
        "grows, outside malloc, which returned its memory": replace(
            quiet, growth=growing, heap=replace(heap, free=234 * MIB)),
        "grows to a limit": replace(quiet, growth=growing, limits=near),
        "grows to a limit, as is known well": replace(
            quiet, growth=replace(growing, low=0.9999e6, high=1.0001e6),
            limits=replace(near, cgroup_cache=511 * MIB)),
        "grows to a limit, or hardly": replace(
            quiet, growth=replace(growing, low=1.0), limits=near),
        "lazily freed": replace(quiet, mappings=tuple(
            replace(one, lazily_freed=100 * MIB) if one.kind == "anonymous" else one
            for one in quiet.mappings)),
        "free in arenas": replace(quiet, heap=replace(free, arenas=9)),
        "free at the top": replace(quiet, heap=replace(free, top_resident=159 * MIB)),
        "free at the tops": replace(quiet, heap=replace(
            free, top_resident=159 * MIB, trimmed=MIB, arenas=3)),
        "free between": replace(quiet, heap=free),
        "free between, in small pieces": replace(quiet, heap=replace(free, trimmed=0)),
        "another's variable": replace(quiet, environment=(
            EnvironmentVariable("MALLOC_CONF", "x", False),)),
        "preload of a static program": replace(
            quiet, unused_preload=("libjemalloc.so.2",), process=replace(process, is_static=True)),
        "preload of its own malloc": replace(
            quiet, unused_preload=("libjemalloc.so.2",),
            allocator=replace(serving, how="in the program")),
        "preload without effect": replace(quiet, unused_preload=("libjemalloc.so.2",)),
        "no huge pages": replace(own_pages, heap=replace(heap, held=800 * MIB)),
        "replaced": replace(quiet, process=replace(process, is_replaced=True)),
        "deleted": replace(
            quiet, process=replace(process, is_replaced=True, is_deleted=True)
        ),
        "beside": replace(quiet, allocator=replace(serving, beside="jemalloc")),
        **{name: replace(quiet, allocator=replace(serving, runtime=name))
           for name in ("CPython", "Java", "Node.js", "Go")},
    }  # fmt: skip
    golden("inspect-advice", "".join(
        f"== {name}\n" + "".join(f"{sentence}\n" for sentence in advice(case))
        for name, case in cases.items()
    ))  # fmt: skip
    assert all(advice(case) for case in cases.values())


def test_returned_pages_of_free_blocks_are_not_resident() -> None:
    """Own mappings of the program do not stand in for them: 232 MiB of private memory remain."""
    assert INSPECTION.heap is not None
    returned = replace(INSPECTION.heap, free_resident=4 * MIB, top_resident=0, trimmed=0)
    assert returned.held_resident == (60 + 4) * MIB
    found = replace(INSPECTION, heap=returned)
    assert not any("still resident" in sentence for sentence in advice(found))
    assert "175 MiB are free, of which 4.00 MiB are resident." in " ".join(inspection.answer(found))
    # A quarter of the memory that is left may be much, even if it is little of all addresses.
    some = replace(returned, held=1000 * MIB, free=940 * MIB, free_resident=150 * MIB)
    assert any(
        sentence.startswith(
            "150 MiB of the 1,000 MiB that glibc holds are free and still resident (15 %): "
        )
        for sentence in advice(replace(INSPECTION, heap=some))
    )


@pytest.mark.parametrize("cache", [400 * MIB, None])
def test_nothing_is_concluded_from_a_cgroup_whose_page_cache_fills_its_limit(
    cache: int | None,
) -> None:
    """Page cache that is not known may fill the limit, too."""
    full = Limits(512 * MIB, 511 * MIB, 100, 65530, None, cache)
    growing = GrowthOf(30.0, 193, 0, 0, 1.0, 0.9, 1.1)
    told = advice(replace(INSPECTION, growth=growing, limits=full))
    assert not any("cgroup" in sentence for sentence in told)


def test_the_time_to_the_limit_is_the_range_of_the_growth() -> None:
    """1,000 MiB are left, and the memory grows by 1 to 2 MiB in a second: 500 to 1,000 s."""
    growing = GrowthOf(30.0, 193, 0, 0, 1.5 * MIB, 1.0 * MIB, 2.0 * MIB)
    near = Limits(2000 * MIB, 1900 * MIB, 100, 65530, None, 900 * MIB)
    told = advice(replace(INSPECTION, growth=growing, limits=near))
    assert (
        "At this rate, its cgroup reaches its limit of 1.95 GiB in 8 min 20 s to 16 min 40 s, "
        "page cache not counted."
    ) in told


def test_every_sentence_on_growth_is_as_in_the_golden_file(
    golden: Callable[[str, str], None],
) -> None:
    steady = GrowthOf(30.0, 193, 0, 0, 0.0, 0.0, 0.0)
    cases = (
        steady,
        replace(steady, per_s=1.5 * MIB, low=1.4 * MIB, high=1.6 * MIB),
        replace(steady, per_s=-3000.0, low=-3500.0, high=-2500.0),
        replace(steady, per_s=3.0, low=1.0, high=5.0),
        replace(steady, per_s=200.0, low=-9000.0, high=9400.0),
        growth_of([0.0, 0.5], [1, 2]),
        replace(steady, seconds=1800.2),
    )
    golden("inspect-growth", "".join(f"{inspection.growth_of(one)}\n" for one in cases))


def test_a_perfect_line_has_its_slope_and_no_error() -> None:
    times = [place * 0.02 for place in range(200)]
    found = growth_of(times, [round(1000 * at) for at in times])
    assert found.low is not None and found.high is not None
    assert 990 <= found.low <= 1000 <= found.high <= 1010


def test_the_csv_has_each_number_of_the_document() -> None:
    rows = dict(list(csv.reader(StringIO(inspection.rows(INSPECTION))))[1:])
    assert rows["allocator.name"] == "glibc"
    assert rows["mappings.heap.resident"] == str(INSPECTION.mappings[0].resident)
    assert rows["heap.live_most"] == str((INSPECTION.heap or Heap(*[0] * 8, False)).live_most)
    document = json.loads(inspection.document(INSPECTION, cairn="1"))
    assert document["inspection"]["allocator"]["name"] == "glibc"


def test_the_csv_of_a_share_has_functions_callers_and_stacks(
    golden: Callable[[str, str], None],
) -> None:
    rows = list(csv.DictReader(StringIO(attached_report.rows(attached_share()))))
    assert {row["table"] for row in rows} == {"cpu time", "functions", "callers", "stacks"}
    stack = next(row for row in rows if row["table"] == "stacks")
    assert stack["name"] == "main;cache_insert"
    lines = attached_report.collapsed(attached_share()).splitlines()
    assert lines == ["main;cache_insert 2500", "main;parse_node 900", "not known 150"]
    document = json.loads(attached_report.document(attached_share(), cairn="1"))
    assert document["attached"]["share"]["value"] == attached_share().share.value
    golden("keys/attached", keys(document))


def test_too_few_samples_give_no_share_but_the_time_that_is_needed() -> None:
    assert SAMPLED.run is not None
    few = replace(SAMPLED, run=replace(SAMPLED.run, samples=50), cpu_ns=5e7)
    found = attached(few)
    assert found.share is None
    assert found.why_not.startswith("The share is not known: there are only 50 clock samples")
    assert "--for 60s" in found.why_not
    # A measurement of a second has a period of 0.25 ms. A longer one has fewer samples a second, so
    # the time that was advised was once too short again.
    short = replace(SAMPLED.run, samples=50, own_ns=3e6, calls_ns=0.0, program_ns=9.5e6,
                    faults_ns=0.0, unknown_ns=0.0, interrupts_ns=0.0)  # fmt: skip
    told = attached(replace(few, run=short, seconds=1.0, cpu_ns=1.2e7))
    assert "--for 25s" in told.why_not
    idle = attached(replace(few, seconds=600.0))
    assert idle.why_not.endswith("That is too little for a share within 10 minutes.")


def test_half_an_hour_has_no_exponent() -> None:
    (_, used, *_) = attached_report.answer(attached(replace(SAMPLED, seconds=1800.2)))
    assert used == (
        "In 30 min, the process used 8.10 s of CPU time, and 8,000 clock samples were taken."
    )
    assert SAMPLED.run is not None
    few = replace(SAMPLED.run, samples=50)
    rare = attached(replace(SAMPLED, run=few, seconds=1800.2, cpu_ns=1.3e11))
    assert " It used 130 s of CPU time in 30 min. " in rare.why_not


def test_time_without_samples_widens_the_interval() -> None:
    sure, unsure = attached(SAMPLED).share, attached(replace(SAMPLED, cpu_ns=2e10)).share
    assert sure is not None and unsure is not None
    assert unsure.interval.low < 0.6 * sure.interval.low
    assert unsure.interval.high > sure.interval.high


def test_a_clock_without_the_kernel_leaves_the_time_there_unknown() -> None:
    found = attached(replace(SAMPLED, scope="threads in user mode", cpu_ns=1.2e10))
    assert found.share is not None and found.unknown > 0.1
    assert any("does not permit samples in the kernel" in one
               for one in attached_report.caveats(found))  # fmt: skip


def test_lost_samples_widen_the_interval_only_by_the_time_that_the_process_used() -> None:
    """If the kernel has no room for samples, it loses samples of all processes."""
    assert SAMPLED.run is not None
    run = replace(SAMPLED.run, unknown_ns=SAMPLED.run.unknown_ns + 9e9)
    lost = attached(replace(SAMPLED, run=run, lost_ns=9e9, cpu_ns=8.2e9))
    assert lost.share is not None and 0.030 < lost.unknown < 0.031


def test_samples_whose_callers_were_not_resolved_are_told() -> None:
    found = attached(replace(SAMPLED, without_stack=12_345))
    assert found.without_stack == 12_345
    assert list(attached_report.caveats(found)) == [
        "3 threads had no clock, since there are too many threads; those with the most CPU time "
        "had one.",
        "The callers are those of the first 3,550 samples in the allocator. Those of 12,345 later "
        "samples are not known.",
        "0.6 % of the CPU time cannot be attributed. The shares are shares of the rest.",
    ]
    assert not any("callers are" in one for one in attached_report.caveats(attached(SAMPLED)))


def test_a_clock_that_the_kernel_refused_is_told_with_its_reason() -> None:
    """Such threads were once said to be too many. Later, all threads were said to be refused."""
    why = "the kernel refused it: Too many open files"
    found = attached(replace(SAMPLED, unwatched_refused=3, refused=why))
    first = next(attached_report.caveats(found))
    assert first == f"3 threads had no clock, since {why}; those with the most CPU time had one."
    both = attached(replace(SAMPLED, unwatched_refused=1, refused=NO_MEMORY))
    assert list(attached_report.caveats(both))[:2] == [
        "2 threads had no clock, since there are too many threads; those with the most CPU time "
        "had one.",
        "1 thread had no clock, since there is no more memory for clocks "
        "(kernel.perf_event_mlock_kb, ulimit -l); those with the most CPU time had one.",
    ]
