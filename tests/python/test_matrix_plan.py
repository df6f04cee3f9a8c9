"""Tests of plans: an error names the line and the reason, and inputs never change."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from cairn.cli import cli
from cairn.doctor.program_checks import Diagnosis
from cairn.errors import CairnError, UsageError
from cairn.matrix import inputs, places, programs, recipes, runs
from cairn.matrix.plan import BrokenPlan, MeasurementPlan, read
from cairn.matrix.toml_lines import lines_of

HEAD = '[plan]\ncontenders = ["system", "jemalloc"]\n'
"""Lines 1 and 2 of most plans in this file."""


def plan(text: str) -> MeasurementPlan:
    return read(textwrap.dedent(text), "plan.toml")


def program(*lines: str) -> str:
    """Returns a plan with one program, whose own lines begin with line 4 of the plan."""
    return HEAD + "[program.p]\n" + "\n".join(lines) + "\n"


BROKEN = {
    "not TOML": (HEAD + "rounds =\n", 3, "not TOML"),
    "a table is unknown": (program('command = "true"') + "[programs.q]\n", 5, "did you mean"),
    "no head": ('[program.p]\ncommand = "true"\n', 1, "[plan] is missing"),
    "no program": (HEAD, 1, "has no program"),
    "a key is unknown": (HEAD + 'round = 3\n[program.p]\ncommand = "true"\n', 3, "'rounds'?"),
    "rounds are a text": (HEAD + 'rounds = "3"\n[program.p]\ncommand = "true"\n', 3, "whole number"),
    "too many rounds": (HEAD + 'rounds = 9999\n[program.p]\ncommand = "true"\n', 3, "between 1"),
    "too much warm-up": (HEAD + 'warmup = 11\n[program.p]\ncommand = "true"\n', 3, "0 and 10"),
    "no contenders": ('[plan]\nrounds = 3\n[program.p]\ncommand = "true"\n', 1, "'contenders' is"),
    "one contender": (
        '[plan]\ncontenders = ["system"]\n[program.p]\ncommand = "true"\n', 2, "nothing to be",
    ),
    "a contender twice": (
        '[plan]\ncontenders = ["system", "jemalloc", "jemalloc"]\n[program.p]\ncommand = "true"\n',
        2, "two contenders",
    ),
    "an unknown contender": (
        '[plan]\ncontenders = ["system", "jemaloc"]\n[program.p]\ncommand = "true"\n', 2, "jemaloc",
    ),
    "another baseline": (
        HEAD + 'baseline = "hoard"\n[program.p]\ncommand = "true"\n', 3, "none of the contenders",
    ),
    "the budget": (HEAD + 'budget = "soon"\n[program.p]\ncommand = "true"\n', 3, "duration"),
    "no command": (program('note = "x"'), 3, "no 'command'"),
    "command and workload": (program('command = "true"', 'workload = "larson"'), 5, "exclude"),
    "an unknown workload": (program('workload = "larsen"'), 4, "did you mean 'larson'?"),
    "an open quote": (program("command = \"echo 'a\""), 4, "split into words"),
    "a shell's operator": (program('command = "sort a | uniq"'), 4, "shell = true"),
    "an empty command": (program('command = " "'), 4, "empty"),
    "threads without a list": (program('command = "p -p{threads}"'), 3, "threads = [1, 2]"),
    "threads without effect": (program('command = "p"', "threads = [1, 2]"), 5, "no effect"),
    "threads that are none": (program('command = "p{threads}"', "threads = [0]"), 5, "numbers"),
    "data without an input": (program('command = "sort {data}/x"'), 3, "needs an 'input'"),
    "an input without effect": (
        program('command = "sort"', 'input = { x = "generate text 1K seed=1" }'), 3, "no line has",
    ),
    "an unknown recipe": (
        program('command = "sort {data}/x"', 'input = { x = "generate prose 1K seed=1" }'),
        5, "the kinds are",
    ),
    "a recipe without a seed": (
        program('command = "sort {data}/x"', 'input = { x = "generate text 1K" }'), 5, "seed=N",
    ),
    "a recipe that writes nothing": (
        program('command = "sort {data}/x"', 'input = { x = "run date" }'), 5, "{out}",
    ),
    "a file name with a slash": (
        program('command = "sort {data}/x"', 'input = { "a/b" = "generate text 1K seed=1" }'),
        5, "not a file name",
    ),
    "a load without a port": (program('command = "s"', 'load = "bench"'), 5, "{port}"),
    "a load with a port of the shell": (
        program('command = "s -p {port}"', 'load = "bench ${port}"'), 5, "as {port}",
    ),
    "a port in the standard input": (
        program('command = "s {port}"', 'load = "b {port}"', 'stdin = "f{port}"'), 6,
        "{port} has no meaning in 'stdin'",
    ),
    "a port in a written file": (
        program('command = "s {port}"', 'load = "b {port}"', 'writes = ["{port}"]'), 6,
        "{port} has no meaning in 'writes'",
    ),
    "a port of the shell without a shell": (
        program('command = "s ${port}"', 'load = "b {port}"', 'ready = "r"'), 4, "write {port}",
    ),
    "a port of the shell in a variable": (
        program('command = "s"', 'load = "b {port}"', 'ready = "r"',
                'environment = { P = "${port}" }'), 7, "write {port}",
    ),
    "a server that does not know its port": (
        program('command = "s"', 'load = "b {port}"'), 3, "add 'ready'",
    ),
    "ready without a load": (program('command = "s"', 'ready = "ping"'), 5, "has a 'load'"),
    "another output": (program('command = "p"', 'output = "none"'), 5, "'unchecked'"),
    "a kernel without a source": (program('command = "p"', 'kind = "kernel"'), 3, "'note'"),
    "an unknown kind": (program('command = "p"', 'kind = "toy"'), 5, "kernel or workload"),
    "exit codes": (program('command = "p"', "ok_exit = [999]"), 5, "0 to 255"),
    "our own variable": (
        program('command = "p"', 'environment = { LD_PRELOAD = "x" }'), 5, "LD_PRELOAD",
    ),
    "a misspelt place": (program('command = "p -t{thread}"'), 3, "did you mean {threads}?"),
    "the name of a program": (HEAD + '[program."a b"]\ncommand = "p"\n', 3, "not a name"),
    "seconds that are no number": (program('command = "p"', "seconds = nan"), 5, "'seconds' must"),
    "seconds without an end": (program('command = "p"', "seconds = inf"), 5, "'seconds' must"),
    "seconds that never end": (program('command = "p"', "seconds = 1e300"), 5, "'seconds' must"),
    "a number of many digits": (HEAD + "seed = " + "1" * 5000 + "\n", 3, "too many digits"),
    "many brackets": (HEAD + "a = " + "[" * 3000 + "]" * 3000 + "\n", 1, "nested too deeply"),
    "the arguments of a workload": (
        program('workload = "larson"', 'arguments = "\'"'), 5, "split into words",
    ),
    "exit codes of a workload": (
        program('workload = "larson"', "ok_exit = [3]"), 5, "a workload of the catalog has no",
    ),
    "a place in the arguments of a workload": (
        program('workload = "larson"', 'arguments = "--threads 1 {work}"'), 5, "{work} has no meaning in",
    ),
    "a misspelt place in arguments": (
        program('workload = "larson"', 'arguments = "--threads {thread}"'), 3, "mean {threads}?",
    ),
    "a text for no program": (program('command = "a\\u0000b"'), 4, "U+0000"),
    "an empty name": (program("command = \"'' x\""), 4, "name of the program is empty"),
    "the timeout": (program('command = "p"', 'timeout = "never"'), 5, "duration"),
    "a long timeout": (program('command = "p"', 'timeout = "1000000h"'), 5, "100 years"),
    "an empty list": (
        '[plan]\ncontenders = []\n[program.p]\ncommand = "true"\n', 2, "'contenders' is empty",
    ),
    "an open quote of a shell": (program('command = "echo \'a"', "shell = true"), 4, "/bin/sh"),
    "a line to prepare": (program('command = "p"', 'prepare = "if true"'), 5, "/bin/sh cannot"),
    "an endless size": (
        program('command = "sort {data}/x"',
                'input = { x = "generate text ' + "9" * 308 + 'G seed=1" }'), 5, "8 EiB",
    ),
    "many dots": (HEAD + ".".join(["a"] * 3000) + " = 1\n", 1, "nested too deeply"),
    "a separator of lines in a text": (
        program('command = "p"', 'note = "a\u2028b"', 'writs = ["x"]'), 6, "mean 'writes'?",
    ),
}  # fmt: skip
"""By name: a broken plan, the line of the mistake, and a part of its reason."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_mistake_is_told_with_its_line_and_reason(name: str) -> None:
    text, line, reason = BROKEN[name]
    with pytest.raises(BrokenPlan) as caught:
        read(text, "plan.toml")
    (mistake,) = caught.value.mistakes
    assert (mistake.line, reason in mistake.says) == (line, True), mistake
    assert f"plan.toml:{line}: " in str(caught.value)


def test_all_mistakes_of_a_plan_are_told_at_once() -> None:
    text = """\
        [plan]
        contenders = ["system", "jemalloc"]
        round = 3
        [program.one]
        command = "sort {data}/x"
        [program.two]
        comand = "true"
        """
    with pytest.raises(BrokenPlan) as caught:
        plan(text)
    assert [one.line for one in caught.value.mistakes] == [3, 4, 6, 7]
    assert "the plan has 4 mistakes" in str(caught.value)


def test_a_plan_is_read_with_its_programs_threads_and_workloads() -> None:
    found = plan(
        """\
        [plan]
        title = "a table"
        contenders = ["system", "jemalloc", "lazy=jemalloc:MALLOC_CONF=dirty_decay_ms:-1"]
        rounds = 7
        budget = "3h"
        workloads = "quick"

        [program.pbzip2]
        command = "pbzip2 -p{threads} -kc {data}/text"
        threads = [1, 2]
        seconds = 1.5
        packages = ["pbzip2"]
        environment = { OMP_NUM_THREADS = "{threads}" }
        input = { text = "generate text 1MiB seed=1" }
        file = { "more.txt" = '''
        [program.not_a_table]
        ''' }
        """
    )
    assert (found.baseline, found.rounds, found.budget_s) == ("system", 7, 10_800)
    own = [one for one in found.programs if one.kind == "program"]
    assert [one.name for one in own] == ["pbzip2/1", "pbzip2/2"]
    assert len(found.programs) > 10
    assert [one.name for one in found.only(["pbzip2"])] == ["pbzip2/1", "pbzip2/2"]
    assert [one.name for one in found.only(["pbzip2/2"])] == ["pbzip2/2"]
    with pytest.raises(UsageError, match="did you mean pbzip2"):
        found.only(["pbzip"])


def test_lines_are_found_around_texts_and_lists_of_several_lines() -> None:
    text = '[a]\nx = [\n  "y = 1", # ]\n]\nz = """\nw = 1\n"""\n[a.b]\n"c d" = 2\n'
    lines = lines_of(text)
    assert lines == {
        ("a",): 1, ("a", "x"): 2, ("a", "z"): 5, ("a", "b"): 8, ("a", "b", "c d"): 9,
    }  # fmt: skip


@pytest.mark.parametrize("kind", sorted(recipes.KINDS))
def test_a_recipe_gives_the_same_bytes_each_time_and_others_for_another_seed(kind: str) -> None:
    one = recipes.parse(f"generate {kind} 20K seed=1")
    made = b"".join(recipes.content(one))
    assert made == b"".join(recipes.content(one))
    assert made != b"".join(recipes.content(recipes.parse(f"generate {kind} 20K seed=2")))
    assert 0.8 * one.size <= len(made) <= 1.5 * one.size
    if kind in recipes.EXACT:
        assert len(made) == one.size


def test_the_bytes_of_a_recipe_never_change() -> None:
    """If this fails, raise recipes.GENERATION: inputs with the old bytes are then made again."""
    digest = hashlib.sha256()
    for kind in sorted(recipes.KINDS):
        for part in recipes.content(recipes.parse(f"generate {kind} 10K seed=7")):
            digest.update(part)
    assert recipes.GENERATION == 1
    assert digest.hexdigest() == SUM


SUM = "4a52b7d5fc6b074b88fbf6303c4e988ab9e4a265de77b3a07ed7ba825dd4a941"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_an_input_is_made_once_and_made_again_after_a_change(cache: Path) -> None:
    (one,) = plan(
        program('command = "sort {data}/x"', 'input = { x = "generate text 1K seed=1" }')
    ).programs
    told: list[str] = []
    first = inputs.make(one, told.append)
    assert told == ["making the input x (1.00 KiB)"]
    assert inputs.make(one, told.append) == first and len(told) == 1
    file = inputs.data_folder(one) / "x"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == first["x"]
    file.chmod(0o644)
    file.write_bytes(b"changed")
    assert inputs.make(one, told.append) == first
    assert "was changed" in told[1] and file.stat().st_size == 1024


def test_a_changed_input_ends_the_resuming_of_a_run(cache: Path) -> None:
    (one,) = plan(
        program('command = "sort {data}/x"', 'input = { x = "generate text 1K seed=1" }')
    ).programs
    sums = inputs.make(one, lambda _: None)
    file = inputs.data_folder(one) / "x"
    kept = inputs.as_kept({str(file): sums["x"]})
    inputs.refuse_changed(kept)
    inputs.refuse_changed(None)
    file.unlink()
    with pytest.raises(UsageError, match="not as it was"):
        inputs.refuse_changed(kept)


@pytest.mark.parametrize("kept", [b'{"a": "b', b"[]", b"\xff", b'{"a": 1}', b"[" * 9000])
def test_damaged_checksums_of_inputs_are_told_in_one_sentence(kept: bytes) -> None:
    with pytest.raises(CairnError, match=r"inputs\.json of this run is damaged"):
        inputs.refuse_changed(kept)


def test_an_input_that_is_no_file_is_not_as_it_was(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "a\0b", "x" * 5000):
        with pytest.raises(UsageError, match="not as it was"):
            inputs.refuse_changed(inputs.as_kept({str(path): "0"}))


def test_a_file_of_a_plan_can_be_read_by_all_and_leaves_no_draft(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = plan(program('command = "cat {data}/x"', 'file = { x = "text" }')).programs
    inputs.make(one, lambda _: None)
    file = inputs.data_folder(one) / "x"
    assert file.stat().st_mode & 0o777 == 0o644
    file.unlink()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CairnError, match="No space left"):
        inputs.make(one, lambda _: None)
    assert list(file.parent.iterdir()) == []


def test_a_recipe_that_fails_is_told_with_its_message(cache: Path) -> None:
    (one,) = plan(
        program('command = "sort {data}/x"', 'input = { x = "run echo no >&2; false {out}" }')
    ).programs
    with pytest.raises(CairnError, match="made no file: no"):
        inputs.make(one, lambda _: None)


def test_a_missing_program_names_its_packages(tmp_path: Path) -> None:
    (one,) = plan(
        program('command = "no-such-tool -x"', 'packages = ["no-such", "other"]')
    ).programs
    found = programs.examined(one, tmp_path)
    assert not found.runs
    assert found.why_not == ("no-such-tool is not installed; Debian: apt-get install no-such other")


@pytest.mark.parametrize(
    "line",
    [
        "if true; then :; fi", "cd / && ls", "{ ls; }", "for i in 1; do ls; done", "true; true",
        "ls&&ls", "(cd / && ls)", "</dev/null ls", "2>/dev/null ls", "$HOME/x", "~/x", "hash ls; ls",
        "$(command -v ls) /", "A=$(date +%s ) ls", "A=`date +%s ` ls", "A=${B:-x y } ls",
        "f() { ls; }; f", "ls # it's all", "A=1 ls", "A=1 B=2", "./x{data}",
    ],
)  # fmt: skip
def test_a_shell_line_need_not_begin_with_the_name_of_a_program(tmp_path: Path, line: str) -> None:
    """Cairn once looked for programs with names such as "true;" and "(cd"."""
    for lines in (
        (f'command = "{line}; : {{data}}"', "shell = true"),
        ('command = "cat {port}"', f'load = "{line}; : {{port}} {{data}}"'),
    ):
        (one,) = plan(program(*lines, 'file = { x = "" }')).programs
        found = programs.examined(one, tmp_path)
        assert (found.missing, found.obstacle) == ((), None)


@pytest.mark.parametrize(
    "line", ["no-such-tool; ls", "A=1 B='x y' no-such-tool|cat", "env A=1 no-such-tool>x", "cd; ls"]
)
def test_a_plain_first_word_of_a_shell_line_must_be_installed(tmp_path: Path, line: str) -> None:
    missing = ("no-such-tool",) if "no-such" in line else ()
    (one,) = plan(program(f'command = "{line}"', "shell = true")).programs
    assert programs.examined(one, tmp_path).missing == missing
    (one,) = plan(program('command = "cat {port}"', f'load = "{line}; : {{port}}"')).programs
    assert programs.examined(one, tmp_path).missing == missing


def test_the_needs_of_a_workload_are_looked_for(tmp_path: Path) -> None:
    """They were accepted and never looked for."""
    (one,) = plan(program('workload = "larson"', 'needs = ["no-such-tool", "./file"]')).programs
    assert programs.examined(one, tmp_path).missing == ("no-such-tool", "./file")
    (tmp_path / "file").touch()
    (one,) = plan(program('workload = "larson"', 'needs = ["cat", "./file"]')).programs
    assert programs.examined(one, tmp_path).runs


def test_a_workload_has_its_working_folder(cache: Path) -> None:
    """A variable could name the folder {work}, and no such folder was made."""
    (one,) = plan(program('workload = "larson"', 'environment = { A = "{work}/a" }')).programs
    own = programs.workload_of(one, 2).own
    assert own.environment == (("A", f"{inputs.work_folder(one)}/a"),)
    assert own.prepare == inputs.emptied(inputs.work_folder(one))
    (one,) = plan(program('workload = "larson"')).programs
    assert programs.workload_of(one, 2).own.prepare is None


def test_a_variable_of_an_inner_shell_may_be_named_port() -> None:
    """The plan was refused, although {port} stands in the same line."""
    line = "sh -c 'port=$1; exec s ${port}' x {port}"
    (one,) = plan(program(f'command = "{line}"', 'load = "b {port}"')).programs
    assert one.command == line


def test_the_load_of_a_server_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doctor once refused a server, because its load was statically linked."""
    judged: list[tuple[str, ...]] = []

    def diagnose(command: tuple[str, ...], _: object) -> Diagnosis:
        judged.append(command)
        return Diagnosis(())

    monkeypatch.setattr(programs, "diagnose", diagnose)
    shutil.copy("/bin/cat", tmp_path / "load")
    for line in ("cd / && exec cat", "cat; true"):
        lines = (f'command = "{line}"', "shell = true", 'load = "./load {port}"', 'ready = "true"')
        (one,) = plan(program(*lines)).programs
        assert programs.examined(one, tmp_path).runs
    assert judged == [("/bin/sh",), ("cat",)]


def test_a_program_whose_name_has_a_number_of_threads_is_judged_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(tmp_path)
    shutil.copy("/bin/cat", home / "prog2")
    for shell in ("", "shell = true"):
        (one,) = plan(program('command = "./prog{threads}"', "threads = [2]", shell)).programs
        assert programs.examined(one, home).obstacle is None


def test_the_settings_of_a_program_are_its_own(cache: Path, tmp_path: Path) -> None:
    one, other = plan(
        program(
            'command = "sh -c \'exit 3\'"', "ok_exit = [3]", 'unchecked = "time stamps"',
            "[program.q]", 'command = "cp {data}/x {work}/y"', 'writes = ["{work}/y"]',
            'file = { x = "text" }', 'timeout = "5s"',
        )
    ).programs  # fmt: skip
    settings = programs.settings_of((one, other), tmp_path)
    first, second = (workload.own for workload in settings.workloads)
    assert (first.ok_exit, first.verify_output, first.prepare) == ((3,), False, None)
    assert (second.ok_exit, second.verify_output, second.timeout_s) == ((0,), True, 5.0)
    assert second.written == (f"{inputs.work_folder(other)}/y",)
    assert second.prepare is not None and "mkdir -p" in second.prepare
    assert settings.by_cell


@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_the_expected_time_has_all_runs_of_the_warm_up(warmup: int) -> None:
    """Once, the time of a plan had one run for the warm-up, whatever its `warmup` was."""
    chosen = plan(program('command = "cat"', "seconds = 60")).programs
    one_s, _ = programs.expected_s(chosen, 2, 1, 0)
    assert one_s > 120
    seconds, unknown = programs.expected_s(chosen, 2, 3, warmup)
    assert (seconds, unknown) == (pytest.approx((3 + warmup) * one_s), 0)


@pytest.mark.parametrize(
    ("warmup", "says"), [(10, "about 27 min 31 s for 1 round and the warm-up"), (0, "for 1 round")]
)
def test_check_tells_the_time_with_the_warm_up(tmp_path: Path, warmup: int, says: str) -> None:
    head = f'[plan]\ncontenders = ["system", "cairn"]\nwarmup = {warmup}\nrounds = 1\n'
    file = tmp_path / "plan.toml"
    file.write_text(head + '[program.p]\ncommand = "cat"\nseconds = 60\n')
    said = CliRunner().invoke(cli, ["matrix", "check", str(file)])
    assert said.exit_code == 0
    assert said.output.splitlines()[-1].endswith(says)


def test_two_processes_have_working_folders_of_their_own(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two simultaneous runs once emptied each other's folders, and Cairn blamed the baseline."""
    made = plan(
        program('command = "touch {work}/a{threads}"', "threads = [1, 2]")
        + '[program."p-2"]\ncommand = "touch {work}/b"\n'
    ).programs
    first = [inputs.work_folder(one) for one in made]
    assert len(set(first)) == 3
    settings = programs.settings_of(made, tmp_path)
    monkeypatch.setattr(inputs, "_token", lambda: "another")
    assert not set(first) & {inputs.work_folder(one) for one in made}
    other = inputs.work_folder(made[0])
    for folder in (*first, other):
        folder.mkdir(parents=True)
    old = inputs.home() / "work" / "run-old"
    old.mkdir()
    os.utime(old, (0, 0))
    inputs.remove_work(settings)
    assert [path.name for path in (inputs.home() / "work").iterdir()] == ["run-another"]


def test_the_programs_of_a_plan_are_searched_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    shutil.copy("/bin/cat", home / "prog")
    (one,) = plan(program('command = "env A=1 ./prog x"', 'stdin = "in.txt"')).programs
    assert programs.examined(one, home).missing == ("in.txt",)
    (home / "in.txt").write_text("text")
    assert programs.examined(one, home).obstacle is None
    assert programs.examined(one, elsewhere).missing == ("./prog", "in.txt")


@pytest.mark.parametrize(
    "line", ["printf %s {data}/in", 'printf %s "{data}/in"', "printf %s '{data}/in'"]
)
@pytest.mark.parametrize("path", ["/a b/d", '/it\'s "x" $HOME `y`\\/d'])
def test_a_shell_gets_a_path_with_blanks_as_it_is(line: str, path: str) -> None:
    """Cairn once put a second pair of quotes around {data}.

    So cat failed, and wc counted 0 under every contender.
    """
    made = places.in_line(line, {"data": path})
    done = subprocess.run(["sh", "-c", made], capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}/in"


@pytest.mark.parametrize(
    "lines",
    [
        ("command = \"sh -c 'cat {data}/in | wc'\"",),
        ("command = \"sqlite3 '.read {data}/in'\"",),
        ("command = \"sh -c 'cat {data}/in'\"", "shell = true"),
        ("command = 'cat \"$(ls {data}/in)\"'", "shell = true"),
        ('command = """cat <<E\n{data}/in\nE"""', "shell = true"),
        ('command = "true"', "prepare = \"sh -c 'ls {data}/in'\""),
    ],
)
def test_a_path_that_no_quotes_protect_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...]
) -> None:
    (one,) = plan(program(*lines, 'file = { in = "x" }')).programs
    monkeypatch.setattr(programs, "_is_here", lambda *_: True)
    monkeypatch.setattr(programs, "diagnose", lambda *_: Diagnosis(()))
    for name, refused in (("cache", False), ("ca che", True)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        obstacle = programs.examined(one, tmp_path).obstacle or ""
        assert ("set XDG_CACHE_HOME" in obstacle) == refused, obstacle


@pytest.mark.parametrize("name", runs.shipped())
def test_a_plan_that_comes_with_cairn_has_no_mistake(name: str) -> None:
    found = runs.load(name).plan
    # Counts need no rounds: 'cairn judge' measures no difference in time.
    assert found.title and (found.rounds >= 6 or name == "judge")
    for one in found.programs:
        assert one.seconds is not None, one.name
        assert one.workload or one.packages, one.name


def test_the_name_of_a_plan_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean suite"):
        runs.load("siute")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[plan]\n\xff", "not a text in UTF-8.*line 2"),
        (b"#" * (4 << 20) + b"\n", "too large for a plan"),
    ],
)
def test_a_file_that_is_no_plan_is_told(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "p.toml").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        runs.load(str(tmp_path / "p.toml"))
    with pytest.raises(UsageError, match="too large for a plan"):
        runs.load("/dev/zero")
    with pytest.raises(UsageError, match="is a folder"):
        runs.load(str(tmp_path))
