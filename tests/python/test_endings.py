"""Tests that endings are counted from records, and judged against those of the baseline."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from cairn.compare.endings import (
    CRASHES,
    Trials,
    crashes,
    crashes_alone,
    crashes_of,
    differences,
    is_only,
    rare,
    says,
    together,
)
from cairn.model import NOT_SEEN
from cairn.run import builds
from cairn.run.endings import COMPARED, UNKNOWN, endings

LAUNCHER, MAIN = 5, 10


def start(pid: int, exe: str, ppid: int = MAIN) -> dict[str, Any]:
    return {"event": "start", "pid": pid, "ppid": ppid, "exe": f"/bin/{exe}"}


def fork(pid: int, program: str, ppid: int = MAIN) -> dict[str, Any]:
    return {"event": "fork", "pid": pid, "ppid": ppid, "program": program}


def execute(pid: int, path: str, kind: str = "dynamic") -> dict[str, Any]:
    return {"event": "exec", "pid": pid, "path": f"/bin/{path}", "kind": kind}


def execute_failed(pid: int) -> dict[str, Any]:
    return {"event": "exec-failed", "pid": pid, "kind": "dynamic"}


def spawn(pid: int, path: str, kind: str = "dynamic") -> dict[str, Any]:
    return {"event": "spawn", "pid": pid, "path": f"/bin/{path}", "kind": kind}


def end(pid: int, status: int, program: str) -> dict[str, Any]:
    return {"event": "end", "pid": pid, "status": status << 8, "program": program}


def wait(pid: int, status: int, program: str = "main", by: int = MAIN) -> dict[str, Any]:
    return {"event": "wait", "pid": pid, "by": by, "status": status, "program": program}


def killed(pid: int, program: str = "") -> dict[str, Any]:
    return {**wait(pid, 9, program, LAUNCHER), "killed": True}


def counted(*records: dict[str, Any]) -> dict[str, dict[str, int]]:
    content = b"".join(json.dumps({"v": 1, **record}).encode() + b"\n" for record in records)
    return {program: dict(of) for program, of in endings(content).items()}


# Counting


def test_a_mark_is_an_ending() -> None:
    assert counted(start(11, "a"), end(11, 0, "a")) == {"a": {"exit 0": 1}}


def test_the_status_of_a_wait_counts_before_a_mark() -> None:
    assert counted(start(11, "a"), end(11, 0, "a"), wait(11, 11)) == {"a": {"SIGSEGV": 1}}
    assert counted(start(11, "a"), wait(11, 0x80 | 6)) == {"a": {"SIGABRT": 1}}
    assert counted(start(11, "a"), wait(11, 7 << 8)) == {"a": {"exit 7": 1}}
    assert counted(start(11, "a"), wait(11, 40)) == {"a": {"signal 40": 1}}


def test_a_process_without_an_end_was_not_seen() -> None:
    assert counted(start(11, "a")) == {"a": {NOT_SEEN: 1}}
    assert counted(fork(11, "a")) == {"a": {NOT_SEEN: 1}}
    assert counted(spawn(11, "a", "static")) == {"a": {NOT_SEEN: 1}}


def test_a_process_counts_under_the_last_program_that_it_executed() -> None:
    once = [start(11, "sh"), execute(11, "env"), start(11, "env")]
    assert counted(*once, execute(11, "b"), start(11, "b"), end(11, 0, "b")) == {"b": {"exit 0": 1}}
    assert counted(*once, execute(11, "b", "static"), wait(11, 11)) == {"b": {"SIGSEGV": 1}}
    assert counted(*once, execute(11, "b"), execute_failed(11), wait(11, 11)) == {
        "env": {"SIGSEGV": 1}
    }


def test_a_script_counts_under_its_interpreter() -> None:
    assert counted(execute(11, "script.sh"), start(11, "dash"), end(11, 1, "dash")) == {
        "dash": {"exit 1": 1}
    }


def test_a_program_that_crashes_before_its_start_is_named_by_its_path() -> None:
    assert counted(execute(11, "a"), wait(11, 11)) == {"a": {"SIGSEGV": 1}}


def test_a_forked_child_without_records_counts_under_its_parent() -> None:
    assert counted(wait(11, 4, "pool")) == {"pool": {"SIGILL": 1}}
    assert counted(end(11, 3, "pool"), wait(11, 3 << 8, "pool")) == {"pool": {"exit 3": 1}}


def test_an_orphan_without_a_name_is_counted() -> None:
    assert counted(wait(11, 11, "", LAUNCHER)) == {UNKNOWN: {"SIGSEGV": 1}}
    assert counted(wait(11, 11, "daemon", LAUNCHER)) == {"daemon": {"SIGSEGV": 1}}


def test_a_process_that_the_launcher_ended_was_not_seen_unless_it_marked_its_end() -> None:
    assert counted(start(11, "a"), killed(11)) == {"a": {NOT_SEEN: 1}}
    assert counted(start(11, "a"), end(11, 2, "a"), killed(11)) == {"a": {"exit 2": 1}}
    assert counted(killed(11)) == {UNKNOWN: {NOT_SEEN: 1}}


def test_process_numbers_are_reused() -> None:
    first = [start(11, "a"), end(11, 0, "a")]
    assert counted(*first, *first) == {"a": {"exit 0": 2}}
    assert counted(*first, execute(11, "b"), start(11, "b")) == {
        "a": {"exit 0": 1},
        "b": {NOT_SEEN: 1},
    }
    assert counted(*first, wait(11, 11), start(11, "a"), wait(11, 11)) == {"a": {"SIGSEGV": 2}}
    assert counted(start(11, "a"), start(11, "b", ppid=12), end(11, 0, "b")) == {
        "a": {NOT_SEEN: 1},
        "b": {"exit 0": 1},
    }


def test_an_unseen_execution_keeps_the_process() -> None:
    assert counted(fork(11, "a"), start(11, "b"), end(11, 0, "b")) == {"b": {"exit 0": 1}}


def test_a_second_mark_is_the_same_process() -> None:
    assert counted(start(11, "a"), end(11, 0, "a"), end(11, 5, "a")) == {"a": {"exit 5": 1}}


def test_the_record_of_a_spawn_may_come_at_any_time() -> None:
    records = [start(11, "a"), end(11, 1, "a"), wait(11, 1 << 8)]
    for place in range(4):
        mixed = [*records[:place], spawn(11, "a"), *records[place:]]
        assert counted(*mixed) == {"a": {"exit 1": 1}}, place
    assert counted(wait(11, 11), spawn(11, "b", "static")) == {"b": {"SIGSEGV": 1}}
    assert counted(spawn(11, "b", "static"), wait(11, 11)) == {"b": {"SIGSEGV": 1}}


def test_a_debugger_and_the_parent_wait_for_one_process() -> None:
    assert counted(start(11, "a"), wait(11, 11, "gdb", 12), wait(11, 11)) == {"a": {"SIGSEGV": 1}}


def test_a_wait_in_libc_finds_its_child() -> None:
    child = start(11, "sh")
    assert counted(child, end(11, 2, "sh"), wait(0, 2 << 8)) == {"sh": {"exit 2": 1}}
    assert counted(child, wait(0, 11)) == {"sh": {"SIGSEGV": 1}}
    assert counted(start(9, "other", ppid=8), child, wait(0, 11)) == {
        "other": {NOT_SEEN: 1},
        "sh": {"SIGSEGV": 1},
    }
    # The shell crashed before it wrote a record, or could not be started.
    assert counted(wait(0, 11)) == {"sh": {"SIGSEGV": 1}}
    assert counted(wait(0, 127 << 8)) == {}


def test_names_are_cut_alike_in_all_records() -> None:
    long = "x" * 100
    assert counted(start(11, long), end(11, 0, long[:60]), wait(12, 11, long[:60])) == {
        "x" * 60: {"SIGSEGV": 1, "exit 0": 1}
    }


def test_compared_programs_have_a_common_name_behind_links_env_and_wrappers(
    tmp_path: Path,
) -> None:
    """Only the name in the command was known. So a healthy build behind a link was broken."""
    for name in ("python3.11", "python3.12"):
        shutil.copy("/bin/true", tmp_path / name)
        (tmp_path / f"v{name}").mkdir()
        (tmp_path / f"v{name}" / "python").symlink_to(tmp_path / name)
        (tmp_path / f"{name}.script").write_text(f"#!{tmp_path / name}\n")
        (tmp_path / f"{name}.script").chmod(0o755)

    def names(*words: str) -> frozenset[str]:
        each = [[one.format(name) for one in words] for name in ("python3.11", "python3.12")]
        return builds.names_of_programs(each, str(tmp_path))

    content = b"".join(
        json.dumps({"v": 1, **record}).encode() + b"\n"
        for record in (start(11, "python3.12"), end(11, 1, "python3.12"))
    )
    for before in ((), ("env", "X=1"), ("nice", "-n", "1"), ("env", "X=1", "nice", "timeout", "9")):
        for word in ("v{}/python", "./{}", "./{}.script"):
            assert endings(content, names(*before, word)) == {COMPARED: {"exit 1": 1}}, before
    assert names("vpython3.11/python") == frozenset(), "one program needs no other name"
    assert names("./gone/{}") == {"python3.11", "python3.12"}, "the run will tell"


def test_damaged_lines_are_left_out() -> None:
    assert endings(b'{"v":1,"event":"start","pi\n\xff\n') == {}


def test_a_process_is_counted_once_whatever_the_order_of_its_records() -> None:
    """The processes have random lives and random process numbers. Each must end once."""
    dice = random.Random(7)
    for _ in range(300):
        records: list[dict[str, Any]] = []
        lives = dice.randint(1, 12)
        for _ in range(lives):
            pid = dice.choice((11, 12, 13))
            records.append(start(pid, "a", ppid=dice.randint(100, 10**6)))
            if dice.random() < 0.7:
                records.append(end(pid, dice.randint(0, 3), "a"))
            if dice.random() < 0.7:
                records.append(wait(pid, dice.choice((6, 11, 1 << 8))))
        assert sum(counted(*records)["a"].values()) == lives


# Judging


def trials(*counts: dict[str, dict[str, int]], warm_up: bool = True) -> Trials:
    found = Trials()
    for number, of in enumerate(counts):
        found.add(of, counted=number > 0 or not warm_up)
    return found


GOOD = {"sh": {"exit 0": 1}, "worker": {"exit 0": 3}}


def sick(ending: str, number: int = 3) -> dict[str, dict[str, int]]:
    rest = {"exit 0": 3 - number} if number < 3 else {}
    return {"sh": {"exit 0": 1}, "worker": {ending: number, **rest}}


@pytest.mark.parametrize("signal", CRASHES)
def test_one_crash_is_enough(signal: str) -> None:
    own, base = trials(sick(signal, 1)), trials(GOOD)
    found = crashes(own, base)
    assert says(found, own, base, "system") == (
        f"worker (1 of 3 processes) was killed by {signal} in its first run; "
        "under system all exited 0"
    )


def test_a_crash_that_the_baseline_has_too_is_no_failure() -> None:
    assert crashes(trials(sick("SIGSEGV")), trials(GOOD, sick("SIGSEGV", 1))) == []
    assert crashes(trials(sick("SIGSEGV")), trials(sick("SIGABRT"))) != []


def test_nothing_is_judged_without_the_baseline() -> None:
    own = trials(*[sick("exit 1")] * 9)
    assert crashes(trials(sick("SIGSEGV")), Trials()) == []
    assert differences(own, Trials()) == []
    old = Trials()
    old.add(None, counted=True)
    assert crashes(trials(sick("SIGSEGV")), old) == []


def test_other_signals_are_no_crash() -> None:
    for signal in ("SIGTERM", "SIGKILL", "SIGPIPE"):
        assert crashes(trials(sick(signal)), trials(GOOD)) == []


@pytest.mark.parametrize("ending", ["exit 1", "SIGTERM", "SIGKILL", NOT_SEEN])
def test_another_ending_in_three_rounds_is_a_failure(ending: str) -> None:
    for rounds in range(1, 4):
        own, base = trials(*[sick(ending)] * (rounds + 1)), trials(*[GOOD] * (rounds + 1))
        assert bool(differences(own, base)) == (rounds >= 3), rounds


def test_the_baseline_needs_three_runs() -> None:
    own = trials(*[sick("exit 1")] * 4)
    assert differences(own, trials(GOOD, GOOD)) == []
    assert differences(own, trials(GOOD, GOOD, GOOD)) != []


def test_half_of_the_runs_are_not_enough() -> None:
    base = trials(*[GOOD] * 12)
    assert differences(trials(*[sick("exit 1"), GOOD] * 6), base) == []
    assert differences(trials(*[sick("exit 1"), GOOD] * 5, *[sick("exit 1")] * 2), base) != []


def test_an_ending_that_varies_under_the_baseline_is_no_failure() -> None:
    base = trials(*[GOOD] * 5, sick("exit 1", 1))
    assert differences(trials(*[sick("exit 1")] * 6), base) == []


def test_a_success_is_no_failure() -> None:
    """Under a faster allocator, a child may finish before its parent kills it."""
    assert differences(trials(*[GOOD] * 9), trials(*[sick("SIGTERM")] * 9)) == []


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL", "SIGINT"])
def test_a_child_may_be_killed_before_it_executes_its_program(signal: str) -> None:
    """Under a contender that starts more slowly, bash was killed in place of sleep."""
    after = {"bash": {"exit 0": 1}, "sleep": {signal: 1, "SIGKILL": 1 + (signal == "SIGKILL")}}
    before = {"bash": {"exit 0": 1, signal: 1}, "sleep": {"SIGKILL": 1}}
    assert differences(trials(*[before] * 9), trials(*[after] * 9)) == []
    assert differences(trials(*[after] * 9), trials(*[before] * 9)) == []
    both = {**after, "bash": {"exit 0": 1, signal: 1}}
    found = differences(trials(*[both] * 9), trials(*[after] * 9))
    assert [(one.program, one.ending) for one in found] == [("bash", signal)]


def test_other_numbers_of_processes_are_no_failure() -> None:
    """A parent that polls starts more children when it waits longer."""
    base = trials(*[{"grep": {"exit 0": 1, "exit 1": 7}}] * 9)
    assert differences(trials(*[{"grep": {"exit 0": 1, "exit 1": 9}}] * 9), base) == []
    assert differences(trials(*[{"grep": {"exit 0": 1, "exit 1": 5}}] * 9), base) == []


def test_more_of_an_ending_among_as_many_processes_is_a_failure() -> None:
    for runs in range(4, 9):
        own, base = trials(*[sick("exit 1", 2)] * runs), trials(*[sick("exit 1", 1)] * runs)
        assert bool(differences(own, base)) == (runs >= 6), runs
    assert says(differences(own, base), own, base, "system") == (
        "worker (2 of 3 processes) exited 1 in every run; under system 1 of 3 did"
    )
    assert differences(base, own) == []
    varying = trials(*[sick("exit 1", 1)] * 7, GOOD)
    assert differences(own, varying) == []


def test_a_warm_up_of_fewer_runs_does_not_hide_more_of_an_ending() -> None:
    """With --repeat, endings that became more frequent once never counted."""
    own, base = trials(sick("exit 1", 2)), trials(sick("exit 1", 1))
    for _ in range(6):
        for of, number in ((own, 2), (base, 1)):
            of.add(
                {"worker": {"exit 0": 5 * (3 - number), "exit 1": 5 * number}}, counted=True,
                repeats=5,
            )  # fmt: skip
    assert says(differences(own, base), own, base, "system") == (
        "worker (10 of 15 processes) exited 1 in every run; under system 5 of 15 did"
    )
    assert differences(base, own) == []


def test_an_unseen_end_counts_only_if_the_baseline_shows_the_ends() -> None:
    own = trials(*[{"sh": {"exit 0": 1}, "helper": {NOT_SEEN: 1}}] * 6)
    assert differences(own, trials(*[{"sh": {"exit 0": 1}}] * 6)) == []
    with_helper = {"sh": {"exit 0": 1}, "helper": {"exit 0": 1}}
    base = trials(*[with_helper] * 6)
    assert says(differences(own, base), own, base, "system") == (
        "helper ended unseen in every run; under system it exited 0"
    )


def test_sentences() -> None:
    def said(own: Trials, base: Trials) -> str:
        return says(crashes(own, base) or differences(own, base), own, base, "system")

    one = {"tool": {"SIGABRT": 1}}
    assert said(trials(one), trials({"sh": {"exit 0": 1}})) == (
        "tool was killed by SIGABRT in its first run; under system it was not started"
    )
    assert said(trials(*[one] * 4), trials({"tool": {"exit 0": 1}})) == (
        "tool was killed by SIGABRT in every run; under system it exited 0"
    )
    assert said(trials(GOOD, sick("SIGILL")), trials(GOOD, sick("SIGTERM", 1))) == (
        "worker (3 of 3 processes) was killed by SIGILL in 1 of 2 runs; "
        "under system none was killed by SIGILL"
    )
    two = {"a": {"SIGBUS": 1}, "b": {"SIGSEGV": 2}}
    assert said(trials(two), trials({"a": {"exit 0": 1}, "b": {"exit 0": 2}})) == (
        "b (2 of 2 processes) was killed by SIGSEGV and a was killed by SIGBUS in its first run; "
        "under system this did not happen"
    )
    many = {f"p{number}": {"SIGBUS": 1} for number in range(1, 10)}
    assert ", p8 was killed by SIGBUS and 1 more in its first run" in said(
        trials(many), trials({"sh": {"exit 0": 1}})
    )


def test_the_crash_of_the_command_itself_is_told_once() -> None:
    found = crashes(trials({"prog": {"SIGSEGV": 1}}), trials({"prog": {"exit 0": 1}}))
    assert is_only(found, 11)
    assert not is_only(found, None) and not is_only(found, 6)


def test_crashes_of_the_baseline_are_told() -> None:
    assert crashes_of(trials(GOOD)) is None
    assert crashes_of(trials(GOOD, sick("SIGSEGV", 2))) == (
        "worker (2 of 3 processes) was killed by SIGSEGV"
    )


def test_a_crash_in_most_runs_of_the_baseline_alone_speaks_against_the_baseline() -> None:
    """A baseline whose workers crashed once won, because it did less work."""
    crashing, healthy = [sick("SIGSEGV")] * 5, [GOOD] * 5
    own, other = trials(*crashing), trials(*healthy)
    (found,) = crashes_alone(own, other)
    assert says([found], own, other, "x") == (
        "worker (3 of 3 processes) was killed by SIGSEGV in every run; under x all exited 0"
    )
    assert crashes_alone(trials(*crashing[:3]), other) == [], "two rounds and the warm-up"
    assert crashes_alone(trials(*crashing[:4], *healthy), other) == [], (
        "fewer than half of the runs"
    )
    assert crashes_alone(own, trials(*healthy, *crashing[:1])) == [], "it may crash everywhere"


def test_an_ending_in_fewer_than_half_of_the_runs_is_told_if_it_is_hardly_chance() -> None:
    base = trials(*[GOOD] * 31)
    own = trials(*[sick("exit 9", 1)] * 13, *[GOOD] * 18)
    assert differences(own, base) == []
    assert says(rare(own, base), own, base, "system") == (
        "worker (1 of 3 processes) exited 9 in 13 of 31 runs; under system all exited 0"
    )
    assert rare(trials(*[sick("exit 9", 1)] * 3, *[GOOD] * 28), base) == []
    assert rare(own, trials(*[GOOD] * 30, sick("exit 9", 1))) == []
    for ending in ("SIGTERM", NOT_SEEN, "exit 0"):
        assert rare(trials(*[sick(ending, 1)] * 13, *[GOOD] * 18), base) == []


def test_trials_of_several_contenders_are_taken_together() -> None:
    both = together([trials(GOOD), trials(GOOD, sick("SIGSEGV"))])
    assert both.runs == 3
    assert crashes(trials(sick("SIGSEGV")), both) == []


def test_an_ending_by_chance_rarely_fails_a_contender() -> None:
    """docs/decisions/0028-ends-are-recorded-by-the-witness.md lists such probabilities.

    They are largest for an ending that comes with a chance near 0.4.
    """
    dice = random.Random(3)
    for chance, limit in ((0.05, 0.002), (0.2, 0.012), (0.4, 0.025)):
        false = 0
        for _ in range(1500):
            own, base = Trials(), Trials()
            for number in range(16):
                for of in (base, own) if dice.random() < 0.5 or number == 0 else (own, base):
                    ending = "exit 1" if dice.random() < chance else "exit 0"
                    of.add({"tool": {ending: 1}}, counted=number > 0)
                    if of is own and differences(own, base):
                        break
                else:
                    continue
                false += 1
                break
        assert false / 1500 < limit, chance
