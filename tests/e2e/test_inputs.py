"""Tests of unusual inputs: arguments, folders, scripts and lists that users really give."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ONE = ("compare", "-r", 1, "-a", "system")
"""The beginning of a comparison of one contender in one round."""
NOT_UTF8 = os.fsdecode(b"\xff\xfe")


# --- text that is not UTF-8 ---


@pytest.mark.parametrize("shell", [False, True])
def test_an_argument_that_is_not_utf8_reaches_the_program_and_every_report(
    cairn, tmp_path: Path, shell: bool
) -> None:
    """Cairn once refused an argument that is not UTF-8: "give the file another name"."""
    out = tmp_path / "out"
    command = ("--shell", "--", f"echo {NOT_UTF8}") if shell else ("--", "echo", NOT_UTF8)
    result = cairn(*ONE, "--output", out, *command)
    assert result.code == 0, result.err
    assert out.read_bytes() == b"\xff\xfe\n"
    assert r"\xff\xfe" in result.err
    document = cairn("report", "--json").json
    (workload,) = document["run"]["settings"]["workloads"]
    assert NOT_UTF8 in " ".join(workload["command"])
    assert r"\xff\xfe" in cairn("report", "--csv").out
    assert r"\\xff\\xfe" in cairn("report", "--md").out
    assert cairn("report", "-o", tmp_path / "run.tar.xz").code == 0
    assert cairn("report", tmp_path / "run.tar.xz", "--csv").out == cairn("report", "--csv").out


def test_programs_libraries_folders_and_knobs_may_be_called_anything(
    cairn, tmp_path: Path, churn: Path, forward: Path
) -> None:
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    program, library = folder / f"prog{NOT_UTF8}", folder / f"lib{NOT_UTF8}.so"
    shutil.copy(churn, program)
    shutil.copy(forward, library)
    contenders = ("-a", "system", "-a", f"x={library}:TEST_NOTHING={NOT_UTF8}")
    result = cairn(
        *("compare", "-r", 1, *contenders, "--input", program, "--results", folder / "results"),
        *("--", f"./{program.name}", 10),
        cwd=folder,
    )
    assert result.code == 0, result.err
    for shown in (
        cairn("report", "--results", folder / "results", "--json"),
        cairn("doctor", "--json", program),
        cairn("profile", "-a", library, "--json", "-", "--", program, 10),
        cairn("run", "-a", library, "--", program, 10),
    ):
        assert shown.code == 0, shown.err


def test_a_metric_may_follow_text_that_is_not_utf8(cairn) -> None:
    pattern = f"x={NOT_UTF8}=([0-9]+)"
    result = cairn(*ONE, "--metric", pattern, "--json", "--", "echo", f"{NOT_UTF8}=7")
    assert result.code == 0, result.err
    assert result.json["samples"][-1]["metrics"] == {"x": 7}


def test_a_failure_may_name_a_program_that_is_not_utf8(cairn) -> None:
    result = cairn("compare", "-r", 1, "-a", "system", "--", "sh", "-c", f"./{NOT_UTF8}; exit 3")
    assert result.code == 3 and "exit code 3" in result.sentence
    missing = cairn("compare", "-r", 1, "-a", "system", "--", f"./{NOT_UTF8}")
    assert missing.code == 3 and r"./\xff\xfe: no such file" in missing.sentence
    assert json.loads(cairn("report", "--json").out)["samples"]


# --- long command lines ---

LONG = "x" * 120_000


@pytest.mark.parametrize(
    "given",
    [
        ("--", "echo", LONG, LONG, LONG, "end"),
        pytest.param(("--", "echo", *(["word"] * 50_000), "end"), marks=pytest.mark.long),
        ("--shell", "--", f"echo {LONG} end"),
        ("-c", f"echo {LONG} end", "-c", "echo"),
    ],
    ids=["words", "many words", "shell", "several"],
)
def test_a_long_command_is_shortened_on_screens_and_whole_in_json(cairn, given) -> None:
    """Cairn once printed a command line of 1.5 MB whole, before the first result."""
    result = cairn(*ONE, *given)
    assert result.code == 0, result.err
    assert len(result.err) < 3000 and len(result.out) < 3000
    assert "…" in result.err and "end" in result.err
    assert len(cairn("report", "--md").out) < 3000
    workloads = cairn("report", "--json").json["run"]["settings"]["workloads"]
    text = " ".join(workloads[0]["command"])
    assert len(text) > 100_000 and "…" not in text


def test_a_long_command_is_shortened_in_a_profile_too(cairn, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    result = cairn("profile", "--json", file, "--", "echo", LONG, "end")
    assert result.code == 0 and len(result.err) < 20_000
    assert "…" in result.err and "end · " in result.err
    document = json.loads(file.read_text())
    assert document["program"] == f"echo {LONG} end"


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "--", LONG),
        ("compare", "-a", LONG, "--", "true"),
        (*ONE, f"--{LONG}", "--", "true"),
        ("run", "--", f"./{LONG}"),
        ("profile", "--", f"./{LONG}"),
        ("doctor", LONG),
        ("bench", LONG),
        ("report", LONG),
        (LONG,),
    ],
    ids=lambda command: command[0][:8],
)
def test_an_error_about_a_long_word_is_short(cairn, command) -> None:
    result = cairn(*command)
    assert result.code not in (0, 1), result.err
    assert "…" in result.err and len(result.err) < 3000


# --- a deleted working directory ---


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("compare", "--", "/bin/true"), 1),
        (("compare", "--", "./prog"), 1),
        pytest.param(("compare", "-c", "true"), 1, marks=pytest.mark.long),
        pytest.param(("bench", "larson", "-r", 1), 1, marks=pytest.mark.long),
        pytest.param(("bench",), 1, marks=pytest.mark.long),
        pytest.param(("calibrate",), 1, marks=pytest.mark.long),
        (("run", "--", "/bin/true"), 125),
        (("profile", "--", "/bin/true"), 125),
        (("doctor", "./prog"), 1),
        pytest.param(("allocators",), 1, marks=pytest.mark.long),
    ],
    ids=lambda given: " ".join(map(str, given)) if isinstance(given, tuple) else None,
)
def test_a_deleted_working_directory_is_named_as_the_reason(
    cairn, tmp_path: Path, command, code: int
) -> None:
    """The message once named a missing program, or was only "No such file or directory"."""
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.join(cairn.argv)} " + " ".join(
        map(str, command)
    )
    done = subprocess.run(
        ["sh", "-c", script],
        env=cairn.env, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    # If the path of Python has a space, pip generates a shell script, and sh complains, too.
    errors = done.stderr.decode().removeprefix(
        "sh: 0: getcwd() failed: No such file or directory\n"
    )
    assert done.returncode == code, errors
    assert errors == "✘ the working directory was deleted; change to another one with cd\n"


# --- scripts with line ends of another system ---


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        (b"#!/bin/sh\r\n", r"/bin/sh\r"),
        (b"#! /bin/sh \r\n", None),
        (b"#!/usr/bin/env sh\r\n", r"sh\r"),
        pytest.param(b"#!/usr/bin/env -S sh\r\n", None, marks=pytest.mark.long),
        pytest.param(b"#!/bin/sh -e\r\n", None, marks=pytest.mark.long),
        pytest.param(b"#!/bin/sh\n", None, marks=pytest.mark.long),
    ],
)
def test_a_script_with_windows_line_ends_says_so(
    cairn, tmp_path: Path, first: bytes, wanted: str | None
) -> None:
    """Cairn once passed on the kernel's "No such file", and doctor called the script fine."""
    script = tmp_path / "script"
    script.write_bytes(first + b"exit\n")
    script.chmod(0o755)
    for command, code in (
        ((*ONE, "--", script), 3),
        (("doctor", script), 3),
        (("run", "--", script), 127),
        (("profile", "--", script), 127),
    ):
        result = cairn(*command)
        if wanted is None:
            assert "Windows" not in result.err
            continue
        assert result.code == code, result.err
        assert "Windows" in result.sentence and wanted in result.sentence
        assert "sed -i" in result.sentence


# --- a program that writes into the results folder ---


@pytest.mark.parametrize(
    "harm",
    [
        "for run in $RUNS; do echo '{}' >> $run/samples.jsonl; done",
        "for run in $RUNS; do : > $run/samples.jsonl; rm $run/run.json; done",
        "rm -rf $RUNS",
        "rm -rf $CAIRN_RESULTS",
        "for run in $RUNS; do rm $run/samples.jsonl; ln -s $HOME/victim $run/samples.jsonl; done",
    ],
    ids=["appends", "truncates", "removes the run", "removes all", "links"],
)
def test_a_program_that_writes_into_the_results_folder_loses_no_run(
    cairn, tmp_path: Path, harm: str
) -> None:
    """Cairn once lost such a run: the program had damaged or removed the run's files."""
    victim = cairn.home / "victim"
    victim.write_text("mine\n")
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\nRUNS=$(echo $CAIRN_RESULTS/*-*-*)\n{harm}\n")
    script.chmod(0o755)
    result = cairn("compare", "-r", 2, "-a", "system", "-a", "again=system", "--", script)
    assert result.code == 0, result.err
    assert "were restored" in result.err
    assert result.err.count("were restored") == 1
    document = cairn("report", "--json").json
    assert len(document["samples"]) == 6
    assert victim.read_text() == "mine\n", "nothing is written through a link"


def test_other_files_in_the_results_folder_do_no_harm(cairn, tmp_path: Path) -> None:
    line = (
        "echo x > $CAIRN_RESULTS/zz; mkdir -p $CAIRN_RESULTS/zzz; "
        "touch $CAIRN_RESULTS/zzz/run.json $CAIRN_RESULTS/zzz/samples.jsonl"
    )
    result = cairn("compare", "-r", 2, "-a", "system", "--shell", "--", line)
    assert result.code == 0, result.err
    assert "restored" not in result.err
    assert cairn("report").out == result.out


# --- lists of contenders, and an option of other tools ---


def test_a_list_of_contenders_may_name_them(cairn, churn: Path, forward: Path) -> None:
    result = cairn("compare", "-r", 1, "-a", f"system,x={forward}", "--json", "--", churn, 10)
    assert result.code == 0, result.err
    assert [one["name"] for one in result.json["run"]["contenders"]] == ["system", "x"]
    for command in ("run", "profile"):
        refused = cairn(command, "-a", f"system,x={forward}", "--", churn, 10)
        assert refused.code == 2 and "cairn compare" in refused.sentence


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "-n", 10, "--", "true"),
        ("compare", "-n10", "--", "true"),
        ("compare", "-a", "system", "-n", "10", "-c", "true"),
        ("bench", "larson", "-n", 10),
        ("bench", "-n", 10),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_the_option_n_of_other_tools_is_r_here(cairn, command) -> None:
    result = cairn(*command)
    assert result.code == 2
    assert result.err == "✘ the number of rounds is -r here; write -r 10\n"


# --- command lines as other tools take them ---


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--", "echo a"), "'echo a' is one word, and no command has this name"),
        (("./prog 10",), "'./prog 10' is one word, and no command has this name"),
        (("--", "echo a; echo b"), "is a line of the shell. Write sh -c before it"),
        (("--", "echo a | cat"), "is a line of the shell. Write sh -c before it"),
        (("-c", "true; false"), "; in a -c line belongs to a shell: add --shell"),
        (("-c", "echo | cat"), "| in a -c line belongs to a shell: add --shell"),
        (("-c", 'echo a\\|b \'c;d\'e "f&\\"|g" > h'), "> in a -c line belongs to a shell"),
        (("--", "no-such-command 10"), "command not found"),
    ],
)
def test_a_line_for_the_shell_is_recognised(cairn, churn: Path, words, says: str) -> None:
    """Other tools take the whole command as one word in quotes.

    Cairn once took that word for the misspelt name of a program.
    """
    (cairn.home / "prog").symlink_to(churn)
    result = cairn("compare", "-r", 1, "-a", "system", *words)
    assert result.code in (2, 3), result.err
    assert says in result.sentence
    assert not list(cairn.home.glob("results/*"))


def test_a_quoted_operator_is_an_argument(cairn, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = "echo 'a;b'c \"d|e\" f\\&g"
    assert cairn(*ONE, "--output", out, "-c", line).code == 0
    assert out.read_text() == "a;bc d|e f&g\n"


# --- names at the edge of a terminal ---


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_word_is_broken_at_the_edge_of_a_terminal(
    cairn, forward: Path, tmp_path: Path, width: int
) -> None:
    """Lines were once wider than the terminal, which broke words: `PYTHONMALLOC=mall`, `oc`."""
    command = (
        *(*cairn.argv, "compare", "-r", "1", "--prepare", "true", "--budget", "1h"),
        *(
            "-a",
            "system",
            "-a",
            "again=system:PYTHONMALLOC=malloc",
            "-a",
            "system:PYTHONMALLOC=malloc",
        ),
        *("-a", f"fails={forward}:TEST_NOISE=1", "--verify", "same-output"),
        *("--", "sh", "-c", "python3 -I -c 'print(1)'"),
    )
    shown = subprocess.run(
        ["script", "-qec", f"stty cols {width}; {shlex.join(command)}", "/dev/null"],
        env={**cairn.env, "TERM": "xterm", "NO_COLOR": "1"},
        cwd=cairn.home, stdin=subprocess.DEVNULL, capture_output=True, check=False,
    ).stdout.decode()  # fmt: skip
    lines = [
        line.split("\r")[-1]
        for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r\n", "\n").splitlines()
    ]
    assert any(line.startswith("✘") for line in lines), shown
    assert any(line.startswith("plan") for line in lines)
    wide = [line for line in lines if len(line) > width and len(line.split()) > 2]
    assert not wide, wide


# --- numbers and their nouns ---

_SINGULAR = re.compile(
    r"(?<![\d.,–])(?<!of )1 (?!of\b)(\w+ )?(rounds|runs|contenders|workloads|processes|threads|operations|"
    r"samples|times|columns|sites|lines|trials|things)\b|\b1 \w+ are\b|\b1 \w+ were\b"
)


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "-r", 1, "-a", "system", "--", "true"),
        pytest.param(
            ("compare", "-r", 1, "--why", "-a", "system", "-a", "x=system", "--", "true"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            ("bench", "larson", "-r", 1, "--quick", "-a", "system"), marks=pytest.mark.long
        ),
        ("bench", "larson", "-r", 1, "--quick", "--plan", "-a", "system"),
        ("profile", "--full", "--", "sh", "-c", "true"),
        ("run", "--", "sh", "-c", "sleep 60 & exit"),
        ("doctor", "true"),
    ],
    ids=lambda words: " ".join(map(str, words[:4])),
)
def test_a_noun_agrees_with_the_number_one(cairn, command) -> None:
    """Reports once said "1 round (1 rounds)" and "1 block are too few"."""
    result = cairn(*command)
    assert result.code == 0, result.err
    shown = result.out + result.err + cairn("report", "--full").out if command[0] != "run" else ""
    shown += result.err
    assert not _SINGULAR.search(" ".join(shown.split())), _SINGULAR.search(shown)


def test_similar_names_are_suggested_for_an_unknown_command(cairn) -> None:
    """Once, no name was suggested: a command is imported only when it is wanted.

    The installed script runs here, because most tests fork from a process with all commands.
    """
    ended = subprocess.run(
        [*cairn.argv, "comparr"], env=cairn.env, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "✘ there is no command comparr; did you mean compare? 'cairn --help' lists the commands\n",
    )
