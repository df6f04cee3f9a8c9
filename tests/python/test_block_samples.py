"""Tests of sizes, usable bytes and life times of blocks, which come from a sample of the blocks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from support.probes import TICKS_PER_NS, Made, busy

from cairn.profile import block_samples, reader
from cairn.profile.estimates import Estimate, octaves
from cairn.profile.metrics import measured
from cairn.profile.tally import Profile
from cairn.report import profile, profile_export
from cairn.report.view import View

GAP = 64
EDGES = octaves(192, 4)
Rounding = Callable[[float], float]


def gathered(folder: Path, made: Made) -> Profile:
    folder.mkdir(exist_ok=True)
    made.write(folder)
    return reader.gather(folder)


def flat(found: Profile) -> str:
    return " ".join(profile.render(found, View(full=True)).split())


def document(found: Profile) -> dict[str, object]:
    shown = json.loads(profile_export.document(found, allocator="x", cairn="1"))
    assert isinstance(shown, dict)
    return shown


def of_blocks(sizes: list[int], chosen: list[bool], usable: Rounding) -> Made:
    """The file of a program that requests small blocks of these sizes, of which some are sampled.

    Each sampled block is freed after 300 ns by the thread that allocated it.
    """
    made, n = Made(), sum(chosen)
    made.called("malloc", "small", len(sizes), 0)
    made.threads["bytes"][0, 0, 0, 0] = sum(sizes)
    made.released("free", len(sizes))
    sampled = [size for size, is_chosen in zip(sizes, chosen, strict=True) if is_chosen]
    if n:
        made.timed("reused", "small", [50] * n)
        made.timed("free, local", "small", [30] * n)
    for size in sampled:
        made.samples["sizes"][0, int(np.searchsorted(EDGES, size, side="right")) - 1] += GAP
    made.samples["asked_bytes"] = GAP * sum(sampled)
    made.samples["usable_bytes"] = GAP * sum(round(usable(size)) for size in sampled)
    made.samples["lives"][0, 0, 9] = made.samples["freed"][0, 0] = GAP * n
    return made


def glibc(size: float) -> float:
    return max(24, (size + 23) // 16 * 16 - 8)


def quarters(size: float) -> float:
    """Rounds to one of four sizes in each octave, as jemalloc does."""
    step = max(16.0, 2 ** np.floor(np.log2(max(size - 1, 1)) - 2))
    return float(np.ceil(size / step) * step)


def headed(size: float) -> float:
    return size + 16


def uniform(rng: random.Random) -> int:
    return rng.randint(8, 200)


def with_rare_large_ones(rng: random.Random) -> int:
    """1 of 100 blocks is large. The large ones have most of the bytes."""
    return 32 if rng.random() < 0.99 else 1_000


def test_nothing_is_concluded_from_two_blocks(tmp_path: Path) -> None:
    """Six runs of ls said +9.5, +0.02, +0.02, +5.0, +0.02 and +3.1 %, each by two sampled blocks.

    They also said that half of all blocks are smaller than 64 B, 40 KiB, and 40 B.
    """
    found = gathered(tmp_path, of_blocks([64] * 128, [True, True] + [False] * 126, glibc))
    assert block_samples.sampled(found.tally) == 2
    assert block_samples.usable_per_asked(found) is None
    assert "slack" not in measured(found)
    text = flat(found)
    assert "usable bytes beyond the requests not known (2 sampled blocks)" in text
    assert (
        "the sizes of most blocks are not known: 2 blocks were sampled, and 30 are needed" in text
    )
    assert "smaller than" not in text
    assert "small – – – 0 %" in text
    shown = document(found)
    for key in ("usable_bytes_per_asked", "usable_bytes_per_asked_interval", "sizes"):
        assert shown[key] is None
    assert shown["sampled_blocks"] == 2
    assert isinstance(shown["blocks"], list)
    assert shown["blocks"][0] == {
        "group": "small", "sampled": 2, "freed": None, "freed_elsewhere": None, "lives": None,
    }  # fmt: skip


def test_frees_by_other_threads_have_an_interval(tmp_path: Path) -> None:
    made = of_blocks([100] * 1_920, [True] * 30 + [False] * 1_890, glibc)
    made.start["threads_most"] = 2
    assert "small ≈ 1,920 < 512 ns – 0.0 % (0.0 to 11.4)" in flat(gathered(tmp_path, made))


def test_numbers_of_thirty_blocks_have_an_interval(tmp_path: Path) -> None:
    chosen = [True] * 30 + [False] * 1_890
    found = gathered(tmp_path, of_blocks([100] * 1_920, chosen, glibc))
    usable = block_samples.usable_per_asked(found)
    assert usable is not None and usable.value == pytest.approx(1.04)
    assert 1 <= usable.interval.low < 1.02 and 1.06 < usable.interval.high < 1.1
    assert measured(found)["slack"] == pytest.approx(
        (usable.value, usable.interval.low, usable.interval.high)
    )
    text = flat(found)
    assert "usable bytes beyond the requests +4.0 % (1.2 to 6.8)" in text
    # The 95th of 100 blocks may be larger than all of 30.
    assert "half of all blocks are smaller than 112 B" in text and "95 % are" not in text
    assert "small ≈ 1,920 < 512 ns – 0 %" in text
    assert document(found)["usable_bytes_per_asked"] == pytest.approx(1.04)


@pytest.mark.parametrize(
    ("size", "usable"),
    [
        pytest.param(uniform, glibc, marks=pytest.mark.long),
        (with_rare_large_ones, quarters),
        pytest.param(uniform, quarters, marks=pytest.mark.long),
        pytest.param(uniform, headed, marks=pytest.mark.long),
        pytest.param(with_rare_large_ones, glibc, marks=pytest.mark.long),
        pytest.param(with_rare_large_ones, headed, marks=pytest.mark.long),
    ],
)
def test_the_interval_of_usable_bytes_has_the_truth_in_95_of_100_cases(
    tmp_path: Path, size: Callable[[random.Random], int], usable: Rounding
) -> None:
    rng, hits = random.Random(7), 0
    for case in range(60):
        count = GAP * rng.randint(40, 200)
        sizes = [size(rng) for _ in range(count)]
        chosen = [rng.random() < 1 / GAP for _ in range(count)]
        if sum(chosen) < 30:
            continue
        made = of_blocks(sizes, chosen, usable)
        found = block_samples.usable_per_asked(gathered(tmp_path / str(case), made))
        true = sum(map(usable, sizes)) / sum(sizes)
        assert found is not None
        hits += found.interval.low <= true <= found.interval.high
        cases = case + 1
    assert hits >= 0.93 * cases


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_the_interval_of_a_size_has_the_truth_in_95_of_100_cases(tmp_path: Path, q: float) -> None:
    """Sizes are known by the upper end of their bucket."""
    base = gathered(tmp_path, of_blocks([100] * 6_400, [True] * 100 + [False] * 6_300, glibc))
    rng = np.random.default_rng(3)
    population = np.exp(rng.normal(4, 1, 100_000))
    place = int(np.searchsorted(EDGES, np.quantile(population, q), side="right")) - 1
    hits = 0
    for _ in range(300):
        sizes = np.zeros(192)
        drawn = rng.choice(population, 100)
        np.add.at(sizes, np.searchsorted(EDGES, drawn, side="right") - 1, GAP)
        found = block_samples.size_below(replace(base.tally, sizes=sizes), q)
        assert found is not None
        hits += found.interval.low <= EDGES[place + 1] <= found.interval.high
    assert hits >= 0.93 * 300


def test_sizes_and_lifetimes_are_reported_by_the_end_of_their_bucket(tmp_path: Path) -> None:
    tally = gathered(tmp_path, busy()).tally
    assert EDGES[22] <= 100 < EDGES[23]
    sizes = block_samples.size_below(tally, 0.5), block_samples.life_below_ns(tally, 0, 0.5)
    for found, value in zip(sizes, (112, 2**13 / TICKS_PER_NS), strict=True):
        assert isinstance(found, Estimate)
        assert found.value == found.interval.low == found.interval.high == value
    assert block_samples.life_below_ns(tally, 1, 0.5) is None


def test_large_blocks_are_all_sampled_and_have_no_error(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "large", 2, 40_000)
    made.released("free", 2)
    made.timed("reused", "large", [9_000] * 2)
    made.timed("free, local", "large", [30] * 2)
    made.samples["sizes"][0, int(np.searchsorted(EDGES, 40_000, side="right")) - 1] = 2
    made.samples["asked_bytes"], made.samples["usable_bytes"] = 80_000, 82_000
    made.samples["lives"][0, 2, 9] = made.samples["freed"][0, 2] = 2
    found = gathered(tmp_path, made)
    usable = block_samples.usable_per_asked(found)
    assert usable is not None
    assert usable.value == usable.interval.low == usable.interval.high == 1.025
    text = flat(found)
    assert "usable bytes beyond the requests +2.5 %" in text
    assert "large ≈ 2 < 512 ns < 512 ns 0 %" in text
    assert "half of all blocks are smaller than 40.0 KiB, 95 % are smaller than 40.0 KiB" in text
