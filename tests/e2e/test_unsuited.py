"""Tests of programs that cannot tell which allocator is best, as users run them."""

from __future__ import annotations

import re
import shlex
import socket
import sys
import time
from pathlib import Path

import pytest

PAIR = ("-a", "system", "-a")
WARM = ("--warmup", 5)
"""The runs of the warm-up are judged by their median, so a single slow run changes nothing."""


@pytest.fixture(scope="session")
def daemonize(compiled) -> Path:
    return compiled("daemonize.c", "-O2")


def one_line(text: str) -> str:
    """The text as one line, so that the width of the report does not matter."""
    return " ".join(text.split())


def test_a_program_that_waits_is_told_first(cairn, forward: Path) -> None:
    result = cairn("compare", "-r", 6, *PAIR, f"x={forward}", "--", "sleep", 0.3)
    assert result.code == 0, result.err
    says = "The program used"
    assert one_line(result.out).startswith(says)
    assert "of one CPU: it mostly waits, so no allocator makes it much faster." in one_line(
        result.out
    )
    told = result.err.index(says)
    assert told < result.err.index("results"), "before the end of the measurement"


@pytest.mark.parametrize(
    "way", ["twice", *(pytest.param(way, marks=pytest.mark.long) for way in ("daemon", "child"))]
)
def test_a_daemon_is_refused_and_measured_to_its_end_on_request(
    cairn, forward: Path, daemonize: Path, way: str
) -> None:
    """Cairn once measured the process that starts the daemon, and ended the daemon."""
    command = ("--", daemonize, way, 30_000_000)
    refused = cairn("compare", "-r", 6, *WARM, *PAIR, f"x={forward}", *command)
    assert refused.code == 2
    assert "1 of its processes went on in the background" in refused.sentence
    assert "--wait-descendants" in refused.sentence and "--foreground" in refused.sentence
    assert refused.out == ""
    waited = cairn(
        "compare", "-r", 2, *PAIR, f"x={forward}", "--wait-descendants", "--json", *command
    )
    assert waited.code == 0, waited.err
    for sample in waited.json["samples"]:
        assert sample["left_behind"] == 0
        assert sample["wall_ns"] > 50e6
        assert sample["user_ns"] > 0.5 * min(sample["wall_ns"], 100e6)


def test_a_shell_that_leaves_a_process_in_the_background_is_refused(cairn, forward: Path) -> None:
    line = "sleep 30 & exit 0"
    result = cairn("compare", "-r", 6, *WARM, *PAIR, f"x={forward}", "--shell", "-c", line)
    assert result.code == 2 and "went on in the background" in result.sentence


def test_a_longer_command_with_processes_in_the_background_is_measured_with_a_warning(
    cairn, forward: Path
) -> None:
    line = "sleep 30 & sleep 0.2"
    result = cairn("compare", "-r", 1, *PAIR, f"x={forward}", "--shell", "-c", line)
    assert result.code == 0, result.err
    assert re.match(r"The command ended after \d", one_line(result.out))
    assert one_line(result.out).count("Cairn ended them") == 1
    assert "still running when the command ended" not in one_line(result.out)
    assert "Cairn ended them, so all numbers are those of the first" in one_line(result.out)
    assert "went on in the background" in result.err


def test_a_short_program_gets_a_warning_or_is_run_in_batches(
    cairn, forward: Path, churn: Path
) -> None:
    pair = (*PAIR, f"x={forward}")
    alone = cairn("compare", "-r", 6, *WARM, *pair, "--json", "--", churn, 1)
    assert alone.code == 0, alone.err
    assert "A run takes less than" in alone.err and "--repeat auto" in alone.err
    assert alone.json["comparisons"][0]["unsuited"][0].startswith("A run takes less than")
    batches = cairn("compare", "-r", 2, *pair, "--repeat", "auto", "--json", "--", churn, 1)
    assert batches.code == 0, batches.err
    assert "A run takes less than" not in batches.err
    assert batches.json["comparisons"][0]["unsuited"] == []
    warm, *samples = (s for s in batches.json["samples"] if s["trial"]["contender"] == "system")
    assert warm["repeats"] == 1
    (number,) = {sample["repeats"] for sample in samples}
    assert number > 1
    assert number >= min(50, 20e6 / warm["wall_ns"])
    assert all(sample["wall_ns"] < number / 2 * warm["wall_ns"] for sample in samples), (
        "the sample must have the mean of the runs, and not their sum"
    )
    assert f"the mean of {number} runs" in cairn("report", "--full").out
    fixed = cairn("compare", "-r", 1, *pair, "--repeat", 3, "--json", "--", churn, 1)
    assert {s["repeats"] for s in fixed.json["samples"] if s["trial"]["round"]} == {3}


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "1001", ""])
def test_a_wrong_number_of_repeats_is_refused(cairn, value: str) -> None:
    result = cairn("compare", "--repeat", value, "--", "true")
    assert result.code == 2
    assert "is not auto or a number from 1 to 1000" in one_line(result.err)


def test_repeats_are_refused_beside_why(cairn) -> None:
    result = cairn("compare", "--why", "--repeat", 3, "--", "true")
    assert result.code == 2 and "leave out --repeat" in result.sentence


def test_a_program_that_needs_a_terminal_gets_advice(cairn) -> None:
    line = "test -t 0 || { echo 'standard input is not a tty' >&2; exit 1; }"
    result = cairn("compare", "-r", 1, "-a", "system", "--shell", "-c", line)
    assert result.code == 3
    assert "needs a terminal" in result.sentence.replace("seems to need", "needs")
    assert "script -qec" in result.sentence


@pytest.mark.parametrize("kind", ["inet", pytest.param("unix", marks=pytest.mark.long)])
def test_a_server_that_waits_for_clients_is_ended(
    cairn, forward: Path, tmp_path: Path, kind: str
) -> None:
    address = "('127.0.0.1', 0)" if kind == "inet" else f"{str(tmp_path / 'socket')!r}"
    family = {"inet": socket.AF_INET, "unix": socket.AF_UNIX}[kind]
    script = tmp_path / "server.py"
    script.write_text(
        f"import socket\ns = socket.socket({int(family)})\ns.bind({address})\n"
        "s.listen()\ns.accept()\n"
    )
    began = time.monotonic()
    result = cairn("compare", *PAIR, f"x={forward}", "--", sys.executable, script)
    assert time.monotonic() - began < 40
    assert result.code == 2
    where = "port " if kind == "inet" else str(tmp_path / "socket")
    assert f"waits for clients at {where}" in result.sentence
    assert "does not end by itself" in result.sentence


@pytest.mark.long
def test_a_script_that_starts_a_server_and_a_client_is_measured(cairn, tmp_path: Path) -> None:
    """The script waits for longer than it takes to recognise a server."""
    server = (
        f'{shlex.quote(sys.executable)} -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        "s.accept()' & sleep 9; kill $!"
    )
    result = cairn("compare", "-r", 1, "-a", "system", "--budget", "1h", "--shell", "-c", server)
    assert result.code == 0, result.err
