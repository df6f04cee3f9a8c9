"""Tests of the standard input of the measured program."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from pathlib import Path

import pytest

PAIR = ("-r", "2", "-a", "system", "-a", "again=system", "--verify", "same-output")
TEXT = b"one\ntwo\n\xff\x00three\n"


def compared(cairn, stdin: object, *arguments: object, data: bytes | None = None) -> tuple:
    """Runs `cairn compare` with this standard input. Returns exit code, stdout and stderr."""
    done = subprocess.run(
        [*cairn.argv, "compare", *map(str, arguments)],
        env=cairn.env, cwd=cairn.home, capture_output=True, timeout=60, check=False,
        **({"input": data} if data is not None else {"stdin": stdin}),
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("given", [(), ("--input", "-")], ids=["by itself", "as an option"])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_every_run_reads_the_same_copy_of_a_pipe(
    cairn, tmp_path: Path, given: tuple[str, ...], kind: str
) -> None:
    """Cairn once ignored a pipe without a word, so that the program read nothing."""
    out = tmp_path / "out"
    if kind == "pipe":
        reading, writing = os.pipe()
        os.write(writing, TEXT)
        os.close(writing)
        stdin: object = reading
    else:
        stdin, other = socket.socketpair()
        other.sendall(TEXT)
        other.close()
    code, _, errors = compared(cairn, stdin, *PAIR, *given, "--output", out, "--", "cat")
    assert code == 0, errors
    assert out.read_bytes() == TEXT
    assert "16 B from standard input: every run reads the same copy" in errors
    assert ("(as with --input -)" in errors) == (not given)
    (folder,) = cairn.results.iterdir()
    assert (folder / "input").read_bytes() == TEXT
    assert (folder / "input").stat().st_mode & 0o077 == 0


def test_a_redirected_file_is_read_from_its_beginning_in_every_run(cairn, tmp_path: Path) -> None:
    file, out = tmp_path / "text", tmp_path / "out"
    file.write_bytes(TEXT)
    with file.open("rb") as stdin:
        code, _, errors = compared(cairn, stdin, *PAIR, "--output", out, "--", "cat")
    assert code == 0 and out.read_bytes() == TEXT, errors
    assert f"{file}, from its beginning in every run" in errors
    assert not (next(cairn.results.iterdir()) / "input").exists(), "a file needs no copy"


def test_a_loop_over_the_lines_of_a_file_keeps_its_lines(cairn, tmp_path: Path) -> None:
    file, out = tmp_path / "list", tmp_path / "out"
    file.write_text("one\ntwo\nthree\n")
    line = shlex.join([*cairn.argv, "compare", "-r", "1", "-a", "system", "--", "wc", "-c"])
    script = f"while read word; do echo $word >> {out}; {line}; done < {file}"
    done = subprocess.run(["sh", "-c", script], env=cairn.env, cwd=cairn.home, check=False)
    assert done.returncode == 0
    assert out.read_text().split() == ["one", "two", "three"]


def test_a_file_that_was_deleted_after_it_was_opened_is_copied(cairn, tmp_path: Path) -> None:
    file, out = tmp_path / "text", tmp_path / "out"
    file.write_bytes(TEXT)
    with file.open("rb") as stdin:
        file.unlink()
        code, _, errors = compared(cairn, stdin, *PAIR, "--output", out, "--", "cat")
    assert code == 0 and out.read_bytes() == TEXT, errors


def test_a_pipe_that_stays_open_and_empty_is_no_input(cairn) -> None:
    """Services and editors start commands with an open, empty pipe. Cairn must not wait for it."""
    reading, writing = os.pipe()
    code, _, errors = compared(cairn, reading, *PAIR, "--", "cat")
    os.close(writing)
    assert code == 0, errors
    assert "nothing came through standard input within 2 s" in errors
    assert "--input -" in errors
    closed = subprocess.run(
        ["sh", "-c", shlex.join([*cairn.argv, "compare", *PAIR, "--", "cat"]) + " <&-"],
        env=cairn.env, cwd=cairn.home, capture_output=True, check=False,
    )  # fmt: skip
    assert closed.returncode == 0 and b"standard input" not in closed.stderr


def test_a_slow_pipe_is_waited_for_if_the_user_asks(cairn, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = shlex.join([*cairn.argv, "compare", *PAIR, "--input", "-", "--output", str(out), "cat"])
    script = f"(sleep 3; echo late) | {line}"
    done = subprocess.run(
        ["sh", "-c", script], env=cairn.env, cwd=cairn.home, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "late\n"


def test_an_empty_pipe_and_no_input_are_not_worth_a_word(cairn) -> None:
    code, _, errors = compared(cairn, None, *PAIR, "--", "cat", data=b"")
    assert code == 0 and "standard input" not in errors
    code, _, errors = compared(cairn, subprocess.DEVNULL, *PAIR, "--", "cat")
    assert code == 0 and "standard input" not in errors
    with Path("/dev/zero").open("rb") as zero:
        code, _, errors = compared(cairn, zero, *PAIR, "--input", "-", "--", "cat")
    assert code == 2 and "device" in errors


def test_a_resumed_run_reads_the_copy_and_says_if_it_is_gone(cairn, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [
            *(*cairn.argv, "compare", "-r", "30", *PAIR[2:], "--output", out),
            *("--shell", "--", "sleep 0.02; cat"),
        ],
        env=cairn.env, cwd=cairn.home,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(TEXT)
    process.stdin.close()
    deadline = time.monotonic() + 30
    while not any(path.stat().st_size for path in cairn.results.glob("*/samples.jsonl")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(2)
    process.wait(timeout=30)
    (folder,) = cairn.results.iterdir()
    kept = (folder / "input").read_bytes()
    (folder / "input").rename(tmp_path / "kept")
    refused = cairn("compare", "--resume", "last")
    assert refused.code == 2 and "is gone" in refused.sentence
    (folder / "input").write_bytes(kept)
    out.unlink()
    assert cairn("compare", "--resume", "last").code == 0
    assert out.read_bytes() == TEXT


def test_the_copy_survives_a_program_that_deletes_the_results(cairn) -> None:
    line = "grep -q three && rm -rf $CAIRN_RESULTS/2*"
    code, _, errors = compared(cairn, None, *PAIR[:-2], "--shell", "--", line, data=TEXT)
    assert code == 0, errors
    (folder,) = cairn.results.iterdir()
    assert (folder / "input").read_bytes() == TEXT


def test_no_copy_is_left_behind_by_a_run_that_does_not_begin(cairn) -> None:
    code, _, errors = compared(cairn, None, *PAIR, "--", "./missing", data=TEXT)
    assert code == 3 and "no such file" in errors
    assert not list(cairn.results.iterdir())
