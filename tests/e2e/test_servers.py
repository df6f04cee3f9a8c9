"""Tests of `cairn compare --while`: servers under a load."""

from __future__ import annotations

import csv
import io
import re
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import running

TWO = ("-a", "system", "-a")


@pytest.fixture(scope="session")
def server(compiled: Callable[..., Path]) -> Path:
    return compiled("small_server.c")


@pytest.fixture(scope="session")
def load(compiled: Callable[..., Path]) -> str:
    """A load of 400 requests, as a line for the shell."""
    return f"{compiled('small_load.c')} {{port}} 400"


def test_a_server_is_started_loaded_and_ended(cairn, server: Path, load: str, forward) -> None:
    result = cairn(
        "compare", "-r", 3, *TWO, f"x={forward}", "--while", load, "--json", "--", server, "{port}"
    )
    assert result.code == 0, result.err
    samples = result.json["samples"]
    assert len(samples) == 2 * 4
    for sample in samples:
        assert sample["failure"] is None
        assert sample["signal"] == signal.SIGTERM
        assert sample["load"]["requests/s"] > 0
        assert sample["load"]["p50"] > 0
        assert sample["wall_ns"] > 400 * sample["load"]["p50"] * 0.99
        assert sample["memory"]["peak_bytes"] > 0
        assert sample["proof"]["loaded"] == sample["proof"]["processes"] == 1
    assert not running(f"{server} ")


def test_the_throughput_is_judged_and_a_slower_allocator_is_slower(
    cairn, server: Path, load: str, forward: Path
) -> None:
    slow = f"slow={forward}:TEST_SLOW=20000"
    result = cairn(
        "compare", "-r", 6, *TWO, slow, "--while", load, "--json", "--", server, "{port}"
    )
    assert result.code == 0, result.err
    comparison = result.json["comparisons"][0]
    assert comparison["time"]["key"] == "request_time"
    rows = {row["contender"]: row for row in comparison["rows"]}
    changes = rows["slow"]["changes"]
    assert changes["request_time"]["shown"] == "more"
    assert changes["load:requests/s"]["shown"] == "less"
    assert changes["load:p50"]["shown"] == "more"
    assert changes["cpu_time"]["shown"] == "more"
    assert [row["contender"] for row in comparison["rows"]] == ["system", "slow"]
    directions = {metric["key"]: metric["direction"] for metric in comparison["metrics"]}
    assert directions["load:requests/s"] == "more"
    assert directions["load:p50"] == "less"
    text = cairn("report", "--color", "always", "--full").out
    line = next(
        line
        for place, line in enumerate(text.splitlines())
        if "slow" in line and "requests/s" in text.splitlines()[place - 2] and "▼" in line
    )
    assert re.search(r"\x1b\[31m *▼", line), "less throughput is bad, and therefore red"
    rows_csv = list(csv.DictReader(io.StringIO(cairn("report", "--csv").out)))
    by = {
        name: [float(row["load:requests/s"]) for row in rows_csv if row["contender"] == name]
        for name in ("system", "slow")
    }
    assert statistics.median(by["slow"]) < statistics.median(by["system"])


def test_times_are_those_of_the_server_during_the_load(
    cairn, server: Path, load: str, forward: Path
) -> None:
    """Neither the CPU time of the load nor that of the server's start is measured."""
    busy = (
        "python3 -c 'import time; b = time.process_time()\nwhile time.process_time() < b + .5: 1'"
    )
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", f"{load}; {busy}", "--json",
        "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    for sample in result.json["samples"]:
        assert sample["wall_ns"] > 0.5e9
        assert 0 < sample["user_ns"] + sample["system_ns"] < 0.4e9
        assert sample["memory"]["peak_bytes"] < 8 << 20, "python3 is not in the measured tree"


def test_the_cpu_time_of_children_that_serve_and_end_is_counted(
    cairn, server: Path, forward: Path, compiled: Callable[..., Path]
) -> None:
    one = f"{compiled('small_load.c')} {{port}} 3000"
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}:TEST_SLOW=2000", "--baseline", "x", "--while",
        f"{one} && sleep 0.1 && {one}", "--json", "--", server, "{port}", "forks",
    )  # fmt: skip
    assert result.code == 0, result.err
    for sample in result.json["samples"]:
        assert sample["user_ns"] + sample["system_ns"] > 30e6


def test_the_load_runs_without_the_allocator(cairn, server: Path, load: str, forward: Path) -> None:
    shown = f'{load}; echo "preload ${{#LD_PRELOAD}}."'
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", shown, "--metric",
        r"length=preload (\d+)\.", "--json", "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert {sample["metrics"]["length"] for sample in result.json["samples"]} == {0}


def test_a_number_of_the_load_is_found_by_a_pattern(
    cairn, server: Path, load: str, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 2, "-a", f"x={forward}", "--while", load, "--metric",
        r"longest=longest ([\d.]+) ms", "--json", "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert all(sample["metrics"]["longest"] > 0 for sample in result.json["samples"])
    rows = result.json["comparisons"][0]["rows"]
    assert all("metric:longest" in row["summaries"] for row in rows)


def test_without_known_numbers_the_time_of_the_load_is_judged(
    cairn, server: Path, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 2, "-a", f"x={forward}", "--while", "sleep 0.1", "--json",
        "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    comparison = result.json["comparisons"][0]
    assert comparison["time"]["key"] == "wall"
    assert all(0.1e9 < sample["wall_ns"] < 5e9 for sample in result.json["samples"])


def test_each_trial_has_a_port_of_its_own_in_all_commands(
    cairn, server: Path, load: str, forward: Path, tmp_path: Path
) -> None:
    ports = tmp_path / "ports"
    result = cairn(
        "compare", "-r", 2, "-a", f"x={forward}",
        "--prepare", f"echo prepare {{port}} >>{ports}",
        "--while", f"echo load {{port}} >>{ports}; {load}",
        "--conclude", f"echo conclude {{port}} >>{ports}",
        "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    lines = [line.split() for line in ports.read_text().splitlines()]
    assert [word for word, _ in lines] == ["prepare", "load", "conclude"] * 6
    numbers = [int(port) for _, port in lines]
    for place in range(0, len(numbers), 3):
        assert len(set(numbers[place : place + 3])) == 1
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(low <= port <= high for port in numbers), "clients have ports of that range"


def test_a_slow_start_is_waited_for_and_not_measured(
    cairn, server: Path, load: str, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", load, "--json",
        "--", server, "{port}", "late",
    )  # fmt: skip
    assert result.code == 0, result.err
    walls = [sample["wall_ns"] for sample in result.json["samples"]]
    assert min(walls) < 2.5e9, "the server begins to listen after 3 s"


def test_ready_waits_for_a_command_of_the_user(
    cairn, server: Path, load: str, forward: Path, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"
    ready = f"echo {{port}} >>{tries}; test $(grep -c '^{{port}}$' {tries}) -gt 3"
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--ready", ready, "--while", load,
        "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert len(tries.read_text().splitlines()) >= 4


def test_a_server_that_handles_sigterm_is_no_failure(
    cairn, server: Path, load: str, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", load, "--json",
        "--", server, "{port}", "polite",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert {sample["exit_code"] for sample in result.json["samples"]} == {0}


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("refuse", "ended with exit code 3 before it was ready: small_server: the port is of no"),
        ("background", "put itself into the background"),
        ("crash", "was killed by signal 11 (SIGSEGV) while the load ran"),
        ("torn", "was killed by signal 11 (SIGSEGV) when it was asked to end"),
        ("stubborn", "did not end within 10 s after SIGTERM, and was killed"),
    ],
)
def test_a_server_that_fails_under_the_baseline_is_told(
    cairn, server: Path, load: str, forward: Path, mode: str, words: str
) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", load, "--", server, "{port}", mode
    )
    assert result.code == 3, result.err
    assert words in result.sentence
    assert not running(f"{server} ")


def test_a_server_that_never_listens_is_told_after_the_limit(
    cairn, server: Path, load: str, forward: Path
) -> None:
    began = time.monotonic()
    result = cairn(
        "compare", "-r", 1, "--timeout", "1s", "-a", f"x={forward}", "--while", load,
        "--", server, "{port}", "deaf",
    )  # fmt: skip
    assert result.code == 3
    assert re.search(
        r"was not ready after 1 s: nothing accepted a connection on port \d+", result.sentence
    )
    assert time.monotonic() - began < 8
    assert not running(f"{server} ")


def test_a_contender_under_which_the_server_dies_is_left_out(
    cairn, server: Path, load: str, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 2, *TWO, f"bad={forward}:TEST_CRASH=1", "-a", f"good={forward}", "--while",
        load, "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 4, result.err
    assert (
        "under bad, the program was killed by signal 11 (SIGSEGV) while the load ran" in result.err
    )
    assert "good" in result.out


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("no-such-load {port}", "the load failed with exit code 127: /bin/sh: 1: no-such-load: "),
        ("echo one >&2; echo two >&2; exit 4", "the load failed with exit code 4: one / two"),
        ("echo a; echo b; kill -9 $$", "the load was killed by signal 9 (SIGKILL): a / b"),
    ],
)
def test_a_load_that_fails_is_told_with_its_last_lines(
    cairn, server: Path, forward: Path, load: str, words: str
) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", load, "--", server, "{port}"
    )
    assert result.code == 3
    assert words in result.sentence


def test_a_load_that_does_not_end_is_ended_with_its_children(
    cairn, server: Path, forward: Path
) -> None:
    result = cairn(
        "compare", "-r", 1, "--timeout", "1s", "-a", f"x={forward}", "--while", "sleep 3217; true",
        "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 3
    assert "the load did not end within 1 s (--timeout)" in result.sentence
    assert not running("sleep 3217")
    assert not running(f"{server} ")


def test_a_load_whose_requests_fail_is_no_result(cairn, server: Path, forward: Path) -> None:
    """A server that answers with errors may be fast."""
    said = (
        r"printf '  100 requests in 1.00s, 1.00KB read\n  Non-2xx or 3xx responses: 2\n"
        r"Requests/sec:    100.00\n'"
    )
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", said, "--", server, "{port}"
    )
    assert result.code == 3
    assert "failed in 2.0 % of the requests of the load" in result.sentence


def test_a_load_that_prints_no_numbers_under_a_contender_is_no_result(
    cairn, server: Path, load: str, forward: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "later"
    result = cairn(
        "compare", "-r", 1, *TWO, f"x={forward}", "--while",
        f"if test -e {mark}; then sleep 0.1; else touch {mark}; {load}; fi", "--",
        server, "{port}",
    )  # fmt: skip
    assert result.code == 4
    assert "its load printed no numbers as it did under system" in result.err


def test_ctrl_c_ends_the_server_and_its_load_and_the_run_continues(
    cairn, server: Path, forward: Path, compiled: Callable[..., Path]
) -> None:
    load = f"{compiled('small_load.c')} {{port}} 400; sleep 0.2"
    process = cairn.start(
        "compare", "-r", 6, "-a", f"x={forward}", "--while", load, "--", server, "{port}"
    )
    until = time.monotonic() + 30
    while not any(cairn.results.glob("*/samples.jsonl")) or not any(
        path.read_text() for path in cairn.results.glob("*/samples.jsonl")
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert not running(f"{server} ")
    again = cairn("compare", "--resume", "last", "--json", timeout=240)
    assert again.code == 0, again.err
    assert f"load     {load}" in again.err, "the announcement names the load"
    assert again.json["run"]["settings"]["workloads"][0]["load"] == load
    assert len({s["trial"]["round"] for s in again.json["samples"] if s["trial"]["round"]}) == 6


def test_the_report_shows_the_load(cairn, server: Path, load: str, forward: Path) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--while", load, "--", server, "{port}"
    )
    assert result.code == 0, result.err
    for form in ((), ("--md",), ("--full",)):
        words = cairn("report", *form).out.replace("\\", "").split()
        assert load.split(maxsplit=1)[0].rpartition("/")[2] in " ".join(words)
        assert "Load:" in words or "load:" in words


def test_the_load_may_use_parameters(cairn, server: Path, forward: Path, compiled) -> None:
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "-L", "requests=100,200", "--json", "--while",
        f"{compiled('small_load.c')} {{port}} {{requests}}", "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    workloads = result.json["run"]["settings"]["workloads"]
    assert [one["load"].split()[-1] for one in workloads] == ["100", "200"]
    assert len({one["name"] for one in workloads}) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ready", "true"), "--ready belongs to a server under load"),
        (("--while", " "), "--while needs the command of a load"),
        (("--while", "true", "--why"), "leave out one of the two"),
        (("--while", "true", "--verify", "same-output"), "leave out --verify"),
        (("--while", "true", "--wait-descendants"), "leave out --wait-descendants"),
        (("--while", "true", "--repeat", "auto"), "leave out --repeat"),
        (("--while", "true", "-L", "port=1,2"), "leave out -L port"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    cairn, server: Path, options: tuple[str, ...], words: str
) -> None:
    result = cairn("compare", *options, "--", server, "{port}")
    assert result.code == 2
    assert words in result.sentence


def test_a_server_without_a_port_needs_a_sign_that_it_is_ready(cairn, server: Path) -> None:
    result = cairn("compare", "--while", "true", "--", server, "2000")
    assert result.code == 2
    assert "write {port} where its port belongs, or give --ready COMMAND" in result.sentence


def test_a_server_of_a_plan_may_get_its_port_in_a_variable(
    cairn, server: Path, load: str, forward: Path
) -> None:
    """Once, the variable had the text "{port}"."""
    file = cairn.home / "plan.toml"
    file.write_text(
        f'[plan]\ncontenders = ["system", "x={forward}"]\nrounds = 1\nwarmup = 0\n'
        f"[program.served]\ncommand = '{server} $PORT'\nshell = true\nload = '{load}'\n"
        'environment = { PORT = "{port}" }\n'
    )
    result = cairn("matrix", "run", file)
    assert result.code == 0, result.err
