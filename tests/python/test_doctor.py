"""Tests of how `cairn doctor` judges programs and machines.

All facts are invented, but the last tests examine real files.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace
from support.widths import at_all_widths

from cairn import native
from cairn.allocators.catalog import Found
from cairn.allocators.contenders import ContenderSpec
from cairn.allocators.discover import known_catalog
from cairn.binary import elf
from cairn.binary.embedded import NOTHING, SCAN_BYTES, Inside, look_inside
from cairn.binary.program import Program, behind_env
from cairn.doctor.abilities import Abilities, abilities
from cairn.doctor.checks import examined
from cairn.doctor.machine import Conditions
from cairn.doctor.machine_checks import NOISY, judge_abilities, judge_machine, quick_warnings
from cairn.doctor.program_checks import (
    OTHERWISE_BYTES,
    PYMALLOC,
    Diagnosis,
    ProgramFacts,
    Reached,
    diagnose,
    judge_program,
    with_a_run,
)
from cairn.model import Check, Examined, Host, State
from cairn.report import doctor
from cairn.report.view import View
from cairn.run import preflight

BITS, MACHINE, MUSL = elf.native()
PLAIN = Program(
    command="app",
    path="/opt/app",
    kind="dynamic",
    interpreter=None,
    elf_class=BITS,
    machine=MACHINE,
    needs=("libc.so.6",),
    loader="/lib/ld-musl-x86_64.so.1" if MUSL else "/lib64/ld-linux-x86-64.so.2",
    setuid=False,
    setgid=False,
    capabilities=False,
    gains_rights=False,
    own_malloc=False,
    sanitizer=None,
    build_id=None,
)
HOST = Host(
    system="Debian", kernel="6.1.0", architecture="x86_64", libc="glibc 2.36", cpus=4,
    cpu_model=None, memory_bytes=None, page_bytes=4096, virtual=False,
    transparent_huge_pages="madvise", governor=None, load=0.0,
)  # fmt: skip
QUIET = Conditions(
    cpus=4, load=0.2, steal=0.0, spread=0.004, others=0, quota=None, governor="performance",
    turbo=False, threads_share_cores=False, virtual=False, huge_pages="madvise",
    address_randomization=2, swap_used_bytes=0,
)  # fmt: skip
HARDWARE = (
    *("cycles", "instructions", "branches", "branch-misses", "cache-references", "cache-misses"),
    "dTLB-load-misses",
)
SOFTWARE = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
ABLE = Abilities(
    memory_method="cgroup v2", counters=dict.fromkeys(SOFTWARE + HARDWARE, True), paranoid=2,
    dispatch=True, rseq_registered=True, reserved_huge_pages=0,
)  # fmt: skip
PYTHON = replace(PLAIN, command="python3", path="/usr/bin/python3.12")


def judged(program: Program = PLAIN, inside: Inside = NOTHING, **more: object) -> Diagnosis:
    return whole(judge_program(ProgramFacts(program=program, inside=inside, **more)))  # type: ignore[arg-type]


def whole(diagnosis: Diagnosis) -> Diagnosis:
    for check in diagnosis.checks:
        complete(check)
    return diagnosis


def complete(check: Check) -> Check:
    """Returns the check, which must have a sentence in one line.

    A check that is not "fine" must also have a next step.
    """
    assert check.says and "\n" not in check.says and not check.says.endswith("."), check
    if check.state != "fine":
        assert check.next_step and check.next_step.endswith("."), check
    return check


def about(checks: Sequence[Check], subject: str) -> Check:
    found = [complete(check) for check in checks if check.subject == subject]
    assert len(found) == 1, (subject, checks)
    return found[0]


# --- the program ---


def test_a_plain_program_has_nothing_against_it() -> None:
    diagnosis = judged()
    assert [check.state for check in diagnosis.checks] == ["fine", "fine"]
    assert diagnosis.obstacle is None and diagnosis.warnings == () and diagnosis.knob is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "static"}, "statically linked"),
        ({"kind": "static script", "interpreter": "/bin/busybox"}, "/bin/busybox, which runs app,"),
        ({"setuid": True, "gains_rights": True}, "setuid"),
        ({"setgid": True, "gains_rights": True}, "setgid"),
        ({"capabilities": True, "gains_rights": True}, "capabilities"),
        ({"elf_class": 96 - BITS}, f"{96 - BITS}-bit"),
        ({"machine": "s390x"}, "s390x"),
        ({"loader": "/lib64/ld-linux-x86-64.so.2" if MUSL else "/lib/ld-musl-x86_64.so.1"}, "musl"),
        ({"sanitizer": "AddressSanitizer"}, "AddressSanitizer"),
        ({"own_malloc": True}, "its own malloc"),
    ],
)
def test_a_program_that_no_preload_can_reach_is_an_obstacle(
    change: dict[str, object], words: str
) -> None:
    obstacle = judged(replace(PLAIN, **change)).obstacle  # type: ignore[arg-type]
    assert obstacle is not None and words in obstacle.says


def test_the_next_step_for_a_known_program_says_how_to_build_it_differently() -> None:
    obstacle = judged(replace(PLAIN, path="/usr/lib/chromium/chromium", own_malloc=True)).obstacle
    assert obstacle is not None and "PartitionAlloc" in obstacle.says


def test_only_the_first_of_several_obstacles_is_reported() -> None:
    obstacle = judged(replace(PLAIN, kind="static", own_malloc=True)).obstacle
    assert obstacle is not None and "statically linked" in obstacle.says


def test_an_exported_allocator_is_named() -> None:
    inside = Inside(allocator="jemalloc", evidence="symbol", mark="je_malloc")
    obstacle = judged(replace(PLAIN, own_malloc=True), inside).obstacle
    assert obstacle is not None and "jemalloc" in obstacle.says and obstacle.subject == "allocator"


CARRIED = Inside(allocator="jemalloc", evidence="symbol", mark="je_malloc")


@pytest.mark.parametrize(
    ("base", "change", "step"),
    [
        ("app", {"asks_libc": False}, "libc's malloc"),
        ("app", {"allocator": "PartitionAlloc", "mark": "allocator_shim"}, "libc's malloc"),
        (
            "app",
            {"rust": True, "rust_allocator": True, "mark": "_rjem_malloc"},
            "#[global_allocator]",
        ),
        ("redis-server", {}, "MALLOC=libc"),
        ("valkey-server", {}, "MALLOC=libc"),
    ],
)
def test_an_allocator_that_the_program_must_be_calling_is_an_obstacle(
    base: str, change: dict[str, object], step: str
) -> None:
    inside = replace(CARRIED, **change)  # type: ignore[arg-type]
    obstacle = judged(replace(PLAIN, path=f"/opt/{base}"), inside).obstacle
    assert obstacle is not None and step in (obstacle.next_step or "")
    assert str(inside.allocator) in obstacle.says and str(inside.mark) in obstacle.says


@pytest.mark.parametrize(
    "inside",
    [
        CARRIED,
        replace(CARRIED, allocator="mimalloc", mark="mi_malloc"),
        replace(CARRIED, rust=True, mark="_rjem_malloc"),
        replace(CARRIED, evidence="text", mark="<jemalloc>: and MALLOC_CONF", stripped=True),
        replace(
            CARRIED,
            evidence="text",
            mark="<jemalloc>: and MALLOC_CONF",
            stripped=True,
            asks_libc=False,
        ),
    ],
)
def test_an_allocator_that_is_only_carried_is_not_known_to_be_used(inside: Inside) -> None:
    diagnosis = judged(inside=inside)
    check = about(diagnosis.checks, "allocator")
    assert (check.state, diagnosis.obstacle) == ("unknown", None)
    assert "only a run can show" in check.says and "Rebuild" not in (check.next_step or "")
    assert diagnosis.carries is not None


MIB = 1 << 20


@pytest.mark.parametrize(
    ("reached", "state"),
    [
        (Reached(100_000, 64 * MIB, 66 * MIB), "fine"),
        (Reached(100_000, 64 * MIB, 128 * MIB), "fine"),
        (Reached(100_000, 64 * MIB, 129 * MIB), "unknown"),
        (Reached(100_000, 64 * MIB, 2 * 64 * MIB + OTHERWISE_BYTES), "unknown"),
        (Reached(100_000, 64 * MIB, 2 * 64 * MIB + OTHERWISE_BYTES + 1), "warning"),
        (Reached(3, 100, 3 * MIB), "unknown"),
        (Reached(0, None, 90 * MIB), "warning"),
        (Reached(100_000, 64 * MIB, None), "unknown"),
    ],
)
def test_a_run_shows_whether_a_carried_allocator_is_used(reached: Reached, state: str) -> None:
    diagnosis = whole(with_a_run(judged(inside=CARRIED), reached))
    check = about(diagnosis.checks, "allocator")
    assert check.state == state and f"{reached.operations:,} allocations and frees" in check.says
    assert diagnosis.carries is None
    assert ("Rebuild" in (check.next_step or "")) is (
        state == "warning" or reached.operations == 3 or "too little" in check.says
    )


@pytest.mark.parametrize("evidence", ["symbol", "text"])
def test_the_mimalloc_inside_cpython_serves_its_objects_alone(evidence: str) -> None:
    """CPython 3.13 contains mimalloc, which it uses only under PYTHONMALLOC=mimalloc.

    Doctor once advised a rebuild of Python without mimalloc, although another of its lines said
    that every allocation reaches malloc.
    """
    inside = Inside(allocator="mimalloc", evidence=evidence, mark="mi_malloc", python=True)
    program = replace(PYTHON, path="/usr/bin/python3.13")
    diagnosis = judged(program, inside, environment={"PYTHONMALLOC": "malloc"})
    assert {check.state for check in diagnosis.checks} == {"fine"} and diagnosis.carries is None
    assert judged(program, inside).knob == PYMALLOC


def test_another_allocator_than_mimalloc_inside_a_python_is_not_pythons_own() -> None:
    diagnosis = judged(
        PYTHON, replace(CARRIED, python=True), environment={"PYTHONMALLOC": "malloc"}
    )
    assert about(diagnosis.checks, "allocator").state == "unknown"


@pytest.mark.parametrize("chosen", ["mimalloc", "mimalloc_debug"])
def test_python_that_keeps_its_objects_in_its_own_mimalloc_causes_a_warning(chosen: str) -> None:
    diagnosis = judged(PYTHON, Inside(python=True), environment={"PYTHONMALLOC": chosen})
    check = about(diagnosis.checks, "runtime")
    assert (
        check.state == "warning" and "mimalloc of its own" in check.says and diagnosis.knob is None
    )


def test_a_malloc_that_is_not_exported_is_an_obstacle() -> None:
    obstacle = judged(inside=Inside(allocator="malloc", evidence="symbol", mark="malloc")).obstacle
    assert obstacle is not None and "without exporting" in obstacle.says


def test_a_linked_allocator_warns_and_becomes_the_baseline() -> None:
    diagnosis = judged(linked="/usr/lib/libjemalloc.so.2", libc="/usr/lib/libc.so.6")
    check = about(diagnosis.checks, "allocator")
    assert check.state == "warning" and "libjemalloc.so.2" in check.says
    assert (
        diagnosis.linked == "/usr/lib/libjemalloc.so.2" and diagnosis.libc == "/usr/lib/libc.so.6"
    )


@pytest.mark.parametrize(
    ("program", "inside"),
    [
        (replace(PYTHON, needs=("libpython3.12.so.1.0", "libc.so.6")), NOTHING),
        (PYTHON, Inside(python=True)),
        (replace(PLAIN, kind="script", interpreter="/usr/bin/python3.12"), Inside(python=True)),
    ],
    ids=["shared", "built in", "script"],
)
def test_pymalloc_warns_and_offers_malloc(program: Program, inside: Inside) -> None:
    diagnosis = judged(program, inside)
    check = about(diagnosis.checks, "runtime")
    assert check.state == "warning" and "CPython 3.12 with pymalloc" in check.says
    assert diagnosis.knob == PYMALLOC


@pytest.mark.parametrize("chosen", ["malloc", "malloc_debug"])
def test_python_on_malloc_is_fine(chosen: str) -> None:
    diagnosis = judged(PYTHON, Inside(python=True), environment={"PYTHONMALLOC": chosen})
    assert about(diagnosis.checks, "runtime").state == "fine" and diagnosis.knob is None


@pytest.mark.parametrize("chosen", ["pymalloc", "debug"])
def test_a_chosen_pymalloc_warns_and_offers_nothing(chosen: str) -> None:
    diagnosis = judged(PYTHON, Inside(python=True), environment={"PYTHONMALLOC": chosen})
    assert about(diagnosis.checks, "runtime").state == "warning" and diagnosis.knob is None


@pytest.mark.parametrize(
    ("arguments", "ignored"),
    [
        (("-I", "x.py"), True),
        (("-bE", "x.py"), True),
        (("-W", "error", "-E", "x.py"), True),
        (("-Xdev", "-I"), True),
        (("-c", "-I"), False),
        (("-mEIE",), False),
        (("x.py", "-E"), False),
        (("-W", "-E", "x.py"), False),
        (("--check-hash-based-pycs=always", "-E"), True),
        (("-",), False),
        ((), False),
    ],
)
def test_no_other_setting_is_offered_for_a_python_that_ignores_its_environment(
    arguments: tuple[str, ...], ignored: bool
) -> None:
    diagnosis = judged(PYTHON, Inside(python=True), command=("python3", *arguments))
    assert (diagnosis.knob is None) is ignored
    assert ("ignores PYTHONMALLOC" in about(diagnosis.checks, "runtime").says) is ignored


def test_the_flags_of_a_first_line_count() -> None:
    script = replace(PLAIN, kind="script", interpreter="/usr/bin/python3.12")
    assert judged(script, Inside(python=True), flags=("-Es",), command=("app", "-x")).knob is None
    assert judged(script, Inside(python=True), flags=(), command=("app", "-E")).knob == PYMALLOC


def test_a_free_threaded_python_is_offered_nothing() -> None:
    diagnosis = judged(replace(PYTHON, needs=("libpython3.13t.so.1.0",)))
    assert "free-threaded" in about(diagnosis.checks, "runtime").says and diagnosis.knob is None


@pytest.mark.parametrize(
    ("base", "inside", "needs", "words"),
    [
        ("java", NOTHING, ("libjli.so",), "Java"),
        ("kotlin-native-image", NOTHING, ("libjli.so",), "Java"),
        ("server", Inside(go=True), (), "Go"),
        ("php8.2", NOTHING, (), "PHP"),
        ("server", Inside(rust=True, rust_allocator=True), (), "Rust"),
    ],
)
def test_runtimes_with_a_heap_of_their_own_warn(
    base: str, inside: Inside, needs: tuple[str, ...], words: str
) -> None:
    diagnosis = judged(replace(PLAIN, path=f"/usr/bin/{base}", needs=needs), inside)
    assert diagnosis.obstacle is None
    assert any(check.state == "warning" and words in check.says for check in diagnosis.checks), (
        diagnosis
    )


def test_rust_with_its_default_allocator_is_fine() -> None:
    assert judged(inside=Inside(rust=True)).warnings == ()


def test_php_on_malloc_still_has_plugins() -> None:
    diagnosis = judged(
        replace(PLAIN, path="/usr/bin/php-fpm8.2"), environment={"USE_ZEND_ALLOC": "0"}
    )
    assert about(diagnosis.checks, "runtime").state == "fine"
    assert "RTLD_DEEPBIND" in about(diagnosis.checks, "plugins").says


def test_the_next_step_for_a_static_go_program_is_not_to_relink_it() -> None:
    obstacle = judged(replace(PLAIN, kind="static"), Inside(go=True)).obstacle
    assert (
        obstacle is not None
        and "Go" in obstacle.says
        and "Relink" not in (obstacle.next_step or "")
    )


@pytest.mark.parametrize("gains", [False, True])
def test_the_next_step_for_sudo_is_to_put_it_before_cairn(gains: bool) -> None:
    sudo = replace(PLAIN, command="sudo", path="/usr/bin/sudo", setuid=True, gains_rights=gains)
    diagnosis = judged(sudo)
    assert (diagnosis.obstacle is not None) is gains
    assert any("sudo cairn compare" in (check.next_step or "") for check in diagnosis.checks)


def test_a_shim_is_distinguished_from_a_shell_script() -> None:
    script = replace(PLAIN, kind="script", interpreter="/usr/bin/bash")
    assert about(judged(script).checks, "start").state == "fine"
    shim = replace(script, command="python3", path="/somewhere/.pyenv/shims/python3")
    assert about(judged(shim).checks, "start").state == "warning"


def test_the_runtime_of_an_unreadable_program_is_unknown() -> None:
    diagnosis = judged(replace(PLAIN, kind="unknown", elf_class=None, machine=None))
    assert about(diagnosis.checks, "preload").state == "unknown" and diagnosis.obstacle is None


def test_the_program_behind_env_is_judged() -> None:
    assert behind_env(["env", "A=1", "-u", "B", "app", "C=2"]) == ({"A": "1"}, ("app", "C=2"))
    assert behind_env(["/usr/bin/env", "-S", "A=1 app x"]) == ({"A": "1"}, ("app",))
    assert behind_env(["env"]) == ({}, ("env",))
    assert behind_env(["app", "A=1"]) == ({}, ("app", "A=1"))


def test_an_emptied_environment_is_an_obstacle() -> None:
    obstacle = whole(diagnose(["env", "-i", "sh"], os.environ)).obstacle
    assert obstacle is not None and "environment" in obstacle.says


# --- the machine ---


def test_a_quiet_machine_has_nothing_against_it() -> None:
    assert {complete(check).state for check in judge_machine(QUIET)} == {"fine"}
    assert quick_warnings(QUIET) == ()


MACHINES: list[tuple[dict[str, object], str, str]] = [
    ({"others": 1}, "other runs", "warning"),
    ({"others": 3}, "other runs", "warning"),
    ({"others": None}, "other runs", "unknown"),
    ({"load": 4.0}, "load", "fine"),
    ({"load": 4.1}, "load", "warning"),
    ({"load": None}, "load", "unknown"),
    ({"steal": 0.02}, "stolen time", "warning"),
    ({"spread": NOISY * 0.99}, "noise", "fine"),
    ({"spread": NOISY * 1.01}, "noise", "warning"),
    ({"quota": 4.0}, "CPU quota", "fine"),
    ({"quota": 0.5}, "CPU quota", "warning"),
    ({"governor": "powersave", "turbo": True}, "CPU frequency", "warning"),
    ({"governor": None}, "CPU frequency", "unknown"),
    ({"governor": None, "virtual": True}, "CPU frequency", "fine"),
    ({"threads_share_cores": True}, "cores", "fine"),
    ({"virtual": True}, "cold memory", "fine"),
    ({"huge_pages": "always"}, "huge pages", "fine"),
    ({"huge_pages": "never"}, "huge pages", "fine"),
    ({"huge_pages": None}, "huge pages", "unknown"),
    ({"swap_used_bytes": 1 << 30}, "swap", "warning"),
    ({"page_bytes": 65536}, "page size", "warning"),
    ({"address_randomization": 0}, "addresses", "warning"),
    ({"address_randomization": 1}, "addresses", "warning"),
]
"""Each entry: the difference from a quiet machine, the subject of its line, and the judgement."""


@pytest.mark.parametrize(("change", "subject", "state"), MACHINES)
def test_the_state_of_the_machine(change: dict[str, object], subject: str, state: str) -> None:
    checks = judge_machine(replace(QUIET, **change))  # type: ignore[arg-type]
    assert about(checks, subject).state == state
    assert [check.subject for check in checks if check.state not in ("fine", state)] == []


def test_the_line_about_a_quota_names_the_number_of_arenas() -> None:
    check = about(judge_machine(replace(QUIET, cpus=64, quota=2.0)), "CPU quota")
    assert "512 arenas" in check.says and "MALLOC_ARENA_MAX=16" in (check.next_step or "")


def test_facts_that_were_not_examined_are_not_judged() -> None:
    checks = judge_machine(Conditions(cpus=2))
    subjects = {check.subject for check in checks}
    assert not subjects & {"stolen time", "noise", "swap", "addresses", "cores"}


def test_a_comparison_prints_only_urgent_warnings_about_the_machine() -> None:
    loud = replace(
        QUIET, others=1, load=9.0, governor="powersave", swap_used_bytes=1 << 30, spread=0.5
    )
    assert quick_warnings(loud) == (
        "another cairn is measuring here",
        "load 9.0 on 4 CPUs",
        "governor powersave",
    )


# --- the abilities of the machine ---


def test_an_able_machine_has_nothing_against_it() -> None:
    assert {complete(check).state for check in judge_abilities(ABLE, HOST)} == {"fine"}


NO_PMU = {**dict.fromkeys(SOFTWARE, True), **dict.fromkeys(HARDWARE, False)}


INSTRUMENTS: list[tuple[dict[str, object], str, str]] = [
    (
        {"memory_method": "sampled", "memory_reason": "no cgroup may be made"},
        "peak memory",
        "warning",
    ),
    ({"memory_method": "not measured"}, "peak memory", "unknown"),
    ({"counters": NO_PMU}, "hardware counters", "warning"),
    (
        {"counters": dict.fromkeys(SOFTWARE + HARDWARE, False), "paranoid": 3},
        "software counters",
        "warning",
    ),
    ({"launcher_problem": "killed"}, "launcher", "warning"),
    (
        {"clock_problem": "the kernel does not allow clock samples here: Permission denied"},
        "clock samples",
        "warning",
    ),
    ({"dispatch": False}, "system calls", "warning"),
    ({"dispatch": None}, "system calls", "unknown"),
    ({"rseq_registered": None}, "rseq", "fine"),
    ({"rseq_registered": False}, "rseq", "warning"),
    ({"reserved_huge_pages": 64}, "reserved huge pages", "fine"),
]
"""Each entry: the difference from an able machine, the subject of its line, and the judgement."""


@pytest.mark.parametrize(("change", "subject", "state"), INSTRUMENTS)
def test_the_abilities_of_the_machine(change: dict[str, object], subject: str, state: str) -> None:
    checks = judge_abilities(replace(ABLE, **change), HOST)  # type: ignore[arg-type]
    assert about(checks, subject).state == state


def test_a_missing_launcher_is_one_line_of_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole report was once lost."""
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    can = abilities()
    line = about(judge_abilities(can, HOST), "launcher")
    assert line.state == "warning" and "this installation of cairn lacks cairn-launch" in line.says
    assert can.allocator_problem is not None and can.reserved_huge_pages is not None


def test_each_sentence_about_a_machine_is_golden(golden: Callable[[str, str], None]) -> None:
    checks = [*judge_machine(QUIET), *judge_abilities(ABLE, HOST)]
    for change, subject, _ in MACHINES:
        checks.append(about(judge_machine(replace(QUIET, **change)), subject))  # type: ignore[arg-type]
    for change, subject, _ in INSTRUMENTS:
        checks.append(about(judge_abilities(replace(ABLE, **change), HOST), subject))  # type: ignore[arg-type]
    told = sorted(
        {
            f"{check.subject} · {check.state}\n  {check.says}\n  {check.next_step or '–'}\n"
            for check in checks
        }
    )
    golden("doctor-machine", "\n".join(told))


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        ("Permission denied", "paranoid=0"),
        ("Operation not permitted", "seccomp"),
        ("File too large", "x86-64"),
        ("No space left on device", "set TMPDIR to another folder"),
    ],
)
def test_a_clock_that_sees_nothing_has_a_next_step(problem: str, step: str) -> None:
    check = about(
        judge_abilities(
            replace(ABLE, clock_problem=f"the kernel does not allow clock samples here: {problem}"),
            HOST,
        ),
        "clock samples",
    )
    assert step in (check.next_step or "")


def test_missing_counters_are_explained_by_the_setting_that_forbids_them() -> None:
    without = replace(ABLE, counters=NO_PMU)
    assert (
        "PMU"
        in about(judge_abilities(without, replace(HOST, virtual=True)), "hardware counters").says
    )
    forbidden = about(judge_abilities(replace(without, paranoid=3), HOST), "hardware counters")
    assert "perf_event_paranoid is 3" in forbidden.says
    partly = replace(ABLE, counters={**ABLE.counters, "context-switches": False})
    assert "paranoid=1" in (
        about(judge_abilities(partly, HOST), "software counters").next_step or ""
    )
    assert "seccomp" in (about(judge_abilities(without, HOST), "hardware counters").next_step or "")


# --- contenders ---

SYSTEM, JEMALLOC = ContenderSpec("system", "system"), ContenderSpec("jemalloc", "jemalloc")


def test_a_program_with_pymalloc_is_compared_with_and_without() -> None:
    specs = preflight.with_and_without([SYSTEM, JEMALLOC], PYMALLOC)
    assert [spec.name for spec in specs] == [
        "system", "system PYTHONMALLOC=malloc", "jemalloc PYTHONMALLOC=malloc",
    ]  # fmt: skip
    assert [spec.knobs for spec in specs] == [(), (PYMALLOC,), (PYMALLOC,)]


def test_a_linked_allocator_is_compared_with_glibc_too() -> None:
    specs = preflight.beside_linked([SYSTEM, JEMALLOC], "/l/libjemalloc.so.2", "/l/libc.so.6")
    assert [(spec.name, spec.path) for spec in specs] == [
        ("linked", "/l/libjemalloc.so.2"), ("glibc", "/l/libc.so.6"), ("jemalloc", None),
    ]  # fmt: skip


def test_a_linked_allocator_does_not_compete_with_itself() -> None:
    jemalloc = known_catalog().find("jemalloc")
    assert jemalloc is not None
    linked, other = Found(jemalloc, "/l/libjemalloc.so.2"), Found(jemalloc, "/cache/jemalloc.so")

    def names(*found: Found) -> list[str]:
        specs = [SYSTEM, JEMALLOC]
        beside = preflight.beside_linked(specs, "/l/libjemalloc.so.2", "/l/libc.so.6", found)
        return [spec.name for spec in beside]

    assert names(linked) == ["linked", "glibc"]
    assert names(linked, other) == ["linked", "glibc", "jemalloc"]
    assert names(replace(linked, problem="It is damaged.")) == ["linked", "glibc", "jemalloc"]


def test_knobs_that_all_contenders_share_count_as_the_programs_own() -> None:
    both = [replace(SYSTEM, knobs=(PYMALLOC,)), replace(JEMALLOC, knobs=(("A", "1"), PYMALLOC))]
    assert preflight.common_knobs(both) == {"PYTHONMALLOC": "malloc"}
    assert preflight.common_knobs([SYSTEM, both[1]]) == {}
    assert preflight.common_knobs([]) == {}


# --- the printed report ---


def test_each_group_is_printed_with_signs_and_next_steps() -> None:
    groups = examined(judged(PYTHON, Inside(python=True)), replace(QUIET, others=None), ABLE, HOST)
    text = doctor.render(groups, View())
    assert [group.key for group in groups] == ["program", "machine", "instruments"]
    for piece in (
        "allocator of python3",
        "✔",
        "▲",
        "?",
        "→ Compare with PYTHONMALLOC=malloc",
        "2 things to know",
    ):
        assert piece in text
    assert "\x1b" not in text and all(len(line) <= View().width for line in text.splitlines())
    assert "\x1b[" in doctor.render(groups, View(color=True))


def test_the_report_of_doctor_is_golden(golden: Callable[[str, str], None]) -> None:
    """The report has checks of every state: fine, warning, obstacle and unknown."""
    machine = replace(QUIET, others=None)
    groups = [
        *examined(judged(PYTHON, Inside(python=True)), machine, ABLE, HOST),
        *examined(judged(replace(PLAIN, kind="static", own_malloc=True)), QUIET, ABLE, HOST)[:1],
    ]
    assert {check.state for group in groups for check in group.checks} == set(get_args(State))
    golden("doctor", at_all_widths(lambda view: doctor.render(groups, view)))


def test_the_last_line_is_the_answer() -> None:
    fine, bad = Check("a", "fine", "b"), Check("a", "obstacle", "b", "C.")
    assert doctor.summary([Examined("k", "t", (fine,))]).startswith("✔")
    assert doctor.summary([Examined("k", "t", (fine, bad))]).startswith("✘")


def test_names_cannot_steer_the_terminal() -> None:
    evil = replace(PLAIN, command="a\x1b[2Jb\r", path="/x\x07\u202ey")
    groups = examined(judged(evil), QUIET, ABLE, HOST)
    shown = doctor.render(groups, View()) + doctor.document(groups, cairn="1")
    assert not any(character in shown for character in "\x1b\x07\r\u202e")


# --- allocators inside a program ---

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build programs")


def built(folder: Path, source: str, *flags: str) -> Path:
    target = folder / "program"
    subprocess.run(
        ["gcc", "-fno-builtin", "-O0", "-x", "c", "-", "-x", "none", "-o", str(target), *flags],
        input=source.encode(),
        check=True,
    )
    return target


@needs_gcc
@pytest.mark.parametrize(
    "name", ["_rjem_malloc", "je_malloc", "mi_malloc", "mi_malloc_aligned", "tc_malloc"]
)
def test_an_allocator_that_is_linked_in_is_found_by_name(name: str, tmp_path: Path) -> None:
    program = built(
        tmp_path, f"void *{name}(void) {{ return 0; }} int main(void) {{ return {name}() != 0; }}"
    )
    inside = look_inside(str(program))
    assert (inside.evidence, inside.mark) == ("symbol", name)
    subprocess.run(["strip", str(program)], check=True)
    assert look_inside(str(program)).allocator is None


@needs_gcc
@pytest.mark.parametrize("stripped", [(), ("-s",)])
@pytest.mark.parametrize(
    "function", ["malloc", "calloc", "realloc", "aligned_alloc", "memalign", "_Znwm", "_Znam"]
)
def test_a_program_that_imports_a_function_that_allocates_asks_the_c_library(
    function: str, stripped: tuple[str, ...], tmp_path: Path
) -> None:
    library = tmp_path / "libpretend.so"
    source = f"void *{function}(void) {{ return 0; }}"
    subprocess.run(
        ["gcc", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
        input=source.encode(),
        check=True,
    )
    asking = f"void *{function}(void); int main(void) {{ return {function}() != 0; }}"
    assert look_inside(str(built(tmp_path, asking, str(library), *stripped))).asks_libc
    assert not look_inside(
        str(built(tmp_path, "int main(void) { return 0; }", *stripped))
    ).asks_libc


@needs_gcc
def test_an_allocator_of_a_library_is_not_taken_for_one_inside(tmp_path: Path) -> None:
    library = tmp_path / "libm1.so"
    subprocess.run(
        ["gcc", "-fno-builtin", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
        input=b"void *mi_malloc(unsigned long n) { return (void *)n; }", check=True,
    )  # fmt: skip
    source = "void *mi_malloc(unsigned long); int main(void) { return mi_malloc(1) == 0; }"
    assert look_inside(str(built(tmp_path, source, str(library)))).allocator is None


@needs_gcc
def test_a_hidden_malloc_is_found_and_an_exported_one_is_not_reported_here(tmp_path: Path) -> None:
    source = (
        "{}void *malloc(unsigned long n) {{ return (void *)n; }} int main(void) {{ return "
        "malloc(1) == 0; }}"
    )
    hidden = built(tmp_path, source.format('__attribute__((visibility("hidden"))) '))
    assert look_inside(str(hidden)).allocator == "malloc"
    exported = built(tmp_path, source.format(""), "-rdynamic")
    assert look_inside(str(exported)).allocator is None


@needs_gcc
def test_a_stripped_allocator_is_found_by_two_texts_and_not_by_one(tmp_path: Path) -> None:
    source = 'const char *volatile a = "<jemalloc>: x"; const char *volatile b = "{}"; int main(void) {{ return !a || !b; }}'
    both = built(tmp_path, source.format("_RJEM_MALLOC_CONF"), "-s")
    inside = look_inside(str(both))
    assert (inside.allocator, inside.evidence, inside.stripped) == ("jemalloc", "text", True)
    assert look_inside(str(built(tmp_path, source.format("nothing"), "-s"))).allocator is None


@needs_gcc
def test_hostile_files_are_looked_into_without_harm(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole_file = built(
        tmp_path, "void *je_malloc(void) { return 0; } int main(void) { return je_malloc() != 0; }"
    )
    content = whole_file.read_bytes()
    random.seed(20)
    target = tmp_path / "mutant"
    for _ in range(400):
        mutant = bytearray(content)
        for _ in range(random.choice((1, 3, 30))):
            where = random.choice(
                (random.randrange(64), random.randrange(len(mutant) - 2800, len(mutant)))
            )
            mutant[where] = random.randrange(256)
        target.write_bytes(mutant[: random.choice((len(mutant), random.randrange(len(mutant))))])
        look_inside(str(target))


@needs_gcc
def test_only_the_beginning_of_a_huge_symbol_table_is_searched(tmp_path: Path) -> None:
    names = "".join(f"int name_{number}_malloc;" for number in range(2000))
    assert (
        look_inside(str(built(tmp_path, names + "int main(void) { return 0; }"))).allocator is None
    )
    assert SCAN_BYTES <= 1 << 27


def test_a_file_that_is_no_program_has_nothing_inside(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "missing", Path("/dev/null")):
        assert look_inside(str(path)) == NOTHING
