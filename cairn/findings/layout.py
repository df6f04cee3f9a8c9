"""Findings about where the blocks of the program lie. All functions are pure.

The program itself runs slower if its blocks lie badly. One profile does not show how much slower.
In a comparison of two allocators, the difference in the program's own CPU time is the effect, and
`compared` looks for a figure of the layout that can be its reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import Struct

from cairn import units
from cairn.findings.thresholds import (
    COLD_LEAST,
    COLD_OPERATIONS,
    CONFIRMED_LEAST,
    FURTHER_LEAST,
    HEADER_LEAST,
    HUGE_LEAST,
    HUGE_LIVE_BYTES,
    ITSELF_LEAST,
    LARGE_LEAST,
    LINES_LEAST,
    LIVE_BYTES,
    PAGES_LEAST,
    SCATTERED_BYTES,
    SCATTERED_RATIO,
    SETS_LEAST,
    SHARED_LEAST,
    WATCHED_LEAST,
)
from cairn.model import Finding, Interval, ProbeSummary
from cairn.profile.estimates import Estimate
from cairn.profile.layout import LARGE_BYTES
from cairn.profile.tally import Profile

_ROUNDS_LEAST = 0.75
"""The figure of the slower contender must be worse in at least this share of the rounds."""
_ITSELF = "The program itself runs slower because "
"""The beginning of the findings of a comparison. A clause follows."""


class Figures(Struct, frozen=True):
    """The figures of one contender's layout, by key of `ProbeSummary.metrics`, in each round."""

    rounds: Sequence[ProbeSummary]

    def at(self, key: str) -> Estimate | None:
        """The median over the rounds and the ends of its interval; None if most rounds lack it."""
        known = [one.metrics[key] for one in self.rounds if key in one.metrics]
        if 2 * len(known) <= len(self.rounds):
            return None
        value, low, high = (statistics.median(numbers) for numbers in zip(*known, strict=True))
        return Estimate(value, Interval(min(low, value), max(high, value), 0.95))

    def value(self, key: str) -> float | None:
        """The median over the rounds; None if most rounds lack it."""
        found = self.at(key)
        return found.value if found is not None else None

    @property
    def live_bytes(self) -> float:
        """The most live bytes, as the median over the rounds."""
        return statistics.median(one.live_bytes or 0 for one in self.rounds)


class _Two(Struct, frozen=True):
    """The layouts of the slower and of the faster contender, of the same rounds."""

    slow: Figures
    fast: Figures

    def more(self, key: str, *, least: float = 0.0) -> tuple[float, float] | None:
        """Both values, if that of the slower contender is larger by more than `least`; else None.

        The two intervals must not overlap, and the value must be larger in most rounds.
        """
        return self._apart(key, 1, least)

    def less(self, key: str) -> tuple[float, float] | None:
        """Like `more`, if the value of the slower contender is smaller."""
        return self._apart(key, -1, 0.0)

    def _apart(self, key: str, sign: int, least: float) -> tuple[float, float] | None:
        slow, fast = self.slow.at(key), self.fast.at(key)
        if slow is None or fast is None or (slow.value - fast.value) * sign <= least:
            return None
        ends = (
            (slow.interval.low, fast.interval.high)
            if sign > 0
            else (fast.interval.low, slow.interval.high)
        )
        if ends[0] <= ends[1]:
            return None
        both = [
            (one.metrics[key][0] - other.metrics[key][0]) * sign > 0
            for one, other in zip(self.slow.rounds, self.fast.rounds, strict=True)
            if key in one.metrics and key in other.metrics
        ]
        is_often = sum(both) >= _ROUNDS_LEAST * len(both)
        return (slow.value, fast.value) if is_often else None


class _Reason(Struct, frozen=True):
    """A figure by which the slower contender's layout is worse."""

    name: str
    clause: str
    """A clause that says what the blocks of the slower contender do. It follows "because"."""
    affected: float
    """The share of blocks, lines or pages that are worse off. The reasons are sorted by it."""
    evidence: str
    advice: str


_OTHER = "use the other allocator"
SCATTERED, SPREAD, HEADERS = "blocks-scattered", "blocks-spread-out", "headers-between-blocks"
COLD, SHARED, SETS = "cold-blocks", "threads-share-lines", "blocks-in-one-cache-set"
SMALL_PAGES = "fewer-huge-pages"
MISSES = "misses-caches-more"


def _shared(two: _Two) -> _Reason | None:
    found = two.more("conflicts", least=SHARED_LEAST)
    if found is None:
        return None
    watched, confirmed = two.slow.value("watched") or 0.0, two.slow.value("confirmed") or 0.0
    if watched >= WATCHED_LEAST and not confirmed:
        return None
    told = f"; {confirmation(watched, confirmed)}" if watched else "; not confirmed here"
    return _Reason(
        SHARED,
        "its threads share cache lines",
        found[0] - found[1],
        f"{_share(found[0])} of the cache lines with live blocks have blocks of several threads, "
        f"against {_share(found[1])}{told}",
        "use the other allocator, or align what each thread writes to 64 bytes",
    )


def _sets(two: _Two) -> _Reason | None:
    """The reason that the first lines of large blocks belong to the same set of the cache.

    Of each block, only the first line is known to collide. So the share of blocks counts in full
    for blocks of 4 KiB, and less the larger the blocks are.
    """
    found = two.more("sets", least=SETS_LEAST)
    if found is None or (two.slow.value("large") or 0.0) < LARGE_LEAST:
        return None
    weight = LARGE_BYTES / max(LARGE_BYTES, two.slow.value("large.mean") or 0.0)
    return _Reason(
        SETS,
        "its large blocks collide in a few cache sets",
        (found[0] - found[1]) * weight,
        f"{_share(found[0])} of the blocks of 4 KiB and more begin in the same of 64 sets of the "
        f"L1 cache, against {_share(found[1])}",
        "use the other allocator, or begin the data of each block at another offset",
    )


def _scattered(two: _Two) -> _Reason | None:
    far, further = two.more("alike.distance"), two.more("alike.further", least=FURTHER_LEAST)
    if (
        far is None
        or further is None
        or two.slow.live_bytes < LIVE_BYTES
        or far[0] < max(SCATTERED_BYTES, SCATTERED_RATIO * far[1])
    ):
        return None
    pages = two.more("pages_per_mib")
    on = f", on {_times(pages[0] / pages[1])} as many pages" if pages and pages[1] else ""
    return _Reason(
        SCATTERED,
        "its blocks lie scattered",
        further[0] - further[1],
        f"Small blocks of like size that are allocated one after another are {_bytes(far[0])} "
        f"apart, against {_bytes(far[1])}{on}",
        _OTHER,
    )


def _headers(two: _Two) -> _Reason | None:
    between, lines = two.more("header", least=HEADER_LEAST), two.more("lines_per_mib")
    if (
        between is None
        or lines is None
        or two.slow.live_bytes < LIVE_BYTES
        or lines[0] < (1 + LINES_LEAST) * lines[1]
        or (two.slow.value("alike.distance") or 0.0) >= SCATTERED_BYTES
    ):
        return None
    return _Reason(
        HEADERS,
        "unused bytes lie between its blocks",
        1 - lines[1] / lines[0],
        f"{_bytes(between[0])} lie between equal neighbours, against {_bytes(between[1])}; the "
        f"blocks touch {_times(lines[0] / lines[1])} as many cache lines",
        _OTHER,
    )


def _spread(two: _Two) -> _Reason | None:
    if two.slow.live_bytes < LIVE_BYTES:
        return None
    for key, noun, least in (
        ("pages_per_mib", "pages", PAGES_LEAST), ("lines_per_mib", "cache lines", LINES_LEAST),
    ):  # fmt: skip
        found = two.more(key)
        if found is not None and found[0] >= (1 + least) * found[1]:
            return _Reason(
                SPREAD,
                f"its blocks lie on more {noun}",
                1 - found[1] / found[0],
                f"The live blocks touch {_times(found[0] / found[1])} as many {noun}",
                _OTHER,
            )
    return None


def _cold(two: _Two) -> _Reason | None:
    late, slow = two.more("reuse"), two.more("reuse.slow", least=COLD_LEAST)
    if late is None or slow is None or late[0] < COLD_OPERATIONS:
        return None
    return _Reason(
        COLD,
        "the memory of its new blocks is cold",
        slow[0] - slow[1],
        f"Freed memory is handed out again after {units.count(round(late[0]))} operations in the "
        f"middle, against {units.count(round(late[1]))}",
        "use the other allocator: it hands out first what was freed last",
    )


def _small_pages(two: _Two) -> _Reason | None:
    found = two.less("huge")
    if (
        found is None
        or found[1] - found[0] < HUGE_LEAST
        or min(two.slow.live_bytes, two.fast.live_bytes) < HUGE_LIVE_BYTES
    ):
        return None
    return _Reason(
        SMALL_PAGES,
        "fewer of its blocks lie in huge pages",
        found[1] - found[0],
        f"{_share(found[0])} of the resident memory lies in huge pages, against {_share(found[1])}",
        "use the other allocator, or let this one use huge pages (glibc: "
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1)",
    )


_REASONS = (_shared, _sets, _scattered, _headers, _spread, _cold, _small_pages)
_IMPLIED = {SCATTERED: {SPREAD}, HEADERS: {SPREAD}}
"""The reasons that follow from another reason, by the name of that other one. They are not named
beside it."""


def compared(
    slow: Sequence[ProbeSummary], fast: Sequence[ProbeSummary], effect: Estimate
) -> Finding | None:
    """The reason why the program itself runs slower under one allocator than under another.

    slow, fast: the trials of both in the same rounds. effect: the difference in the program's own
    CPU time, as a share of the slower one's CPU time. Returns None if `effect` is below
    ITSELF_LEAST, or if no figure of the layout is worse by its threshold.
    """
    if effect.value < ITSELF_LEAST:
        return None
    two = _Two(Figures(slow), Figures(fast))
    found = [one for reason in _REASONS if (one := reason(two)) is not None]
    names = {one.name for one in found}
    implied = set().union(*(_IMPLIED.get(name, set()) for name in names))
    found = sorted((one for one in found if one.name not in implied), key=lambda one: -one.affected)
    if not found:
        return None
    first, *others = found
    also = tuple(f"Also, {one.clause}: {_lowered(one.evidence)}" for one in others)
    return Finding(
        name=first.name,
        says=f"{_ITSELF}{first.clause}",
        of="CPU",
        effect=effect.value,
        interval=effect.interval,
        measured=False,
        evidence=(first.evidence, *also),
        advice=first.advice,
    )


def misses_more(effect: Estimate) -> Finding:
    """The reason if simulated misses explain why the program itself runs slower.

    It is used if no figure of the layout says why there are more misses. effect: as for compared().
    """
    return Finding(
        name=MISSES,
        says=f"{_ITSELF}it misses the caches and the TLB more often",
        of="CPU",
        effect=effect.value,
        interval=effect.interval,
        measured=False,
        evidence=("The table of simulated misses shows in which caches",),
        advice=_OTHER,
    )


def shares_lines(profile: Profile) -> Finding | None:
    """Returns a finding if threads write to the same cache lines, and breakpoints confirmed it."""
    found = profile.layout
    if found is None or found.active_conflicts is None or found.passive_conflicts is None:
        return None
    low = found.active_conflicts.low + found.passive_conflicts.low
    value = found.active_conflicts.value + found.passive_conflicts.value
    watches = found.watches
    if (
        low < SHARED_LEAST
        or watches.lines < WATCHED_LEAST
        or watches.confirmed < CONFIRMED_LEAST * watches.lines
    ):
        return None
    return _likely(
        SHARED,
        "Threads write to the same cache lines, which likely slows the program itself down",
        f"{_share(value)} of the cache lines with live blocks have blocks of several threads; "
        f"{confirmation(watches.lines, watches.confirmed)}",
        "use an allocator with a heap for each thread, or align what each thread writes to 64 "
        "bytes",
    )


RULES = (shares_lines,)


def _likely(name: str, says: str, evidence: str, advice: str) -> Finding:
    return Finding(name, says, "CPU", 0.0, advice, None, (evidence,), measured=False)


def clause(finding: Finding) -> str:
    """The clause of a comparison's finding that follows "because"."""
    return finding.says.removeprefix(_ITSELF)


def confirmation(watched: float, confirmed: float) -> str:
    """A clause with the number of watched lines that two threads wrote to."""
    lines = units.counted(round(watched), "watched line")
    return f"two threads wrote to {round(confirmed)} of {lines}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _share(share: float) -> str:
    return units.percent(share, signed=False)


def _bytes(number: float) -> str:
    return units.size(round(number))


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times" if ratio < 10 else f"{round(ratio):,} times"
