"""Tests of the base of a check: what is compared with its stored numbers, and damaged files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.build import Build, Tools
from cairn.cli import check_plan
from cairn.errors import CairnError, ContenderFailed, ProgramFailed, UsageError
from cairn.gate import Gate, GateBound, InstructionCount
from cairn.model import COPY, Contender, Run, Settings, Workload
from cairn.run import builds, check_base
from cairn.run.program_contenders import NamedProgram, allocator_of
from cairn.run.store import Folder
from cairn.run.stored_run import INSTRUCTIONS, encoded


def one_build() -> Run:
    run = a_run(Contender("system", "system", "glibc 2.36"))
    return replace(run, gate=Gate((GateBound("instructions", 0.01),)))


def a_base() -> check_base.Base:
    counts = (InstructionCount("system", (1000, 1000)),)
    return check_base.of_run(one_build(), (a_sample(0, "system", 5),), counts)


def test_a_base_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(check_base.write(base := a_base()))
    assert check_base.read(path) == base
    assert not list(tmp_path.glob(".*"))


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "counts of 0": lambda of: of["instructions"][0].update(counts=[0, 0]),
    "another measure": lambda of: of["run"]["gate"]["bounds"][0].update(measure="joy"),
    "a bound below 0": lambda of: of["run"]["gate"]["bounds"][0].update(most=-1),
    "no command": lambda of: of["run"]["settings"]["workloads"][0].update(command=[]),
    "a relative folder": lambda of: of["run"]["settings"].update(folder="x"),
    "a time below 0": lambda of: of["samples"][0].update(wall_ns=-5),
    "a time beyond all": lambda of: of["samples"][0].update(wall_ns=10**300),
    "another contender": lambda of: of["samples"][0]["trial"].update(contender="x"),
    "an older format": lambda of: of.update(schema=0, run=None),
    "no number": lambda of: of["run"]["gate"]["bounds"][0].update(most=float("nan")),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_base_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "base.json"
    content = json.loads(check_base.write(a_base()))
    DAMAGES[name](content)
    path.write_text(json.dumps(content))
    with pytest.raises(CairnError) as error:
        check_base.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_stored_numbers_are_those_of_the_same_command_and_options() -> None:
    """Once, counts of a run with another input or of other arguments were compared."""
    base, run = a_base(), one_build()
    assert check_base.other_settings(base, run) is None
    settings = run.settings
    (workload,) = settings.workloads
    words = (*workload.command, "more")
    for other, said in (
        ({"stdin": "/x/in.txt"}, "without --input"),
        ({"setup": "make"}, "without --setup"),
        ({"prepare": "sync"}, "without --prepare"),
        ({"conclude": "sync"}, "without --conclude"),
        ({"cpus": "0"}, "without --cpus"),
        ({"idle_s": 2.5}, "without --idle"),
        ({"shell": True}, "without --shell"),
        ({"wait_descendants": True}, "without --wait-descendants"),
        ({"warm_memory": 1 << 20}, "without --warm-memory"),
        ({"warm_memory": 0}, "without --warm-memory"),
        ({"stdout": "/x/out.txt"}, "without --output"),
        ({"repeat": 11}, "without --repeat"),
        ({"repeat": None}, "without --repeat"),
        ({"workloads": (replace(workload, load="wrk"),)}, "without --while"),
        ({"workloads": (Workload(workload.name, words),)}, "the base ran '"),
    ):
        changed = replace(run, settings=replace(settings, **other))
        told = check_base.other_settings(base, changed)
        assert told is not None and said in told
        if "workloads" not in other:
            made = replace(base, run=changed)
            told = check_base.other_settings(made, run)
            assert told is not None and said.replace("without", "with") in told
    files = (replace(base.run, settings=replace(settings, stdout=one)) for one in ("/a", "/b"))
    first, second = files
    assert check_base.other_settings(replace(base, run=first), second) is None, "both have a file"
    shell = replace(base, run=replace(base.run, settings=replace(settings, shell=True)))
    assert check_base.other_settings(shell, run) == "the base was made with --shell yes"
    moved = replace(settings, folder="/elsewhere", stdin="/elsewhere/in.txt")
    known = replace(settings, folder="/here", stdin="/here/in.txt")
    before = replace(base, run=replace(base.run, settings=known))
    assert check_base.other_settings(before, replace(run, settings=moved)) is None


def test_counts_of_a_kept_run_are_compared_with_the_tools_that_made_them(tmp_path: Path) -> None:
    """The tools of today were compared instead, and the compiler of another build."""
    tools = Tools("valgrind-3.19", {"old": "GCC 11", "new": "GCC 12"})
    library = Build("libc.so.6", "/lib/libc.so.6", "library", "build ID 1")
    run = replace(
        a_run(*(Contender(name, "system", "glibc") for name in ("old", "new"))), baseline="old",
        tools=tools, builds=(library,),
    )  # fmt: skip
    counts = (InstructionCount("new", (1000, 1000)),)
    base = replace(
        a_base(), run=replace(one_build(), builds=(library,)), valgrind="valgrind-3.19",
        compiler="GCC 12",
    )  # fmt: skip
    wanted = Gate((GateBound("instructions", 0.01),))

    def refused(of: Run, *, counted: bool = True) -> str | None:
        name = f"2026010{len(list(tmp_path.iterdir()))}-000000-abcd"
        folder = Folder.create(tmp_path, replace(of, id=name))
        if counted:
            folder.write(INSTRUCTIONS, encoded(counts))
        try:
            check_plan.refuse_tools(base, wanted, folder, is_kept=True)
        except UsageError as error:
            return str(error)
        return None

    assert refused(run) is None
    again = ". Measure the build again: cairn check --against FILE -- PROG"
    for other, says in (
        (
            replace(run, tools=replace(tools, valgrind="valgrind-3.20")),
            "the base has another version of valgrind (valgrind-3.19, and valgrind-3.20 for the "
            "checked build)",
        ),
        (
            replace(run, tools=Tools("valgrind-3.19", {"old": "GCC 12", "new": "GCC 13"})),
            "the base has another compiler (GCC 12, and GCC 13 for the checked build)",
        ),
        (
            replace(run, builds=(replace(library, build="build ID 2"),)),
            "the base has another libc.so.6",
        ),
        (
            replace(run, tools=None),
            "this run was kept without the compiler, the version of valgrind and the libraries "
            "with which its instructions were counted",
        ),
    ):
        assert refused(other) == f"instructions cannot be compared: {says}{again}"
    assert refused(replace(run, tools=None), counted=False) is None, "nothing was counted"


def test_a_program_that_setup_has_yet_to_build_is_not_refused(tmp_path: Path) -> None:
    """A check could not be resumed if --cleanup had removed the program that --setup builds."""
    base, wanted = a_base(), Gate((GateBound("instructions", 0.01),))
    gone = Workload("x", (str(tmp_path / "gone"),))
    settings = replace(one_build().settings, workloads=(gone,))
    for number, setup in enumerate(("make", None)):
        run = replace(
            one_build(), id=f"20260101-000000-000{number}", settings=replace(settings, setup=setup)
        )
        folder = Folder.create(tmp_path, run)
        if setup is not None:
            check_plan.refuse_tools(base, wanted, folder)
            continue
        with pytest.raises(ProgramFailed):
            check_plan.refuse_tools(base, wanted, folder)


def test_with_a_shell_the_text_behind_the_first_word_is_compared() -> None:
    """The whole line is one word, so no argument was compared."""

    def run(*command: str) -> Run:
        settings = replace(
            one_build().settings, shell=True, workloads=(Workload("x", command),)
        )  # fmt: skip
        return replace(one_build(), settings=settings)

    base = replace(a_base(), run=run("./old 1 | wc"))
    assert check_base.other_settings(base, run("./new  1 | wc")) is None
    assert check_base.other_settings(base, run("./new", "1", "|", "wc")) is None
    told = check_base.other_settings(base, run("./new 2 | wc"))
    assert told == "the base ran './old 1 | wc', and not './new 2 | wc'"


def test_stored_numbers_are_those_of_the_same_allocator() -> None:
    """A base of the system's allocator and a run of another one were once compared."""

    def run(*specs: str) -> Run:
        found = a_run(*(Contender(one, "x", one, spec=one) for one in specs))
        return replace(found, baseline=specs[0])

    base = replace(a_base(), run=run("system"))
    assert check_base.other_settings(base, run("system")) is None
    for kept in (run("cairn"), run("system", "cairn")):
        told = check_base.other_settings(base, kept)
        assert told == "the base ran under system, and not under cairn"
    own = Contender("linked", "custom", "libjemalloc.so.2", spec="/lib/libjemalloc.so.2")
    linked = replace(base.run, contenders=(own,), baseline="linked")
    assert check_base.other_settings(base, linked) is None, "each has the allocator it is linked to"
    told = check_base.other_settings(replace(base, run=linked), run("system"))
    assert told == "the base ran under /lib/libjemalloc.so.2, and not under system"
    older = replace(base.run, contenders=(Contender("system", "system", "glibc 2.36"),))
    assert check_base.other_settings(replace(base, run=older), run("cairn")) is None


def test_stored_numbers_are_those_of_the_same_piped_input(tmp_path: Path) -> None:
    """Every copied input has the same name, so runs of different inputs were compared."""

    def stored(name: str, content: bytes) -> Folder:
        copy = tmp_path / name
        copy.write_bytes(content)
        run = one_build()
        run = replace(run, id=f"20260101-000000-{name}", settings=replace(run.settings, stdin=COPY))
        return Folder.create(tmp_path / "results", run, copy)

    first, same, other = stored("aaaa", b"1"), stored("bbbb", b"1"), stored("cccc", b"2")
    base = check_base.of_run(first.run(), (), (), check_base.input_of(first))
    assert base.input is not None
    check_plan.refuse_settings(base, same)
    with pytest.raises(UsageError, match="compared: the base read another piped input"):
        check_plan.refuse_settings(base, other)
    (other.path / "input").unlink()
    with pytest.raises(UsageError, match="the copy of the run's piped input is gone"):
        check_plan.refuse_settings(base, other)
    with pytest.raises(UsageError, match="no checksum of its piped input; make it again with"):
        check_plan.refuse_settings(replace(base, input=None), same)
    older = json.loads(check_base.write(base))
    del older["input"]
    (tmp_path / "base.json").write_text(json.dumps(older))
    assert check_base.read(tmp_path / "base.json").input is None


TIMED = Gate((GateBound("time", 0.03),))


@pytest.mark.parametrize(
    ("field", "says"),
    [("cpu_model", "processor"), ("cpus", "number of CPUs"), ("kernel", "kernel"),
     ("memory_bytes", "size of memory")],
)  # fmt: skip
def test_a_kept_run_is_compared_with_stored_times_of_its_own_machine_only(
    monkeypatch: pytest.MonkeyPatch, field: str, says: str
) -> None:
    """The machine of today was compared instead, which a kept run need not come from."""
    base, run = replace(a_base(), machine="another"), one_build()
    check_plan.refuse_stored(base, TIMED, True, run)
    changed: Any = {field: "7" if field in ("cpu_model", "kernel") else 7}
    other = replace(run, host=replace(run.host, **changed))
    with pytest.raises(UsageError, match=f"measured on a machine with another {says} \\(7, and "):
        check_plan.refuse_stored(replace(base, machine=check_base.machine_id()), TIMED, True, other)
    monkeypatch.setattr(check_base, "machine_id", lambda: "this")
    with pytest.raises(UsageError, match="the base was made on another machine"):
        check_plan.refuse_stored(base, TIMED, True)


def of_builds(*names: str) -> Run:
    """A run whose contenders have these programs, named by their paths."""
    contenders = [Contender(Path(one).name, "system", "glibc", program=(one,)) for one in names]
    run = replace(a_run(*contenders), baseline=contenders[0].name)
    workload = Workload("x", (names[0],))
    return replace(run, settings=replace(run.settings, workloads=(workload,), folder="/"))


def scripts(tmp_path: Path) -> list[str]:
    """Two programs of their own."""
    made = []
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"#!/bin/sh\n# {name}\n")
        (tmp_path / name).chmod(0o755)
        made.append(str(tmp_path / name))
    return made


def test_the_base_says_which_file_is_another_build(tmp_path: Path) -> None:
    """If only a library was another build, the program of the base was said to be gone."""
    old, _ = scripts(tmp_path)
    run = of_builds(old)
    known = builds.of_run(run.settings, run.contenders)
    base = replace(a_base(), run=replace(run, builds=known), commit=None)
    assert check_base.hindrance(base) is None
    library = next(one for one in known if one.part == "library")
    rebuilt = [replace(one, build="SHA-256 0") if one is library else one for one in known]
    other = replace(base, run=replace(base.run, builds=tuple(rebuilt)))
    says = f"{library.name} is another build than for the base"
    assert check_base.hindrance(other) == says
    with pytest.raises(UsageError, match=rf"^{re.escape(says)}, and time cannot .*\. Name its pro"):
        check_plan.refuse_stored(other, TIMED, False)
    Path(old).unlink()
    assert check_base.hindrance(base) == "the program of the base is gone"


def test_a_base_of_a_shell_line_is_compared_by_its_stored_numbers() -> None:
    """The whole line was taken for the name of a program, which was said to be missing."""
    base = a_base()
    settings = replace(base.run.settings, shell=True, workloads=(Workload("x", ("./old 1",)),))
    base = replace(base, run=replace(base.run, settings=settings), commit="0" * 40)
    assert check_plan.side_by_side(base, ("./new 1",), ()) is None
    with pytest.raises(UsageError, match="made with --shell, which is not for -p; leave out -p"):
        check_plan.side_by_side(base, ("./new 1",), (NamedProgram("old", ("./old",)),))
    with pytest.raises(UsageError) as error:
        check_plan.refuse_stored(base, TIMED, False)
    assert str(error.value) == (
        "the base was made with --shell, so its program cannot run beside another, and time cannot "
        "be compared with stored numbers of another day. --trust-base compares them nevertheless"
    )


def test_a_replaced_file_of_the_checked_build_alone_does_not_break_the_base(
    tmp_path: Path,
) -> None:
    """The exit code once was 3 whichever build was replaced, as if the base were broken."""
    old, new = scripts(tmp_path)
    run = of_builds(old, new)
    known = builds.of_run(run.settings, run.contenders)
    others = builds.of_others_alone(run.settings, run.contenders, run.baseline)
    assert others == {new}
    for replaced, kind in ((new, ContenderFailed), (old, ProgramFailed)):
        watch = builds.Watch(known, others)
        watch.refuse_changed()
        Path(replaced).write_text("#!/bin/sh\n# another\n")
        with pytest.raises(kind, match="was replaced while it was measured"):
            watch.refuse_changed()
    watch = builds.Watch(builds.of_run(run.settings, run.contenders))
    Path(new).unlink()
    with pytest.raises(ProgramFailed, match="vanished while it was measured"):
        watch.refuse_changed()


def test_a_replaced_library_of_the_baseline_breaks_the_base(tmp_path: Path) -> None:
    """The exit code once was 4, whichever library was replaced."""
    program, *_ = scripts(tmp_path)
    libraries = [str(tmp_path / name) for name in ("liba.so", "libb.so", "both.so")]
    for one in libraries:
        Path(one).write_text("before")
    a, b, both = libraries
    contenders = (
        Contender("a", "custom", "liba.so", preload=(both, a)),
        Contender("b", "custom", "libb.so", preload=(both, b)),
    )
    run = replace(a_run(*contenders), baseline="a")
    workload = Workload("x", (program,))
    run = replace(run, settings=replace(run.settings, workloads=(workload,), folder="/"))
    for replaced, kind in ((a, ProgramFailed), (b, ContenderFailed), (both, ProgramFailed)):
        known = builds.of_run(run.settings, run.contenders)
        watch = builds.Watch(
            known, builds.of_others_alone(run.settings, run.contenders, run.baseline)
        )
        Path(replaced).write_text("after")
        with pytest.raises(kind, match="was replaced while it was measured"):
            watch.refuse_changed()
        now = builds.of_run(run.settings, run.contenders)
        with pytest.raises(kind, match="is another build than when this run began"):
            builds.refuse_other(known, now, contenders[0].preload)


def of_command(*command: str) -> check_base.Base:
    """Returns the base of this command in the present folder."""
    run = one_build()
    settings = replace(run.settings, workloads=(Workload("x", command),), folder=str(Path.cwd()))
    known = builds.of_run(settings, run.contenders)
    return replace(a_base(), run=replace(run, settings=settings, builds=known), commit=None)


def test_both_builds_of_one_script_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script started a program that had become slower, and the check said "pass".

    The base ran the same script, so it started the same program.
    """
    old, new = scripts(tmp_path)
    monkeypatch.chdir(tmp_path)
    of = of_command
    for command in (("./old",), ("env", "A=1", "./old"), ("sh", "old"), ("python3", "-m", "x")):
        base = of(*command)
        assert check_base.hindrance(base) is None
        assert check_plan.side_by_side(base, command, ()) is None, command
        with pytest.raises(UsageError) as error:
            check_plan.refuse_stored(base, TIMED, False, command=command)
        assert str(error.value) == (
            f"{command[0]} is a script or an interpreter, so both builds would run the same files, "
            "and time cannot be compared with stored numbers of another day. Name its program with "
            "-p. --trust-base compares them nevertheless"
        )
    assert check_plan.side_by_side(of(old), (new,), ()) is not None, "another script"
    assert check_plan.side_by_side(of("/bin/true"), ("/bin/true",), ()) is not None


def test_the_script_of_an_interpreter_may_be_named_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base once ran "sh old new 5", with the name of the new script as an argument."""
    scripts(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = one_build()
    settings = replace(
        run.settings, workloads=(Workload("x", ("sh", "new", "5")),), folder=str(tmp_path)
    )
    base = replace(a_base(), run=replace(run, settings=settings))
    found = check_plan.side_by_side(base, ("sh", "new", "5"), [NamedProgram("a", ("sh", "old"))])
    assert found == ((NamedProgram("a", ("sh", "old")), NamedProgram("new", ("sh", "new"))), ("5",))
    found = check_plan.side_by_side(base, ("sh", "new", "5"), [NamedProgram("a", ("/bin/sh",))])
    assert found == ((NamedProgram("a", ("/bin/sh",)), NamedProgram("new", ("sh",))), ("new", "5"))


@pytest.mark.parametrize(
    ("words", "line", "new", "arguments"),
    [
        ("env A=1 sh", "sh new 5", "sh", "new 5"),
        ("sh -u", "sh new 5", "sh", "new 5"),
        ("taskset -c 1 sh", "sh new 5", "sh", "new 5"),
        ("taskset -c 1 sh old", "sh new 5", "sh new", "5"),
        ("env sh old", "env sh new 5", "env sh new", "5"),
        ("env A=1 sh", "env A=2 sh new 5", "env A=2 sh", "new 5"),
        ("sh -e old", "sh -e new 5", "sh -e new", "5"),
        ("env A=1 python3 -m x", "python3 -m x 5", "python3 -m x", "5"),
        ("sh -ec true", "sh -ec false 5", "sh -ec false", "5"),
        ("./old", "./new 5", "./new", "5"),
    ],
)
def test_a_base_without_a_script_of_its_own_runs_that_of_the_command(
    words: str, line: str, new: str, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base once ran an interpreter without a script, and the check said "worse"."""
    scripts(tmp_path)
    monkeypatch.chdir(tmp_path)
    base = of_command(*line.split())
    old = NamedProgram("a", tuple(words.split()))
    found = check_plan.side_by_side(base, line.split(), [old])
    assert found == ((old, NamedProgram("new", tuple(new.split()))), tuple(arguments.split()))


def test_both_programs_have_the_variables_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base once got "A=1 ./new 5" as its arguments."""
    scripts(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = ("env", "A=1", "./new", "5")
    found = check_plan.side_by_side(of_command(*command), command, [NamedProgram("a", ("./old",))])
    old, new = (
        NamedProgram(name, ("env", "A=1", f"./{of}")) for name, of in (("a", "old"), ("new", "new"))
    )
    assert found == ((old, new), ("5",))


def test_a_wrapper_does_not_start_one_program_for_both_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program behind `nice` was rebuilt in place, and the check compared it with itself."""
    scripts(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in (("nice", "./new"), ("env", "A=1", "timeout", "9", "./new"), ("nice", "true")):
        base = of_command(*command)
        assert check_base.hindrance(base) is None
        assert check_plan.side_by_side(base, command, ()) is None, command
        told = check_base.same_code(base, command)
        assert told == f"{command[0]} starts {command[-1]}, so both builds would run the same file"
    for command in (("/bin/true", "true"), ("/bin/true", "./none", str(tmp_path))):
        assert check_base.same_code(of_command(*command), command) is None, command
    awk = ("awk", "-f", "new")
    assert check_base.same_code(of_command(*awk), awk) is not None


def test_behind_env_a_path_leads_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both builds once ran /new/prog, although the base was made with /old/prog."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").write_bytes(Path("/bin/true").read_bytes() + name.encode())
        (tmp_path / name / "prog").chmod(0o755)
    command = ("env", "X=1", "./prog")
    monkeypatch.chdir(tmp_path / "old")
    base = of_command(*command)
    assert check_base.same_code(base, command) is None
    monkeypatch.chdir(tmp_path / "new")
    told = check_base.same_code(base, command)
    assert told is not None and told.startswith(f"the base was made in {tmp_path / 'old'}, ")
    assert check_plan.side_by_side(base, command, ()) is None


def test_two_virtual_environments_are_two_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their interpreters are links to one file, and the check was refused."""
    for name in ("old", "new"):
        (tmp_path / name / "venv" / "bin").mkdir(parents=True)
        (tmp_path / name / "venv" / "pyvenv.cfg").touch()
        (tmp_path / name / "venv" / "bin" / "python").symlink_to(sys.executable)
        (tmp_path / name / "bench.py").write_text("print(1)")
    command = ("./venv/bin/python", "bench.py")
    monkeypatch.chdir(tmp_path / "old")
    base = of_command(*command)
    assert check_base.same_code(base, command) is not None, "the same environment"
    monkeypatch.chdir(tmp_path / "new")
    found = check_plan.side_by_side(base, command, ())
    old = NamedProgram("base", (str(tmp_path / "old/venv/bin/python"),))
    assert found == ((old, NamedProgram("new", command[:1])), ("bench.py",))
    (tmp_path / "new" / "bench.py").write_text("print(2)")
    assert check_base.same_code(base, command) == (
        "the script of the base is another one, and both builds would run the same file"
    )


def test_a_base_does_not_replace_another_file(tmp_path: Path) -> None:
    for name in ("text", "folder"):
        path = tmp_path / name
        path.mkdir() if name == "folder" else path.write_text("{}")
        with pytest.raises(CairnError, match="exists and is not a base of a check"):
            check_base.refuse_other_file(path)
    check_base.refuse_other_file(tmp_path / "none")
    with pytest.raises(UsageError, match="is not a base of a check"):
        check_base.read(tmp_path / "text")


def test_git_may_print_a_name_that_is_not_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nprintf ' M caf\\351\\n'\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_base.commit_of(str(tmp_path)) == ("M caf\ufffd", True)


def test_a_line_for_the_shell_has_the_allocator_of_the_shell() -> None:
    """The whole line was taken for the name of a program, and a base could not be made."""
    line = Workload("line", ("./prog 1 | cat",), "")
    assert allocator_of(Settings(workloads=(line,), folder="/", shell=True)) == "system"
