"""Tests of the first screen of a profile: twelve kinds of profiles, made of invented files.

Each golden file has the first screen as a terminal of 80 columns and 24 lines shows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.probes import Made, busy, locking, refused

from cairn.findings import find
from cairn.profile import reader
from cairn.profile.cpu_share import SAMPLES_LEAST
from cairn.profile.tally import FUNCTIONS, ClockRun, KernelClock, Missing, Profile, Tree, Window
from cairn.report import profile, profile_answer, profile_export
from cairn.report.view import View

MIB = 1 << 20
NAME = "glibc 2.36"
RUN = ClockRun(
    probed=True, scope="processors", samples=4_000, own_ns=300e6, calls_ns=40e6, faults_ns=50e6,
    program_ns=600e6, probe_ns=200e6, inside_squares=100e12, squares=250e12, cpu_ns=1.2e9,
    interrupts_ns=10e6,
)  # fmt: skip
TREE = Tree(
    command=("./records", "--rows", "100000"), allocator=NAME, wall_ns=1_000_000_000,
    user_ns=850_000_000, system_ns=50_000_000, voluntary_switches=12, involuntary_switches=3,
    minor_faults=5_000, major_faults=0, counters={}, user_mode_only=False,
)  # fmt: skip


def gathered(
    folder: Path, *made: Made, run: ClockRun | None = RUN, tree: Tree = TREE, why_not: str = ""
) -> Profile:
    folder.mkdir(exist_ok=True)
    for one in made:
        one.write(folder)
    found = replace(reader.gather(folder), machine="x86_64", tree=tree)
    return replace(found, clock=KernelClock((run,) if run else (), why_not))


def seen(made: Made, *, between: int = 0) -> Made:
    """The file with moments at which the probe examined the pages, and with counted live bytes.

    `between` bytes between blocks were written and never handed out.
    """
    made.moments(
        (4_000_000, MIB, 2 * MIB, 9 * MIB, 0, 0, 0),
        (8_000_000, 8 * MIB, 16 * MIB, 28 * MIB, between, 0, 0),
    )
    made.live(9 * MIB, 100 << 10, (9 * MIB, 8 * MIB, 30 << 10))
    return made


STORM_RUN = replace(RUN, own_ns=237e6, calls_ns=133e6, faults_ns=20e6)
"""The clock samples of storm(): they find as much time in system calls as the probe does. Most page
faults are in the program's code."""
STORM_TREE = replace(TREE, user_ns=700_000_000, system_ns=200_000_000, minor_faults=28_680)


def storm(made: Made) -> Made:
    """The file with system calls that return memory, which the program touches again."""
    made.kernel("madvise(DONTNEED)", 1_000, 100_000, 64 << 10)
    made.start["minor_faults"] = 5_000 + 30 * 256 + 16_000
    return made


def healthy(folder: Path) -> Profile:
    return gathered(folder, seen(busy()))


def one_finding(folder: Path) -> Profile:
    return gathered(folder, storm(seen(busy())), run=STORM_RUN, tree=STORM_TREE)


def three_findings(folder: Path) -> Profile:
    """Memory is returned too early, threads wait for a lock, and records lie between blocks."""
    made = storm(seen(locking(), between=9 * MIB))
    made.start["threads_most"] = made.start["threads_started"] = 2
    made.threads["since_ticks"][0] = 7
    made.kernel("futex wait", 1_100, 300_000)
    return gathered(folder, made, run=STORM_RUN, tree=STORM_TREE)


def too_few_samples(folder: Path) -> Profile:
    return gathered(folder, seen(busy()), run=replace(RUN, samples=41))


def no_clock(folder: Path) -> Profile:
    """The kernel refuses clock samples. The timers of each thread have a few."""
    made = seen(busy())
    made.sampled(300, 60)
    why = "the kernel does not allow clock samples here: Permission denied"
    return gathered(folder, made, run=None, why_not=why)


def full_folder(folder: Path) -> Profile:
    """The clock samples found no room. The timers of each thread have a few."""
    made = seen(busy())
    made.sampled(300, 60)
    why = "the clock samples could not be written in /tmp/full: No space left on device"
    return gathered(folder, made, run=None, why_not=why)


def estimated_live_bytes(folder: Path) -> Profile:
    made = busy()
    made.samples["moments"]["live_error_bytes"] = 400 << 10
    return gathered(folder, made)


def missing_processes(folder: Path) -> Profile:
    gone = tuple(Missing(pid, "dropped_rights", "EFBIG") for pid in (812, 813))
    return gathered(folder, seen(busy()), tree=replace(TREE, missing=gone))


def many_processes(folder: Path) -> Profile:
    """Forty compilers. The system calls of some were seen only in part, and one was killed."""
    made = [
        seen(
            (refused if n % 4 == 3 else busy)(
                pid=200 + n, begin_ns=10**9 * (n + 1), program=b"/usr/bin/cc1", state=1 + (n != 5)
            )
        )
        for n in range(40)
    ]
    return gathered(folder, *made, tree=replace(TREE, command=("make", "-j8")))


def no_frees(folder: Path) -> Profile:
    made = Made()
    made.called("malloc", "small", 100_000, 100)
    made.fresh("small", 100_000)
    made.timed("new", "small", [200] * 1_500)
    made.kernel("brk", 80, 2_000, 132 << 10)
    return gathered(folder, seen(made))


def threads_that_end(folder: Path) -> Profile:
    """All calls are made by threads that are ending, so none of them has a phase or a time."""
    made = Made()
    made.start["late_calls"][0, 0] = 4_000
    made.start["late_bytes"][0, 0] = 64 * 4_000
    made.start["late_calls"][0, FUNCTIONS.index("free")] = 4_000
    made.start["threads_started"] = 1_000
    return gathered(folder, made)


def a_window(folder: Path) -> Profile:
    found = gathered(folder, seen(busy(user_us=4_000_000)), run=None)
    window = Window(31_000_000_000, 61_000_000_000, 30_000_000_000)
    return replace(found, window=window, clock=KernelClock((RUN,)))


def nothing_allocated(folder: Path) -> Profile:
    made = Made(user_us=2_000)
    made.released("free(NULL)", 1)
    return gathered(folder, made, run=None)


def few_in_a_window(folder: Path) -> Profile:
    found = a_window(folder)
    return replace(found, clock=KernelClock((replace(RUN, samples=41),)))


KINDS: tuple[Callable[[Path], Profile], ...] = (
    healthy, one_finding, three_findings, too_few_samples, no_clock, full_folder, estimated_live_bytes,
    missing_processes, many_processes, no_frees, threads_that_end, a_window, nothing_allocated,
)  # fmt: skip


def shown(found: Profile, *, full: bool = False) -> str:
    return profile.render(found, View(full=full, width=80), allocator=NAME)


def answer_of(found: Profile) -> profile_answer.Answer:
    return profile_answer.answer(found, "profile  two lines,\nlike the title", 80)


def first_lines(found: Profile) -> list[str]:
    return shown(found).splitlines()[: profile_answer.LINES]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_first_screen_is_golden(
    kind: Callable[[Path], Profile], tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    text = "\n".join(first_lines(kind(tmp_path))) + "\n"
    assert all(len(line) <= 80 for line in text.splitlines())
    golden(f"profile-screen/{kind.__name__}", text)


def test_the_longest_answer_fits_into_the_first_screen(tmp_path: Path) -> None:
    """Three findings, too few samples, and three kinds of missing knowledge at once."""
    found = three_findings(tmp_path)
    gone = tuple(Missing(pid, "dropped_rights", "EFBIG") for pid in range(900, 950))
    why = "the kernel does not allow clock samples here: Permission denied"
    tally = replace(found.tally, cpu_samples=300)
    tree = replace(TREE, missing=gone, system_ns=200_000_000)
    found = replace(found, tally=tally, tree=tree, clock=KernelClock((), why), empty=2)
    assert len(find(found)) == 3
    assert answer_of(found).lines(80) == profile_answer.LINES
    text = " ".join(shown(found).split())
    for words in (
        "the probe's own timers took the samples: only 300.",
        "50 of 51 processes are missing",
        "2 processes left no counts",
    ):
        assert text.index(words) < text.index("counted calls"), words
    for words in ("1,000 calls of madvise(DONTNEED)", "9.00 MiB between"):
        assert text.index(words) > text.index("counted calls"), words
    for one in find(found):
        assert one.says in text and one.advice in text
    narrow = profile_answer.answer(found, "title", 60)
    assert narrow.lines(60) <= profile_answer.LINES
    assert re.search("[12] more findings? (is|are) below", str(narrow.groups))


def test_calls_of_unknown_phase_and_size_make_the_other_counts_bounds(tmp_path: Path) -> None:
    """Once, each of these calls was missing in all columns but one, which then showed zeros."""
    made = busy()
    made.start["late_calls"][0, FUNCTIONS.index("malloc")] = 5
    text = shown(gathered(tmp_path, made))
    rows = {line.split()[0]: line for line in text.partition("counted ")[2].splitlines()[1:4]}
    assert re.split(" {2,}", rows["malloc"].strip()) == [
        "malloc", "64,015", "≥ 64,010", "≤ 5", "16.1 MiB", "≥ 64,000", "≤ 5", "≥ 10"
    ]  # fmt: skip
    assert "≥" not in rows["free"]


def test_the_programs_of_a_process_that_called_exec_are_counted_as_programs(
    tmp_path: Path,
) -> None:
    made = [busy(pid=7, state=1), refused(pid=7, begin_ns=2 * 10**9, program=b"/bin/other")]
    text = " ".join(shown(gathered(tmp_path, *made)).split())
    assert "In 1 of 2 programs that 1 process ran, the probe saw only" in text


def test_only_an_effect_with_page_faults_is_said_to_contain_those_of_the_program(
    tmp_path: Path,
) -> None:
    """The effect may then be larger than the allocator's share of CPU time."""
    told = {one.name: profile_answer.because(one) for one in find(three_findings(tmp_path))}
    words = "of the CPU time, page faults in the program's code included."
    assert [name for name, text in told.items() if words in text] == ["returns-what-it-needs"]
    assert len(told) == 3


@pytest.mark.parametrize(("mib", "is_told"), [(5, False), (9, False), (11, True)])
def test_unexamined_memory_between_blocks_is_told_only_if_it_may_matter(
    tmp_path: Path, mib: int, is_told: bool
) -> None:
    found = gathered(tmp_path, busy())
    moments = tuple(
        replace(one, resident_bytes=mib * MIB, unasked_bytes=None) for one in found.moments
    )
    told = profile_answer.no_finding(replace(found, moments=moments))
    assert ("its memory between blocks could not be examined" in told) == is_told


def test_an_allocator_whose_block_sizes_are_not_known_is_not_acquitted_of_coarse_ones(
    tmp_path: Path,
) -> None:
    """A library without malloc_usable_size() once had "no known cause", without a restriction."""
    found = gathered(tmp_path, seen(busy()))
    moments = tuple(replace(one, live_usable_bytes=None) for one in found.moments)
    told = profile_answer.no_finding(replace(found, moments=moments))
    but = "But how much larger its blocks are than requested could not be examined."
    assert told.endswith(but)
    small = tuple(replace(one, resident_bytes=9 * MIB) for one in moments)
    assert but not in profile_answer.no_finding(replace(found, moments=small))


def test_nothing_is_said_about_an_allocator_that_could_not_be_examined(tmp_path: Path) -> None:
    made = Made(user_us=0, span_ns=0, state=1)
    made.called("malloc", "small", 3, 10)
    text = " ".join(shown(gathered(tmp_path, made)).split())
    assert (
        "Whether the allocator loses time or memory is not known, because its system calls" in text
    )
    assert "No known cause" not in text


@pytest.mark.parametrize("width", range(40, 120, 7))
def test_the_title_breaks_between_its_parts(tmp_path: Path, width: int) -> None:
    title = profile.render(healthy(tmp_path), View(width=width)).partition("\n\n")[0].splitlines()
    assert all(len(line) <= width for line in title)
    assert " ".join(title).count(" · ") == 5
    assert all(line.endswith(" ·") for line in title[:-1])


def numbers(document: Any) -> Iterator[float]:
    """Yields the numbers of a JSON document, without numbers within its texts."""
    if isinstance(document, bool):
        return
    if isinstance(document, (int, float)):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from numbers(value)
    elif isinstance(document, (list, tuple)):
        for value in document:
            yield from numbers(value)


ANSWERED = ("counts", "cpu_share", "memory", "wall_ns", "cpu_ns", "window")
"""The parts of the JSON document with the numbers of the first screen, beside the findings."""


_TOLD = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?: (ns|µs|ms|s|B|KiB|MiB|GiB|%))?(?![\w.]*\w)")
_FACTORS = {
    "ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    "%": 0.01,
}  # fmt: skip


def told(text: str) -> list[tuple[str, float, float]]:
    """Returns the numbers of the text: as written, the value, and the value of half its last digit.

    The two ends of an interval have the unit of the number before it.
    """
    found, unit = [], ""
    for match in _TOLD.finditer(text):
        digits = match[1].replace(",", "")
        before = text[: match.start()]
        is_end = before.endswith(" to ") or (found and before.endswith(f"{found[-1][0]} ("))
        unit = match[2] or (unit if is_end else "")
        factor = _FACTORS.get(unit, 1.0)
        decimals = len(digits.partition(".")[2])
        found.append((match[0], float(digits) * factor, 0.5001 * 10**-decimals * factor))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_number_of_the_first_screen_is_in_the_json(
    kind: Callable[[Path], Profile], tmp_path: Path
) -> None:
    found = kind(tmp_path)
    document = json.loads(profile_export.document(found, allocator=NAME, cairn="0.1"))
    told_by = {name: document[name] for name in ANSWERED}
    effects = [(one["effect"], one["interval"]) for one in document["findings"]]
    known = [*numbers(told_by), *numbers(effects), SAMPLES_LEAST]
    known += [one["pid"] for one in document["missing"]]
    # The JSON document, too, has the evidence of a finding, a command and a reason as texts.
    # Numbers within these texts are therefore left out.
    texts = [NAME, " ".join(TREE.command), "Linux 5.11", "x86-64"]
    for one in document["findings"]:
        texts += [*one["evidence"], one["advice"]]
    title = shown(found).partition("\n\n")[0]
    groups = answer_of(found).groups[1:]
    whole = " ".join([title, *(one.text for group in groups for one in group)])
    for text in texts:
        whole = whole.replace(text, "")
    # Numbers of advice are not measured: "--runs 5", "kernel.perf_event_paranoid is 2".
    whole = re.sub(r"--runs \d+|perf_event_paranoid is \d", "", whole)
    assert len(told(whole)) >= 3
    for text, value, half in told(whole):
        assert any(abs(value - one) <= half for one in known), text


def test_a_window_with_too_few_samples_gets_advice_that_it_can_follow(tmp_path: Path) -> None:
    """The advice was once --runs, which --duration refuses."""
    told = next(profile_answer.shares(few_in_a_window(tmp_path)))
    assert "--runs" not in told and told.endswith("with a longer --duration.")


def test_without_a_moment_nothing_is_said_about_malloc_usable_size(tmp_path: Path) -> None:
    """An allocator that has it was once said to lack it, if the program was too short."""
    found = estimated_live_bytes(tmp_path)
    lacking = tuple(replace(one, live_usable_bytes=None) for one in found.moments)
    assert "has no malloc_usable_size()" in " ".join(
        profile_answer.memory(replace(found, moments=lacking))
    )
    told = " ".join(profile_answer.memory(replace(found, moments=())))
    assert "is an estimate." in told and "malloc_usable_size" not in told
