"""Tests of CAIRN_SITES=1, which reports the functions that allocate large blocks."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cairn.profile import call_sites, symbols

from .conftest import MODES, Program

in_both = pytest.mark.parametrize("mode", MODES)
NAMES = {
    *("by_malloc", "by_calloc", "by_realloc", "by_reallocarray", "by_aligned_alloc"),
    *("by_memalign", "by_valloc", "by_pvalloc", "by_posix_memalign", "grown"),
}
OPERATORS = {
    *("by_new", "by_new_array", "by_new_nothrow", "by_new_array_nothrow"),
    *("by_new_aligned", "by_new_array_aligned", "by_new_aligned_nothrow"),
}


def told(program: Program) -> dict[str, list[call_sites.Site]]:
    """Runs the program with CAIRN_SITES=1. Returns the reported call sites of each function."""
    ended = program(CAIRN_SITES="1", CAIRN_STATS="json")
    assert ended.code == 0, ended.err
    ((document,), _) = call_sites.parse(ended.err.splitlines())
    assert document.count == len(document.sites) and document.others.blocks == 0
    found: dict[str, list[call_sites.Site]] = {}
    files = symbols.Files()
    for site in document.sites:
        place = files.place(document.object_of(site), site.address)
        found.setdefault(place.function or "?", []).append(site)
    return found


@in_both
def test_a_large_block_counts_for_the_caller_of_each_allocating_function(
    program: Callable[..., Program], mode: str
) -> None:
    found = told(program("sites.c", mode))
    assert set(found) >= NAMES
    for name in NAMES:
        (site,) = found[name]
        assert (site.blocks, site.live_count, site.hits, sum(site.lives)) == (1, 1, 0, 0), name
        assert site.slices == 7 and site.live_bytes == site.bytes == 7 << 14, name


@in_both
def test_reused_blocks_are_hits_with_short_lifetimes(
    program: Callable[..., Program], mode: str
) -> None:
    (site,) = told(program("sites.c", mode))["pairs"]
    assert (site.blocks, site.live_count, site.live_bytes, site.slices) == (50, 0, 0, 19)
    assert site.misses == 1 and sum(site.lives) == 50


@in_both
def test_callers_of_a_wrapper_are_distinguished(program: Callable[..., Program], mode: str) -> None:
    one, other = told(program("sites.c", mode))["behind"]
    assert one.address == other.address and one.depth != other.depth


@pytest.mark.parametrize("mode", ["preloaded", "linked"])
def test_the_operators_pass_their_caller_on(program: Callable[..., Program], mode: str) -> None:
    found = told(program("site_operators.cpp", mode))
    assert set(found) >= OPERATORS
    assert all(site.blocks == 1 for name in OPERATORS for site in found[name])


@in_both
def test_call_sites_are_reported_only_on_request(
    program: Callable[..., Program], mode: str
) -> None:
    run = program("sites.c", mode)
    for given in ({}, {"CAIRN_SITES": "0"}, {"CAIRN_SITES": ""}):
        stats = json.loads(run(CAIRN_STATS="json", **given).err)
        assert not {"sites", "site_count", "other_sites", "objects"} & set(stats)
    run.succeed(CAIRN_SITES="1")


@pytest.mark.plain("has no guards around the table")
@in_both
def test_the_table_of_call_sites_is_part_of_the_used_memory(
    program: Callable[..., Program], mode: str
) -> None:
    with_table, without = (
        json.loads(program("sites.c", mode)(CAIRN_STATS="json", CAIRN_SITES=value).err)
        for value in "10"
    )
    parts = ("live_bytes", "cached_bytes", "free_bytes", "fresh_bytes", "slack_bytes", "own_bytes")
    assert all(
        sum(stats[part] for part in parts) == stats["used_bytes"] for stats in (with_table, without)
    )
    assert with_table["own_bytes"] == without["own_bytes"] + (144 << 10)
