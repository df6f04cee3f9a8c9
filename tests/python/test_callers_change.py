"""Tests of the difference of two profiles by function."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from support import known_stacks
from support.documents import keys
from support.probes import busy
from support.probing import Probed

from cairn.profile import reader
from cairn.profile.call_stacks import StacksFile
from cairn.profile.callers import Frame, Stack, Sum, Sums, stacks
from cairn.profile.callers_change import PARTS, Profiled, difference
from cairn.profile.function_names import Names
from cairn.profile.tally import Missing, Tree
from cairn.report import callers_change_table as table
from cairn.report.fit import fit
from cairn.report.view import View

EVERY = 4096.0


def sampled(lots: np.random.Generator, blocks: int, size: int, every: float = EVERY) -> Sum:
    """Returns the estimated sum of `blocks` blocks, each recorded with the same probability."""
    chance = min(1.0, size / every)
    count = int(lots.binomial(blocks, chance))
    variance = count * (1 - chance) / chance**2
    return Sum(count / chance, count * size / chance, variance, variance * size**2, every)


def stack(function: str, allocated: Sum, live: Sum, library: str = "/a/prog") -> Stack:
    return Stack((Frame(function, library),), Sums(3, allocated, live))


def exact(blocks: int, size: int) -> Sum:
    return Sum(blocks, blocks * size)


def test_exact_differences_are_those_of_the_numbers() -> None:
    before = (
        stack("same", exact(10, 8), exact(0, 8)),
        stack("grows", exact(10, 100), exact(1, 100)),
        stack("goes", exact(5, 16), exact(5, 16)),
    )
    after = (
        stack("same", exact(10, 8), exact(0, 8), "/b/prog"),
        stack("grows", exact(30, 100), exact(21, 100), "/b/prog"),
        stack("comes", exact(2, 64), exact(0, 64), "/b/prog"),
    )
    found = difference(((), before), ((), after))
    by_name = {row.frame.function: row for row in found.functions}
    assert [one.value for one in by_name["grows"].changes] == [2000, 20, 2000, 20]
    assert [one.value for one in by_name["goes"].changes] == [-80, -5, -80, -5]
    assert [one.value for one in by_name["comes"].changes] == [128, 2, 0, 0]
    assert not by_name["same"].is_shown
    assert all(one.low == one.value == one.high for row in found.functions for one in row.changes)
    assert [row.frame.function for row in found.functions][:1] == ["grows"]
    assert found.whole.changes[0].value == 2000 - 80 + 128
    text = table.render(found, "old", "new", View("text", False, False, 80))
    assert text.startswith("new allocated 2.00 KiB more than old: ")
    assert "All allocations of both runs were recorded." in text
    assert "same" not in [line.split()[0] for line in text.splitlines() if line.split()]


def test_a_sign_of_a_sampled_difference_is_rarely_wrong() -> None:
    """Compares 300 pairs of profiles of 12 functions, of which only f0 really allocates more.

    At most 7 in 100 pairs may show a difference of another function. At most 7 in 100 intervals may
    miss the true difference of f0.
    """
    lots, wrong, missed, tries = np.random.default_rng(11), 0, 0, 300
    true = {f"f{k}": (30 + 20 * k, 256) for k in range(12)}
    for _ in range(tries):
        before = [stack(name, sampled(lots, *pair), Sum()) for name, pair in true.items()]
        after = [stack(name, sampled(lots, *pair), Sum()) for name, pair in true.items()]
        after[0] = stack("f0", sampled(lots, 2000, 256), Sum())
        found = difference(((), before), ((), after))
        for row in found.functions:
            if row.frame.function == "f0":
                missed += not row.changes[0].low <= 1970 * 256 <= row.changes[0].high
                assert row.changes[0].low > 0
        wrong += any(row.is_shown for row in found.functions if row.frame.function != "f0")
    assert wrong <= 0.07 * tries
    assert missed <= 0.07 * tries


@pytest.mark.parametrize("pairs", [1, pytest.param(40, marks=pytest.mark.long)])
def test_intervals_of_a_program_with_a_formula_hold_together(
    pairs: int, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program = compiled("known_stacks.c", "-O2", "-pthread", "-fno-builtin")
    probed, names, missed, in_all = Probed(tmp_path), Names(), 0, 0

    def profiled(rounds: int, seed: int) -> Profiled:
        probed(
            program,
            rounds,
            CAIRN_PROBE_STACKS="sampled",
            CAIRN_PROBE_STACKS_EVERY="8192",
            CAIRN_PROBE_STACKS_SEED=str(seed),
        )
        files = probed.profile.stacks
        return files, stacks(files, names.function_at)

    for pair in range(pairs):
        found = difference(profiled(500, 2 * pair + 1), profiled(1500, 2 * pair + 2))
        by_name = {row.frame.function: row for row in found.functions}
        wrong = 0
        for number in range(known_stacks.FUNCTIONS):
            row = by_name.get(f"known_{number}")
            old, new = (known_stacks.truth(number, rounds) for rounds in (500, 1500))
            for (part, unit), one in zip(PARTS, row.changes if row else (), strict=False):
                true = new[f"{part}.{unit}"] - old[f"{part}.{unit}"]
                wrong += not one.low <= true <= one.high
        missed += wrong > 0
        in_all += wrong
    # In 95 of 100 pairs, all intervals of the pair contain the truth. In the other pairs, few
    # intervals miss it.
    assert missed <= 1 + 0.07 * pairs
    assert in_all <= 3 * (1 + 0.07 * pairs)


def test_functions_of_a_build_with_another_name_are_the_same(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program = compiled("known_stacks.c", "-O2", "-pthread", "-fno-builtin")
    found = []
    for name in ("old-build", "new-build"):
        shutil.copy(program, tmp_path / name)
        folder = tmp_path / f"of-{name}"
        folder.mkdir()
        probed = Probed(folder)
        probed(tmp_path / name, 20, CAIRN_PROBE_STACKS="exact")
        found.append((probed.profile.stacks, stacks(probed.profile.stacks, Names().function_at)))
    rows = [row.frame.function for row in difference(*found).functions]
    assert rows.count("known_31") == 1 and len(rows) == len(set(rows))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_report_fits_and_has_its_numbers_in_json_and_csv(
    width: int, golden: Callable[[str, str], None]
) -> None:
    lots = np.random.default_rng(3)
    before = [stack(f"function_{k}", sampled(lots, 400, 512), Sum()) for k in range(14)]
    after = [stack(f"function_{k}", sampled(lots, 4000, 512), Sum()) for k in range(14)]
    found = difference(((), before), ((), after))
    text = table.render(found, "before", "after", View("text", False, False, width))
    assert all(len(line) <= width for line in text.splitlines())
    assert "more than before" in " ".join(text.split())
    assert "4 more functions differ" in text
    assert fit(table.change_table(found), width).parts
    # The JSON once lacked the warnings that the report has.
    lacking = ["▲ before: 3 processes are missing."]
    document = json.loads(table.document(found, "before", "after", "0", lacking))
    assert document["incomplete"] == ["before: 3 processes are missing."]
    golden("keys/callers_change", keys(document))
    assert len(document["functions"]) == 14
    assert document["whole"]["allocated_bytes"]["is_shown"]
    lines = list(csv.DictReader(StringIO(table.rows(found))))
    assert len(lines) == 15 * len(PARTS)
    assert {line["function"] for line in lines} >= {"(all)", "function_3"}


def test_what_either_profile_lacks_is_told(tmp_path: Path) -> None:
    """Incomplete records were once compared as if all allocations of both runs were in them."""
    busy().write(tmp_path)
    tree = Tree(
        command=("prog",), allocator="glibc", wall_ns=1, user_ns=1, system_ns=0,
        voluntary_switches=0, involuntary_switches=0, minor_faults=0, major_faults=0, counters={},
        user_mode_only=False, missing=(Missing(812, "worker", "static"),),
    )  # fmt: skip
    nothing = np.zeros(0)
    file = StacksFile(
        pid=1, program="/a/prog", way="exact", every_first=1, every=1, samples=9, without_room=0,
        unread=0, unwatched=3, problem="", has_peak=False, sparse=None, nodes=nothing,
        sites=nothing, paths=(), build_ids=(), name="1.1.stacks",
    )  # fmt: skip
    profile = replace(reader.gather(tmp_path), tree=tree, stacks=(file,))
    told = table.incomplete("old", profile, ())
    full, unrecorded, missing = told
    assert full.startswith("▲ old: The table of live blocks was full: 3 recorded blocks")
    assert unrecorded.startswith("▲ old: The stacks of 1 process were not recorded, or only")
    assert missing == "▲ old: 1 process is missing: worker (812) is linked statically."
    found = difference(((), ()), ((), (stack("grows", exact(1, 8), exact(0, 8)),)))
    text = table.render(found, "old", "new", View("text", False, False, 80), "", told)
    assert missing in text and "All allocations" not in text


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (1, "1 more function differs: --json and --csv have it."),
        (2, "2 more functions differ: --json and --csv have them."),
    ],
)
def test_the_functions_that_the_table_leaves_out_are_counted(more: int, says: str) -> None:
    none, some = exact(0, 0), exact(1, 8)
    after = tuple(stack(f"f{place}", some, none) for place in range(table.SHOWN + more))
    assert table.notes(difference(((), ()), ((), after)))[0] == says
