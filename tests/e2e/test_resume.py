"""Tests of continuing a run, and of the options that a resumed run refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.places import PROGRAMS
from support.processes import running

NAP = f"sleep 2{os.getpid():07}.5"
"""A command line that no other test uses, so that a search for it finds only our processes."""


def interrupted(cairn, *arguments: object, **environment: str) -> None:
    """Begins a run, and interrupts it after a few trials with the signal that Ctrl-C sends."""
    known = set(cairn.results.glob("*")) if cairn.results.exists() else set()
    argv = [*cairn.argv, "compare", *map(str, arguments)]
    process = subprocess.Popen(
        argv,
        env={**cairn.env, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cairn.home,
    )
    deadline = time.monotonic() + 30
    while True:
        new = set(cairn.results.glob("*/samples.jsonl")) - {
            path / "samples.jsonl" for path in known
        }
        if any(len(path.read_text().splitlines()) >= 6 for path in new):
            break
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err


def test_a_run_is_resumed_only_in_its_own_environment(cairn, churn: Path) -> None:
    interrupted(
        cairn,
        "-r",
        30,
        "-a",
        "system",
        "-a",
        "again=system",
        "--",
        churn,
        30_000,
        MALLOC_ARENA_MAX="2",
    )
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 2
    assert "MALLOC_ARENA_MAX" in refused.sentence
    assert cairn("compare", "--resume", "last", MALLOC_ARENA_MAX="2").code == 0


def test_a_resume_reports_a_library_that_is_missing_or_was_rebuilt(
    cairn, churn: Path, forward: Path, tmp_path: Path
) -> None:
    library = tmp_path / "mine.so"
    shutil.copy(forward, library)
    interrupted(cairn, "-r", 30, "-a", "system", "-a", f"x={library}", "--", churn, 30_000)
    library.unlink()
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 4 and "is gone" in refused.sentence
    source = PROGRAMS / "forward_malloc.c"
    subprocess.run(
        ["gcc", "-O0", "-g", "-fPIC", "-shared", "-fno-builtin", source, "-o", library], check=True
    )
    other = cairn("compare", "--resume", "last")
    assert other.code == 4 and "another build" in other.out + other.err


def continues(cairn) -> None:
    """Resumes the only run, and interrupts it again as soon as it has measured more."""
    (samples,) = cairn.results.glob("*/samples.jsonl")
    before = samples.stat().st_size
    process = cairn.start("compare", "--resume", "last")
    deadline = time.monotonic() + 60
    while samples.stat().st_size == before:
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (0, 130), errors


def built(source: str, target: Path, *flags: object) -> None:
    file = target.with_suffix(".c")
    file.write_text(source)
    subprocess.run(["gcc", "-O1", file, "-o", target, *map(str, flags)], check=True)


MAIN = "int answer(void); int main(void) { return answer() != 42; }"
ANSWER = 'int answer(void) { return 42 + 0 * sizeof "BUILD"; }'


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A program, linked with a library beside it."""
    library = tmp_path / "libanswer.so"
    built(ANSWER, library, "-shared", "-fPIC")
    built(MAIN, tmp_path / "prog", library, f"-Wl,-rpath,{tmp_path}")
    return tmp_path / "prog"


PAIR = ("-r", 300, "-a", "system", "-a", "again=system")


@pytest.mark.parametrize("part", ["program", "library", "unchanged"])
def test_a_resume_names_the_program_or_library_that_was_rebuilt(
    cairn, linked: Path, part: str
) -> None:
    """Cairn once mixed the trials of a rebuilt program with those of the old program."""
    interrupted(cairn, *PAIR, "--", linked)
    if part == "program":
        library = linked.with_name("libanswer.so")
        built(MAIN + " int more;", linked, library, f"-Wl,-rpath,{linked.parent}")
    elif part == "library":
        built(ANSWER + " int more;", linked.with_name("libanswer.so"), "-shared", "-fPIC")
    else:
        os.utime(linked)
    before = (next(cairn.results.iterdir()) / "samples.jsonl").read_bytes()
    if part == "unchanged":
        continues(cairn)
        return
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 2, refused.err
    name = str(linked) if part == "program" else "libanswer.so"
    assert f"{name} is another build than when this run began" in refused.sentence
    assert (next(cairn.results.iterdir()) / "samples.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        ("--", "./script.sh"),
        ("--shell", "--", "./script.sh | cat"),
        *(
            pytest.param(command, marks=pytest.mark.long)
            for command in (
                ("--", "sh", "script.sh"),
                ("--", "python3", "-I", "script.sh"),
                ("--", "env", "A=1", "./script.sh"),
                ("-c", "true", "-c", "./script.sh"),
            )
        ),
    ],
    ids=" ".join,
)
def test_a_resume_names_the_script_that_was_edited(cairn, command) -> None:
    script = cairn.home / "script.sh"
    script.write_text("#!/bin/sh\nexit\n")
    script.chmod(0o755)
    interrupted(cairn, *PAIR, *command)
    script.write_text("#!/bin/sh\nexit \n")
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 2, refused.err
    assert "script.sh is another build than when this run began" in refused.sentence


def test_a_resume_names_a_library_without_a_build_id(cairn, churn: Path, tmp_path: Path) -> None:
    library = tmp_path / "mine.so"
    source = PROGRAMS / "forward_malloc.c"
    flags = ("-O1", "-fPIC", "-shared", "-fno-builtin", "-Wl,--build-id=none")
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    interrupted(cairn, "-r", 300, "-a", "system", "-a", f"x={library}", "--", churn, 10)
    subprocess.run(["gcc", "-g", *flags, source, "-o", library], check=True)
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 4, refused.err
    assert f"{library} is another build" in refused.sentence


@pytest.mark.parametrize("shell", [False, True])
def test_a_program_that_was_deleted_before_a_resume_is_missing(
    cairn, linked: Path, shell: bool
) -> None:
    """The exit code was once 4, which means that an allocator failed."""
    interrupted(cairn, *PAIR, *(["--shell"] if shell else []), "--", linked)
    kept = linked.with_name("kept")
    linked.rename(kept)
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 3, refused.err
    assert f"{linked} is gone" in refused.sentence
    assert cairn("report").code == 0
    kept.rename(linked)
    continues(cairn)


@pytest.mark.parametrize("change", ["rm PROG", "cp OTHER PROG.new && mv PROG.new PROG"])
def test_a_program_that_changes_during_the_run_ends_it_and_the_run_can_be_resumed(
    cairn, linked: Path, change: str
) -> None:
    once = linked.with_name("done")
    prepare = (
        f"echo >> {once}; [ $(wc -l < {once}) -ne 9 ] || {{ cp {linked} {linked}.kept; {change}; }}"
    )
    prepare = prepare.replace("PROG", str(linked)).replace("OTHER", "/bin/true")
    result = cairn("compare", *PAIR[2:], "-r", 6, "--prepare", prepare, "--", linked)
    assert result.code == 3, result.err
    assert str(linked) in result.sentence and "while it was measured" in result.sentence
    Path(f"{linked}.kept").replace(linked)
    resumed = cairn("compare", "--resume", "last", "--json")
    assert resumed.code == 0, resumed.err
    assert len(resumed.json["samples"]) == 14


def test_a_run_knows_the_builds_of_its_files_after_setup(cairn, linked: Path) -> None:
    setup = f"gcc -O1 -DMORE {linked}.c -L{linked.parent} -lanswer -o {linked}"
    result = cairn(
        "compare", "-r", 2, "-a", "system", "--setup", setup, "--json", "--", linked,
        LD_LIBRARY_PATH=str(linked.parent),
    )  # fmt: skip
    assert result.code == 0, result.err
    builds = {one["name"]: one for one in result.json["run"]["builds"]}
    assert {str(linked), "libanswer.so", "libc.so.6"} <= set(builds)
    shown = subprocess.run(["readelf", "-n", linked], capture_output=True, text=True, check=True)
    assert builds[str(linked)]["build"].removeprefix("build ID ") in shown.stdout


def test_options_next_to_resume_are_refused_and_not_ignored(cairn, churn: Path) -> None:
    cairn("compare", "-r", 1, "-a", "system", "--", churn)
    for more in (("--max-rounds", 200), ("-a", "system"), ("--timeout", "1s"), ("--", "true")):
        result = cairn("compare", "--resume", "last", *more)
        assert result.code == 2 and "leave" in result.sentence, more
    assert cairn("bench", "build", "--resume", "last").code == 2


def test_a_hook_may_leave_something_in_the_background(cairn, churn: Path) -> None:
    began = time.monotonic()
    result = cairn(
        "compare",
        "-r",
        1,
        "-a",
        "system",
        "--setup",
        f"{NAP} &",
        "--cleanup",
        "exit 1",
        "--",
        churn,
    )
    assert time.monotonic() - began < 20
    assert result.code == 0, "a failing --cleanup must not fail the run"
    assert "--cleanup" in result.err and "wall" in result.out
    for pid in running(NAP):
        os.kill(pid, signal.SIGKILL)


def test_a_metric_that_is_no_finite_number_is_a_failure_and_the_run_stays_readable(cairn) -> None:
    for number in ("nan", "inf", "1e999"):
        result = cairn(
            "compare",
            "-r",
            1,
            "-a",
            "system",
            "--metric",
            r"x=x=(\S+)",
            "--",
            "echo",
            f"x={number}",
        )
        assert result.code == 3 and "expects a number" in result.sentence
        assert cairn("report").code == 0


def test_input_must_be_a_file_that_every_run_can_read_from_its_beginning(cairn) -> None:
    result = cairn("compare", "-r", 1, "-a", "system", "--input", "/dev/stdin", "--", "cat")
    assert result.code == 2


def test_the_baseline_is_given_by_the_name_or_the_spec_of_a_contender(
    cairn, churn: Path, forward: Path
) -> None:
    for given in (f"{forward}", f"base={forward}", "again=system"):
        result = cairn(
            "compare", "-r", 1, "-a", "system", "--baseline", given, "--json", "--", churn, 10
        )
        assert result.code == 0, result.err
        names = [contender["name"] for contender in result.json["run"]["contenders"]]
        assert result.json["run"]["baseline"] in names
    same = cairn(
        "compare",
        "-r",
        1,
        "-a",
        f"{forward}",
        "-a",
        "system",
        "--baseline",
        f"{forward}",
        "--json",
        "--",
        churn,
        10,
    )
    assert same.code == 0, same.err
    assert len(same.json["run"]["contenders"]) == 2


def test_same_output_is_verified_for_each_workload_alone(cairn) -> None:
    pair = ("-a", "system", "-a", "again=system", "--verify", "same-output")
    assert cairn("compare", "-r", 2, *pair, "-c", "echo a", "-c", "echo b").code == 0


def test_a_pipeline_keeps_its_terminal(cairn) -> None:
    line = " ".join(
        [*(f"'{word}'" for word in cairn.argv), "run", "--", "echo", "hello", "|", "cat"]
    )
    done = subprocess.run(
        ["script", "-qec", f"bash -ic {line!r}", "/dev/null"],
        env={**cairn.env, "TERM": "xterm"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert b"hello" in done.stdout and b"Stopped" not in done.stdout
