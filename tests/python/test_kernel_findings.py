"""Tests of the findings about system calls and page faults in programs that have other causes, too.

The profiles are invented, so the allocator's part of the time is known.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.probes import Made, busy, gathered

from cairn.findings import find

MIB = 1 << 20
PAGES = 256
"""The pages of 1 MiB."""


def few_operations(freed: int = 1, each: int = MIB) -> Made:
    """Returns a profile of 100 small blocks, and of `freed` large blocks of `each` bytes.

    Each large block has a mapping of its own, which its free returns to the kernel. One such block
    lives at a time. All CPU time is 600 ms.
    """
    made = Made(user_us=100_000)
    made.start["system_us"] = 500_000
    made.called("malloc", "small", 100, 64)
    made.called("malloc", "large", freed, each)
    made.released("free", 100 + freed)
    made.kernel("mmap", freed, 2_000, each)
    made.kernel("munmap", freed, 50_000, each)
    made.moments((4_000_000, each, each, 17 * MIB))
    made.start["peak_resident_bytes"] = 17 * MIB
    return made


def test_page_faults_of_the_programs_own_mappings_are_not_the_allocators(tmp_path: Path) -> None:
    """The program mapped and unmapped 16 MiB 60 times, and the allocator returned 1 MiB once.

    93 % of the CPU time was once said to be lost in returned memory, which took 0.01 %.
    """
    made = few_operations()
    made.start["minor_faults"] = 17 * PAGES + 60 * 16 * PAGES
    assert find(gathered(tmp_path, made, system_ns=500_000_000)) == ()


def test_memory_that_was_returned_once_is_not_needed_again_and_again(tmp_path: Path) -> None:
    """The allocator returned 1 GiB once. Then the program's own mappings had as many page faults.

    One call in 203 operations was once enough to be frequent.
    """
    made = few_operations(each=1024 * MIB)
    made.start["peak_resident_bytes"] = 1024 * MIB
    made.start["minor_faults"] = 2 * 1024 * PAGES
    assert find(gathered(tmp_path, made, system_ns=500_000_000)) == ()
    # Ten times as much memory as was ever held is needed again, also if there are few calls.
    made = few_operations(freed=9, each=16 * MIB)
    made.start["minor_faults"] = 17 * PAGES + 8 * 16 * PAGES
    (found,) = find(gathered(tmp_path / "again", made, system_ns=500_000_000))
    assert found.name == "returns-what-it-needs"


def test_page_faults_count_only_for_memory_that_the_allocator_returned(tmp_path: Path) -> None:
    """Every page fault takes 10 µs. 40,000 of them come beyond the peak.

    The allocator returned 100 MiB, so 25,600 of them can be its own: 256 of the 600 ms. Its calls
    take 5.2 ms.
    """
    made = few_operations(freed=100)
    made.start["minor_faults"] = 17 * PAGES + 40_000
    system_ns = 5_200_000 + 10_000 * (17 * PAGES + 40_000)
    (found,) = find(gathered(tmp_path, made, system_ns=system_ns))
    assert found.name == "returns-what-it-needs"
    assert found.effect == pytest.approx((256 + 5.2) / 600, rel=0.01)
    assert found.evidence[1] == "25,600 of 44,352 page faults can come from it"


def test_a_change_of_protection_causes_no_more_page_faults_than_it_has_pages(
    tmp_path: Path,
) -> None:
    """1,000 calls of mprotect change 64 KiB each, and take 50 ms. They change 16,000 pages.

    In the first profile, the program's own mappings have 200,000 page faults, and those of the
    allocator cannot be told from these. In the second, it has none.
    """
    for own, measured in ((200_000, True), (0, False)):
        made = busy()
        made.kernel("mprotect", 1_000, 50_000, 64 << 10)
        made.start["minor_faults"] = 30 * PAGES + 16_000 + own
        faults = 30 * PAGES + 16_000 + own
        profile = gathered(tmp_path / str(own), made, system_ns=50_000_000 + 1_000 * faults)
        (found,) = find(profile)
        assert (found.name, found.measured) == ("changes-protection", measured)
        repeated = 0 if measured else 16_000 * 1_000
        assert found.effect == pytest.approx((50_000_000 + repeated) / 900_000_000, rel=0.01)


@pytest.mark.parametrize("call", ["mmap", "other"])
@pytest.mark.parametrize(("count", "expected"), [(9, 0), (10, 1)])
def test_a_few_system_calls_are_not_frequent(
    tmp_path: Path, call: str, count: int, expected: int
) -> None:
    """Each call takes 5 ms, and the program makes 200 operations in 600 ms."""
    made = Made(user_us=600_000)
    made.called("malloc", "small", 100, 64)
    made.released("free", 100)
    made.kernel(call, count, 5_000_000, 4096 if call == "mmap" else 0)
    made.moments((4_000_000, MIB, 2 * MIB, 9 * MIB))
    assert len(find(gathered(tmp_path, made))) == expected
