"""The first screen of a profile: the answer in sentences, before any table.

The sentences come in this order: the allocator's share of CPU time, its memory, up to FINDINGS_MOST
findings with their effects and advice, the best predicted allocator, and what is not known. They
fit into LINES lines of 80 columns. `profile_export.document` has each of their numbers, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.findings import find
from cairn.findings.kernel import inclusion
from cairn.findings.thresholds import is_likely
from cairn.model import Finding
from cairn.profile.cpu_share import SAMPLES_LEAST, cpu_share
from cairn.profile.estimates import busy_ns, clock
from cairn.profile.tables import sees_all_calls
from cairn.profile.tally import Peak, Profile, lasting
from cairn.report.formatting import printable, wrapped
from cairn.report.pinned_table import nearly_empty
from cairn.report.prediction import sentences
from cairn.report.profile_gaps import gaps, next_step
from cairn.report.profile_numbers import about, effect, size_about
from cairn.why.prediction import Prediction

LINES = 24
"""The lines of a first screen, with the title."""
FINDINGS_MOST = 3
"""The most findings on the first screen. The others are below the tables."""
GAPS_MOST = 2
"""The most sentences about what is not known on the first screen. The others are below the tables,
because they matter less."""
_EXAMINED_FROM = 10 << 20
"""The probe examines the pages of a process from this resident set on (CLOSELY_BYTES in
src/probe/session.c). With less memory there can be no finding about memory between blocks, and
none about the sizes of blocks."""
_EXAMINED = 4
"""The number of things that the findings are about: system calls, locks, memory between blocks, and
the sizes of blocks."""
_WHOLES = {
    "CPU": "of the CPU time",
    "thread time": "of the threads' time",
    "memory": "of the resident memory",
}


class Paragraph(Struct, frozen=True):
    """Some sentences of the answer."""

    text: str
    style: str = ""
    hanging: int = 0
    """The indent of all lines but the first, in columns."""

    def lines(self, width: int) -> int:
        """Returns the number of lines that the paragraph takes."""
        return sum(len(wrapped(part, width - self.hanging)) for part in self.text.split("\n"))


class Answer(Struct, frozen=True):
    """The paragraphs of the first screen, and the sentences that belong below the tables."""

    groups: tuple[tuple[Paragraph, ...], ...]
    """Groups of paragraphs, with an empty line between two groups."""
    left: tuple[str, ...]
    """The findings, and the evidence of findings, for which the first screen had no room."""
    warnings: tuple[str, ...]
    """The sentences about what is not known for which the first screen had no room."""

    def lines(self, width: int) -> int:
        """Returns the number of lines that the first screen takes."""
        told = sum(one.lines(width) for group in self.groups for one in group)
        return told + max(0, len(self.groups) - 1)


_FORMS = (
    (FINDINGS_MOST, GAPS_MOST, True),
    (FINDINGS_MOST, GAPS_MOST, False),
    (FINDINGS_MOST, 1, False),
    (2, 1, False),
    (1, 1, False),
)
"""The forms of an answer, the longest first. A form has the most findings, the most sentences about
what is not known, and whether findings have their evidence."""


def answer(
    profile: Profile, title: str, width: int, *, others: Sequence[Prediction] = ()
) -> Answer:
    """Returns the longest answer that fits into LINES.

    Empty lines between paragraphs are left out before the number of findings is reduced.
    """
    raised, unknown = find(profile), [printable(one) for one in gaps(profile)]
    first = [[Paragraph(title)], _shares(profile)]
    first.append([Paragraph(printable(text)) for text in memory(profile)])
    last = [Paragraph(printable(one)) for one in sentences(others)]
    if not raised and (negative := no_finding(profile)):
        last.insert(0, Paragraph(negative))
    for findings, most, evidence in _FORMS:
        told, left = _findings(raised, findings, evidence=evidence)
        groups = [*first, [*told, *last]]
        if unknown:
            groups.append([Paragraph("▲ " + " ".join(unknown[:most]), "yellow", 2)])
        found = Answer(
            tuple(tuple(group) for group in groups if group), left, tuple(unknown[most:])
        )
        if found.lines(width) <= LINES:
            return found
        if not evidence:
            found = replace(found, groups=(tuple(one for group in groups for one in group),))
            if found.lines(width) <= LINES:
                return found
    return found


def _findings(
    raised: Sequence[Finding], most: int, *, evidence: bool
) -> tuple[list[Paragraph], tuple[str, ...]]:
    """Returns the findings of the first screen, and the sentences that belong below the tables."""
    shown, more = raised[:most], raised[most:]
    told = [Paragraph(printable(because(one, evidence=evidence)), "", 2) for one in shown]
    if more:
        are = "finding is" if len(more) == 1 else "findings are"
        told.append(Paragraph(f"{len(more)} more {are} below the tables.", "", 2))
    left = [] if evidence else [f"▲ {one.says}: {_evidence(one)}" for one in shown if one.evidence]
    return told, tuple(map(printable, [*left, *(because(one) for one in more)]))


def _shares(profile: Profile) -> list[Paragraph]:
    first, *warnings = map(printable, shares(profile))
    return [Paragraph(first, "bold"), *(Paragraph(text, "yellow", 2) for text in warnings)]


def shares(profile: Profile) -> Iterator[str]:
    """Yields the sentences about the allocator's share of CPU time, and why it may be imprecise."""
    if not profile.operations:
        is_whole = not profile.missing
        yield (
            "The program allocated nothing and freed nothing, so there is nothing to profile."
            if is_whole
            else "The processes that were recorded allocated nothing and freed nothing."
        )
        return
    found = cpu_share(profile)
    why_not = profile.clock.why_not if profile.clock is not None else ""
    if found.share is None:
        more = f" {next_step(why_not)}"
        if found.runs:
            runs = max(2, -(-SAMPLES_LEAST * found.runs // max(1, found.samples)))
            more = f" Use --runs {runs} or a longer run."
            if profile.window is not None:
                more = " Count a longer part of the run, for example with a longer --duration."
        yield f"The allocator's share of CPU time is not known: {found.why_not}.{more}"
    else:
        yield (
            f"The allocator takes {about(found.share)} of the CPU time. No other allocator can "
            "save more than this, unless it makes the program's own code faster, too."
        )
    if found.scope == "timers" and why_not:
        yield (
            f"▲ {why_not[:1].upper()}{why_not[1:]}, so the probe's own timers took the samples: "
            f"only {units.count(found.samples)}. {next_step(why_not)}"
        )


class MemoryPeaks(Struct, frozen=True):
    """The peaks of memory in the process with the most live bytes. None means not measured."""

    program: str
    pid: int
    live_requested: Peak | None
    live_usable: Peak | None
    live_counted: bool
    held_bytes: int | None
    resident_bytes: int | None
    between_blocks_bytes: int | None
    """Resident memory between blocks that was never handed out."""
    are_least: bool = False
    """Whether more may have been resident: the process did not end normally, so the last look at
    this memory was some time before its end."""
    held_is_least: bool = False
    """Whether the allocator may have held more: not every system call that gets memory was seen, or
    the profile has only the memory held at some moments."""


def peaks(profile: Profile) -> MemoryPeaks:
    """Returns the peaks of the process with the most live bytes. Each has its own time."""
    largest, moments = profile.largest, profile.moments
    held, held_is_least = _held(profile)
    return MemoryPeaks(
        program=largest.program,
        pid=largest.pid,
        live_requested=largest.peak_requested,
        live_usable=largest.peak_usable,
        live_counted=largest.live_counted,
        held_bytes=held,
        resident_bytes=largest.peak_resident_bytes or None,
        between_blocks_bytes=max(
            (one.unasked_bytes for one in moments if one.unasked_bytes is not None), default=None
        ),
        are_least=largest.state == "running",
        held_is_least=held_is_least,
    )


def _held(profile: Profile) -> tuple[int | None, bool]:
    """Returns the most bytes that the allocator of the largest process held, if it is known.

    The second value says whether it may have held more. It held at least the live blocks.
    """
    largest = profile.largest
    if largest.held_counted:
        return largest.held_bytes, False
    live = largest.peak_usable.low if largest.peak_usable is not None else 0
    live = max(live, largest.held_bytes if largest.held_is_least else 0)
    held = max((one.held_bytes for one in profile.moments if one.held_bytes), default=None)
    return (None if held is None else max(held, live)), True


def memory(profile: Profile) -> Iterator[str]:
    """Yields the sentence about memory, and whether live bytes are an estimate."""
    if not profile.operations:
        return
    found, alive = peaks(profile), lasting(profile.processes)
    if len(alive) > 1:
        name = found.program.rpartition("/")[2]
        where = f"In {name} ({found.pid}), the largest of {len(alive):,} processes, "
    elif profile.missing:
        where = "In the only process that was recorded, "
    else:
        where = "In the only process that allocates, "
    live, told, not_measured = found.live_requested, [], []
    if live is not None:
        told.append(f"the requested bytes of live blocks peaked at {size_about(live)}")
    else:
        not_measured.append("the peak of live blocks")
    if found.held_bytes is not None:
        most = "at least" if found.held_is_least else "up to"
        told.append(f"the allocator held {most} {units.size(found.held_bytes)} from the kernel")
    else:
        not_measured.append("the memory that the allocator held")
    if found.resident_bytes is not None:
        least = "at least " if found.are_least else ""
        told.append(f"the resident set reached {least}{units.size(found.resident_bytes)}")
    else:
        not_measured.append("the resident memory")
    lacking = listed(not_measured)
    if not told:
        yield f"{where}{lacking} were not measured."
        return
    are = "was" if len(not_measured) == 1 else "were"
    clauses = ", and ".join(told) if len(told) == 2 else listed(told)
    yield (
        f"{where}{clauses}.{_estimated(profile, live)}"
        + (f" {lacking[0].upper()}{lacking[1:]} {are} not measured." if lacking else "")
    )


def listed(parts: Sequence[str]) -> str:
    """Returns the parts as a list in a sentence: "a", "a and b", "a, b, and c"."""
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _estimated(profile: Profile, live: Peak | None) -> str:
    """Returns the sentence that live bytes are an estimate, and what would count them."""
    if live is None or profile.largest.live_counted:
        return ""
    if any(one.live_usable_bytes is not None for one in profile.moments):
        return " The peak of live blocks is an estimate; --live-bytes exact counts them."
    if not profile.moments:
        return " The peak of live blocks is an estimate."
    return (
        " The peak of live blocks is an estimate. They cannot be counted, because the allocator "
        "has no malloc_usable_size()."
    )


def no_finding(profile: Profile) -> str:
    """Returns the sentence that there is no finding. It names what was not examined."""
    if not profile.operations:
        return ""
    unseen = []
    ways = {process.seen for process in lasting(profile.processes)}
    timed = clock(profile.tally) is not None
    if not timed or busy_ns(profile) is None or ways == {"unseen"}:
        unseen.append("its system calls")
    elif not all(map(sees_all_calls, lasting(profile.processes))):
        unseen.append("some of its system calls")
    if not timed:
        unseen.append("its locks")
    resident = max((one.resident_bytes or 0 for one in profile.moments), default=0)
    examined = any(one.unasked_bytes is not None for one in profile.moments)
    any_slack = any(one.slack_bytes is not None for one in profile.moments)
    if not resident or (resident >= _EXAMINED_FROM and not examined):
        unseen.append("its memory between blocks")
    if not resident or (resident >= _EXAMINED_FROM and not any_slack):
        unseen.append("how much larger its blocks are than requested")
    found = "No known cause of lost time or memory was found in the allocator."
    if empty := nearly_empty(profile.stacks):
        found += f' But {empty}; the table "who keeps memory" names the functions.'
    if not unseen:
        return f"{found} 'cairn compare' shows whether another one is better."
    if len(unseen) == _EXAMINED:
        return (
            "Whether the allocator loses time or memory is not known, because "
            f"{listed(unseen)} could not be examined."
        )
    lacking = listed(unseen)
    but = f"{lacking[0].upper()}{lacking[1:]}" if empty else f"But {lacking}"
    return f"{found} {but} could not be examined."


def because(finding: Finding, *, evidence: bool = True) -> str:
    """Returns a finding as a paragraph: the cause, its size, the evidence and the advice."""
    whole = f"{_WHOLES[finding.of]}{inclusion(finding)}"
    size = "" if is_likely(finding) else f": {effect(finding)} {whole}"
    told = f" {_evidence(finding)}" if evidence and finding.evidence else ""
    return f"▲ {finding.says}{size}.{told} To do: {finding.advice}."


def _evidence(finding: Finding) -> str:
    return f"{'; '.join(finding.evidence)}."
