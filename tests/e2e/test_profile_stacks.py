"""Tests of 'cairn profile --stacks' as a user calls it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled("known_stacks.c", "-O2", "-pthread", "-fno-builtin")


def test_the_functions_that_allocate_are_reported_kept_and_read_again(
    cairn: Any, tmp_path: Path, program: Path
) -> None:
    kept, out, pprof = tmp_path / "kept", tmp_path / "out.json", tmp_path / "out.pb"
    outputs = ("--json", out, "--pprof", pprof, "--keep", kept)
    result = cairn(
        *("profile", "--runs", 1, "--stacks=exact", "--tree", *outputs, "--", program, 40),
        COLUMNS="80",
    )
    assert result.code == 0, result.err
    lines = result.err.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("who allocates"))
    # The three with the most bytes: 4 blocks of 768, 672 and 576 bytes in each of 40 rounds.
    assert [line.split()[0] for line in lines[head + 1 : head + 4]] == [
        *("known_31", "known_27", "known_23"),
    ]
    assert "120 KiB" in lines[head + 1]
    assert all(len(line) <= 80 for line in lines[head:])
    assert any(line.strip().endswith("main") and "100.0 %" in line for line in lines)
    assert "Cairn does not claim that they are unreachable" in " ".join(result.err.split())
    first = json.loads(out.read_text())["stacks"]["functions"][0]
    assert first["function"] == "known_31"
    assert first["allocated"]["bytes_low"] == first["allocated"]["bytes"] == 4 * 768 * 40
    assert pprof.read_bytes()
    again = cairn("profile", "--read", kept, "--collapsed", "-")
    assert again.code == 0, again.err
    assert f"main;other;known_31 {4 * 768 * 40}\n" in again.out
    lines = cairn("profile", "--read", kept, "--csv", "-").out.splitlines()
    line = next(one for one in lines if one.startswith("who allocates,known_31 in "))
    assert f"bytes,{4 * 768 * 40}.0,{4 * 768 * 40}.0,{4 * 768 * 40}.0" in line


def test_a_form_turns_sampling_on(cairn: Any, tmp_path: Path, program: Path) -> None:
    out = tmp_path / "stacks.json"
    result = cairn("profile", "--runs", 1, "--speedscope", out, "--", program, 2000)
    assert result.code == 0, result.err
    assert "one for 16.0 KiB" in " ".join(result.err.split())
    names = {frame["name"] for frame in json.loads(out.read_text())["shared"]["frames"]}
    assert {"main", "other", "known_31"} <= names


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--stacks", "--delay", "1s"), "--stacks counts the whole run"),
        (("--stacks-every", "0"), "is not between 1 byte and 1 GiB"),
        (("--pprof", "-", "--collapsed", "-"), "only one output can be standard output"),
        (("--pprof", "same", "--collapsed", "same"), "two outputs would be written to same"),
    ],
)
def test_wrong_options_get_one_sentence(
    cairn: Any, program: Path, options: tuple[str, ...], sentence: str
) -> None:
    result = cairn("profile", *options, "--", program, 1)
    assert result.code == 2
    assert sentence in " ".join(result.err.split())


def test_a_profile_without_stacks_says_how_to_record_them(
    cairn: Any, tmp_path: Path, program: Path
) -> None:
    kept = tmp_path / "kept"
    assert cairn("profile", "--runs", 1, "--keep", kept, "--", program, 1).code == 0
    result = cairn("profile", "--read", kept, "--tree")
    assert result.code != 0
    assert "there are no call stacks in this profile; record it with --stacks" in " ".join(
        result.err.split()
    )


def test_two_kept_profiles_are_compared(cairn: Any, tmp_path: Path, program: Path) -> None:
    before, after, out = tmp_path / "before", tmp_path / "after", tmp_path / "out.json"
    for folder, rounds in ((before, 8), (after, 40)):
        options = ("--runs", 1, "--stacks=exact", "--keep", folder)
        assert cairn("profile", *options, "--", program, rounds).code == 0
    result = cairn("profile", "--read", after, "--against", before, "--json", out)
    assert result.code == 0, result.err
    assert f"{after} allocated" in result.out
    assert "known_31" in result.out
    document = json.loads(out.read_text())
    by_name = {one["function"]: one for one in document["functions"]}
    known = by_name["known_31"]["allocated_bytes"]
    assert known["difference"] == known["low"] == known["high"] == 4 * 768 * 32
    for options, sentence in (
        (("--against", before, "--", program, 1), "name the other one with --read"),
        (("--read", after, "--against", before, "--tree"), "leave out --tree"),
        (("--read", after, "--against", tmp_path), "holds no profile"),
        (
            ("--read", after, "--delay", "1s"),
            "✘ --read reports a profile that exists; leave out the program, --keep, --delay, "
            "--duration and --signal",
        ),
    ):
        wrong = cairn("profile", *options)
        assert wrong.code != 0
        assert sentence in " ".join(wrong.err.split()), wrong.err


def test_live_bytes_are_counted_if_all_stacks_are_recorded(
    cairn: Any, tmp_path: Path, compiled: Callable[..., Path]
) -> None:
    """The headline once had an estimate of 10 MiB above a table of the true 5.6 MiB."""
    out, program = tmp_path / "out.json", compiled("survivors.c")
    for how, is_counted in (("sampled", False), ("exact", True)):
        options = ("--runs", 1, f"--stacks={how}", "-a", "cairn", "--force")
        result = cairn("profile", *options, "--json", out, "--", program, 40)
        assert result.code == 0, result.err
        found = json.loads(out.read_text())
        assert ("--live-bytes exact counts them" in " ".join(result.err.split())) != is_counted
        if is_counted:
            peak = found["processes"][0]["peak_requested"]
            shown = sum(one["at_peak"]["bytes"] for one in found["stacks"]["functions"])
            assert abs(peak["bytes"] - shown) < 0.2 * shown  # the requested share is estimated


def test_survivors_are_named_in_the_report(
    cairn: Any, tmp_path: Path, compiled: Callable[..., Path]
) -> None:
    options = ("--runs", 1, "--stacks=exact")
    result = cairn("profile", *options, "--", compiled("survivors.c"), 40, COLUMNS="80")
    assert result.code == 0, result.err
    told = " ".join(result.err.split())
    assert "who keeps memory" in result.err
    # The heap begins at a random address. Depending on it, one of three functions has the most
    # memory in chunks that are nearly empty.
    first = re.search(
        r"of (\d+) bytes on average, allocated by (\w+), hold .*: at the end they lie in chunks",
        told,
    )
    assert first is not None, told
    assert first.groups() in {("96", "pins_3"), ("112", "pins_4"), ("512", "dense_0")}
    assert all(re.search(rf"pins_{number} .* B", told) for number in range(5))
    head = result.err.index("who keeps memory")
    assert all(len(line) <= 80 for line in result.err[head:].splitlines())


@pytest.mark.parametrize(
    "right",
    [
        *("nofile", "prctl"),
        *(
            pytest.param(
                right,
                marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give it up"),
            )
            for right in ("setuid", "chroot")
        ),
    ],
)
def test_processes_without_stacks_are_named_above_the_table(
    cairn: Any, compiled: Callable[..., Path], tmp_path: Path, right: str
) -> None:
    """Once, the workers of a server that gives up its rights were missing without a word."""
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    rights = compiled("probe_rights.c")
    result = cairn(
        *("profile", "--runs", 1, "--stacks", "--json", out, "--", rights, right, 2, "sweep")
    )
    assert result.code == 0, result.err
    told = " ".join(result.err.split())
    parent, *children = (one["pid"] for one in json.loads(out.read_text())["processes"])
    assert "▲ The stacks of 2 processes were not recorded, or only a part of them: " in told
    for child in children:
        assert f"probe_rights ({child})" in told
    assert f"probe_rights ({parent})" not in told
    assert told.index("The stacks of 2 processes") < told.index("who allocates")
    result = cairn("profile", "--runs", 1, "--stacks", "-o", page, "--", rights, right, 2, "sweep")
    assert result.code == 0, result.err
    assert "The stacks of 2\u00a0processes" in page.read_text().replace(
        "2 processes", "2\u00a0processes"
    )
