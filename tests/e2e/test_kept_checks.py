"""Tests of `cairn check` on kept runs, and of checks that were interrupted."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.run.check_base import machine_id

FAIL = ("--fail-if", "time>900%")
BOTH = ("-p", "old=./old", "-p", "new=./new")
ON_A_KNOWN_MACHINE = pytest.mark.skipif(
    machine_id() is None, reason="the machine has no id, so --trust-base compares no times"
)


@pytest.fixture
def builds(compiled: Callable[..., Path], cairn) -> Callable[..., None]:
    """Puts builds of one program into the folder of the command: builds(new=("-DWORK=105",))."""

    def put(**flags: tuple[str, ...]) -> None:
        for name, of in flags.items():
            shutil.copy(compiled("build.c", *of), cairn.home / name)

    return put


def script(cairn, name: str, line: str) -> str:
    """Writes a shell script, and returns its command."""
    path = cairn.home / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return f"./{name}"


def assert_the_same(live, kept, code: int) -> None:
    assert (live.code, kept.code) == (code, code), live.err + kept.err
    assert kept.out == live.out
    assert kept.sentence == live.sentence


@pytest.mark.parametrize(("broken", "code"), [("new", 4), ("old", 3)])
def test_a_broken_build_has_the_same_exit_code_in_a_kept_check(
    cairn, builds, broken: str, code: int
) -> None:
    builds(**{"old": (), "new": (), broken: ("-DWORK=(abort(),1)",)})
    live = cairn("check", *FAIL, *BOTH, "-r", 3, "--", 1)
    assert_the_same(live, cairn("check", *FAIL, "last"), code)
    (run,) = cairn.results.iterdir()
    (run / "refused.json").unlink()  # runs of older versions have no such file
    assert cairn("check", *FAIL, "last").code == code


def test_a_baseline_without_proof_has_the_same_exit_code_in_a_kept_check(
    cairn, builds, forward: Path
) -> None:
    """The live check ended with 4, and the check of the kept run with 3."""
    builds(old=())
    cleaned = script(cairn, "cleaned.sh", "exec env -u LD_PRELOAD ./old 1")
    pair = ("-a", f"x={forward}", "-a", "system")
    live = cairn("check", *FAIL, *pair, "-r", 3, "--", cleaned)
    assert "started with a cleaned environment" in live.sentence
    assert_the_same(live, cairn("check", *FAIL, "last"), 4)
    (run,) = cairn.results.iterdir()
    (run / "refused.json").unlink()
    assert cairn("check", *FAIL, "last").code == 4


@ON_A_KNOWN_MACHINE
def test_the_only_build_of_a_check_against_stored_numbers_is_the_checked_one(cairn, builds) -> None:
    """The live check called the base broken, with exit code 3."""
    builds(app=())
    made = cairn("check", "--make-base", "base.json", *FAIL, "-r", 8, "--", "./app", 1)
    assert made.code == 0, made.err
    builds(app=("-DWORK=(abort(),1)",))
    against = ("--against", "base.json", "--trust-base")
    live = cairn("check", *against, "--", "./app", 1)
    assert "killed by signal 6" in live.sentence
    assert_the_same(live, cairn("check", *against, "last"), 4)


def test_a_refused_check_is_refused_again_and_its_reason_is_kept(cairn) -> None:
    """A kept check of such a run had exit code 6 and advised more rounds."""
    starter = script(cairn, "starter.sh", "sleep 30 &")
    # The median of the warm-up decides, so a single slow run does not change the answer.
    options = ("-a", "system", "-a", "cairn", "-r", 7, "--warmup", 5)
    live = cairn("check", *FAIL, *options, "--", starter)
    assert "went on in the background" in live.sentence
    assert_the_same(live, cairn("check", *FAIL, "last"), 2)
    reason = live.sentence.removeprefix("✘ ")
    report = cairn("report")
    assert " ".join(report.out.split()).startswith(f"Measuring ended early: {reason} No verdict:")
    assert reason in cairn("report", "--json").json["comparisons"][0]["unsuited"][0]
    (listed,) = cairn("report", "--list", "--json").json["runs"]
    assert listed["state"] == "ended early" and reason in listed["verdict"]
    assert cairn("report", "-o", "whole.tar.xz").code == 0
    assert cairn("report", "whole.tar.xz").out == report.out, "a run file has the reason, too"


def test_a_failed_command_of_the_user_is_kept_as_the_reason(cairn, builds) -> None:
    builds(old=(), new=())
    live = cairn("check", *FAIL, *BOTH, "-r", 3, "--prepare", "exit 7", "--", 1)
    assert live.sentence == "✘ the --prepare command failed with exit code 7"
    assert_the_same(live, cairn("check", *FAIL, "last"), 2)
    says = "Measuring ended early: the --prepare command failed with exit code 7."
    assert cairn("report").out.startswith(says)


def interrupted(cairn, *words: object) -> str:
    """Interrupts a check after a few trials. Returns the command that continues it."""
    before = set(cairn.results.glob("*/samples.jsonl"))
    check = cairn.start("check", *words)
    deadline = time.monotonic() + 60
    while True:
        new = set(cairn.results.glob("*/samples.jsonl")) - before
        if any(len(path.read_text().splitlines()) >= 4 for path in new):
            break
        assert time.monotonic() < deadline and check.poll() is None, check.communicate()
        time.sleep(0.02)
    check.send_signal(signal.SIGINT)
    _, err = check.communicate(timeout=60)
    assert check.returncode == 130, err
    return err.splitlines()[-1]


def test_an_interrupted_check_continues_with_its_bounds(cairn, builds) -> None:
    """'cairn compare --resume', which the message named, loses the bounds."""
    builds(old=(), new=())
    says = interrupted(cairn, "--fail-if", "time>800%", *BOTH, "-r", 30, "--", 20)
    (run,) = cairn.results.iterdir()
    continues = f"cairn check --resume {run.name}"
    head = "✘ interrupted; the runs measured so far are kept; continue with: "
    assert says == head + continues
    for word, *value in (("-r", "9"), ("--fail-if", "time>1%"), ("-p", "x=./old")):
        refused = cairn("check", "--resume", "last", word, *value)
        assert refused.code == 2 and f"leave out {word}" in refused.sentence
    done = cairn(*continues.split()[1:], "--json")
    assert done.code == 0, done.err
    (bound,) = done.json["check"]["bounds"]
    assert (bound["measure"], bound["most"], bound["rounds"]) == ("time", 8.0, 30)
    again = cairn("check", "--resume", "last", "--json")
    assert again.code == 0 and again.json["check"] == done.json["check"], "it was complete"


@ON_A_KNOWN_MACHINE
def test_an_interrupted_check_against_stored_numbers_continues_with_its_base(cairn, builds) -> None:
    builds(app=())
    made = cairn("check", "--make-base", "base.json", *FAIL, "-r", 8, "--", "./app", 20)
    assert made.code == 0, made.err
    builds(app=("-DWORK=105",))
    words = ("--against", "base.json", "--trust-base", "--fail-if", "time>700%")
    says = interrupted(cairn, *words, "-r", 30, "--", "./app", 20)
    name = max(path.name for path in cairn.results.iterdir())
    assert says.endswith(
        "continue with: cairn check --against base.json --trust-base '--fail-if=time>700%' "
        f"--resume {name}"
    )
    refused = cairn("check", "--resume", name)
    assert refused.code == 2 and "add --against FILE" in refused.sentence
    done = cairn("check", *words, "--resume", name, "--json")
    assert done.code == 0, done.err
    assert done.json["check"]["stored"] and done.json["check"]["bounds"][0]["most"] == 7.0
    assert sum(one["trial"]["round"] > 0 for one in done.json["samples"]) == 30


def test_the_measurement_of_a_base_begins_anew_after_an_interruption(cairn, builds) -> None:
    builds(app=())
    says = interrupted(cairn, "--make-base", "base.json", *FAIL, "-r", 40, "--", "./app", 20)
    assert says.endswith("shows them; the same command begins anew")
    assert not (cairn.home / "base.json").exists()


MEASURING = (
    "-a x", "-r 9", "--runs 9", "--rounds 9", "--cpus 0", "--min-rounds 9", "--max-rounds 9",
    "--budget 9s", "--seed 1", "--prepare true", "--setup true", "--conclude true",
    "--cleanup true", "--timeout 9s", "--warmup 1", "--warm-memory off", "--memory none",
    "--repeat 2", "--shell", "--wait-descendants", "--verify same-output", "--ok-exit 1",
    "--while true", "--ready true", "--idle 1s", "--input x", "--output null",
)  # fmt: skip


def test_a_kept_run_takes_no_option_on_how_to_measure(cairn, builds) -> None:
    """They were ignored without a notice.

    On a busy machine, seven rounds of equal builds may not suffice, and the check ends with 6.
    """
    builds(old=(), new=())
    assert cairn("check", *FAIL, *BOTH, "-r", 7, "--", 1).code in (0, 6)
    (cairn.home / "x").write_text("")
    shown = {"--runs": "-r", "--rounds": "-r"}
    for words in MEASURING:
        option, *value = words.split()
        refused = cairn("check", *FAIL, option, *value, "last")
        name = shown.get(option, option)
        says = f"✘ last is a kept run and is not measured; leave out {name}"
        assert (refused.code, refused.sentence) == (2, says), words
    assert cairn("check", *FAIL, "last", "--json", "--junit", "j.xml").code in (0, 6)
