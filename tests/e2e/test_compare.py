"""Tests of `cairn compare` as users run it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import running

from cairn.model import SCHEMA

FEW = ("--min-rounds", 2, "--max-rounds", 3, "--warm-memory", "off")


def test_the_verdict_names_the_allocator_to_use(cairn, forward: Path, churn: Path) -> None:
    result = cairn("compare", *FEW, "-a", "system", "-a", f"other={forward}", "--", churn, 200_000)
    assert result.code == 0, result.err
    for word in (
        "wall",
        "peak memory",
        "user",
        "system",
        "CPU",
        "faults",
        "against system",
        "baseline",
        "other",
    ):
        assert word in cairn("report", "--md").out.replace("\\", ""), word
    assert "every program (1 in each run) loaded its allocator" in " ".join(result.out.split())
    assert "Next: " in result.out
    assert "seed" in result.err and "results" in result.err


def test_a_slower_allocator_is_reported_as_slower(cairn, forward: Path, churn: Path) -> None:
    slow = f"slow={forward}:TEST_SLOW=20000"
    result = cairn("compare", "-r", 8, "-a", "system", "-a", slow, "--json", "--", churn, 3000)
    assert result.code == 0, result.err
    rows = {row["contender"]: row for row in result.json["comparisons"][0]["rows"]}
    assert rows["slow"]["changes"]["wall"]["shown"] == "more"
    assert rows["slow"]["changes"]["wall"]["interval"]["low"] > 0.2
    assert result.json["comparisons"][0]["verdict"][0].startswith("Keep system: ")


@pytest.mark.parametrize(
    ("extra", "hold", "says"),
    [
        pytest.param(300, 30_000, ("more CPU time", "less memory"), marks=pytest.mark.long),
        (300, 60_000, ("more CPU time", "more memory")),
        pytest.param(-300, 46_000, ("less CPU time", "more memory"), marks=pytest.mark.long),
        pytest.param(-300, 40_000, ("less CPU time",), marks=pytest.mark.long),
        pytest.param(0, 60_000, ("more memory",), marks=pytest.mark.long),
    ],
)
def test_every_proven_difference_is_told(
    cairn, compiled, extra: int, hold: int, says: tuple[str, ...]
) -> None:
    """In an earlier version, the verdict named only time and memory, and only with a clear time.

    The test does not check wall time, because other programs of the machine disturb it.
    """
    pair = ("-a", "a=system:SPIN_HOLD=40000", "-a", f"b=system:SPIN_HOLD={hold};SPIN_EXTRA={extra}")
    result = cairn(
        "compare", "-r", 12, "--baseline", "a", *pair, "--json", "--", compiled("spin.c"), 25
    )
    assert result.code == 0, result.err
    told = " ".join(result.json["comparisons"][0]["verdict"])
    for word in ("less", "more"):
        told = told.replace(f"{word} time and CPU time", f"{word} time and {word} CPU time")
    assert all(words in told for words in says), told


def test_a_fresh_machine_is_judged_by_the_words_of_the_report(cairn) -> None:
    judge = runpy.run_path(str(Path(__file__).parents[1] / "fresh" / "run"))
    result = cairn("compare", "-r", 2, "-a", "system,cairn", "--", "true")
    assert judge["LOADED"] in " ".join(result.out.split())


def test_the_baseline_is_added_to_a_single_contender(cairn, forward: Path, churn: Path) -> None:
    result = cairn("compare", *FEW, "-a", f"x={forward}", "--json", "--", churn)
    assert [c["name"] for c in result.json["run"]["contenders"]] == ["system", "x"]
    assert result.json["run"]["baseline"] == "system"


def test_every_form_of_report_comes_from_the_same_run(
    cairn, forward: Path, churn: Path, tmp_path: Path
) -> None:
    first = cairn("compare", "-r", 3, "-a", "system", "-a", f"x={forward}", "--", churn)
    assert first.code == 0, first.err
    assert cairn("report", "last").out == first.out
    full = cairn("report", "--full").out
    assert "mean ± σ" in full and "min … max" in full and "context switches" in full
    document = cairn("report", "last", "--json").json
    assert document["schema"] == SCHEMA
    assert len(document["samples"]) == 2 * 4  # one warm-up and three rounds
    rows = list(csv.DictReader(io.StringIO(cairn("report", "--csv").out)))
    assert len(rows) == 8
    assert {row["contender"] for row in rows} == {"system", "x"}
    assert all(int(row["wall_ns"]) > 0 for row in rows)
    markdown = cairn("report", "--md").out
    assert markdown.startswith("# Allocators compared")
    assert "| ---: |" in markdown
    written = cairn("report", "-o", tmp_path / "r.csv")
    assert written.code == 0
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 9
    again = cairn("report", "-o", tmp_path / "r.csv")
    assert again.code == 1 and "--force" in again.sentence
    assert cairn("report", "--force", "-o", tmp_path / "r.csv").code == 0


def test_the_same_seed_gives_the_same_order(cairn, forward: Path, churn: Path) -> None:
    orders = []
    for _ in range(2):
        run = cairn(
            "compare",
            "-r",
            6,
            "--seed",
            42,
            "-a",
            "system",
            "-a",
            f"x={forward}",
            "--json",
            "--",
            churn,
            10,
        )
        orders.append([s["trial"]["contender"] for s in run.json["samples"]])
    assert orders[0] == orders[1]
    assert len(set(zip(orders[0][2::2], orders[0][3::2], strict=True))) == 2, "both orders occur"


def test_a_number_is_found_in_the_output(cairn, churn: Path) -> None:
    result = cairn(
        "compare",
        "-r",
        2,
        "-a",
        "system",
        "--metric",
        "rate=rate ([0-9.]+)",
        "--json",
        "--",
        churn,
        100,
    )
    assert result.code == 0, result.err
    (row,) = result.json["comparisons"][0]["rows"]
    assert row["summaries"]["metric:rate"]["median"] == pytest.approx(49.5, abs=1)


def test_a_pattern_that_finds_nothing_is_a_failure(cairn, churn: Path) -> None:
    result = cairn(
        "compare", "-r", 2, "-a", "system", "--metric", "x=nowhere ([0-9]+)", "--", churn, 100
    )
    assert result.code == 3
    assert "--metric x" in result.sentence


def test_hooks_run_at_their_times(cairn, churn: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    hooks = [
        word
        for name in ("setup", "prepare", "conclude", "cleanup")
        for word in (f"--{name}", f"echo {name} >> {log}")
    ]
    result = cairn("compare", "-r", 2, "-a", "system", *hooks, "--", churn, 10)
    assert result.code == 0, result.err
    assert log.read_text().split() == ["setup", *["prepare", "conclude"] * 3, "cleanup"]


def test_a_failing_hook_is_one_sentence(cairn, churn: Path) -> None:
    result = cairn(
        "compare", "-r", 2, "-a", "system", "--prepare", "echo because >&2; exit 3", "--", churn
    )
    assert result.code == 2
    assert "--prepare" in result.sentence and "because" in result.sentence


def test_input_output_shell_and_cpus(cairn, tmp_path: Path) -> None:
    text = tmp_path / "in put"
    text.write_text("one\ntwo\n")
    out = tmp_path / "out"
    result = cairn(
        "compare", "-r", 1, "-a", "system", "--input", text, "--output", out, "--", "cat"
    )
    assert result.code == 0, result.err
    assert out.read_text() == "one\ntwo\n"
    result = cairn(
        "compare",
        "-r",
        1,
        "-a",
        "system",
        "--shell",
        "--output",
        out,
        "--cpus",
        min(os.sched_getaffinity(0)),
        "--",
        "nproc | tr 1 x",
    )
    assert result.code == 0, result.err
    assert out.read_text() == "x\n"


def test_accepted_exit_codes(cairn) -> None:
    assert cairn("compare", "-r", 1, "-a", "system", "--", "sh", "-c", "exit 7").code == 3
    assert (
        cairn(
            "compare", "-r", 1, "-a", "system", "--ok-exit", "0,7", "--", "sh", "-c", "exit 7"
        ).code
        == 0
    )


def test_children_are_proved_and_those_out_of_reach_are_named(
    cairn, forward: Path, compiled, churn: Path
) -> None:
    static = compiled("churn.c", "-static")
    line = f"{churn} 10; {churn} 10; {static} 10"
    result = cairn(
        "compare",
        "-r",
        2,
        "-a",
        "system",
        "-a",
        f"x={forward}",
        "--json",
        "--",
        "sh",
        "-c",
        line + "; true",
    )
    assert result.code == 0, result.err
    for sample in result.json["samples"]:
        assert (sample["proof"]["loaded"], sample["proof"]["processes"]) == (3, 4)
        assert sample["proof"]["unreached"] == [{"reason": "static", "path": str(static)}]
    assert str(static) in cairn("report").out


def test_same_output_is_verified(cairn, forward: Path, churn: Path) -> None:
    good, bad = f"good={forward}", f"bad={forward}:TEST_NOISE=1"
    result = cairn(
        "compare",
        *FEW,
        "-a",
        "system",
        "-a",
        good,
        "-a",
        bad,
        "--verify",
        "same-output",
        "--",
        churn,
        10,
    )
    assert result.code == 4
    assert "bad" in result.sentence
    assert "Under bad, the program printed something else" in " ".join(result.out.split())
    assert re.search(r"^. good", result.out, re.MULTILINE)


def test_a_program_that_prints_something_new_each_time_cannot_be_verified(cairn) -> None:
    """With two contenders, Cairn once blamed the one that is not the baseline."""
    command = ("--verify", "same-output", "--", "sh", "-c", "echo $$; date +%N")
    for more in ((), ("-a", "again=system")):
        result = cairn("compare", "-r", 2, "-a", "system", *more, *command)
        assert result.code == 3, result.err
        assert (
            "the program printed something else than in its first run (--verify same-output)"
        ) in result.sentence


def test_a_program_that_fails_now_and_then_is_no_fault_of_a_contender(cairn) -> None:
    """Cairn once blamed the contender under which the program failed first."""
    runs = cairn.home / "runs"
    line = f"echo >> {runs}; test $(wc -l < {runs}) -lt 6"  # fails from its sixth run on
    pair = ("-a", "system", "-a", "again=system")
    result = cairn("compare", "-r", 6, *pair, "--seed", 1, "-c", f"sh -c '{line}'")
    assert result.code == 3, result.err
    assert "since under system the program failed with exit code 1" in result.sentence


def test_a_failure_says_how_many_runs_had_succeeded(cairn, forward: Path) -> None:
    runs = cairn.home / "runs"
    line = f'test -z "$X" || {{ echo >> {runs}; test $(wc -l < {runs}) -lt 4; }}'
    pair = ("-a", "system", "-a", f"x={forward}:X=1")
    result = cairn("compare", "-r", 6, *pair, "--shell", "-c", line)
    assert result.code == 4, result.err
    assert (
        "under x, the program failed with exit code 1; 3 runs before had succeeded"
        in result.sentence
    )


def test_counters_are_numbers_or_not_available(cairn, churn: Path) -> None:
    result = cairn("compare", "-r", 1, "-a", "system", "--counters", "--json", "--", churn, 100)
    assert result.code == 0, result.err
    counters = result.json["samples"][-1]["counters"]
    assert {"task-clock", "cycles", "instructions", "page-faults"} <= set(counters)
    assert all(number is None or number >= 0 for number in counters.values())
    shown = cairn("report").out
    absent = [name for name, number in counters.items() if number is None]
    if absent:
        assert "not available on this machine" in " ".join(shown.split())


def test_an_interrupted_run_keeps_its_rounds_and_can_be_resumed(
    cairn, forward: Path, churn: Path
) -> None:
    argv = [
        *cairn.argv,
        "compare",
        "-r",
        "40",
        "-a",
        "system",
        "-a",
        f"x={forward}",
        "--",
        str(churn),
        "20000",
    ]
    process = subprocess.Popen(
        argv, env=cairn.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cairn.home
    )
    samples = wait_for_samples(cairn.results, 8)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert b"--resume" in err and b"Traceback" not in err
    assert not running(str(churn))
    before = samples.read_text().splitlines()
    report = cairn("report")
    assert report.code == 0 and "interrupted" in report.out
    resumed = cairn("compare", "--resume", "last", "--json")
    assert resumed.code == 0, resumed.err
    after = samples.read_text().splitlines()
    assert after[: len(before)] == before
    assert resumed.json["comparisons"][0]["rounds"] == 40


def wait_for_samples(results: Path, count: int) -> Path:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in results.glob("*/samples.jsonl"):
            if len(path.read_text().splitlines()) >= count:
                return path
        time.sleep(0.02)
    raise AssertionError("no samples")


def test_help_imports_nothing_heavy(cairn) -> None:
    heavy = "{'numpy', 'scipy', 'plotly', 'elftools', 'jinja2'}"
    for arguments in (["--help"], ["compare", "--help"], ["--version"]):
        script = (
            "import sys\n"
            "from cairn.cli import cli\n"
            f"try:\n    cli.main({arguments!r}, prog_name='cairn')\nexcept SystemExit as end:\n   "
            " assert end.code == 0\n"
            f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=cairn.env, capture_output=True, check=False, cwd="/"
        )
        assert done.returncode == 0, done.stderr.decode()


def test_version_completion_and_allocators(cairn) -> None:
    assert re.fullmatch(r"cairn \d+\.\d+\.\d+\n", cairn("--version").out)
    for shell, word in (("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")):
        assert word in cairn("completion", shell).out
    listed = cairn("allocators")
    assert listed.code == 0 and listed.out.startswith("name") and "system" in listed.out
    document = cairn("allocators", "--json").json
    assert document["found"][0]["allocator"] == "system"


def test_a_bar_is_drawn_on_a_terminal_and_quiet_lines_elsewhere(
    cairn, forward: Path, churn: Path
) -> None:
    argv = [
        *cairn.argv,
        "compare",
        "-r",
        "4",
        "-a",
        "system",
        "-a",
        f"x={forward}",
        "--",
        str(churn),
        "3000",
    ]
    script = ["script", "-qec", shlex.join(argv), "/dev/null"]
    environment = {**cairn.env, "TERM": "xterm-256color", "COLUMNS": "120"}
    shown = subprocess.run(
        script, env=environment, capture_output=True, check=True, cwd=cairn.home
    ).stdout.decode()
    assert "rounds" in shown and "4/4" in shown and "\x1b[" in shown
    quiet = cairn("compare", "-r", 2, "-a", "system", "--", churn)
    assert "\x1b" not in quiet.err + quiet.out


def test_no_color_turns_colours_off(cairn, churn: Path) -> None:
    cairn("compare", "-r", 1, "-a", "system", "--", churn)
    environment = {**cairn.env, "TERM": "xterm", "NO_COLOR": "1"}
    script = ["script", "-qec", shlex.join([*cairn.argv, "report", "last"]), "/dev/null"]
    shown = subprocess.run(
        script, env=environment, capture_output=True, check=True, cwd=cairn.home
    ).stdout.decode()
    assert "\x1b[3" not in shown


def test_results_are_private_and_hold_the_raw_proof(cairn, churn: Path) -> None:
    cairn("compare", "-r", 1, "-a", "system", "--", churn)
    (folder,) = cairn.results.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    proof = json.loads((folder / "witness" / "0-system.jsonl").read_text().splitlines()[0])
    assert Path(proof["malloc"]["path"]).name == "libc.so.6"
    assert (folder / "stopped").read_text().strip()


def test_a_caller_of_300_mb_does_not_change_the_peak(cairn, churn: Path, tmp_path: Path) -> None:
    """A child inherits the value ru_maxrss of its parent at fork.

    The launcher is a small process between Cairn and the program. Without it, `true` would have a
    peak of 321 MB if the parent had 300 MB.
    """
    plain = cairn("compare", "-r", 3, "-a", "system", "--json", "--", churn, 200000).json
    script = tmp_path / "big.py"
    script.write_text(
        "import subprocess, sys\nballast = bytearray(300 << 20)\n"
        "ballast[::4096] = b'x' * "
        "len(ballast[::4096])\nsys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
    )
    command = [
        *cairn.argv,
        "compare",
        "-r",
        "3",
        "-a",
        "system",
        "--json",
        "--",
        str(churn),
        "200000",
    ]
    done = subprocess.run(
        [sys.executable, str(script), *command],
        env=cairn.env,
        cwd=cairn.home,
        capture_output=True,
        check=True,
    )
    heavy = json.loads(done.stdout)

    def peak(document) -> float:
        return document["comparisons"][0]["rows"][0]["summaries"]["peak"]["median"]

    assert abs(peak(heavy) - peak(plain)) < 1 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to run as")
def test_sampled_memory_is_reported_as_sampled(cairn, churn: Path, tmp_path: Path) -> None:
    result = cairn("compare", "-r", 1, "-a", "system", "--memory", "sampled", "--", churn, 200_000)
    assert result.code == 0, result.err
    assert "peak memory by sampling" in " ".join(result.out.split())


def test_a_budget_that_is_too_short_for_a_round_ends_after_one_run(cairn, forward: Path) -> None:
    """The budget bounds the warm-up and the first round, too."""
    began = time.monotonic()
    result = cairn(
        "compare", "--budget", "5s", "-a", "system", "-a", f"x={forward}", "--", "sleep", 6
    )
    assert time.monotonic() - began <= 13
    assert result.code == 2
    assert "no round fits into the budget of 5 s" in result.sentence
    assert "at least 6 rounds" in result.sentence
    enough = re.search(r"--budget (\d+)s", result.sentence)
    assert enough is not None and 90 <= int(enough[1]) <= 120
    (stored,) = cairn.results.glob("*/samples.jsonl")
    assert len(stored.read_text().splitlines()) == 1


@pytest.mark.parametrize("seconds", [pytest.param(0.05, marks=pytest.mark.long), 1.0])
def test_a_budget_is_exceeded_by_one_run_at_most(cairn, forward: Path, seconds: float) -> None:
    """The runs of the baseline become longer by a factor of four after the warm-up."""
    slower = f"[ -e warm ] && sleep {4 * seconds} || sleep {seconds}; [ $CAIRN_LAST ] && > warm; :"
    result = cairn(
        "compare", "--budget", "6s", "-a", "system", "-a", f"x={forward}:CAIRN_LAST=1", "--json",
        "--shell", "-c", slower,
    )  # fmt: skip
    (stored,) = cairn.results.glob("*/samples.jsonl")
    samples = [json.loads(line) for line in stored.read_text().splitlines()]
    end = samples[-1]["started_at"] + samples[-1]["wall_ns"] / 1e9
    spent = end - samples[0]["started_at"]
    assert spent <= 6 + max(sample["wall_ns"] for sample in samples) / 1e9 + 0.5
    if seconds == 1.0:  # the budget ends in the first round
        assert result.code == 2 and "no round fits into the budget of 6 s" in result.sentence
        return
    assert result.code == 0, result.err
    (comparison,) = result.json["comparisons"]
    assert comparison["stopped_because"] in ("time budget", "precision reached", "200 rounds")


@pytest.mark.long
def test_the_budget_holds_for_programs_of_all_lengths(cairn, forward: Path) -> None:
    """20 programs of 1 ms to 2 s, with default settings apart from the budget.

    The test counts the time from the start of the first run, without the start of Cairn.
    """
    for step in range(20):
        seconds = 0.001 * 2000 ** (step / 19)
        budget = 3 + step / 2
        result = cairn(
            "compare", "--budget", f"{budget}s", "-a", "system", "-a", f"x={forward}", "--json",
            "--", "sleep", f"{seconds:.4f}",
        )  # fmt: skip
        assert result.code == 0, result.err
        samples = result.json["samples"]
        walls = [sample["wall_ns"] / 1e9 for sample in samples]
        spent = samples[-1]["started_at"] + walls[-1] - samples[0]["started_at"]
        assert spent <= budget + max(walls) + 0.3, (seconds, spent)


def test_a_plan_that_cannot_conclude_says_so_before_it_starts(
    cairn, forward: Path, churn: Path
) -> None:
    pair = ("-a", "system", "-a", f"x={forward}")
    result = cairn("compare", "-r", 1, *pair, "--", churn, 10)
    assert result.code == 0, result.err
    warned = "1 round cannot show a difference between 2 contenders; at least 6 are needed: -r 6"
    assert warned in result.err
    assert "cairn compare -r 6 …" in result.out
    enough = cairn("compare", "-r", 6, *pair, "--", churn, 10)
    assert "cannot show" not in enough.err and "too few" not in enough.out
    three = cairn("compare", "-r", 6, *pair, "-a", f"y={forward}", "--", churn, 10)
    assert "at least 7 are needed: -r 7" in three.err
    assert "cairn compare -r 7 …" in three.out


def test_a_budget_with_too_few_rounds_is_reported_after_the_warm_up(cairn, forward: Path) -> None:
    result = cairn(
        "compare", "--budget", "4s", "-a", "system", "-a", f"x={forward}", "--", "sleep", 0.5
    )
    assert result.code == 0, result.err
    assert re.search(r"has room for about \d rounds?, and at least 6 are needed", result.err)
    assert "No verdict yet" in result.out


def test_six_rounds_of_two_contenders_show_a_large_difference(
    cairn, forward: Path, churn: Path
) -> None:
    slow = f"slow={forward}:TEST_SLOW=20000"
    result = cairn("compare", "-r", 6, "-a", "system", "-a", slow, "--json", "--", churn, 3000)
    assert result.code == 0, result.err
    rows = {row["contender"]: row for row in result.json["comparisons"][0]["rows"]}
    assert rows["slow"]["changes"]["wall"]["shown"] == "more"


def test_a_sentence_about_one_of_several_commands_names_it(cairn) -> None:
    pair = ("-a", "system", "-a", "again=system")
    # The warm-up decides by its median, so a single slow run does not change the answer.
    options = ("-r", 2, "--warmup", 5, *pair)
    several = cairn("compare", *options, "-c", "true", "-c", "ls /")
    for command in ("true", "ls /"):
        assert f"▲ {command}: A run takes less than " in several.err
    assert "▲ A run takes less than " in cairn("compare", *options, "--", "true").err
