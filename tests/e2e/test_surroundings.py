"""Tests that unusual surroundings do not break the command.

Such surroundings are strange arguments, locales, closed pipes, full disks and damaged files.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest


def in_bytes(
    cairn, *args: bytes | str, stdout: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    words = [*cairn.argv, *args]
    return subprocess.run(
        words, env=cairn.env, cwd=cairn.home, stdin=subprocess.DEVNULL,
        stdout=stdout or subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False,
    )  # fmt: skip


def test_an_argument_that_is_no_utf8_is_profiled_all_the_same(cairn, churn: Path) -> None:
    """Cairn once ran the program to its end, and then failed to write the profile."""
    out = cairn.home / "out.json"
    done = in_bytes(cairn, "profile", "--json", str(out), "--", str(churn), b"10\xe9")
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["tree"]["command"][-1] == "10\\xe9"


def test_a_locale_without_our_signs_gets_escapes(cairn, churn: Path) -> None:
    cairn.environment["PYTHONIOENCODING"] = "latin-1"
    done = in_bytes(
        cairn, "compare", "-r", "2", "-a", "system", "-a", "again=system", "--", str(churn), "10"
    )
    assert done.returncode == 0, done.stderr
    assert "\\u2026\n" in done.stdout.decode("latin-1")


def test_the_reader_of_stderr_may_close_the_pipe(cairn, churn: Path) -> None:
    """With a closed pipe, Cairn once ended without a message and without a result."""
    read, write = os.pipe()
    os.close(read)
    command = [*cairn.argv, "compare", "--json", "-r", "2", "-a", "system", "--", str(churn), "10"]
    done = subprocess.run(
        command,
        env=cairn.env,
        cwd=cairn.home,
        stdout=subprocess.PIPE,
        stderr=write,
        timeout=120,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["samples"]) == 3


@pytest.mark.parametrize(
    ("words", "code"), [("--version", 1), ("profile --runs 1 --json - -- /bin/ls", 125)]
)
def test_a_result_for_a_closed_standard_output_is_no_success(cairn, words: str, code: int) -> None:
    """The JSON was lost, and the exit code was 0."""
    line = f"exec {shlex.join(map(str, cairn.argv))} {words} >&-"
    done = subprocess.run(
        ["sh", "-c", line], env=cairn.env, cwd=cairn.home, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.decode().splitlines()[-1] == ("✘ cannot write standard output: it is closed")


@pytest.mark.parametrize("toggled", [("--duration", "0.2s"), ("--duration", "100s")])
def test_a_report_that_cannot_be_written_is_no_success(
    cairn, churn: Path, toggled: tuple[str, str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = in_bytes(cairn, "profile", *toggled, "--json", "-", "--", "/bin/sh", "-c",
        f"{churn} 10; sleep 0.6",
                        stdout=full.fileno())  # fmt: skip
    assert done.returncode not in (0, -signal.SIGPIPE)
    assert b"Traceback" not in done.stderr and b"No space left" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [("--help", 1), ("report", 1), pytest.param("report --list", 1, marks=pytest.mark.long),
     pytest.param("report --csv", 1, marks=pytest.mark.long), ("profile --json - -- /bin/sh -c :", 125)],
)  # fmt: skip
def test_a_full_standard_output_is_named(cairn, words: str, code: int) -> None:
    """The message was "the system refused: No space left on device"."""
    assert cairn("compare", "-r", 1, "-a", "system", "--", "true").code == 0
    with open("/dev/full", "wb") as full:
        done = in_bytes(cairn, *words.split(), stdout=full.fileno())
    assert done.returncode == code
    assert done.stderr.decode().splitlines()[-1] == (
        "✘ cannot write standard output: No space left on device; free some space there, or write "
        "to another disk"
    )


def test_a_metric_beyond_what_is_stored_is_refused_and_the_run_stays_readable(cairn) -> None:
    result = cairn(
        "compare",
        "-r",
        1,
        "-a",
        "system",
        "--metric",
        r"n=(\d+)",
        "--",
        "/bin/echo",
        "n=1726000000000000000",
    )
    assert result.code == 3 and "below 10^15" in result.sentence
    assert cairn("report", "last").code == 0


def test_damaged_runs_do_not_disturb_a_profile(cairn, churn: Path) -> None:
    other = cairn.results / "20260101-000000-0000"
    other.mkdir(parents=True)
    (other / "run.json").write_text('{"experiment": "calibration"')
    (other / "samples.jsonl").touch()
    (other / "stopped").write_text("60 rounds\n")
    result = cairn("profile", "--", churn, 10)
    assert result.code == 0, result.err
    assert "no prediction" in result.err and "The allocator" in result.err


@pytest.mark.parametrize(
    "how",
    [
        ("run",),
        ("profile",),
        ("compare", "-r", 1, "--warm-memory", "off", "--baseline", "mine", "-a", "mine=@"),
    ],
)
def test_a_malloc_that_the_user_preloads_comes_behind_the_allocator(
    cairn, compiled, forward: Path, how: tuple[object, ...]
) -> None:
    """LD_PRELOAD must name the allocator before the user's library, also in the program's child.

    In the opposite order, the user's library would own malloc.
    """
    theirs = compiled("forward_malloc.c", "-shared", "-DTHEIRS")
    kept = cairn.home / "preloaded"
    words = [str(word).replace("@", str(forward)) for word in how]
    script = f'printf %s "$LD_PRELOAD" >{kept}; sh -c true'
    result = cairn(
        *words, "-a", f"other={forward}", "--", "sh", "-c", script, LD_PRELOAD=str(theirs)
    )
    assert result.code == 0, result.err
    preloaded = kept.read_text().split(":")
    assert preloaded.index(str(forward)) < preloaded.index(str(theirs)) == len(preloaded) - 1


def test_options_that_would_be_ignored_are_refused(cairn, churn: Path) -> None:
    kept = cairn.home / "kept"
    assert cairn("profile", "--keep", kept, "--", churn, 10).code == 0
    for words, says in (
        (("compare", "-r", 5, "--precision", "2%", "--", churn), "leave out --precision"),
        (("compare", "-r", 5, "--max-rounds", 9, "--", churn), "leave out --max-rounds"),
        (("bench", "--json"), "which experiment?"),
        (("bench", "list", "--quick"), "which experiment?"),
        (("profile", "--read", kept, "-a", "cairn"), "leave out -a"),
        (("profile", "--read", kept, "--overhead"), "leave out --overhead"),
    ):
        refused = cairn(*words)
        assert refused.code == 2 and says in refused.sentence, (words, refused.err)
    assert not list(cairn.results.glob("*"))


def test_a_time_budget_holds_even_if_the_number_of_rounds_is_given(cairn, churn: Path) -> None:
    result = cairn(
        "compare", "--json", "-r", 2000, "--budget", "2s", "-a", "system", "--", churn, 10
    )
    assert result.code == 0, result.err
    assert 1 < len(result.json["samples"]) < 1000
    assert "time budget" in cairn("report", "last").out


def test_a_resume_that_fails_leaves_the_run_as_it_was(cairn, churn: Path, forward: Path) -> None:
    """In an earlier version, a failed resume marked the finished run as not finished.

    If a contender's library had been rebuilt, this contender also failed in every later resume.
    """
    library = cairn.home / "libmine.so"
    library.write_bytes(forward.read_bytes())
    first = cairn("compare", "-r", 2, "-a", "system", "-a", f"mine={library}", "--", churn, 10)
    assert first.code == 0, first.err
    before = cairn("report", "last").out
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", library],
        input=b"int x;",
        check=True,
    )
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 4 and "another build" in refused.sentence
    library.unlink()
    assert cairn("compare", "--resume", "last").code == 4
    assert cairn("report", "last").out == before
