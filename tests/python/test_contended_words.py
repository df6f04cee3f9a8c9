"""Tests of the findings about threads that wait for a cache line of the allocator."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cairn.clock_samples import AtomicSamples
from cairn.findings.waiting import (
    ATOMIC_LEAST,
    ATOMIC_NS_LEAST,
    SPINNING_LEAST,
    AtomicCosts,
    contended,
)
from cairn.model import Interval
from cairn.profile.estimates import Estimate

COSTS = AtomicCosts(
    Estimate(0.3, Interval(0.25, 0.35, 0.95)),
    54.0,
    2.0,
    AtomicSamples("take", "libx.so", "big_lock", 90, 30),
    0.25,
)


def test_the_evidence_names_the_times_the_function_and_the_word() -> None:
    found = contended(COSTS)
    assert found is not None and found.name == "spins"
    assert found.evidence == (
        "An operation takes 54.0 ns at atomic instructions and pauses against 2.00 ns, most of it "
        "in take (libx.so) on big_lock",
    )
    assert (found.effect, found.interval) == (0.3, COSTS.effect.interval)
    unnamed = contended(replace(COSTS, dearest=replace(COSTS.dearest, word="")))
    assert unnamed is not None and unnamed.evidence[0].endswith("in take (libx.so)")


def test_without_pauses_the_threads_write_to_the_same_words() -> None:
    found = contended(replace(COSTS, pauses=SPINNING_LEAST - 0.01))
    assert found is not None and found.name == "contended-atomic"
    assert found.says == ("Threads write to the same words of the allocator by atomic instructions")
    assert "at atomic instructions against" in found.evidence[0]
    assert (found_at := contended(replace(COSTS, pauses=SPINNING_LEAST))) is not None
    assert found_at.name == "spins"


@pytest.mark.parametrize(
    "change",
    [
        {"effect": Estimate(0.3, Interval(0.0, 0.6, 0.95))},
        {"effect": Estimate(ATOMIC_LEAST - 0.001, Interval(0.01, 0.06, 0.95))},
        {"other_ns": COSTS.own_ns - ATOMIC_NS_LEAST + 0.1},
    ],
)
def test_a_difference_that_is_small_or_not_shown_is_no_finding(change: dict[str, object]) -> None:
    assert contended(replace(COSTS, **change)) is None  # type: ignore[arg-type]
