"""Tests of 'cairn doctor' on real programs, and of how 'cairn compare' reacts to its findings.

A test is skipped if its program is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.isolation import users_environment, users_tool
from support.places import PROGRAMS

from cairn.model import SCHEMA

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make such a file")


def needed(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not here")
    return path


def built(*command: object, **more: Any) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        pytest.skip(f"{command[0]} cannot build it here: {done.stderr.strip().splitlines()[-1:]}")


def checks(cairn, *command: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """Returns doctor's exit code, and its checks of the program by subject."""
    result = cairn("doctor", "--json", "--", *command)
    (group,) = [group for group in result.json["groups"] if group["key"] == "program"]
    assert result.json["obstacle"] is (result.code == 4)
    return result.code, {check["subject"]: check for check in group["checks"]}


def obstacle(cairn, words: Sequence[str], *command: object) -> None:
    """Checks that doctor finds exactly one obstacle, and that its text contains `words`.

    Doctor must exit with 4. 'cairn compare' must refuse the command with the same text and run no
    program.
    """
    code, found = checks(cairn, *command)
    bad = [check for check in found.values() if check["state"] == "obstacle"]
    assert code == 4 and len(bad) == 1, found
    for word in words:
        assert word in bad[0]["says"] + bad[0]["next_step"], bad
    refused = cairn("compare", "-r", "1", "--", *command)
    assert refused.code == 4 and not cairn.results.exists()
    assert refused.sentence == f"✘ {bad[0]['says']}. {bad[0]['next_step']}"


def warning(cairn, subject: str, words: Sequence[str], *command: object) -> None:
    code, found = checks(cairn, *command)
    assert code == 0 and found[subject]["state"] == "warning", found
    for word in words:
        assert word in found[subject]["says"], found


# --- the program ---


def test_a_plain_program_is_fine(cairn, churn: Path) -> None:
    code, found = checks(cairn, churn)
    assert code == 0
    assert {check["state"] for check in found.values()} == {"fine"}


def test_a_missing_program(cairn) -> None:
    result = cairn("doctor", "there-is-no-such-program")
    assert result.code == 3 and "not found" in result.sentence and not result.out


def test_a_static_program(cairn, compiled) -> None:
    obstacle(cairn, ("statically linked", "Relink"), compiled("churn.c", "-static"))


def test_busybox_as_distributions_build_it(cairn) -> None:
    busybox = needed("busybox")
    if (
        b"statically linked"
        not in subprocess.run([needed("file"), busybox], capture_output=True, check=True).stdout
    ):
        pytest.skip("this busybox is dynamic")
    obstacle(cairn, ("statically linked",), busybox, "ls")


def test_sudo_belongs_before_cairn(cairn) -> None:
    code, found = checks(cairn, needed("sudo"), "ls")
    assert code == (0 if os.geteuid() == 0 else 4)
    assert any("cairn compare" in (check["next_step"] or "") for check in found.values())


@AS_ROOT
def test_a_setuid_copy_of_sudo(cairn, tmp_path: Path) -> None:
    copy = shutil.copy(needed("sudo"), tmp_path / "sudo")
    os.chown(copy, 65534, 65534)
    os.chmod(copy, 0o4755)
    obstacle(cairn, ("setuid", "cairn compare"), copy)


@AS_ROOT
def test_a_copy_of_ping_with_a_capability_harms_others_only(cairn, tmp_path: Path) -> None:
    copy = shutil.copy(needed("ping"), tmp_path / "ping")
    try:
        os.setxattr(
            copy, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")
        )
    except OSError:
        pytest.skip("no file capabilities on this file system")
    warning(cairn, "rights", ("capabilities",), copy)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_build_under_a_sanitizer(cairn, tmp_path: Path, sanitizer: str) -> None:
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")
    built(needed("gcc"), f"-fsanitize={sanitizer}", source, "-o", tmp_path / "main")
    obstacle(cairn, ("Sanitizer", "-fsanitize"), tmp_path / "main")


def test_a_cleaned_environment(cairn, churn: Path) -> None:
    obstacle(cairn, ("environment",), "env", "-i", churn)


def test_the_jvm(cairn) -> None:
    warning(cairn, "runtime", ("Java", "mmap"), needed("java"), "-version")


def test_node(cairn) -> None:
    result = cairn("doctor", needed("node"), "-e", "1")
    assert "✔ runtime             Node.js" in result.out


def test_php(cairn) -> None:
    php = needed("php")
    warning(cairn, "plugins", ("RTLD_DEEPBIND",), php)
    warning(cairn, "runtime", ("Zend",), php)


def test_programs_with_a_malloc_that_they_export(cairn) -> None:
    known = {
        "/usr/lib/chromium/chromium": "PartitionAlloc",
        "/usr/lib/firefox-esr/firefox-esr": "mozjemalloc",
    }
    here = [path for path in known if Path(path).exists()]
    if not here:
        pytest.skip("neither chromium nor firefox is here")
    for path in here:
        obstacle(cairn, (known[path],), path)


GO = 'package main\n{}\nfunc main() {{ {}; println("hello") }}\n'


@pytest.mark.long
@pytest.mark.parametrize("cgo", [False, True])
def test_go(cairn, tmp_path: Path, cgo: bool) -> None:
    go = users_tool("go")
    source = tmp_path / "main.go"
    source.write_text(
        GO.format('// #include <stdlib.h>\nimport "C"', "C.free(C.malloc(1))")
        if cgo
        else GO.format("", "")
    )
    environment = users_environment(
        CGO_ENABLED=str(int(cgo)),
        GOCACHE=str(tmp_path / "cache"),
        GOFLAGS="-p=1",
        GO111MODULE="off",
    )
    built(go, "build", "-o", tmp_path / "main", source, env=environment, cwd=tmp_path)
    if cgo:
        warning(cairn, "runtime", ("Go", "cgo"), tmp_path / "main")
    else:
        obstacle(cairn, ("Go", "no other allocator"), tmp_path / "main")


def rust(folder: Path, source: str, *crates: str) -> Path:
    cargo = users_tool("cargo")
    environment = users_environment(CARGO_TARGET_DIR=str(folder / "target"), CARGO_BUILD_JOBS="1")
    built(cargo, "new", "-q", "--vcs", "none", folder / "program", env=environment)
    if crates:
        built(cargo, "add", "-q", *crates, env=environment, cwd=folder / "program")
    (folder / "program" / "src" / "main.rs").write_text(source)
    built(cargo, "build", "-q", "--release", env=environment, cwd=folder / "program")
    return folder / "target" / "release" / "program"


def test_rust_with_its_default_allocator(cairn, tmp_path: Path) -> None:
    code, found = checks(cairn, rust(tmp_path, 'fn main() { println!("{}", vec![1].len()); }\n'))
    assert (
        code == 0 and found["runtime"]["state"] == "fine" and "Rust" in found["runtime"]["says"]
    ), found


@pytest.mark.long
@pytest.mark.parametrize(
    ("crate", "type_", "allocator"),
    [
        ("tikv-jemallocator", "tikv_jemallocator::Jemalloc", "jemalloc"),
        ("mimalloc", "mimalloc::MiMalloc", "mimalloc"),
    ],
)
def test_rust_with_an_allocator_of_its_own(
    cairn, tmp_path: Path, crate: str, type_: str, allocator: str
) -> None:
    source = f'#[global_allocator] static A: {type_} = {type_};\nfn main() {{ println!("{{}}", vec![1].len()); }}\n'
    program = rust(tmp_path, source, crate)
    obstacle(cairn, (allocator, "#[global_allocator]"), program)
    subprocess.run([needed("strip"), program], check=True)
    code, found = checks(cairn, program)
    assert (code, found["allocator"]["state"]) == (0, "unknown") and allocator in found[
        "allocator"
    ]["says"], found


def allocator_lines(result) -> list[str]:
    """Returns doctor's lines about the allocator inside carries.c.

    One more line must announce the run with the probe. The function checks that line and does not
    return it.
    """
    lines = [
        line for line in result.err.splitlines() if line.startswith("doctor ") and "carries" in line
    ]
    assert any("a run with the probe now finds out" in line for line in lines), result.err
    return [line for line in lines if "a run with the probe now finds out" not in line]


@pytest.mark.parametrize(("whose", "sign", "says"), [
    ("libc", "✔", "carries mimalloc (recognized by the symbol mi_malloc), but allocates with malloc"),
    ("own", "▲", "only a small part of its memory comes from malloc"),
])  # fmt: skip
def test_a_run_shows_whether_a_program_uses_the_allocator_that_it_carries(
    cairn, compiled, whose: str, sign: str, says: str
) -> None:
    program = compiled("carries.c")
    code, found = checks(cairn, program, whose)
    assert (code, found["allocator"]["state"]) == (0, "unknown"), found
    result = cairn("compare", "-r", "1", "-a", "system", "-a", "b=system", "--", program, whose)
    assert result.code == 0, result.err
    (line,) = allocator_lines(result)
    assert sign in line and says in line and ("Rebuild" in line) is (whose == "own"), line


def test_if_the_program_fails_behind_the_probe_its_allocator_stays_unknown(cairn, compiled) -> None:
    """With --ok-exit 7, the program's exit code 0 is a failure, with the probe and without it.

    The comparison reports the failure as it does for any other program.
    """
    result = cairn(
        "compare",
        "-r",
        "1",
        "-a",
        "system",
        "--ok-exit",
        "7",
        "--",
        compiled("carries.c"),
        "libc",
        "1",
    )
    assert result.code == 3 and "only a run can show" in result.err


def test_a_program_that_can_only_call_its_own_allocator_is_refused(cairn, compiled) -> None:
    obstacle(cairn, ("mimalloc", "mi_malloc", "Rebuild"), compiled("carries.c", "-DNO_LIBC"), "own")


def test_a_program_linked_with_an_allocator(
    cairn, churn: Path, forward: Path, tmp_path: Path
) -> None:
    """The program's malloc is not the system's.

    So the contender "system" would measure another allocator than glibc, and is refused.
    """
    program = tmp_path / "linked"
    source = PROGRAMS / "churn.c"
    subprocess.run(
        [
            "gcc",
            "-fno-builtin",
            source,
            "-o",
            program,
            "-Wl,--no-as-needed",
            forward,
            f"-Wl,-rpath,{forward.parent}",
        ],
        check=True,
    )
    warning(cairn, "allocator", ("linked with", forward.name), program)
    refused = cairn("compare", "-a", "system", "-r", "1", "--", program)
    assert refused.code == 4 and "cannot be a contender" in refused.sentence
    result = cairn("compare", "-r", "1", "--json", "--", program)
    assert result.code == 0, result.err
    names = [contender["name"] for contender in result.json["run"]["contenders"]]
    assert names[:2] == ["linked", "glibc"] and result.json["run"]["baseline"] == "linked"


# --- CPython, and its additional contenders ---


@pytest.fixture
def python() -> str:
    """The path of a CPython that is neither a shim nor a script."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(path).exists():
            return path
    pytest.skip("no CPython of the system")


def test_python_is_compared_on_malloc_too(cairn, python: str) -> None:
    warning(cairn, "runtime", ("pymalloc",), python)
    result = cairn("compare", "-r", "1", "--json", "--", python, "-c", "1")
    assert result.code == 0, result.err
    names = [contender["name"] for contender in result.json["run"]["contenders"]]
    assert names[:2] == ["system", "system PYTHONMALLOC=malloc"]
    assert all(name.endswith(" PYTHONMALLOC=malloc") for name in names[1:])
    assert result.json["run"]["baseline"] == "system"
    lines = [line for line in result.err.splitlines() if line.startswith("doctor ")]
    assert "pymalloc" in lines[0] and "PYTHONMALLOC=malloc × {system" in lines[1]


def test_with_contenders_named_by_the_user_python_only_causes_a_warning(cairn, python: str) -> None:
    result = cairn("compare", "-r", "1", "-a", "system", "-a", "b=system", "--", python, "-c", "1")
    assert result.code == 0, result.err
    (line,) = [line for line in result.err.splitlines() if line.startswith("doctor ")]
    assert "▲" in line and "pymalloc" in line and "PYTHONMALLOC=malloc" in line


@pytest.mark.parametrize("how", ["environment", "env", "knobs"])
def test_python_on_malloc_already_is_offered_nothing(cairn, python: str, how: str) -> None:
    variable = "PYTHONMALLOC=malloc"
    specs = (
        [f"system:{variable}", f"b=system:{variable}"] if how == "knobs" else ["system", "b=system"]
    )
    before = ["env", variable] if how == "env" else []
    environment = {"PYTHONMALLOC": "malloc"} if how == "environment" else {}
    arguments = [word for spec in specs for word in ("-a", spec)]
    result = cairn(
        "compare", "-r", "1", *arguments, "--", *before, python, "-c", "1", **environment
    )
    assert result.code == 0, result.err
    (line,) = [line for line in result.err.splitlines() if line.startswith("doctor ")]
    assert "✔" in line and "every allocation reaches malloc" in line


def test_a_plain_comparison_has_one_line_of_doctor(cairn, churn: Path) -> None:
    result = cairn("compare", "-r", "1", "-a", "system", "-a", "b=system", "--", churn, 10)
    (line,) = [line for line in result.err.splitlines() if line.startswith("doctor ")]
    assert "no allocator of its own" in line and line.endswith("✔")


# --- the machine ---


def test_the_machine_alone(cairn) -> None:
    result = cairn("doctor")
    assert result.code == 0 and result.err == ""
    assert (
        "How noisy" in result.out
        and "What can be measured" in result.out
        and "swapped" not in result.out
    )
    assert "\x1b" not in result.out
    assert "\x1b[" in cairn("doctor", "--color", "always").out


def test_every_line_that_is_not_fine_has_a_next_step(cairn, churn: Path) -> None:
    result = cairn("doctor", "--json", churn)
    assert result.json["schema"] == SCHEMA and [g["key"] for g in result.json["groups"]] == [
        "program", "machine", "instruments",
    ]  # fmt: skip
    for group in result.json["groups"]:
        for check in group["checks"]:
            assert check["state"] in ("fine", "warning", "unknown")
            assert check["state"] == "fine" or check["next_step"], check


def test_another_cairn_is_noticed(cairn, churn: Path) -> None:
    """Doctor warns of another cairn that measures, even if the measured program only sleeps."""
    other = subprocess.Popen(
        [*cairn.argv, "compare", "-r", "1", "-a", "system", "--", "sleep", "60"], env=cairn.env,
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        state = "fine"
        while state == "fine" and time.monotonic() < deadline:
            groups = cairn("doctor", "--json").json["groups"]
            (state,) = [
                c["state"] for g in groups for c in g["checks"] if c["subject"] == "other runs"
            ]
        assert state == "warning"
    finally:
        other.terminate()
        other.wait(20)


def test_looking_at_a_program_is_quick(cairn, churn: Path) -> None:
    """Doctor may take 5 s. It measures the noise of the machine for half a second.

    The rest of the time is for starting Python and for running 'true'. A busy machine may delay
    doctor, so one of three runs has to keep the bound.
    """
    for _ in range(3):
        began = time.monotonic()
        cairn("doctor", churn)
        took = time.monotonic() - began
        if took < 5:
            break
    assert took < 5
