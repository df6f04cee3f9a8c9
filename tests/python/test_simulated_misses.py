"""Tests of simulated misses: callgrind's files, the machine's caches, and what both tell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.gaps import why_run
from support.layouts import HEALTHY, ILL, compared, rounds
from support.widths import at_all_widths

from cairn.errors import CairnError
from cairn.profile.callgrind_files import CutOff, costs, outside_allocator
from cairn.report import terminal
from cairn.report.why import sentences
from cairn.run import cache_levels
from cairn.run.cache_levels import LoadTimes
from cairn.run.store import Folder
from cairn.run.stored_run import SIMULATION, DamagedFile, encoded
from cairn.simulated_misses import CacheLevel, SimulatedMisses, Simulation
from cairn.why.causes import causes
from cairn.why.gap import Why
from cairn.why.parts import PROGRAM
from cairn.why.simulated_gap import between
from cairn.why.simulation import applied

FILE = """\
events: Ir Dr D1mr
summary: 1 2 3

ob=(1) /usr/bin/prog
fn=(1) main
0 100 20 3
+1 50
cfn=(2) cairn_path_new_small
cob=(2) /x/libcairn-instructions.so
calls=7 0
+1 400 70 9

ob=(2)
fn=(2)
5 30 4 1
cfn=(3) malloc
cob=(3) /usr/lib/libc.so.6
calls=7 0
* 370 66 8

ob=(3)
fn=(3)
0 370 66 8
"""


def test_events_outside_the_allocator_are_those_of_the_program() -> None:
    """The 370 instructions of malloc and the 30 of cairn's own library are left out."""
    assert outside_allocator([FILE.splitlines(keepends=True)], 3) == [150, 20, 3]
    twice = [FILE.splitlines(keepends=True)] * 2
    assert outside_allocator(twice, 3) == [300, 40, 6]
    assert outside_allocator([], 2) == [0, 0]


def test_costs_have_their_function_library_and_calls() -> None:
    found = [tuple(one) for one in costs(FILE.splitlines(keepends=True))]
    assert found[0] == ("main", "/usr/bin/prog", None, [100, 20, 3])
    assert found[1] == ("main", "/usr/bin/prog", None, [50])
    assert found[2] == ("main", "/usr/bin/prog", 7, [400, 70, 9])
    assert found[4] == ("cairn_path_new_small", "/x/libcairn-instructions.so", 7, [370, 66, 8])
    with pytest.raises(CutOff):
        list(costs(["fn=(1) main\n", "calls=7"]))


# --- the machine ----------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Returns machine(levels, loads): invents caches of (level, type, size, ways)."""

    def made(
        caches: list[tuple[int, str, str, int]], loads: Callable[[int, int, str], LoadTimes | None]
    ) -> Path:
        for place, (level, kind, size, ways) in enumerate(caches):
            folder = tmp_path / f"index{place}"
            folder.mkdir()
            for name, text in (
                ("level", level), ("type", kind), ("size", size),
                ("ways_of_associativity", ways), ("coherency_line_size", 64),
                ("shared_cpu_list", "0-7" if level == 3 else "0"),
            ):  # fmt: skip
                (folder / name).write_text(f"{text}\n")
        monkeypatch.setattr(cache_levels, "_measured", loads)
        (tmp_path / "cpuinfo").write_text("TLB size\t: 3584 4K pages\n")
        return tmp_path

    return made


COMMON = [
    (1, "Data", "32K", 8), (1, "Instruction", "64K", 8), (2, "Unified", "1024K", 8),
    (3, "Unified", "16M", 16),
]  # fmt: skip


def machine_with(third_kib: int) -> Callable[[int, int, str], LoadTimes]:
    """A machine with hits of 1, 4 and 15 ns, memory of 90 ns, and a TLB of 2 and 30 ns.

    third_kib: how much of the third cache is free. Misses that overlap take a fifth of the time.
    """

    def loads(size: int, stride: int, pages: str) -> LoadTimes:
        if stride == cache_levels.PAGE:
            count = size // stride
            ns = 5.0 if pages == "huge" else 7.0 if count <= 3584 else 35.0
        else:
            ends = ((32, 1.0), (1024, 4.0), (third_kib, 15.0), (1 << 30, 90.0))
            ns = next(ns for most, ns in ends if size <= most << 10)
        return LoadTimes(ns, ns / 5)

    return loads


def test_levels_have_the_sizes_of_the_machine_and_measured_times(
    machine: Callable[..., Path],
) -> None:
    folder = machine(COMMON, machine_with(24 << 10))
    found = cache_levels.levels(folder, folder / "cpuinfo")
    assert [one.name for one in found] == ["L1 cache", "L2 cache", "L3 cache", "L1 TLB", "L2 TLB"]
    assert [one.waiting_ns for one in found] == [3, 11, 75, 2, 28]
    assert [one.most_ns for one in found] == [3, 11, 75, 2, 90]
    assert [one.overlapping_ns for one in found] == pytest.approx([0.6, 2.2, 15, 0.4, 5.6])
    assert [one.bytes for one in found[:3]] == [32 << 10, 1 << 20, 16 << 20]
    assert [one.bytes // one.line_bytes for one in found[3:]] == [64, 3584]
    assert [one.assumed for one in found] == [False, False, False, True, False]
    for one in found:
        sets = one.bytes // one.line_bytes // one.ways
        assert sets * one.ways * one.line_bytes == one.bytes and sets & (sets - 1) == 0


def test_a_machine_that_does_not_show_its_tlb_gets_an_assumed_one(
    machine: Callable[..., Path],
) -> None:
    folder = machine(COMMON[:3], machine_with(0))
    found = cache_levels.levels(folder, folder / "nothing")
    assert [one.name for one in found] == ["L1 cache", "L2 cache", "L1 TLB", "L2 TLB"]
    assert found[-1].bytes == 1536 * cache_levels.PAGE and found[-1].assumed
    assert found[1].waiting_ns == 86


@pytest.mark.parametrize("caches", [[], COMMON[:1], COMMON[:2]])
def test_a_machine_that_does_not_show_two_caches_cannot_be_simulated(
    machine: Callable[..., Path], caches: list[tuple[int, str, str, int]]
) -> None:
    folder = machine(caches, machine_with(0))
    with pytest.raises(CairnError, match="the sizes of two caches are needed"):
        cache_levels.levels(folder, folder / "cpuinfo")


def test_without_huge_pages_the_tlb_has_no_times(machine: Callable[..., Path]) -> None:
    loads = machine_with(16 << 10)
    folder = machine(COMMON, lambda *of: None if of[2] == "huge" else loads(*of))
    found = cache_levels.levels(folder, folder / "cpuinfo")
    assert [one.timed for one in found] == [True, True, True, False, False]
    assert [one.most_ns for one in found[3:]] == [0, 0]
    assert found[1].waiting_ns == 11


@pytest.mark.parametrize(
    ("size", "line", "ways", "possible"),
    [
        (32 << 10, 64, 8, 8),
        (1536 * 4096, 4096, 8, 6),
        (3584 * 4096, 4096, 8, 7),
        (20 << 20, 64, 512, 640),
        (48 << 10, 64, 12, 12),
        (36 << 20, 64, 512, 576),
    ],
)
def test_the_number_of_sets_is_a_power_of_two(
    size: int, line: int, ways: int, possible: int
) -> None:
    assert cache_levels._ways(size, line, ways) == possible
    sets = size // line // possible
    assert sets * possible * line == size and sets & (sets - 1) == 0


def test_the_whole_third_cache_counts_if_nothing_else_uses_it(machine: Callable[..., Path]) -> None:
    caches = [*COMMON[:3], (3, "Unified", "36M", 12)]
    folder = machine(caches, machine_with(36 << 10))
    third = cache_levels.levels(folder, folder / "cpuinfo")[2]
    assert (third.bytes, third.whole_bytes, third.is_shared) == (36 << 20, 0, True)


def test_only_that_part_of_the_third_cache_counts_that_others_leave_free(
    machine: Callable[..., Path],
) -> None:
    folder = machine(COMMON, machine_with(4 << 10))
    third = cache_levels.levels(folder, folder / "cpuinfo")[2]
    assert (third.bytes, third.whole_bytes) == (4 << 20, 16 << 20)


def test_a_third_cache_that_others_use_alone_is_left_out(machine: Callable[..., Path]) -> None:
    folder = machine(COMMON, machine_with(0))
    found = cache_levels.levels(folder, folder / "cpuinfo")
    assert [one.name for one in found] == ["L1 cache", "L2 cache", "L1 TLB", "L2 TLB"]
    assert found[1].waiting_ns == 86


# --- the gap --------------------------------------------------------------------------------------

LEVELS = (
    CacheLevel("L2 cache", 1 << 20, 8, 64, 10.0, 2.0, 10.0),
    CacheLevel(
        "L3 cache", 4 << 20, 16, 64, 100.0, 20.0, 100.0, is_shared=True, whole_bytes=1 << 25
    ),
    CacheLevel("L2 TLB", 14 << 20, 7, 4096, 20.0, 5.0, 80.0, assumed=True),
)


NONE = (0, 0, 0)


def simulated(own: tuple[int, int, int], other: tuple[int, int, int] = (0, 0, 0)) -> Simulation:
    """Returns a simulation in which these loads miss, and no stores."""
    found = (
        SimulatedMisses(name, reads, NONE) for name, reads in (("fast", own), ("system", other))
    )
    return Simulation(LEVELS, tuple(found))


def judged(figures: Mapping[str, float], found: Simulation, *, program: int = 330) -> Why:
    """Returns the gap with its simulated misses; see `test_layout_findings.compared`."""
    samples = [*rounds("system", HEALTHY, 110), *rounds("fast", figures, program)]
    return applied(compared(figures, program=program), found, samples)


def longer_ns(why: Why) -> float:
    """Returns the difference in the program's own CPU time."""
    assert why.time is not None
    part = next(one for one in why.time.parts if one.name == PROGRAM)
    return part.change or 0.0


def test_loads_may_wait_and_stores_never_do() -> None:
    """In the worst case, what misses the L2 cache misses the L3 cache, too."""
    own = SimulatedMisses("fast", (100, 50, 40), (10, 10, 0))
    other = SimulatedMisses("system", (20, 20, 30), (10, 0, 0))
    gap = between(LEVELS, own, other, (0.5, 0.0), None)
    assert [one.least_ns for one in gap.levels] == [160, 800, -50]
    assert [one.waiting_ns for one in gap.levels] == [800, 3200, -200]
    assert [one.most_ns for one in gap.levels] == [800, 8000, -800]
    time = gap.time
    assert (time.interval.low, time.interval.high) == (910, 8000)
    assert time.value == pytest.approx(math.sqrt(3800 * 8000))
    assert gap.share is None and not gap.can_explain and not gap.bears_out
    gap = replace(gap, of_ns=-16_000.0)
    assert gap.share is not None and gap.share.interval.low == -0.5
    assert not gap.can_explain


def test_misses_that_take_as_long_as_the_difference_bear_the_reason_out() -> None:
    scattered = HEALTHY | ILL["blocks-scattered"]
    misses = round(longer_ns(compared(scattered)) / 110)
    why = judged(scattered, simulated((misses, misses, 0)))
    assert why.simulated is not None and why.simulated.bears_out
    assert causes(why, "fast")[0].name == "blocks-scattered"
    told = list(sentences(why))
    assert "because under fast its blocks lie scattered" in told[0] and "likely" not in told[0]
    assert any("its misses of caches and TLB take " in text for text in told)


def test_misses_that_take_less_may_be_the_reason() -> None:
    scattered = HEALTHY | ILL["blocks-scattered"]
    misses = round(0.6 * longer_ns(compared(scattered)) / 110)
    why = judged(scattered, simulated((misses, 0, 0)))
    assert causes(why, "fast")[0].name == "blocks-scattered"
    assert why.simulated is not None and why.simulated.can_explain and not why.simulated.bears_out
    assert "likely because" in next(iter(sentences(why)))


@pytest.mark.parametrize("misses", [(0, 0, 0), (1000, 0, 0)])
def test_misses_that_take_too_little_time_rule_the_layout_out(misses: tuple[int, int, int]) -> None:
    why = judged(HEALTHY | ILL["cold-blocks"], simulated(misses))
    assert why.layout is None and causes(why, "fast")[0].name == PROGRAM
    told = " ".join(sentences(why))
    assert "Even the longest of these times is less than half of this difference, so" in told


def test_more_misses_under_the_faster_allocator_rule_the_layout_out() -> None:
    why = judged(HEALTHY | ILL["cold-blocks"], simulated(NONE, (10**6, 10**6, 0)))
    assert why.layout is None
    told = " ".join(sentences(why))
    assert "take 110 ms less (22.0 ms to 110 ms). Even the longest" in told


def test_lines_that_threads_share_are_not_simulated() -> None:
    for misses in (0, 10**6):
        why = judged(HEALTHY | ILL["threads-share-lines"], simulated((misses, misses, 0)))
        assert why.layout is not None and why.layout[1].name == "threads-share-lines"
        assert "likely because" in next(iter(sentences(why)))


def test_a_range_across_zero_keeps_its_signs() -> None:
    """Misses of the L2 cache speak against the difference, and those of the TLB for it."""
    found = simulated((0, 0, 10**6), (10**6, 0, 0))
    told = " ".join(sentences(judged(HEALTHY, found)))
    assert "take 35.0 ms less (−500 µs to 70.0 ms)" in told
    fewer = simulated((0, 0, 4 * 10**5), (10**7, 0, 0))
    told = " ".join(sentences(judged(HEALTHY, fewer)))
    assert "take 323 ms less (19.0 ms to 1.08 s)" in told


def test_misses_without_a_figure_of_the_layout_are_the_reason_themselves() -> None:
    misses = round(longer_ns(compared(HEALTHY)) / 110)
    why = judged(HEALTHY, simulated((misses, misses, 0)))
    first, *others = causes(why, "fast")
    assert first.name == "misses-caches-more"
    assert first.effect == pytest.approx(causes(compared(HEALTHY), "fast")[0].effect)
    assert PROGRAM not in [one.name for one in others]


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (0.2, "So they may explain it."), (0.5, "So they explain a large part of it."),
        (1.0, "So they explain it."),
        (5.0, "That is more than the whole difference, so many of these misses overlap."),
    ],
)  # fmt: skip
def test_the_sentence_follows_the_share_of_the_misses(share: float, says: str) -> None:
    """The estimate is the mean of 20 and 110 ns for each load that misses the L2 cache alone."""
    each = math.sqrt(10 * 110)
    misses = round(share * longer_ns(compared(HEALTHY)) / each)
    told = [one for one in sentences(judged(HEALTHY, simulated((misses, 0, 0)))) if "TLB" in one]
    assert any(one.endswith(says) for one in told), told


def test_misses_are_no_reason_if_the_program_itself_does_not_run_slower() -> None:
    why = judged(HEALTHY, simulated((10**6, 10**6, 0)), program=110)
    assert why.layout is None
    told = " ".join(sentences(why))
    assert "TLB take 110 ms more (22.0 ms to 110 ms) under fast than under system" in told
    assert "No difference in the time of the program's own code is shown" in told


def test_a_contender_that_could_not_be_simulated_is_named() -> None:
    found = simulated((0, 0, 0))
    broken = replace(found.found[0], reads=(), problem="cannot run in the simulation: it hung")
    why = judged(HEALTHY | ILL["cold-blocks"], replace(found, found=(broken, found.found[1])))
    assert why.layout is not None and why.simulated is None
    assert (
        "The misses of the caches are not known: fast cannot run in the simulation: it hung."
        in list(sentences(why))
    )


def test_a_gap_without_a_simulation_stays_as_it_is() -> None:
    why = compared(HEALTHY | ILL["cold-blocks"])
    assert applied(why, None, ()) is why
    other = Simulation(LEVELS, (SimulatedMisses("third", (1, 2, 3), NONE),))
    assert applied(why, other, ()) is why


def test_a_result_replaces_the_earlier_one_of_its_cell() -> None:
    both = simulated((1, 2, 3), (4, 5, 6)).plus(SimulatedMisses("fast", (7, 8, 9), NONE))
    assert {one.contender: one.reads for one in both.found} == {
        "system": (4, 5, 6), "fast": (7, 8, 9),
    }  # fmt: skip
    on_two = both.plus(SimulatedMisses("fast", (1, 1, 1), NONE, workload=1))
    assert len(on_two.found) == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"reads": [1, 2]}, "it has not one number for each cache"),
        ({"problem": ""}, "it has not one number for each cache"),
        ({"reads": [1, 2, -3]}, "a number is out of range"),
        ({"reads": [1, 2, "3"]}, "Expected `int`"),
    ],
)
def test_a_damaged_simulation_is_refused(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    folder = Folder(tmp_path)
    whole = json.loads(encoded(simulated((1, 2, 3))))
    (tmp_path / SIMULATION).write_text(json.dumps(whole))
    assert folder.simulation() == simulated((1, 2, 3))
    whole["found"][0] |= change
    (tmp_path / SIMULATION).write_text(json.dumps(whole))
    with pytest.raises(DamagedFile, match=problem):
        folder.simulation()


def test_the_table_of_misses_fits_any_width() -> None:
    scattered = HEALTHY | ILL["blocks-scattered"]
    why = judged(scattered, simulated((84_000, 8_400, 1_234_567), (7, 6, 5)))
    text = at_all_widths(lambda view: terminal.whys(why_run("fast"), [why], view))
    # Half of the memory lies in huge pages.
    assert text.count("simulated misses") >= 6 and text.count("617,284") == 6
    assert "L3 cache 4.00 MiB of 32.0 MiB (others use the rest)" in " ".join(text.split())
    assert "L2 TLB 3,584 pages (assumed)" in " ".join(text.split())
