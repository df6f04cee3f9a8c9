"""Tests of `cairn compare -p`, `--instructions` and `cairn check` on builds of one program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import junitparser
import pytest

BOTH = ("-p", "old=./old", "-p", "new=./new")
WITH_VALGRIND = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not here")


@pytest.fixture
def builds(compiled: Callable[..., Path], cairn) -> Callable[..., None]:
    """Puts builds of one program into the folder of the command: builds(new=("-DWORK=105",))."""

    def put(**flags: tuple[str, ...]) -> None:
        for name, of in {"old": (), **flags}.items():
            shutil.copy(compiled("build.c", *of), cairn.home / name)

    return put


def test_builds_are_compared_under_each_allocator(cairn, builds) -> None:
    builds(new=("-DMEMORY=300",), third=("-DCRASHES=1",))
    programs = (*BOTH, "-p", "third=./third")
    done = cairn("compare", *programs, "-a", "system,cairn", "-r", 3, "--json", "--", 20)
    assert done.code == 4, "the child of the third build crashes"
    found = done.json
    names = ["old/system", "old/cairn", "new/system", "new/cairn", "third/system", "third/cairn"]
    assert [one["name"] for one in found["run"]["contenders"]] == names
    assert found["run"]["baseline"] == "old/system"
    rows = {row["contender"]: row for row in found["comparisons"][0]["rows"]}
    assert (
        "the program (1 of 2 processes) was killed by SIGABRT" in rows["third/cairn"]["failures"][0]
    )
    assert "under old/system" in rows["third/system"]["failures"][0]
    peak = {name: rows[name]["summaries"]["peak"]["median"] for name in names[:4]}
    assert peak["new/cairn"] > 2 * peak["old/cairn"] and peak["new/system"] > 2 * peak["old/system"]


@WITH_VALGRIND
@pytest.mark.long
def test_instructions_are_exact_numbers_beside_times(cairn, builds) -> None:
    builds(new=("-DWORK=105",))
    done = cairn("compare", *BOTH, "-r", 2, "--instructions", "--", 10)
    assert done.code == 0, done.err
    lines = {line.split()[0]: line.split() for line in done.out.splitlines() if line.split()}
    old, new = (
        int(lines[name][-1 if name == "old" else -2].replace(",", "")) for name in ("old", "new")
    )
    counted = cairn("report", "--json").json["instructions"]
    assert [one["counts"] for one in counted] == [[old, old], [new, new]]
    assert float(lines["new"][-1]) == pytest.approx(new / old, abs=1e-4)
    assert 1.03 < new / old < 1.05
    assert "counted by callgrind, 2 times with the same result" in done.out


@WITH_VALGRIND
def test_a_check_fails_on_instructions_and_writes_every_form(cairn, builds, tmp_path: Path) -> None:
    builds(new=("-DWORK=101",))
    junit, step = tmp_path / "junit.xml", tmp_path / "step.md"
    done = cairn(
        "check", "--fail-if", "instructions>0.5%", *BOTH, "--junit", junit, "--", 10,
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(step),
    )  # fmt: skip
    assert done.code == 5, done.err
    assert done.out.startswith("Worse: new executes 0.")
    assert "::error title=cairn check::Worse: new executes 0." in done.err
    assert "%25 more instructions" in done.err
    (suite,) = junitparser.JUnitXml.fromfile(str(junit))
    (case,) = suite
    assert case.name == "instructions>0.5%"
    assert isinstance(case.result[0], junitparser.Failure)
    assert step.read_text().startswith("# cairn check\n\n**Worse: ")
    assert cairn("check", "--fail-if", "instructions>2%", "last").code == 0, "a kept run"


def test_few_rounds_may_be_asked_for(cairn, builds) -> None:
    """--max-rounds below the usual least number of rounds lowers this number, too."""
    builds(new=())
    asked = ("--fail-if", "time>900%", *BOTH, "--json")
    done = cairn("check", *asked, "--max-rounds", 7, "--", 1)
    assert done.code in (0, 6), done.err
    assert done.json["run"]["rule"]["min_rounds"] == 7
    assert done.json["check"]["bounds"][0]["rounds"] == 7
    refused = cairn("check", *asked, "--min-rounds", 8, "--max-rounds", 7, "--", 1)
    assert refused.code == 2 and "--max-rounds 7 is less than --min-rounds 8" in refused.sentence


@pytest.mark.long
def test_a_check_decides_time_and_memory(cairn, builds) -> None:
    builds(old=("-DMEMORY=2000",), new=("-DMEMORY=2200", "-DPRINTS=8"))
    bounds = ("--fail-if", "peak>2%", "--fail-if", "time>900%")
    done = cairn("check", *bounds, *BOTH, "--json", "--", 1)
    assert done.code == 5, done.err
    check = done.json["check"]
    assert check["answer"] == "worse"
    peak = check["bounds"][0]
    assert peak["state"] == "worse" and 0.02 < peak["low"] <= peak["high"] < 0.3
    assert peak["rounds"] <= 30
    broken = cairn("check", *bounds, *BOTH, "-r", 8, "--verify", "same-output", "--", 1)
    assert broken.code == 4
    assert (
        broken.out.startswith("Broken: ")
        and "printed something else than under old" in broken.sentence
    )


@pytest.mark.long
def test_a_base_is_measured_again_or_must_be_trusted(cairn, builds) -> None:
    builds(new=("-DWORK=105",))
    cairn.home.joinpath("app").write_bytes(cairn.home.joinpath("old").read_bytes())
    cairn.home.joinpath("app").chmod(0o755)
    made = cairn(
        "check", "--make-base", "base.json", "--fail-if", "instructions>0.5%", "-r", 8, "--",
        "./app", 10,
    )  # fmt: skip
    assert made.code == 0, made.err
    base = json.loads(cairn.home.joinpath("base.json").read_text())
    assert base["kind"] == "base of cairn check" and len(base["samples"]) == 9
    side = cairn("check", "--against", "base.json", "--", "./new", 10)
    assert side.code == 5 and "-p base=" in side.err, "the base's program is still there"
    other = cairn("check", "--against", "base.json", "--", "./new", 11)
    assert other.code == 2 and "with other arguments" in other.sentence

    shutil.copy(cairn.home / "new", cairn.home / "app")
    stored = cairn("check", "--against", "base.json", "--", "./app", 10)
    assert stored.code == 5 and "-p base=" not in stored.err, "exact counts are comparable"
    timed = ("--against", "base.json", "--fail-if", "faults>50%")
    refused = cairn("check", *timed, "--", "./app", 10)
    assert refused.code == 2 and "--trust-base compares them nevertheless" in refused.sentence
    trusted = cairn("check", *timed, "--trust-base", "--", "./app", 10)
    known = Path("/etc/machine-id").is_file() and Path("/etc/machine-id").read_text().strip()
    assert trusted.code == (0 if known else 2), trusted.err
    if known:
        assert "were stored by an earlier run" in trusted.out
    again = cairn("check", *timed, "-p", "old=./old", "-r", 8, "--", "./app", 10)
    assert again.code == 0 and "-p old=./old -p new=./app" in again.err


@pytest.mark.long
def test_equal_builds_pass_and_a_planted_change_is_found(cairn, builds) -> None:
    """A check of equal builds may say "worse" with a probability of 1 %.

    Then more than 2 of 40 checks say "worse" with a probability of only 1 in 130.
    """
    builds(new=(), slow=("-DWORK=110",), fat=("-DMEMORY=2100",), lean=("-DMEMORY=2000",))
    bounds = ("--fail-if", "time>3%", "--fail-if", "peak>2%")
    codes = [
        cairn("check", *bounds, *BOTH, "--seed", seed, "--", 100, timeout=900).code
        for seed in range(40)
    ]
    assert codes.count(5) <= 2 and set(codes) <= {0, 5, 6}, codes
    for old, new, bound in (("old", "slow", "time>3%"), ("lean", "fat", "peak>2%")):
        programs = ("-p", f"old=./{old}", "-p", f"new=./{new}")
        codes = [
            cairn(
                "check", "--fail-if", bound, *programs, "--seed", seed, "--", 100, timeout=900
            ).code
            for seed in range(20)
        ]
        assert codes.count(5) >= 18 and 0 not in codes, (bound, codes)


@pytest.mark.long
def test_a_build_that_cannot_run_is_named_with_its_reason(cairn) -> None:
    for old, new, code, reason in (
        ("false", "true", 3, "since under old the program failed with exit code 1."),
        ("true", "false", 4, "under new, the program failed with exit code 1."),
    ):
        programs = (f"old=/bin/{old}", "-p", f"new=/bin/{new}")
        done = cairn("check", "--fail-if", "time>3%", "-p", *programs, "--")
        assert done.code == code
        assert done.out.startswith("Broken: ") and done.out.strip().endswith(reason)


@WITH_VALGRIND
def test_a_broken_build_is_found_by_instructions_alone(cairn, builds) -> None:
    builds(new=("-DPRINTS=8",))
    asked = ("--fail-if", "instructions>5%", *BOTH)
    assert cairn("check", *asked, "--", 1).code == 0
    other = cairn("check", *asked, "--verify", "same-output", "--", 1)
    assert other.code == 4 and "printed something else than old" in other.sentence
    assert other.out.startswith("Broken: ")
    cairn.home.joinpath("new").write_text("#!/bin/sh\nexit 7\n")
    broken = cairn("check", *asked, "--", 1)
    assert broken.code == 4 and "failed with exit code 7" in broken.sentence
