"""Tests of the aims of a comparison: --goal, --may-cost, --pareto, and the memory after idle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest


def test_a_run_keeps_its_aim_and_a_report_may_ask_for_another(
    cairn, forward: Path, churn: Path, tmp_path: Path
) -> None:
    """The aim changes only the verdict, and not the numbers of the run."""
    specs = ("-a", "system", "-a", f"slow={forward}:TEST_SLOW=1000")
    measured = cairn("compare", "-r", 12, *specs, "--goal", "memory", "--", churn, 100_000, 8192)
    assert measured.code == 0, measured.err
    assert "By memory: " in measured.out
    assert "mean memory" in measured.out and "growth, 2nd half" in measured.out
    assert cairn("report").out == measured.out

    by_time = cairn("report", "last", "--goal", "time").out
    assert "By time: keep system, because it takes the least time." in by_time
    front = cairn("report", "last", "--pareto").out
    assert "By time and memory together: " in front
    # Whether equal memory is proven as well depends on the noise.
    assert (
        "slow is not both faster and leaner than system." in front
        or "system is both faster and leaner than slow." in front
    )
    assert "A system" in front, "the plane has a legend"
    plain, lean = (
        cairn("report", "last", "--json", *aim).json["comparisons"][0]["judged"]
        for aim in (("--goal", "time"), ())
    )
    assert plain["judgements"] == lean["judgements"]
    assert (plain["aim"]["goal"], lean["aim"]["goal"]) == ("time", "memory")

    picture = tmp_path / "plane.svg"
    assert cairn("report", "last", "--pareto", "-o", picture).code == 0
    texts = ElementTree.parse(picture).getroot()
    assert texts.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--goal", "speed"), "'speed' is not one of"),
        (
            ("--may-cost", "memory 5%"),
            "✘ --may-cost bounds the price of an aim; add --goal time, cpu or memory",
        ),
        (("--goal", "time", "--may-cost", "memory"), "is not a measure and a percentage"),
        (("--goal", "time", "--may-cost", "ram 5%"), "is not a measure and a percentage"),
        (("--goal", "time", "--may-cost", "memory 0%"), "is not more than 0 %"),
        (("--goal", "time", "--may-cost", "memory -5%"), "is not a percentage"),
        (("--goal", "time", "--may-cost", "memory 0.5%"), "is less than --margin 1%"),
        (("--goal", "time", "--may-cost", "time 5%"), "bounds the goal itself"),
        (
            ("--goal", "time", "--may-cost", "cpu 5%", "--may-cost", "cpu 6%"),
            "--may-cost cpu is given twice",
        ),
        (("--pareto", "--goal", "time"), "leave out --goal"),
        (("--goal", "memory", "--memory", "none"), "--memory none does not measure it"),
        (("--idle", "1s"), "give the load with --while"),
    ],
)
def test_a_bad_aim_is_one_sentence(cairn, options: tuple[str, ...], says: str) -> None:
    result = cairn("compare", "-r", 1, "-a", "system", *options, "--", "true")
    assert result.code == 2
    assert says in " ".join(result.err.split()), result.err


def test_a_measure_of_the_aim_that_was_not_measured_is_no_answer(
    cairn, forward: Path, churn: Path
) -> None:
    specs = ("-a", "system", "-a", f"x={forward}")
    cairn("compare", "-r", 6, *specs, "--memory", "none", "--", churn, 100)
    for aim, says in (
        (("--goal", "memory"), "memory was"),
        (("--pareto",), "memory were not both"),
    ):
        result = cairn("report", "last", *aim)
        assert result.code == 1
        assert "No answer: " in result.out and says in " ".join(result.out.split())
        assert "the aim has no answer" in result.sentence


def test_a_list_has_no_aim(cairn) -> None:
    result = cairn("report", "--list", "--goal", "time")
    assert result.code == 2 and "--list has no verdict" in result.sentence


def test_a_plan_that_cannot_tell_the_front_says_so_first(cairn, forward: Path) -> None:
    """With two contenders, two hypotheses are tested for the front, which needs seven rounds."""
    specs = ("-a", "system", "-a", f"x={forward}")
    result = cairn("compare", "-r", 6, *specs, "--pareto", "--", "true")
    assert "at least 7 are needed: -r 7" in " ".join(result.err.split())


def test_the_memory_of_an_idle_server_is_measured(
    cairn, forward: Path, compiled: Callable[..., Path]
) -> None:
    server, load = compiled("small_server.c"), f"{compiled('small_load.c')} {{port}} 400"
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--baseline", "x", "--while", load, "--idle",
        "0.5s", "--json", "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 0, result.err
    for sample in result.json["samples"]:
        memory = sample["memory"]
        assert 0 < memory["idle_bytes"] <= memory["peak_bytes"]
        assert 0 < memory["mean_bytes"] <= memory["peak_bytes"]
    assert "memory after idle" in cairn("report").out


def test_a_server_that_ends_while_it_is_idle_has_failed(
    cairn, forward: Path, compiled: Callable[..., Path]
) -> None:
    server = compiled("small_server.c")
    # The test does not use pgrep to find the server, because a bare system lacks pgrep.
    ends = f"kill -KILL $(grep -als '^{server}' /proc/[0-9]*/cmdline | tr -dc '0-9\\n')"
    # The processes of the load's group are ended with the load. So the load waits until the script
    # has left the group, and the script waits until the load has ended.
    script, apart = cairn.home / "ends.sh", cairn.home / "apart"
    script.write_text(f"touch {apart}\nsleep 1\n{ends}\n")
    load = (
        f"{compiled('small_load.c')} {{port}} 400; setsid sh {script} & "
        f"until [ -e {apart} ]; do sleep 0.05; done"
    )
    result = cairn(
        "compare", "-r", 1, "-a", f"x={forward}", "--baseline", "x", "--while", load, "--idle",
        "20s", "--", server, "{port}",
    )  # fmt: skip
    assert result.code == 3
    assert "while it was idle" in " ".join(result.err.split())
