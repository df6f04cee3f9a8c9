"""Tests of the report of a profile and of the command `cairn profile`, with invented files.

No program runs.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from support.comparisons import EVIL
from support.probes import Made, busy, locking, refused
from support.widths import at_all_widths

import cairn
from cairn import native, units
from cairn.cli import cli
from cairn.cli import profile as profiling
from cairn.model import Contender
from cairn.profile import reader
from cairn.profile.tally import (
    ClockRun,
    FunctionTime,
    KernelClock,
    Missing,
    Peak,
    Profile,
    Tree,
    Window,
)
from cairn.report import profile, profile_export, profile_tables
from cairn.report.profile_gaps import gaps
from cairn.report.profile_numbers import size_about
from cairn.report.view import View
from cairn.run import foreground
from cairn.run.foreground import Ended
from cairn.run.proof import judge, not_behind
from cairn.run.runner import carried, seen_by

SYSTEM = Contender(name="system", allocator="system", title="glibc 2.36")


TREE = Tree(("prog",), "system", 10**9, 10**9, 0, 0, 0, 0, 0, {}, user_mode_only=False)


def shown(tmp_path: Path, *made: Made, full: bool = False, **about: Any) -> str:
    for one in made:
        one.write(tmp_path)
    return profile.render(reader.gather(tmp_path), View(full=full), **about)


def row(text: str, name: str) -> list[str]:
    """Returns the cells of the first line with that name."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return re.split(r" {2,}|(?<=[sB%]) (?=[\d<–])", line.strip())


def test_refused_counters_are_named_and_not_reported_as_zero(tmp_path: Path) -> None:
    text = " ".join(shown(tmp_path, busy()).split())
    assert "counted, in user mode operations sampled instructions each" in text
    assert re.search(r"reused 57,600 100 60\.0 new|reused 57,600 100 60\.0 free", text)
    assert "▲ Counters within the allocator are not available here: cycles (ENOENT)" in text


def clocked(found: Profile, *runs: ClockRun, **about: Any) -> Profile:
    return replace(found, clock=KernelClock(runs, **about))


RUN = ClockRun(
    probed=True, scope="processors", samples=4_000, own_ns=300e6, calls_ns=40e6, faults_ns=50e6,
    program_ns=600e6, probe_ns=200e6, inside_squares=100e12, squares=250e12, cpu_ns=1.2e9,
    interrupts_ns=10e6,
)  # fmt: skip


def test_the_report_begins_with_the_share_of_cpu_time(tmp_path: Path) -> None:
    busy().write(tmp_path)
    found = clocked(reader.gather(tmp_path), RUN)
    text = profile.render(found, View(full=True))
    assert " ".join(text.split("\n\n")[1].split()) == (
        "The allocator takes 40.0 % (38.5 to 41.6) of the CPU time. No other allocator can save "
        "more than this, unless it makes the program's own code faster, too."
    )
    assert text.count("40.0 %") == 1
    assert row(text, "the allocator's code") == ["the allocator's code", "30.0 %"]
    assert row(text, "its system calls")[1] == "4.0 %"
    assert row(text, "page faults in it")[1] == "5.0 %"
    assert row(text, "interrupts in it")[1] == "1.0 %"
    assert "from 4,000 clock samples of this run, by the kernel's clock of each" in text


HOT = replace(
    RUN,
    functions=(
        FunctionTime("_int_malloc", "libc.so.6", 1_400, 140e6, 49e12),
        FunctionTime("__memset_avx2", "libm.so.6", 100, 100e6, 35e12),
        *(FunctionTime(f"libc.so.6+{n:#x}", "libc.so.6", 10, 20e6 - n, 7e12) for n in range(3)),
    ),
)


def test_the_costliest_functions_have_shares_of_cpu_time(tmp_path: Path) -> None:
    busy().write(tmp_path)
    found = clocked(reader.gather(tmp_path), HOT)
    text = profile.render(found, View(full=True))
    assert row(text, "_int_malloc") == ["_int_malloc", "14.0 %", "12.8 % to 15.3 %"]
    assert row(text, "__memset_avx2 in libm.so.6")[1] == "10.0 %"
    assert row(text, "libc.so.6+0x2")[1] == "2.00 %"
    document = json.loads(profile_export.document(found, allocator=None, cairn="0.1"))
    hot = document["hot_functions"][0]
    assert (hot["name"], hot["library"], hot["samples"]) == ("_int_malloc", "libc.so.6", 1_400)
    assert hot["share"]["value"] == pytest.approx(0.14)
    rows = list(csv.DictReader(io.StringIO(profile_export.rows(found))))
    named = [one["name"] for one in rows if one["table"] == "functions"]
    assert named[:2] == ["_int_malloc in libc.so.6", "__memset_avx2 in libm.so.6"]


def test_beyond_five_functions_the_others_are_added_up(tmp_path: Path) -> None:
    busy().write(tmp_path)
    seven = tuple(FunctionTime(f"f{n}", "libc.so.6", 9, 40e6 - n, 14e12) for n in range(7))
    text = profile.render(clocked(reader.gather(tmp_path), replace(RUN, functions=seven)), View())
    assert row(text, "2 other functions") == ["2 other functions", "8.00 %"]
    assert "f4" in text and "f5" not in text


def test_timers_of_cpu_time_know_no_functions(tmp_path: Path) -> None:
    busy().write(tmp_path)
    assert "functions in its code" not in profile.render(reader.gather(tmp_path), View(full=True))


def test_interrupts_that_cannot_be_told_apart_are_said_to_be_among_page_faults(
    tmp_path: Path,
) -> None:
    busy().write(tmp_path)
    unseen = replace(RUN, faults_ns=60e6, interrupts_ns=None, interrupts_unseen="they are hidden")
    text = profile.render(clocked(reader.gather(tmp_path), unseen), View(full=True))
    assert row(text, "page faults and interrupts in it")[1] == "6.0 %"
    assert "interrupts in it" not in text.replace("page faults and interrupts in it", "")
    assert "interrupts: not measured (they are hidden)" in text


def test_too_few_samples_are_said_before_the_tables(tmp_path: Path) -> None:
    busy().write(tmp_path)
    found = clocked(reader.gather(tmp_path), replace(RUN, samples=41))
    text = " ".join(profile.render(found, View()).split("counted")[0].split())
    assert (
        "The allocator's share of CPU time is not known: there are only 41 clock samples of the "
        "program's CPU time, and 200 are needed. Use --runs 5 or a longer run." in text
    )


def test_without_the_kernels_clock_the_few_samples_are_said_first(tmp_path: Path) -> None:
    made = busy()
    made.sampled(300, 60)
    made.write(tmp_path)
    why = "the kernel does not allow clock samples here: Permission denied"
    found = clocked(reader.gather(tmp_path), why_not=why)
    text = " ".join(profile.render(found, View()).split("CPU time share")[0].split())
    assert "The allocator takes 20.0 % (15.8 to 24.9) of the CPU time." in text
    assert (
        f"▲ The {why[4:]}, so the probe's own timers took the samples: only 300. Root may take "
        "clock samples, and all users may if kernel.perf_event_paranoid is 2 or less." in text
    )


def test_a_share_of_the_kernels_clock_has_no_warning_about_timers(tmp_path: Path) -> None:
    busy().write(tmp_path)
    found = clocked(reader.gather(tmp_path), RUN, why_not="a later run had no clock")
    assert "the probe's own timers" not in profile.render(found, View())


@pytest.mark.parametrize(
    ("run", "about", "words"),
    [
        (
            replace(RUN, scope="threads"),
            {},
            "less than a millisecond have too few of the clock samples",
        ),
        (RUN, {"is_unlike": True}, "So only its first run counts."),
        (replace(RUN, probed=False), {}, "of 1 run without the probe"),
        (replace(RUN, unknown_ns=50e6), {}, "not attributed 4.8 %"),
    ],
)
def test_notes_say_what_is_wrong_with_the_clock_samples(
    tmp_path: Path, run: ClockRun, about: dict[str, Any], words: str
) -> None:
    busy().write(tmp_path)
    found = clocked(reader.gather(tmp_path), run, **about)
    assert words in " ".join(profile.render(found, View(full=True)).split())


@pytest.mark.parametrize("full", [False, True])
def test_the_report_of_a_profile_is_golden(
    full: bool, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """One program has locks and CPU timers. The system calls of the other one were not seen."""
    made = locking()
    made.timed_alone("reused", "small", [90] * 300)
    made.moments(
        (4_000_000, 1 << 20, 2 << 20, 9 << 20, 1 << 20, 1 << 19, 0),
        (8_000_000, 12 << 20, 16 << 20, 28 << 20, 3 << 20, 2 << 20, 4 << 20),
    )
    made.sampled(1000, 350, own=160)
    made.write(tmp_path)
    refused(pid=200, begin_ns=1_500_000_000, program=b"/usr/bin/other").write(tmp_path)
    found = clocked(replace(reader.gather(tmp_path), machine="x86_64"), RUN)
    golden(
        "profile-full" if full else "profile",
        at_all_widths(lambda view: profile.render(found, view), full=full),
    )


def test_the_sentence_on_missing_processes_is_golden(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    busy().write(tmp_path)
    few = (Missing(812, "prog", "EFBIG"), Missing(813, "prog", "EFBIG"))
    each = tuple(
        Missing(pid, "unseen", why)
        for pid, why in enumerate(
            ("static", "setuid", "other class", "own allocator", "environment", "unknown",
             "silent", "EACCES"), 20
        )
    )  # fmt: skip
    many = (
        *(Missing(300 + k, "busybox", "static") for k in range(1_200)),
        *(Missing(k, f"tool{k}", "setuid") for k in range(30, 36)),
        *[Missing(0, "", "")] * 3,
    )
    parts = []
    for missing in (few, *((one,) for one in each), many):
        reader.write_tree(tmp_path, replace(TREE, missing=missing))
        text = profile.render(reader.gather(tmp_path), View(width=80))
        (told,) = re.findall(r"^ *▲ [^▲]*missing:[^▲]*?\.$", text, re.MULTILINE)
        parts.append(told)
    golden("profile-missing", "\n\n".join(parts) + "\n")


def test_the_first_lines_of_the_report_name_what_was_profiled(tmp_path: Path) -> None:
    first = shown(
        tmp_path, busy(), busy(pid=2, begin_ns=2, program=b"/bin/other"), allocator="glibc 2.36"
    )
    says = (
        "profile  /bin/other and 1 other · glibc 2.36 · 2 processes · 2 threads · recorded for "
        "2.00 s · CPU 1.80 s"
    )
    assert " ".join(first.split()).startswith(" ".join(says.split()))


def test_the_report_has_counts_times_system_calls_and_memory(tmp_path: Path) -> None:
    text = shown(tmp_path, busy(), full=True)
    assert row(text, "malloc")[1:4] == ["64,010", "64,010", "0"]
    for name in (
        "new",
        "reused",
        "calloc",
        "free, local",
        "free, remote",
        "TOTAL",
    ):
        assert row(text, name)
    assert "realloc" not in text
    assert "munmap" in text
    assert "madvise" not in text
    assert "getrandom 2, 1 more" in text
    held = (
        "the allocator held up to 16.0 MiB from the kernel, and the resident set reached 30.0 MiB."
    )
    assert held in " ".join(text.split())
    assert "2,220 of 140,820 operations were timed" in text


def test_the_numbers_of_local_and_remote_frees_are_marked_if_they_are_estimates(
    tmp_path: Path,
) -> None:
    """Of a program with threads, only the timed frees are known to be local or remote.

    "53,482 and 96,518" was once reported of 50,000 local and 100,000 remote frees.
    """
    made = busy()
    made.start["threads_most"] = 2
    text = shown(tmp_path, made)
    found = [row(text, f"free, {whose}")[-6:] for whose in ("local", "remote")]
    for cells, number in zip(found, ("≈ 63,000", "≈ 7,000"), strict=True):
        assert number in cells


def small_blocks(frees: int, timed: int, remote: int, threads: int) -> Made:
    """Returns the file of a program that frees small blocks, and one large one.

    `timed` frees of small blocks were timed. Of these, `remote` were remote.
    """
    made = Made()
    made.start["threads_most"] = threads
    made.called("malloc", "small", frees, 100)
    made.called("malloc", "large", 1, 1 << 20)
    made.timed("reused", "large", [9_000])
    made.released("free", frees + 1)
    for kind, number in (("free, local", timed - remote), ("free, remote", remote)):
        if number:
            made.timed(kind, "small", [30] * number)
    made.timed("free, local", "large", [5_000])
    return made


def test_frees_of_one_thread_are_local_although_none_was_timed(tmp_path: Path) -> None:
    """Of 69 frees, "free, local 1" was once reported as an exact number."""
    made = small_blocks(68, 0, 0, threads=1)
    text = shown(tmp_path, made, full=True)
    assert "69" in row(text, "free, local")
    assert "138" in row(text, "TOTAL") and "69" in row(text, "reused")
    found = reader.gather(tmp_path)
    document = json.loads(profile_export.document(found, allocator="x", cairn="1"))
    counts = {one["name"]: one["operations"] for one in document["lines"]}
    assert counts == {"reused": 69, "free, local": 69, "TOTAL": 138}
    assert document["remote_share"]["value"] == document["remote_share"]["interval"]["high"] == 0
    # The untimed frees may be of small or of medium blocks.
    paths = {(one["kind"], one["group"]): one for one in document["paths"]}
    for group in ("small", "medium"):
        path = paths["free, local", group]
        assert path["operations"] is None
        assert (path["operations_low"], path["operations_high"]) == (0, 68)
    assert "0 to 68" in row(text, "free, local, small, serial")


def test_untimed_frees_of_several_threads_may_be_local_or_remote(tmp_path: Path) -> None:
    text = shown(tmp_path, small_blocks(68, 0, 0, threads=2), full=True)
    assert "1 to 69" in row(text, "free, local") and "0 to 68" in row(text, "free, remote")
    assert "not measured" in row(text, "freed by another thread")
    found = reader.gather(tmp_path)
    document = json.loads(profile_export.document(found, allocator="x", cairn="1"))
    lines = {one["name"]: one for one in document["lines"]}
    assert lines["free, local"]["operations"] is None
    assert (lines["free, remote"]["operations_low"], lines["free, remote"]["operations_high"]) == (
        0,
        68,
    )
    assert lines["TOTAL"]["operations"] == 138
    table = list(csv.DictReader(io.StringIO(profile_export.rows(found))))
    (local,) = (one for one in table if (one["table"], one["name"]) == ("timed", "free, local"))
    assert (local["operations"], float(local["operations_high"])) == ("", 69)


def test_a_mean_of_two_operations_is_not_shown(tmp_path: Path) -> None:
    text = shown(tmp_path, small_blocks(68, 2, 0, threads=1), full=True)
    assert row(text, "free, local, small, serial")[-2:] == ["–", "–"]
    # Every operation on large blocks was timed.
    assert row(text, "free, local, large, serial")[-2:] == ["5.00 µs", "–"]


def test_few_timed_frees_give_an_interval_and_no_number(tmp_path: Path) -> None:
    """3 of 10,000 frees were timed, and one of them was remote."""
    text = shown(tmp_path, small_blocks(10_000, 3, 1, threads=2))
    assert "2,100 to 9,400" in row(text, "free, local")
    assert "610 to 7,900" in row(text, "free, remote")


def test_memory_of_a_process_that_was_cut_short_is_a_lower_bound(tmp_path: Path) -> None:
    """The allocator held what was live, though the last look at its memory was before the end.

    "held up to 3.46 MiB" was once reported beside 6.68 MiB of live blocks.
    """
    made = busy(state=1)
    made.live(30 << 20, 8 << 10, (30 << 20, 29 << 20, 0))
    text = " ".join(shown(tmp_path, made, full=True).split())
    assert "the allocator held at least 30.0 MiB from the kernel" in text
    assert "the resident set reached at least 30.0 MiB." in text


def test_the_most_memory_that_was_held_may_lie_between_two_moments(tmp_path: Path) -> None:
    """A program that allocates 300 MiB, computes and frees them has few moments.

    "held up to 200 MiB" was once reported beside 300 MiB of live blocks.
    """
    made = busy()
    made.live(300 << 20, 8 << 10, (300 << 20, 300 << 20, 0))
    made.start["held_most"] = 301 << 20
    text = " ".join(shown(tmp_path, made).split())
    assert "the allocator held up to 301 MiB from the kernel" in text
    old = {"version": reader.BEFORE, "head_bytes": 4120}
    made.head = old
    text = " ".join(shown(tmp_path, made).split())
    assert "the allocator held at least 300 MiB from the kernel" in text


def test_memory_held_without_dispatch_is_a_least_value(tmp_path: Path) -> None:
    """Calls of `mremap` and direct system calls are not seen then. It once said "up to 301 MiB"."""
    made = busy(dispatch=2)
    made.live(300 << 20, 8 << 10, (300 << 20, 300 << 20, 0))
    made.start["held_most"] = 301 << 20
    text = " ".join(shown(tmp_path, made).split())
    assert "the allocator held at least 301 MiB from the kernel" in text


def test_full_adds_size_phase_lives_and_time(tmp_path: Path) -> None:
    short, full = (shown(tmp_path, busy(), full=full) for full in (False, True))
    for words in ("reused, small, serial", "half lived", "over time  "):
        assert words not in short
        assert words in full


@pytest.mark.parametrize("moments", [2, 12, 13, 23, 25, 100, 384])
def test_tables_over_time_end_with_the_last_moment(tmp_path: Path, moments: int) -> None:
    """The rows once left out the last moments, so that the calls did not add up."""
    made = busy()
    made.moments(*((n * 10**6, n << 20, n << 21, n << 22) for n in range(1, moments + 1)))
    made.write(tmp_path)
    found = reader.gather(tmp_path)
    memory, calls = (
        profile_tables.table_named(found, title) for title in ("over time", "calls over time")
    )
    assert memory is not None and calls is not None
    assert len(memory.rows) == len(calls.rows) <= 12
    assert memory.rows[-1][1].text == f"≈ {units.size(moments << 20)}"
    assert sum(int(row[1].text.replace(",", "")) for row in calls.rows) == 10 * moments


def number_of(text: str) -> list[int]:
    """Returns the numbers in the first sentence about missing processes."""
    told = re.search(r"([\d,]+) of ([\d,]+) processe?s? (?:is|are) missing", text)
    assert told is not None, text
    return [int(one.replace(",", "")) for one in told.groups()]


@pytest.mark.parametrize("is_window", [False, True])
def test_the_document_counts_missing_processes_as_its_sentences_do(
    tmp_path: Path, is_window: bool
) -> None:
    """Process 100 executed a static program twice, and 7 and two others have no record at all.

    The document once said that 3 processes are known, that one was cut short and that none was,
    and in a window that none is missing.
    """
    missing = (
        Missing(100, "st", "static"), Missing(100, "st", "static"), Missing(100, "busybox", "static"),
        Missing(7, "st", "static"), Missing(0, "", ""), Missing(0, "", ""),
    )  # fmt: skip
    made = busy(state=1)
    made.write(tmp_path)
    busy(pid=300, begin_ns=2 * 10**9, state=1).write(tmp_path)
    busy(pid=301, begin_ns=3 * 10**9).write(tmp_path)
    tree = replace(TREE, missing=() if is_window else missing)
    window = Window(10**9, 4 * 10**9, 0, missing) if is_window else None
    found = replace(reader.gather(tmp_path, tree=tree), window=window)
    shown = json.loads(profile_export.document(found, allocator="x", cairn="1"))
    counts = shown["counts"]
    assert (counts["processes"], counts["processes_missing"]) == (3, 4)
    assert counts["processes_with_missing"] == 6
    assert counts["cut_short"] == len(shown["cut_short"]) == 1
    assert number_of(shown["not_known"][0]) == [4, 6]
    assert "st (100, 7) is linked statically" in shown["not_known"][0]


def test_one_process_is_one_process(tmp_path: Path) -> None:
    busy(state=1).write(tmp_path)
    tree = replace(TREE, missing=(Missing(100, "st", "static"),))
    found = reader.gather(tmp_path, tree=tree)
    assert "1 of 1 process is missing: st (100)" in " ".join(profile.render(found, View()).split())


def test_a_missing_value_is_reported_as_not_measured_and_never_as_zero(tmp_path: Path) -> None:
    made = Made(user_us=0, span_ns=0)
    made.called("malloc", "small", 3, 10)
    made.start["dispatch"] = 3
    made.dispatch = 3
    made.start["peak_resident_bytes"] = 0
    text = shown(tmp_path, made, full=True)
    assert (
        "The allocator's share of CPU time is not known: the program's CPU time has no clock "
        "samples." in " ".join(text.split())
    )
    assert "wall not measured · CPU not measured" in text
    for name in (
        "usable bytes",
        "page faults in the",
        "page faults in total",
    ):
        assert row(text, name)[-1] == "not measured", name
    words = " ".join(text.split())
    assert (
        "the peak of live blocks, the memory that the allocator held, and the resident memory were "
        "not measured." in words
    )
    assert "The allocator's system calls were not counted." in words
    assert not re.search(r"(?<![\d.,])0 (ns|B)", text)


def test_system_calls_that_the_program_dispatches_itself_are_told(tmp_path: Path) -> None:
    """Once, all system calls were said to be seen, or Linux 5.11 was said to help."""
    partly, refusing = busy(), refused()
    for made in (partly, refusing):
        made.start["dispatch_errno"] = errno.EBUSY
    text = " ".join(shown(tmp_path, partly, full=True).split())
    assert "all were seen" not in text
    assert "The system calls of some threads were not counted, because the program itself" in text
    (sentence,) = (one for one in gaps(reader.gather(tmp_path)) if "dispatch" in one)
    assert sentence.endswith("itself dispatches them (syscall user dispatch).")
    text = " ".join(shown(tmp_path, refusing).split())
    assert "syscall user dispatch was refused (the program uses it itself)." in text
    assert "Linux 5.11" not in text


def test_a_time_below_the_clocks_resolution_is_reported_as_less_than_that(tmp_path: Path) -> None:
    made = Made()
    made.called("malloc", "small", 6_400, 100)
    made.timed("reused", "small", [0] * 100)
    text = shown(tmp_path, made)
    assert "< 2.00 ns" in text
    assert "0 ns" not in text.replace("2.00 ns", "")


def test_notes_name_the_limits_of_the_numbers(tmp_path: Path) -> None:
    made = refused(state=1)
    made.start["threads_lost"] = 2
    made.start["late_calls"][0, 0] = 4
    made.start["failed"][0, 2] = 1
    made.samples["times"]["switched"][0, 6] = 3
    made.called("memalign", "small", 10, 64)
    made.kernel("futex wait", 2, 900_000)
    (tmp_path / "9.9.probe").touch()
    text = " ".join(
        shown(
            tmp_path, made, busy(pid=2, begin_ns=2, allocator=b"/opt/libje.so"), full=True
        ).split()
    )
    for words in (
        "In 1 of 2 processes, the probe saw only the allocator's calls of libc's mmap, munmap, "
        "madvise, mprotect and sbrk, because syscall user dispatch was refused (EINVAL). It needs "
        "Linux 5.11 or later on x86-64.",
        "1 process ended without a normal exit, or executed a program that allocates nothing "
        "(/usr/bin/prog). Calls and live bytes were counted until then, and other memory until "
        "shortly before.",
        "1 process left no counts",
        "2 threads could not be counted, because the probe could not lengthen its file: the disk is "
        "full, or the program has a filter of system calls (seccomp).",
        "4 calls by ending threads are not timed, and their phase (serial or parallel) and block "
        "size are not known.",
        "Failed calls: 1 of realloc.",
        "3 timed operations were preempted",
        "10 operations, because no operation of their kind was timed (aligned)",
        "contain 1.80 ms of waiting in system calls",
        "waiting system calls: futex wait 2; libc's own locks show only here",
        "The processes called different allocators: /opt/libje.so, "
        "/lib/x86_64-linux-gnu/libc.so.6.",
    ):
        assert words in text, words
    assert all(sentence.endswith(".") for sentence in gaps(reader.gather(tmp_path)))


def test_the_report_has_a_table_of_lock_waits_if_the_allocator_takes_locks(tmp_path: Path) -> None:
    assert "mutex" not in shown(tmp_path, busy())
    text = shown(tmp_path, locking())
    assert row(text, "mutex")[1:] == ["40,000", "100", "349 µs", "250 µs", "150 ns", "7"]
    assert row(text, "spin lock")[1:] == ["300", "0", "0 ns", "0 ns", "150 ns", "0"]
    assert "read-write" not in text
    text = shown(tmp_path, locking(), full=True)
    assert "threads waited for 2 different locks" in text


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil = EVIL.encode() + b"\n\xff"
    text = shown(tmp_path, busy(program=evil, allocator=evil, state=1), full=True)
    assert "\\x1b" in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_json_has_everything(tmp_path: Path) -> None:
    locking(program=b"/p/\xff").write(tmp_path)
    found = json.loads(
        profile_export.document(clocked(reader.gather(tmp_path), RUN), allocator=None, cairn="0.1")
    )
    assert (found["cairn"], found["allocator"], found["operations"]) == (
        "0.1",
        "libc.so.6",
        140_820,
    )
    share = found["cpu_share"]
    assert (share["value"], share["clock"], share["samples"], share["runs"]) == (
        0.4,
        "processors",
        4_000,
        1,
    )
    assert share["interval"]["low"] < 0.4 < share["interval"]["high"]
    total = found["lines"][-1]
    assert (total["name"], total["timed"]) == ("TOTAL", 2220)
    assert found["functions"][0]["by"][0] == {
        "phase": "serial",
        "group": "small",
        "calls": 64_000,
        "bytes": 6_400_000,
    }
    assert [one["name"] for one in found["kernel_calls"]] == ["munmap", "mmap", "other"]
    assert len(found["moments"]) == 2
    assert found["processes"][0]["pid"] == 100
    assert (found["locks"][0]["contended"], found["contended_locks"]) == (100, 2)


def test_csv_has_a_row_for_each_line_and_nothing_a_spreadsheet_runs(tmp_path: Path) -> None:
    locking().write(tmp_path)
    found = clocked(reader.gather(tmp_path), RUN)
    rows = list(csv.DictReader(io.StringIO(profile_export.rows(found))))
    assert {row["table"] for row in rows} == {
        "cpu time",
        "counted",
        "timed",
        "paths",
        "kernel",
        "locks",
        "counters",
    }
    (total,) = [row for row in rows if row["name"] == "TOTAL" and row["table"] == "timed"]
    (events,) = [row for row in rows if row["name"] == "reused" and row["table"] == "counters"]
    assert (events["event"], events["timed"], float(events["events"])) == (
        "instructions",
        "100",
        57_600 * 60,
    )
    assert total["total_ns"] == ""
    share = next(row for row in rows if row["name"] == "allocator")
    assert float(share["share_low"]) < float(share["share"]) == 0.4 < float(share["share_high"])
    (other,) = [row for row in rows if row["name"] == "other"]
    assert other["bytes"] == ""
    mutex, _, different = [row for row in rows if row["table"] == "locks"]
    assert (mutex["operations"], mutex["contended"], mutex["failed"], mutex["mean_ns"]) == (
        "40000",
        "100",
        "7",
        "3490.0",
    )
    assert (different["contended"], different["operations"]) == ("2", "")


# --- the command ---


class Called:
    """Calls the command `cairn profile`. No program runs, and the command finds invented files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Made] = [busy()]
        self.ended = Ended(exit_code=0, problem=None, left_behind=0)
        self.told: dict[str, str] = {}
        monkeypatch.setattr(foreground, "run", self._run)
        monkeypatch.setattr(profiling, "contender_for", lambda *_: SYSTEM)

    def _run(self, *_: object, probe: dict[str, str], ours: object, **__: object) -> Ended:
        assert ours == {}
        self.told = probe
        for made in self.made:
            made.write(Path(probe["CAIRN_PROBE"]))
        return self.ended

    def __call__(self, *args: object) -> Any:
        result = CliRunner().invoke(cli, ["profile", *map(str, args)])
        # main() takes the exit code from the exception in the same way.
        result.exit_code = getattr(result.exception, "exit_code", result.exit_code)
        return result


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    return Called(monkeypatch)


def test_the_report_goes_to_stderr_and_the_exit_code_is_that_of_the_program(called: Called) -> None:
    called.ended = replace(called.ended, exit_code=3)
    result = called("--gap", 16, "--kernel-calls", "off", "--", "prog")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "glibc 2.36" in result.stderr
    assert "The allocator's share of CPU time is not known" in result.stderr
    assert (called.told["CAIRN_PROBE_GAP"], called.told["CAIRN_PROBE_KERNEL"]) == ("16", "off")
    assert not Path(called.told["CAIRN_PROBE"]).exists()


def test_kept_files_are_reported_again_on_stdout(called: Called, tmp_path: Path) -> None:
    keep = tmp_path / "a b:c"
    result = called("--keep", keep, "--", "prog")
    assert result.exit_code == 0, result.stderr
    assert keep.stat().st_mode & 0o077 == 0
    again = called("--read", keep)
    assert again.exit_code == 0
    assert again.stdout.splitlines()[-1] == result.stderr.splitlines()[-1]
    assert called("--keep", keep, "--", "prog").exit_code == 2
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert called("--keep", tmp_path / "link", "--", "prog").exit_code == 2


def test_json_and_csv_are_written_to_the_given_files(called: Called, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = called("--json", "-", "--csv", out, "--", "prog")
    assert json.loads(result.stdout)["cairn"] == cairn.__version__
    assert out.read_text().startswith("table,name,")
    assert called("--csv", out, "--", "prog").exit_code == 125
    assert called("--force", "--csv", out, "--", "prog").exit_code == 0
    assert called("--json", "-", "--csv", "-", "--", "prog").exit_code == 2


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--read", "x", "--", "prog"],
        ["--read", "x", "--duration", "1s"],
        ["--gap", "0", "--", "p"],
        ["--read", "/nowhere"],
        ["--delay", "1s", "--signal", "USR1", "--", "p"],
        ["--delay", "1s", "--layout", "sampled", "--", "p"],
        ["--duration", "1s", "--layout", "exact", "--", "p"],
        ["--signal", "TERM", "--", "p"],
        ["--overhead", "--keep", "x", "--", "p"],
        ["--overhead", "--duration", "1s", "--", "p"],
        ["--overhead", "--runs", "2", "--", "p"],
        ["--runs", "2", "--duration", "1s", "--", "p"],
        ["--runs", "0", "--", "p"],
    ],
)
def test_wrong_arguments_are_usage_errors(called: Called, args: list[str]) -> None:
    assert called(*args).exit_code == 2


def test_without_proof_there_is_no_report(called: Called) -> None:
    called.ended = replace(called.ended, problem="in p malloc belongs to q")
    result = called("--", "prog")
    assert result.exit_code == 126
    assert "belongs to q" in result.stderr
    assert "CPU time" not in result.stderr
    called.ended = replace(called.ended, problem=None)
    called.made = [busy(), busy(pid=7, allocator=b"/opt/libother.so")]
    result = called("--", "prog")
    assert result.exit_code == 126
    assert "calls the malloc of /opt/libother.so, not that of glibc 2.36" in result.stderr
    assert "CPU time" not in result.stderr


def test_a_program_that_left_nothing_is_one_sentence(called: Called) -> None:
    called.made = []
    result = called("--", "prog")
    assert result.exit_code == 125
    assert "no process of the program allocated memory" in result.stderr
    called.ended = replace(called.ended, exit_code=4)
    assert called("--", "prog").exit_code == 4


def test_the_probe_is_preloaded_before_the_allocator_whose_load_is_still_proved(
    monkeypatch, tmp_path: Path
) -> None:
    library = tmp_path / "a b" / "libcairn-probe.so"
    library.parent.mkdir()
    library.touch()
    monkeypatch.setattr(native, "probe", lambda: library)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for owners in ((), ("/opt/liballoc.so",)):
        contender = replace(SYSTEM, preload=owners, owners=owners, build_id="00", probed=True)
        probed, resolve = carried(contender, scratch), seen_by(contender)
        assert probed.preload == (str(scratch / "libcairn-probe.so"), *owners)
        record = {
            "v": 1,
            "event": "start",
            "pid": 1,
            "exe": "/p",
            "malloc": {"path": probed.preload[0], "build_id": "11"},
        }
        assert judge(json.dumps(record).encode(), probed, 1, resolve).problem is None
        record["malloc"] = {"path": "/opt/libother.so", "build_id": None}
        assert judge(json.dumps(record).encode(), probed, 1, resolve).problem is not None
    assert not_behind(SYSTEM, "/p", "/lib/libc.so.6", str) is None
    assert "an unknown object" in str(not_behind(SYSTEM, "/p", "", str))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(900, 1200, "1,000 B (900 to 1,200)"), (1000, 1000, "1000 B"), (1200, 900, "1000 B")],
)
def test_an_interval_of_a_size_that_is_empty_or_damaged_is_left_out(
    low: int, high: int, text: str
) -> None:
    assert size_about(Peak(1000, low, high)) == text
