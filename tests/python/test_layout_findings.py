"""Tests of the findings about where blocks lie, with invented figures of two allocators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.gaps import MIB, MS, why_run
from support.layouts import HEALTHY, ILL, compared, rounds
from support.probes import Made
from support.widths import at_all_widths

from cairn.findings import find
from cairn.findings.thresholds import is_likely
from cairn.profile.layout import Figure, Layout, Neighbours, Watches
from cairn.profile.reader import gather
from cairn.report import terminal
from cairn.report.layout_table import watched
from cairn.report.profile_answer import because
from cairn.report.why import sentences
from cairn.why.causes import causes
from cairn.why.gap import explain
from cairn.why.parts import PROGRAM


@pytest.mark.parametrize("name", ILL)
def test_the_illness_of_a_layout_is_named_first_with_the_programs_own_part(name: str) -> None:
    why = compared(HEALTHY | ILL[name])
    first, *others = causes(why, "fast")
    assert first.name == name and first.finding is not None
    assert PROGRAM not in [one.name for one in others]
    part = next(one for one in why.time.parts if one.name == PROGRAM) if why.time else None
    assert part is not None and why.time is not None
    assert first.effect == pytest.approx((part.change or 0.0) / (why.time.whole.own or 1.0))
    told = list(sentences(why))
    clause = first.finding.says.removeprefix("The program itself runs slower because ")
    assert f"likely because under fast {clause}" in told[0]
    assert any(f"▲ fast against system: {first.finding.says}: " in text for text in told)


@pytest.mark.parametrize("name", ILL)
def test_an_illness_is_no_reason_for_a_program_that_does_not_run_slower(name: str) -> None:
    for program in (110, 111):
        why = compared(HEALTHY | ILL[name], program=program)
        assert why.layout is None
        assert not [one for one in causes(why, "fast") if one.name == name]


def test_the_faster_allocator_with_the_worse_layout_gets_no_finding() -> None:
    assert compared(HEALTHY | ILL["blocks-scattered"], program=60).layout is None


def test_an_equal_layout_leaves_the_reason_unknown() -> None:
    for figures in (HEALTHY, {}, {key: 1.2 * value for key, value in HEALTHY.items()}):
        why = compared(figures)
        assert why.layout is None
        assert causes(why, "fast")[0].name == PROGRAM
        assert next(iter(sentences(why))).endswith("; the reason is not known.")


@pytest.mark.parametrize("faults", [22, 572, 1122, 3000])
def test_time_that_may_belong_to_page_faults_is_no_effect_of_the_layout(faults: int) -> None:
    """The program takes 165 ms instead of 55, and page faults take 11 ms or more instead of 11.

    The beginning and the end of a page fault count for the program's code. An allocator that
    returned each block to the kernel was once said to collide in a few cache sets.
    """
    why = compared(HEALTHY | ILL["blocks-scattered"], faults=faults)
    assert why.time is not None
    part = next(one for one in why.time.parts if one.name == PROGRAM)
    assert part.change == pytest.approx(110 * MS)
    left = max(0.0, 110 * MS - 0.2 * (faults - 22) * MS / 2)
    found = [one.effect for one in causes(why, "fast") if one.name == "blocks-scattered"]
    assert found == ([pytest.approx(left / (why.time.whole.own or 1.0))] if left else [])
    if not left:
        assert PROGRAM not in [one.name for one in causes(why, "fast")]
        assert "page faults may be the reason" in " ".join(sentences(why))


def test_figures_whose_intervals_overlap_are_no_reason() -> None:
    why = compared(HEALTHY | {"conflicts": 0.06}, healthy=HEALTHY | {"conflicts": 0.055})
    assert why.layout is None


def test_lines_that_no_two_threads_write_to_are_no_reason() -> None:
    shared = HEALTHY | {"conflicts": 0.5}
    assert compared(shared | {"watched": 12.0, "confirmed": 0.0}).layout is None
    unwatched = compared(shared).layout
    assert unwatched is not None and "not confirmed here" in unwatched[1].evidence[0]
    confirmed = compared(shared | {"watched": 12.0, "confirmed": 9.0}).layout
    assert confirmed is not None
    assert "two threads wrote to 9 of 12 watched lines" in confirmed[1].evidence[0]


def test_of_several_reasons_the_one_that_affects_most_is_named_first() -> None:
    why = compared(HEALTHY | ILL["cold-blocks"] | ILL["blocks-scattered"])
    assert why.layout is not None
    finding = why.layout[1]
    assert finding.name == "blocks-scattered"
    assert [text.partition(":")[0] for text in finding.evidence[1:]] == [
        "Also, the memory of its new blocks is cold"
    ]
    assert "times as many pages" in finding.evidence[0]


@pytest.mark.parametrize(
    ("mean_bytes", "name"),
    [(4096.0, "blocks-in-one-cache-set"), (float(MIB), "fewer-huge-pages")],
)
def test_a_collision_of_first_lines_matters_less_the_larger_the_blocks_are(
    mean_bytes: float, name: str
) -> None:
    """All large blocks begin in one set of the cache, and 20 % of the memory lie in huge pages.

    Under the other allocator, the blocks begin anywhere, and 90 % lie in huge pages. Of a block of
    1 MiB, one line of 16,384 collides. The collision was once named first for every size.
    """
    slow = HEALTHY | {"sets": 1.0, "huge": 0.2, "large.mean": mean_bytes}
    why = compared(slow, healthy=HEALTHY | {"sets": 0.05, "huge": 0.9, "large.mean": mean_bytes})
    assert why.layout is not None and why.layout[1].name == name
    assert len(why.layout[1].evidence) == 2


def test_scattered_blocks_on_no_more_pages_say_nothing_of_pages() -> None:
    scattered = ILL["blocks-scattered"] | {"pages_per_mib": HEALTHY["pages_per_mib"]}
    why = compared(HEALTHY | scattered)
    assert why.layout is not None and why.layout[1].name == "blocks-scattered"
    assert re.search(r" apart, against [\d.,]+ (B|[KM]iB)$", why.layout[1].evidence[0])


def test_small_programs_have_no_finding_about_their_pages() -> None:
    small = [
        replace(one, probe=replace(one.probe, live_bytes=MIB // 2)) if one.probe else one
        for one in (
            *rounds("system", HEALTHY, 110),
            *rounds("fast", HEALTHY | ILL["blocks-spread-out"], 330),
        )
    ]
    assert explain(why_run("fast"), small, "fast", "system").layout is None


def test_the_sentences_fit_at_all_widths() -> None:
    for figures in ILL.values():
        why = compared(HEALTHY | figures)
        told = at_all_widths(lambda view, why=why: terminal.whys(why_run("fast"), [why], view))
        assert "runs slower because" in " ".join(told.split())


# --- one profile alone ---------------------------------------------------------------------------


def a_layout(conflicts: float, watches: Watches) -> Layout:
    none = Neighbours(0, *[None] * 9)
    return Layout(
        way="sampled",
        regions=8,
        pages=16,
        snapshot_ns=1,
        snapshot_bytes=1,
        is_stopped=False,
        page_use=None,
        line_use=None,
        pages_per_mib=None,
        lines_per_mib=None,
        active_conflicts=Figure(conflicts, conflicts, conflicts),
        passive_conflicts=Figure(0, 0, 0),
        reused=0,
        reuse_operations=None,
        quick_reuse=None,
        slow_reuse=None,
        other_reuse=None,
        set_share=None,
        large_share=None,
        neighbours=(none,) * 3,
        watches=watches,
    )


def watches(lines: int, confirmed: int, *, refused: int = 0) -> Watches:
    return Watches(lines, confirmed, lines - confirmed, 9 * MS, 16, 24, refused)


def test_one_profile_says_likely_and_gives_no_effect(tmp_path: Path) -> None:
    Made().write(tmp_path)
    profile = replace(gather(tmp_path), layout=a_layout(0.5, watches(12, 9)))
    (found,) = [one for one in find(profile) if one.name == "threads-share-lines"]
    assert is_likely(found) and found.effect == 0
    told = because(found)
    assert "which likely slows the program itself down. 50.0 % of the cache lines" in told
    assert "two threads wrote to 9 of 12 watched lines" in told
    for layout in (
        a_layout(0.5, watches(12, 5)),
        a_layout(0.5, watches(3, 3)),
        a_layout(0.04, watches(12, 12)),
        a_layout(0.5, watches(0, 0, refused=13)),
    ):
        silent = find(replace(profile, layout=layout))
        assert "threads-share-lines" not in [one.name for one in silent]


def test_a_likely_finding_of_one_profile_is_left_to_the_comparison(tmp_path: Path) -> None:
    Made().write(tmp_path)
    profile = replace(gather(tmp_path), layout=a_layout(0.5, watches(12, 9)))
    found = find(profile)
    samples = [
        replace(one, probe=replace(one.probe, findings=found)) if one.probe else one
        for one in (*rounds("system", HEALTHY, 110), *rounds("fast", HEALTHY, 110))
    ]
    assert not explain(why_run("fast"), samples, "fast", "system").raised


def test_a_note_says_what_breakpoints_saw_or_why_they_saw_nothing() -> None:
    assert watched(a_layout(0.0, watches(0, 0))) == ""
    assert watched(a_layout(0.5, watches(12, 9))) == (
        "lines with live blocks of several threads: two threads wrote to 9 of 12 watched lines "
        "within 9.00 ms, with blocks of 16 B to 24 B"
    )
    assert watched(a_layout(0.5, watches(1, 0))).endswith(
        "two threads wrote to 0 of 1 watched line within 9.00 ms"
    )
    refused = watched(a_layout(0.5, watches(0, 0, refused=13)))
    assert "not confirmed here" in refused and "(EACCES)" in refused
    assert "not confirmed here" in watched(a_layout(0.5, watches(0, 0)))
