"""Tests of common mistakes of users.

For each mistake, Cairn must print one sentence, exit with the right code and lose no results. It
must report a mistake that is visible in advance before it measures anything.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.places import PROGRAMS
from support.processes import running

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make such a file")
NAP = f"sleep 1{os.getpid():07}.5"
"""A command line that no other test uses, so that a search for it finds only our processes."""


def refused(result, code: int, *words: str) -> None:
    """Checks that the command printed one sentence with these words, and no verdict.

    Also checks the exit code.
    """
    assert result.code == code, (result.code, result.err)
    for word in words:
        assert word in result.sentence, result.sentence
    assert result.err.count("✘") <= 2 and ": use " not in result.out
    assert "\x1b" not in result.err + result.out


def refused_at_once(cairn, code: int, words: tuple[str, ...], *args: object) -> None:
    began = time.monotonic()
    result = cairn("compare", *args)
    assert time.monotonic() - began < 20, "slow to refuse"
    refused(result, code, *words)


def test_a_missing_library(cairn) -> None:
    refused_at_once(
        cairn, 4, ("/nowhere/lib.so", "no such file"), "-a", "x=/nowhere/lib.so", "--", "true"
    )


def test_an_allocator_that_is_unknown_or_not_installed(cairn) -> None:
    refused_at_once(cairn, 2, ("jemaloc", "did you mean jemalloc"), "-a", "jemaloc", "--", "true")
    refused_at_once(cairn, 4, ("system 1.0",), "-a", "system@1.0", "--", "true")


def test_a_library_of_the_wrong_class(cairn, tmp_path: Path, forward: Path) -> None:
    small = tmp_path / "lib32.so"
    content = bytearray(forward.read_bytes())
    content[4] = 1  # ELFCLASS32
    content[18:20] = (3).to_bytes(2, "little")  # EM_386
    small.write_bytes(content)
    refused_at_once(cairn, 4, (str(small),), "-a", f"x={small}", "--", "true")


def test_a_library_that_is_not_elf(cairn, tmp_path: Path) -> None:
    for content in (b"", b"hello", b"#!/bin/sh\n", b"GROUP ( libm.so.6 )"):
        text = tmp_path / "lib.so"
        text.write_bytes(content)
        refused_at_once(cairn, 4, (str(text),), "-a", f"x={text}", "--", "true")


def test_a_truncated_library(cairn, tmp_path: Path, forward: Path) -> None:
    content = forward.read_bytes()
    for share in (0.1, 0.5, 0.9):
        cut = tmp_path / f"cut{share}.so"
        cut.write_bytes(content[: int(len(content) * share)])
        refused_at_once(cairn, 4, (str(cut),), "-a", f"x={cut}", "--", "true")


def test_a_path_that_ld_preload_cannot_carry(cairn, tmp_path: Path, forward: Path) -> None:
    for name in ("a b", "a:b"):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(forward, folder / "lib.so")
        refused_at_once(cairn, 4, ("LD_PRELOAD", "ln -s"), "-a", f"x={folder}/lib.so", "--", "true")


def test_a_library_without_malloc(cairn, tmp_path: Path) -> None:
    source = tmp_path / "no.c"
    source.write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "no.so"], check=True)
    refused_at_once(cairn, 4, ("malloc",), "-a", f"x={tmp_path}/no.so", "--", "true")


def test_a_static_program(cairn, compiled) -> None:
    static = compiled("churn.c", "-static")
    refused_at_once(cairn, 4, ("statically linked", "Relink"), "-a", "system", "--", static)


@AS_ROOT
def test_a_setuid_program(cairn, churn: Path, tmp_path: Path) -> None:
    copy = shutil.copy(churn, tmp_path / "suid")
    os.chown(copy, 65534, 65534)
    os.chmod(copy, 0o4755)
    refused_at_once(cairn, 4, ("setuid",), "-a", "system", "--", copy)


@AS_ROOT
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here")
def test_a_program_with_a_file_capability(cairn, churn: Path, tmp_path: Path) -> None:
    """Another user runs the program, because root has every capability already."""
    folder = Path("/tmp") / f"cairn-capability-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        copy = shutil.copy(churn, folder / "capable")
        os.setxattr(
            copy, "security.capability", bytes.fromhex("0100000200040000000000000000000000000000")
        )
        home = folder / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        argv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *cairn.argv]
        environment = {**cairn.env, "HOME": str(home), "CAIRN_RESULTS": str(home / "results")}
        probe = subprocess.run(
            [*argv, "--version"], env=environment, capture_output=True, check=False, cwd=home
        )
        if probe.returncode != 0:
            pytest.skip("the installed command cannot be read by another user")
        done = subprocess.run(
            [*argv, "compare", "-a", "system", "--", copy],
            env=environment,
            capture_output=True,
            cwd=home,
            check=False,
        )
        assert done.returncode == 4, done.stderr
        assert "capabilit" in done.stderr.decode()
    finally:
        shutil.rmtree(folder)


def test_a_cleaned_environment(cairn, churn: Path) -> None:
    refused_at_once(cairn, 4, ("environment",), "-a", "system", "--", "env", "-i", churn, 10)


def test_an_environment_that_is_cleaned_by_a_script_is_noticed_while_it_runs(
    cairn, churn: Path
) -> None:
    refused_at_once(
        cairn, 4, ("environment",), "-a", "system", "--", "sh", "-c", "env -i sleep 60; true"
    )


def test_a_program_with_an_allocator_of_its_own(cairn, tmp_path: Path) -> None:
    own = tmp_path / "own"
    source = PROGRAMS / "forward_malloc.c"
    main = tmp_path / "main.c"
    main.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-rdynamic", source, main, "-o", own], check=True)
    refused_at_once(cairn, 4, ("own",), "-a", "system", "--", own)


def test_a_crash_under_one_contender_only(cairn, forward: Path, churn: Path) -> None:
    specs = ("-a", "system", "-a", f"fine={forward}", "-a", f"bad={forward}:TEST_CRASH=1")
    result = cairn("compare", "-r", 2, *specs, "--", churn, 100, 8192)
    assert result.code == 4
    assert "bad" in result.sentence
    assert "Under bad, the program was killed by signal 11 (SIGSEGV)" in result.out
    assert "  fine" in result.out.replace("▸", " "), "the other contenders are compared"
    (folder,) = cairn.results.iterdir()
    assert (folder / "failed").is_dir()


def test_a_crash_under_the_only_contender(cairn, forward: Path, churn: Path) -> None:
    result = cairn("compare", "-r", 2, "-a", f"bad={forward}:TEST_CRASH=1", "--", churn, 100, 8192)
    refused(result, 4, "nothing is left to compare", "SIGSEGV")


def test_a_program_that_always_fails(cairn, forward: Path) -> None:
    refused_at_once(
        cairn,
        3,
        ("exit code 3", "because"),
        "-a",
        "system",
        "-a",
        f"x={forward}",
        "--",
        "sh",
        "-c",
        "echo because >&2; exit 3",
    )


def test_a_program_that_does_not_exist_or_is_not_executable(cairn, tmp_path: Path) -> None:
    refused_at_once(cairn, 3, ("nosuchprogram",), "-a", "system", "--", "nosuchprogram")
    text = tmp_path / "text"
    text.write_text("hello")
    refused_at_once(cairn, 3, (str(text),), "-a", "system", "--", text)


def test_a_timeout_ends_the_whole_tree(cairn) -> None:
    script = f"trap '' TERM; setsid {NAP} & {NAP}"
    began = time.monotonic()
    result = cairn("compare", "-r", 2, "-a", "system", "--timeout", "0.5", "--", "sh", "-c", script)
    refused(result, 3, "did not end within 0.5 s")
    assert time.monotonic() - began < 15
    assert not running(NAP)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_no_process_behind(cairn, ending: signal.Signals) -> None:
    argv = [*cairn.argv, "compare", "-a", "system", "--", "sh", "-c", f"{NAP}; true"]
    process = subprocess.Popen(
        argv, env=cairn.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cairn.home
    )
    deadline = time.monotonic() + 20
    while not running(NAP):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(ending)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert b"Traceback" not in err and b"interrupted" in err
    time.sleep(0.2)
    assert not running(NAP)


def test_an_unwritable_output_is_reported_before_anything_runs(
    cairn, churn: Path, tmp_path: Path
) -> None:
    refused_at_once(
        cairn,
        1,
        ("/nowhere",),
        "-r",
        50,
        "-a",
        "system",
        "-o",
        "/nowhere/x.json",
        "--",
        churn,
        100000,
    )
    (tmp_path / "there.md").write_text("mine")
    refused_at_once(
        cairn,
        1,
        ("--force",),
        "-r",
        50,
        "-a",
        "system",
        "-o",
        tmp_path / "there.md",
        "--",
        churn,
        100000,
    )
    assert (tmp_path / "there.md").read_text() == "mine"
    refused_at_once(
        cairn, 1, ("/proc",), "-r", 1, "-a", "system", "--results", "/proc/cairn", "--", churn
    )


def test_an_output_is_never_written_through_a_link(cairn, churn: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link.md").symlink_to(victim)
    result = cairn(
        "compare", "-r", 1, "-a", "system", "-o", tmp_path / "link.md", "--force", "--", churn
    )
    assert result.code == 0, result.err
    assert victim.read_text() == "mine"
    assert not (tmp_path / "link.md").is_symlink()


FULL = "No space left on device; free some space there, or write to another disk"


@AS_ROOT
def test_a_full_disk(cairn, churn: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        result = cairn("compare", "-r", 500, "-a", "system", "--results", small, "--", churn, 10)
        refused(result, 1, f"samples.jsonl: {FULL}")
        report = cairn("report", "--results", small, "last", "--json")
        assert report.code == 0, report.err
        assert len(report.json["samples"]) > 5, "the samples from before the full disk are readable"
        (small / "ballast").write_bytes(b"")
        out = cairn("report", "--results", small, "last", "--json", "-o", small / "out.json")
        refused(out, 1, f"cannot write {small / 'out.json'}: {FULL}")
        assert not (small / "out.json").exists(), "no half-written file"
        assert not [name for name in os.listdir(small) if name.startswith(".out")]
    finally:
        subprocess.run(["umount", small], check=True)


def test_names_with_terminal_escapes_are_inert(
    cairn, churn: Path, tmp_path: Path, forward: Path
) -> None:
    evil = "evil\x1b]0;owned\x07\x1b[31m\u009b2J\u202e"
    program = shutil.copy(churn, tmp_path / evil)
    library = shutil.copy(forward, tmp_path / "lib\x1b[31m\u009b2J\u202e.so")
    result = cairn(
        "compare",
        "-r",
        2,
        "-a",
        "system",
        "-a",
        f"x={library}",
        "--",
        program,
        "10",
        f"argument{evil}",
    )
    assert result.code == 0, result.err
    reports = [cairn("report", *form) for form in ([], ["--md"], ["--full"], ["--json"])]
    for shown in (result, *reports):
        for character in "\x1b\x07\u009b\u202e":
            assert character not in shown.out + shown.err, repr(character)
    refused(cairn("compare", "-a", f"x={tmp_path}/{evil}/none", "--", "true"), 4)
    refused(cairn("report", evil), 2)
    assert cairn("compare", "-a", f"{evil}=system", "--", "true").code == 2


def test_usage_errors_are_one_sentence_each(cairn) -> None:
    for args in (
        ("compare",),
        ("compare", "--precision", "wide", "--", "true"),
        ("compare", "--precision", "0", "--", "true"),
        ("compare", "--margin", "100%", "--", "true"),
        ("compare", "--timeout", "0", "--", "true"),
        ("compare", "--min-rounds", 9, "--max-rounds", 3, "--", "true"),
        ("compare", "--metric", "x", "--", "true"),
        ("compare", "--metric", "x=(", "--", "true"),
        ("compare", "--cpus", "4711", "--", "true"),
        ("compare", "-a", "system", "-a", "system", "--", "true"),
        ("compare", "-a", "system:BROKEN", "--", "true"),
        ("compare", "--resume", "nothing"),
        ("report", "nothing"),
        ("run",),
        ("nonsense",),
    ):
        result = cairn(*args)
        assert result.code == 2, (args, result.code, result.err)
        assert result.err.strip()


def test_a_closed_pipe_is_no_error(cairn, churn: Path) -> None:
    cairn("compare", "-r", 2, "-a", "system", "--", churn)
    line = f"{shlex.join(cairn.argv)} report last --json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", line], env=cairn.env, capture_output=True, check=False, cwd=cairn.home
    )
    assert done.stderr == b""


def test_a_damaged_result_is_one_sentence(cairn, churn: Path) -> None:
    cairn("compare", "-r", 2, "-a", "system", "--", churn)
    (folder,) = cairn.results.iterdir()
    (folder / "samples.jsonl").write_text("{}\n")
    refused(cairn("report"), 1, "damaged")
    (folder / "run.json").write_text("[" * 100000)
    refused(cairn("report"), 1, "damaged")
