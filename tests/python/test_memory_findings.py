"""Tests of the findings about resident memory, with invented profiles: sizes and pages of blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.probes import busy, gathered

from cairn.findings import find
from cairn.findings.memory import resident_slack
from cairn.model import Finding
from cairn.why.profile_summary import summarized

MIB = 1 << 20
UNKNOWN = 2**64 - 1


def names(found: tuple[Finding, ...]) -> list[str]:
    return [finding.name for finding in found]


@pytest.mark.parametrize(("usable", "count"), [(60, 1), (49, 1), (47, 0)])
def test_size_rounding_is_judged_by_live_blocks(tmp_path: Path, usable: int, count: int) -> None:
    """The finding depends only on the usable size of the live blocks.

    The profile also says that over all allocations the usable size is twice the requested size.
    This must not matter.
    """
    made = busy()
    made.samples["usable_bytes"], made.samples["asked_bytes"] = 200, 100
    made.moments((1, 40 * MIB, 90 * MIB, 90 * MIB))
    made.samples["moments"][0, 0]["live_usable_bytes"] = usable * MIB
    found = find(gathered(tmp_path, made))
    assert names(found) == ["sizes-too-coarse"] * count
    if found:
        assert found[0].effect == pytest.approx((usable - 40) / 90)


@pytest.mark.parametrize(
    ("own", "effect"),
    [
        (101, None),
        # The probe did not examine pages: 15 MiB are the program's own or in these blocks.
        (None, None),
        (119, None),
        (121, 21 / 115),
        # Free memory can take the place of pages that were never touched. 25 MiB are the most.
        (126, 25 / 115),
        (140, 25 / 115),
    ],
)
def test_memory_behind_large_blocks_that_was_never_touched_is_not_wasted(
    tmp_path: Path, own: int | None, effect: float | None
) -> None:
    """Python has 100 blocks of 1 MiB and 33 bytes, whose usable size is 1.25 MiB.

    125 MiB are usable and 115 MiB resident, of which `own` MiB are the allocator's. The finding
    once said that blocks are much larger than requested, and that this takes 22 %.
    """
    made = busy()
    made.moments((1, 100 * MIB, 130 * MIB, 115 * MIB, 0, 0, UNKNOWN))
    made.samples["moments"][0, 0]["live_usable_bytes"] = 125 * MIB
    made.samples["moments"][0, 0]["own_bytes"] = UNKNOWN if own is None else own * MIB
    profile = gathered(tmp_path, made)
    found = find(profile)
    assert names(found) == ["sizes-too-coarse"] * (effect is not None)
    slack = resident_slack(profile, profile.moments[0])
    assert slack == min(25, (115 if own is None else own) - 100) * MIB
    if effect is None:
        return
    assert found[0].effect == pytest.approx(effect)
    assert found[0].measured is (own != 121)
    if own == 121:
        ends = found[0].interval
        assert ends is not None and 0 == ends.low < effect < ends.high <= 25 / 115
        assert found[0].evidence == (
            "Live blocks of 100 MiB occupy at most 21.0 MiB more, because not all of the 25.0 MiB "
            "by which they are larger is resident",
        )


def test_a_block_of_which_little_was_touched_is_not_much_larger_than_requested(
    tmp_path: Path,
) -> None:
    """One block of 1.01 GiB has a usable size of 1.25 GiB. 20 MiB are resident.

    The finding once said "100 % of the resident memory". The summary for `--why` had 0.24 GiB.
    """
    made = busy()
    live, usable = 1034 * MIB, 1280 * MIB
    made.moments((1, live, usable, 20 * MIB, 0, 0, UNKNOWN))
    made.samples["moments"][0, 0]["live_usable_bytes"] = usable
    made.samples["moments"][0, 0]["own_bytes"] = 20 * MIB
    profile = gathered(tmp_path, made)
    assert find(profile) == ()
    assert summarized(profile).slack_bytes == 0


def test_the_programs_own_memory_at_an_unexamined_peak_is_that_of_an_examined_moment(
    tmp_path: Path,
) -> None:
    """Of 115 MiB, 20 MiB are the program's. The pages were not examined at the peak of 118 MiB."""
    made = busy()
    made.moments(
        (1, 90 * MIB, 130 * MIB, 115 * MIB, 0, 0, UNKNOWN), (2, 92 * MIB, 130 * MIB, 118 * MIB)
    )
    for place, usable in enumerate((120, 123)):
        made.samples["moments"][0, place]["live_usable_bytes"] = usable * MIB
    made.samples["moments"][0, 0]["own_bytes"] = 95 * MIB
    profile = gathered(tmp_path, made)
    assert [resident_slack(profile, one) for one in profile.moments] == [5 * MIB, 6 * MIB]
    # If some system calls were not seen, the allocator's pages are not known.
    made.dispatch = 2
    unseen = gathered(tmp_path, made)
    assert resident_slack(unseen, unseen.moments[0]) == 25 * MIB


@pytest.mark.parametrize(
    ("closely", "expected"),
    [
        ((30 * MIB, 30 * MIB, 60 * MIB), ["huge-page-bloat"]),
        ((30 * MIB, 0, UNKNOWN), ["touches-more-than-it-gives"]),
        ((30 * MIB, 15 * MIB, 60 * MIB), ["huge-page-bloat", "touches-more-than-it-gives"]),
        # With 5,000 page faults, huge pages may have brought in unwritten pages also if too few or
        # an unknown number are left of them.
        (
            (30 * MIB, 30 * MIB, UNKNOWN),
            [],
        ),
        ((30 * MIB, 30 * MIB, 2 * MIB), []),
        ((7 * MIB, 7 * MIB, 60 * MIB), []),
        ((UNKNOWN, UNKNOWN, UNKNOWN), []),
    ],
)
def test_resident_memory_that_was_never_part_of_a_block_is_found(
    tmp_path: Path, closely: tuple[int, int, int], expected: list[str]
) -> None:
    made = busy()
    made.moments((1, 40 * MIB, 60 * MIB, 60 * MIB, *closely))
    found = find(gathered(tmp_path, made))
    assert sorted(names(found)) == expected
    if len(expected) == 1:
        assert found[0].effect == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("faults", "huge", "own", "effect"),
    [
        (15_360, 0, 60, 30 / 60),
        # Two MiB may lie in huge pages.
        (15_360, 2, 60, 28 / 60),
        # At least 5 MiB are the kernel's page of zeroes, on which fresh memory is read.
        (15_360, 0, 65, 25 / 60),
        (14_000, 0, 60, None),
    ],
)
def test_resident_pages_that_no_huge_page_can_explain_were_populated(
    tmp_path: Path, faults: int, huge: int, own: int, effect: float | None
) -> None:
    """An allocator that mapped chunks with MAP_POPULATE once had no finding.

    Of 60 MiB of resident memory, 30 MiB never held a block and read as zero. If each of the 15,360
    pages had a page fault of its own, no huge page brought it in.
    """
    made = busy()
    made.moments((1, 40 * MIB, 60 * MIB, 60 * MIB, 30 * MIB, 30 * MIB, huge * MIB))
    made.samples["moments"][0, 0]["own_bytes"] = own * MIB
    made.start["minor_faults"] = faults
    found = find(gathered(tmp_path, made))
    assert names(found) == ["touches-more-than-it-gives"] * (effect is not None)
    if effect is not None:
        assert found[0].effect == pytest.approx(effect)
        assert found[0].says == "The allocator makes memory resident that it never hands out"


def test_pages_that_were_examined_long_before_the_peak_do_not_count(tmp_path: Path) -> None:
    made = busy()
    made.moments(
        (1, 40 * MIB, 47 * MIB, 47 * MIB, 30 * MIB, 30 * MIB, 47 * MIB),
        (2, 40 * MIB, 60 * MIB, 60 * MIB),
    )
    assert find(gathered(tmp_path, made)) == ()
    made.moments(
        (1, 40 * MIB, 49 * MIB, 49 * MIB, 30 * MIB, 30 * MIB, 49 * MIB),
        (2, 40 * MIB, 60 * MIB, 60 * MIB),
    )
    assert names(find(gathered(tmp_path, made))) == ["huge-page-bloat"]
