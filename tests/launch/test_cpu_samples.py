"""Tests of the launcher's clock samples, with programs that know where they spend their time."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launching import Launch
from support.tries import one_right_try_of

from cairn.clock_samples import CpuSamples
from cairn.model import Contender
from cairn.profile import code_owners, cpu_samples

PLACES = ("own", "calls", "faults", "others", "program")


def noted(file: Path, allocator: code_owners.AllocatorCode) -> CpuSamples:
    """Returns the clock samples of the file, divided into parts.

    Skips the test if the kernel does not permit clock samples.
    """
    found, why = cpu_samples.read(file, allocator)
    if found is None:
        assert "does not allow clock samples here" in why
        pytest.skip(why)
    return found


def all_of(found: CpuSamples) -> float:
    """Returns the time of all clock samples together, in nanoseconds."""
    notes = found.own + found.calls + found.faults + found.others + found.program + found.unknown
    notes += found.interrupts or 0
    return float(notes * found.period_ns)


@pytest.fixture(scope="session")
def library(compiled: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that takes the place of the allocator, at the path at which programs load it."""
    made = compiled("cpu_places.c", "-shared", "-DLIBRARY_ONLY", "-Wl,-soname,libplaces.so")
    return Path(shutil.copy(made, tmp_path_factory.mktemp("library") / "libplaces.so"))


@pytest.fixture(scope="session")
def program(compiled: Callable[..., Path], library: Path) -> str:
    return str(
        compiled("cpu_places.c", "-Wl,--no-as-needed", str(library), f"-Wl,-rpath,{library.parent}")
    )


@one_right_try_of(4)
def test_each_place_gets_the_time_that_was_spent_there(
    launch: Launch, library: Path, program: str, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    outcome = launch("--cpu-samples", str(file), "--", program, "150")
    found = noted(file, code_owners.AllocatorCode(frozenset({str(library.resolve())})))
    spent = dict(zip(PLACES, map(int, outcome.out.split()), strict=True))
    seen = {place: getattr(found, place) * found.period_ns for place in PLACES}
    for place in ("own", "calls", "program"):
        assert seen[place] == pytest.approx(spent[place], rel=0.2, abs=10e6), place
    # The program also returns the pages that it touched. This system call takes at least a tenth of
    # the time of the page faults. So the test compares the sum of both parts.
    in_kernel = spent["faults"] + spent["others"]
    assert seen["faults"] + seen["others"] == pytest.approx(in_kernel, rel=0.2, abs=10e6)
    assert seen["faults"] > 0.5 * spent["faults"] and seen["others"] > 0.8 * spent["others"]
    assert found.unknown * found.period_ns < 10e6
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@one_right_try_of(4)
def test_the_time_in_which_the_kernel_enters_and_leaves_short_calls_is_time_in_these_calls(
    launch: Launch, library: Path, program: str, tmp_path: Path
) -> None:
    """Interrupts are off in that time, so its samples come at the instruction after the call.

    It is about half of a call that does nothing else.
    """
    file = tmp_path / "notes"
    outcome = launch("--cpu-samples", str(file), "--", program, "200", "calls")
    found = noted(file, code_owners.AllocatorCode(frozenset({str(library.resolve())})))
    assert found.calls * found.period_ns == pytest.approx(int(outcome.out), rel=0.2)
    assert found.own <= 0.15 * found.calls


@one_right_try_of(4)
def test_work_of_libc_belongs_to_the_allocator_that_jumped_to_it(
    launch: Launch, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    """The stack then has only the program's address, after its call of the allocator."""
    library = compiled("calls_at_end.c", "-shared", "-DLIBRARY_ONLY")
    program = compiled("calls_at_end.c", "-Wl,--no-as-needed", str(library))
    file = tmp_path / "notes"
    outcome = launch("--cpu-samples", str(file), "--", str(program), "200")
    found = noted(file, code_owners.AllocatorCode(frozenset({str(library.resolve())})))
    own, others = map(int, outcome.out.split())
    assert found.own * found.period_ns == pytest.approx(own, rel=0.2)
    assert found.program * found.period_ns == pytest.approx(others, rel=0.25, abs=10e6)


def test_time_in_a_library_of_the_program_does_not_count_for_the_allocator(
    launch: Launch, program: str, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    launch("--cpu-samples", str(file), "--", program, "200")
    found = noted(file, code_owners.AllocatorCode(frozenset({"/nowhere"})))
    # The program's start and its output allocate a little from libc.
    assert found.own + found.calls <= 0.02 * found.program


@pytest.mark.parametrize(("kind", "turns"), [("sin", 100_000), ("clock", 60_000)])
def test_a_return_address_of_an_earlier_free_is_not_the_caller_of_a_library(
    launch: Launch, compiled: Callable[..., Path], tmp_path: Path, kind: str, turns: int
) -> None:
    """The allocator once got the time of libm and of the vDSO: 87 % instead of 3 %."""
    program = compiled("libraries_after_free.c", "-O2", "-Wl,--no-as-needed", "-lm")
    file = tmp_path / "notes"
    launch("--cpu-samples", str(file), "--", str(program), kind, str(turns))
    found = noted(file, code_owners.AllocatorCode(frozenset()))
    assert found.program > 30
    assert found.own + found.calls <= 0.2 * found.program


def test_a_program_that_only_computes_has_interrupts_and_no_page_faults(
    launch: Launch, hold: str, tmp_path: Path
) -> None:
    """Without page faults, each sample in the kernel outside system calls is in an interrupt.

    The start of a process has page faults. In 20 runs of this one process, 0.15 samples per run
    were in them. The second lowest of three values counts, because other processes disturb single
    runs.
    """
    file = tmp_path / "notes"
    faults, interrupts = [], []
    for _ in range(3):
        launch("--cpu-samples", str(file), "--", hold, "spin", "0", "900")
        found = noted(file, code_owners.AllocatorCode(frozenset()))
        if found.interrupts is None:
            pytest.skip(found.interrupts_unseen)
        faults.append(found.faults)
        interrupts.append(found.interrupts / found.program)
    assert sorted(faults)[1] <= 3, faults
    # Beside other load, 0.12 were seen.
    assert sorted(interrupts)[1] <= 0.25, interrupts


@one_right_try_of(4)
def test_the_clock_samples_add_up_to_the_cpu_time_of_the_tree(
    launch: Launch, hold: str, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    report = launch("--cpu-samples", str(file), "--", hold, "spinners", "0", "200").told
    found = noted(file, code_owners.AllocatorCode(frozenset()))
    assert all_of(found) == pytest.approx(
        report["user_ns"] + report["system_ns"], rel=0.05, abs=10e6
    )


@one_right_try_of(4)
def test_short_processes_and_threads_have_their_share_of_clock_samples(
    launch: Launch, library: Path, program: str, tmp_path: Path
) -> None:
    """Each process and thread lives for less than one period of the clock.

    A clock that starts with each thread would give no sample, or would give one at the same moment
    of each thread's life. The processor's clock must give each part its share.

    The program cannot measure how long its many threads take to begin and end. On a busy machine,
    the clock samples of one run had 24 % more time than the program reported. So the test allows a
    difference of 40 %.
    """
    file = tmp_path / "notes"
    outcome = launch("--cpu-samples", str(file), "--", program, "400", "short")
    found = noted(file, code_owners.AllocatorCode(frozenset({str(library.resolve())})))
    told, (own, others) = outcome.told, map(int, outcome.out.split())
    assert all_of(found) == pytest.approx(told["user_ns"] + told["system_ns"], rel=0.2, abs=10e6)
    assert found.own * found.period_ns == pytest.approx(own, rel=0.4, abs=10e6)
    assert found.program * found.period_ns == pytest.approx(others, rel=0.4, abs=10e6)


def test_clock_samples_cost_little_in_a_program_that_sleeps_often(
    launch: Launch, program: str, tmp_path: Path
) -> None:
    """With timers that stop and start at each sleep, the program once took a third more CPU time.

    The second lowest of five ratios counts, because other processes disturb single runs.
    """
    ratios = []
    for _ in range(5):
        with_clock = launch(
            "--cpu-samples", str(tmp_path / "notes"), "--", program, "3000", "sleeps"
        ).told
        without = launch("--", program, "3000", "sleeps").told
        ratios.append(
            (with_clock["user_ns"] + with_clock["system_ns"])
            / (without["user_ns"] + without["system_ns"])
        )
    assert sorted(ratios)[1] < 1.2, ratios


def test_sleeps_of_the_allocator_count_as_its_system_calls(
    launch: Launch, library: Path, program: str, tmp_path: Path
) -> None:
    """A sleep of the allocator is one of its system calls.

    Few sleeps get a clock sample, because the kernel mostly has interrupts off when a sleep begins
    or ends.
    """
    file = tmp_path / "notes"
    launch("--cpu-samples", str(file), "--", program, "60000", "library-sleeps")
    found = noted(file, code_owners.AllocatorCode(frozenset({str(library.resolve())})))
    if found.calls + found.others < 20:
        pytest.skip(f"only {found.calls + found.others} clock samples (20 needed)")
    assert found.calls > found.others


def test_the_systems_allocator_is_found_in_libc(
    launch: Launch, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    launch("--cpu-samples", str(file), "--", str(compiled("churn.c")), "3000000")
    found = noted(file, code_owners.AllocatorCode(frozenset()))
    assert found.own > 0.1 * (found.own + found.program)


def test_an_unwritable_file_of_clock_samples_is_reported_before_the_program_starts(
    launch: Launch, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    outcome = launch("--cpu-samples", str(tmp_path / "none" / "notes"), "--", "touch", str(touched))
    assert outcome.code == 125 and "cannot write" in outcome.err and outcome.err.count("\n") == 1
    assert not touched.exists()


def test_libraries_in_the_folder_of_an_allocator_that_it_needs_belong_to_it(
    compiled: Callable[..., Path], library: Path, tmp_path: Path
) -> None:
    """The preloaded library of TBB's allocator is a proxy.

    Another library in the same folder does the work, so its code is the allocator's, too.
    """
    beside = Path(shutil.copy(library, tmp_path))
    made = compiled("forward_malloc.c", "-shared", "-Wl,--no-as-needed", str(beside))
    proxy = Path(shutil.copy(made, tmp_path / "proxy.so"))
    own = code_owners.AllocatorCode.of(Contender("proxy", "custom", "proxy", preload=(str(proxy),)))
    assert own.files == {str(proxy), str(beside)}
    linked = code_owners.AllocatorCode.of(
        Contender("linked", "custom", "linked", owners=(str(beside),))
    )
    assert linked.files == {str(beside)}


def test_samples_that_find_no_room_are_dropped_with_the_reason(
    launch: Launch, program: str, tmp_path: Path
) -> None:
    """The file may have 64 KiB. The launcher then gives up the samples, and not the program."""
    file = tmp_path / "notes"
    everywhere = code_owners.AllocatorCode(frozenset({"/nowhere"}))
    launch("--cpu-samples", str(file), "--", program, "20")
    noted(file, everywhere)
    room = 64 << 10
    done = subprocess.run(
        [launch.path, "--report-fd", "1", "--cpu-samples", file, "--", program, "60"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert file.stat().st_size < 200
    found, why = cpu_samples.read(file, everywhere)
    assert found is None and os.strerror(errno.EFBIG) in why
