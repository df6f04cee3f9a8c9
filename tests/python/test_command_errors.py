"""Tests that the command refuses wrong input with a true sentence, before anything is measured."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from cairn.allocators import catalog, register
from cairn.cli import cli, console, measurement, options, standard_input
from cairn.cli import profile as profiling
from cairn.cli.console import DOCUMENT, PICTURE, TABLE, ending_of
from cairn.cli.program_options import output_file
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.inspect import process
from cairn.matrix import schedulers
from cairn.model import Contender
from cairn.profile import call_stacks, layout, reader
from cairn.profile.tally import Tree
from cairn.run.probe_files import NOTHING_COUNTED

SYSTEM = Contender("system", "system", "system")


def refused(*words: object, code: int = 2) -> str:
    """The sentence with which the command refuses the words, whose exit code is `code`."""
    done = CliRunner().invoke(cli, [str(one) for one in words])
    assert isinstance(done.exception, CairnError), done.output
    assert done.exception.exit_code == code, done.exception
    return str(done.exception)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, without runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_RESULTS", str(tmp_path / "results"))
    return tmp_path


@pytest.mark.parametrize(
    "option", ["--json", "--csv", "--collapsed", "--speedscope", "--pprof", "--flame-graph"]
)
def test_an_option_does_not_take_the_next_one_for_its_file(empty: Path, option: str) -> None:
    """'cairn profile --csv -- ls' once wrote a file with the name '--' and printed no CSV."""
    says = f"{option} needs a file, or - for standard output: {option} - -- PROG"
    assert refused("profile", option, "--", "ls") == says
    says = refused("profile", option, "--full", "--", "ls")
    assert f"{option} needs a file" in says and says.endswith("write ./--full")
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", "-o"), "-o needs a file"),
        (("compare", "--output"), "--output needs a file"),
        (("soak", "-o"), "-o needs a file"),
        (("check", "--junit"), "--junit needs a file"),
        (("check", "--summary"), "--summary needs a file"),
        (("check", "--make-base"), "--make-base needs a file"),
        (("profile", "-o"), "-o needs a file"),
        (("profile", "--keep"), "--keep needs a folder"),
        (("inspect", "-o"), "-o needs a file"),
        (("matrix", "report", "-o"), "-o needs a file"),
        (("matrix", "ranges", "--keep"), "--keep needs a file"),
    ],
)
def test_no_output_has_the_name_of_an_option(
    empty: Path, words: tuple[str, ...], says: str
) -> None:
    assert refused(*words, "--", "ls") == f"{says}, and '--' is not one"
    assert refused(*words, "-").startswith(says)
    assert not list(empty.iterdir())


def test_the_options_of_a_check_may_stand_behind_its_run(empty: Path) -> None:
    """They once were words of a program, and the sentence said that there was no --fail-if."""
    for words in (
        ("last", "--fail-if", "time>1%"),
        ("last", "--fail-if=time>1%", "--json"),
        ("2026", "--fail-if", "time>1%"),
    ):
        assert "which change" not in refused("check", *words)
    # A program that can run keeps its options, even if this command has the same ones.
    assert "which change is too much" in refused("check", "ls", "--json")
    assert "which change is too much" in refused("check", "last", "-x")


def test_the_endings_that_a_sentence_names_are_those_of_the_command(empty: Path) -> None:
    table = "use .json, .csv, .md or .txt, or give --json, --csv or --md"
    pages = "use .html, .json, .csv, .md, .txt{} or .tar.xz, or give --json, --csv or --md"
    for words, says in (
        (("judge", "x"), table),
        (("matrix", "ranges"), table),
        (("bench", "misuse"), table),
        (("explain",), "use .json, .md or .txt, or give --json or --md"),
        (("check", "last"), "use .json, .md or .txt, or give --json or --md"),
        (("inspect", "1"), "use .json, .csv or .txt, or give --json or --csv"),
        (("report", "--list"), "use .json or .txt, or give --json"),
        (("report",), pages.format(", .svg")),
        (("compare", "--", "ls"), pages.format(", .svg")),
        (("soak", "--", "ls"), pages.format(", .svg")),
        (("bench", "suite"), pages.format("")),
        (
            ("matrix", "report"),
            "use .html, .json, .csv, .md, .txt, .tex, .svg or .png, or give --json, --csv, --md or "
            "--latex",
        ),
    ):
        place = 2 if words[0] == "matrix" else 1
        said = refused(*words[:place], "-o", "x.foo", *words[place:])
        assert said == f"the ending of x.foo chooses no form; {says}"
        endings = re.findall(r"\.\w+(?:\.xz)?", says)
        assert all(ending_of(Path(f"x{one}"), None, endings) == one for one in endings)


def test_a_run_file_is_no_form_of_a_look_at_a_process(empty: Path) -> None:
    """'cairn inspect -o y.tar.xz' once wrote plain text into this file."""
    assert "chooses no form" in refused("inspect", "-o", "y.tar.xz", os.getpid())
    assert not list(empty.iterdir())


def test_a_form_is_refused_before_a_file_that_exists(empty: Path) -> None:
    """The sentence once advised --force, with which the form was then refused."""
    (empty / "x.md").touch()
    assert "x.md chooses no form" in refused("inspect", "-o", "x.md", os.getpid())
    assert "x.md exists; --force replaces it" in refused("report", "-o", "x.md", code=1)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "--json", "--md"),
        ("report", "--json", "--csv"),
        ("check", "--md", "--json"),
        ("inspect", "--json", "--csv", "1"),
        ("matrix", "report", "--json", "--latex"),
        ("matrix", "ranges", "--csv", "--md"),
        ("judge", "--csv", "--md"),
        ("explain", "--json", "--md"),
    ],
)
def test_two_forms_are_refused(empty: Path, words: tuple[str, ...]) -> None:
    """The last one was once written, and the other one forgotten."""
    first, second = (one for one in words if one.startswith("--"))
    assert refused(*words) == f"{first} and {second} are two forms; give one"


def test_one_form_may_be_given_twice(empty: Path) -> None:
    assert "there is no run" in refused("report", "--json", "--json")


def test_an_ending_must_not_contradict_the_form() -> None:
    for name, form, wanted in (
        ("y.csv", "json", ".json"),
        ("zz.svg", "md", ".md"),
        ("zz.html", "md", ".md"),
        ("r.tar.xz", "csv", ".csv"),
    ):
        with pytest.raises(UsageError, match=rf"{name} does not end in \{wanted}, as --\w+ asks"):
            ending_of(Path(name), form, PICTURE)  # type: ignore[arg-type]
    for name in ("y.json", "y", "y.txt", "y.foo"):
        assert ending_of(Path(name), "json", DOCUMENT) == ""
    assert ending_of(None, "json", TABLE) == ""


def test_a_file_for_the_programs_output_is_checked_before_there_is_a_run(empty: Path) -> None:
    says = "cannot write nodir/x: there is no folder nodir"
    compared = ("compare", "--output", "nodir/x", "-r", 1, "-a", "system", "--", "true")
    assert refused(*compared, code=1) == says
    checked = ("-p", "old=/bin/true", "-p", "new=/bin/true")
    bound = ("--fail-if", "time>1%")
    assert refused("check", *bound, "--output", "nodir/x", *checked, code=1) == says
    assert not list(empty.iterdir())
    # A command that runs before the program may make the folder.
    assert output_file("nodir/x", hooks=("mkdir nodir", None)) == str(empty / "nodir/x")
    assert output_file("x") == str(empty / "x") and output_file(None) is None


def test_an_option_is_spelled_as_the_user_types_it(empty: Path) -> None:
    says = refused("check", "--make-base", "b", "--max-rounds", 5, "--", "true")
    assert says == "one build runs a fixed number of rounds; use -r, not --max-rounds"


def test_the_form_that_was_given_is_named(empty: Path) -> None:
    says = refused("bench", "list", "--md")
    assert says == "which experiment? --md needs one; 'cairn bench' alone lists them"


def test_a_profile_that_is_not_there_is_named_as_what_it_is(empty: Path) -> None:
    (empty / "file").touch()
    makes = "name a folder that 'cairn profile --keep' made"
    for words in (("symbolize", "nodir"), ("profile", "--read", "nodir")):
        assert refused(*words) == f"there is no nodir; {makes}"
    assert refused("symbolize", "x.stacks") == f"there is no x.stacks; {makes}"
    assert refused("profile", "--read", "file") == f"file is not a folder; {makes}"


def test_commands_that_take_names_do_not_ask_for_paths(empty: Path) -> None:
    add = "'cairn allocators add NAME ./x.so' gives a library of yours a name"
    for command in ("get", "remove"):
        assert add in refused("allocators", command, "./x.so")
        assert "path" not in refused("allocators", command, "nothing-like-it")
    with pytest.raises(UsageError, match="give a path with '/'"):
        catalog.entry("nothing-like-it")
    with pytest.raises(
        ContenderFailed, match=r"no such file\. Give the path of a shared library\."
    ):
        register.add("mine", "nofile", lambda _: None, empty)


def test_a_version_of_a_library_needs_its_source(empty: Path) -> None:
    says = refused("allocators", "add", "mine@1", "/lib.so")
    assert says == "a version needs --from and --build; leave out '@1'."
    usage = CliRunner().invoke(cli, ["allocators", "add", "--help"], env={"COLUMNS": "100"}).output
    form = "NAME PATH | NAME[@VERSION] --from PLACE --build COMMAND"
    assert form in " ".join(usage.split())


def test_an_allocator_is_not_judged_against_itself(empty: Path) -> None:
    """The sentence once advised -a, which 'cairn judge' does not have."""
    says = refused("judge", "system")
    assert says == "'cairn judge' compares with system; name another allocator"


def test_one_contender_is_refused_by_the_name_of_what_needs_two() -> None:
    assert measurement._asker(None) == "--why"
    with pytest.raises(UsageError, match="a calibration compares contenders; name at least two"):
        measurement.twins_of([SYSTEM], "a calibration")


def test_only_compare_stops_measuring_by_its_aim() -> None:
    shown = {}
    for command in ("compare", "report"):
        told = CliRunner().invoke(cli, [command, "--help"], env={"COLUMNS": "100"}).output
        shown[command] = " ".join(re.sub(r"[│]", " ", told).split())
    assert "recommend by it, and stop measuring when it is known." in shown["compare"]
    assert "recommend by it. Default: all three." in shown["report"]
    assert "stop measuring" not in shown["report"]


def test_a_program_without_allocations_is_a_possible_cause() -> None:
    assert "no process of the program allocated memory, or its files" in NOTHING_COUNTED


def test_root_is_not_told_to_become_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for rights, says in (
        ("0000000000000000", "lacks CAP_SYS_PTRACE; run the command on the host"),
        ("000001ffffffffff", "a security module forbids it"),
    ):
        monkeypatch.setattr(process, "_status", lambda _, of=rights: {"CapEff": of, "Uid": "7"})
        told = str(process.not_permitted(1))
        assert says in told and "sudo" not in told


def test_a_user_is_told_whose_process_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "as root (sudo)" in str(process.not_permitted(os.getpid()))


def test_a_kept_folder_without_a_profile_is_emptied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder once kept run.json, so that the next call with the same --keep was refused."""
    tree = Tree(("prog",), "system", 1, 1, 0, 0, 0, 0, 0, {}, user_mode_only=False)
    (tmp_path / f"1.1{reader.SUFFIX}").write_bytes(bytes(1 << 14))
    profiling._keep(tmp_path, tree, None)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(reader, "read_begun", lambda _: object())
    (tmp_path / f"1.1{reader.SUFFIX}").write_bytes(bytes(1 << 14))
    profiling._keep(tmp_path, replace(tree, command=("again",)), None)
    assert (tmp_path / "run.json").is_file()


def test_files_of_the_program_stay_in_a_kept_folder_without_a_profile(tmp_path: Path) -> None:
    """They were once removed, and a folder of the program was an error of cairn."""
    own = [tmp_path / name for name in ("results.csv", "page.layout")]
    for path in own:
        path.write_text("own")
    (tmp_path / "logs").mkdir()
    for suffix in (reader.SUFFIX, layout.SUFFIX, call_stacks.SUFFIX):
        (tmp_path / f"12.345{suffix}").write_bytes(bytes(1 << 14))
    profiling._keep(tmp_path, None, None)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "logs", *own])


def test_a_new_folder_for_raw_files_does_not_stay_empty(tmp_path: Path) -> None:
    with profiling._raw_files(tmp_path / "new") as folder:
        assert folder.is_dir()
    assert not folder.exists()
    with profiling._raw_files(tmp_path / "new") as folder:
        (folder / "file").touch()
    assert folder.exists()
    (tmp_path / "own").mkdir()
    with profiling._raw_files(tmp_path / "own") as folder:
        pass
    assert folder.exists()


def test_a_command_of_slurm_that_fails_is_quoted() -> None:
    failing = "echo first >&2; echo 'squeue: error: no slurm.conf' >&2; exit 1"
    assert schedulers._answer(["sh", "-c", failing]) == (None, "squeue: error: no slurm.conf")
    assert schedulers._answer(["sh", "-c", "echo a"]) == ("a\n", "")
    assert schedulers._answer(["false"]) == (None, "false failed")
    assert schedulers._answer(["./nothing"])[1] == "./nothing: No such file or directory"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rate=(a)(b)", "'(a)(b)' has 2 groups; use one group for the number, or none for the "
         "whole match"),
        ("rate=(a", "'(a' is not a regular expression: missing ), unterminated subpattern at "
         "position 0"),
        ("=a", "'=a' is not NAME=REGEX, for example 'rate=([0-9.]+) requests/s'"),
        ("rate", "'rate' is not NAME=REGEX, for example 'rate=([0-9.]+) requests/s'"),
    ],
)  # fmt: skip
def test_a_wrong_pattern_is_refused_with_its_reason(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        options.parse_pattern(text)


def test_an_output_that_is_read_after_each_run_is_a_regular_file(empty: Path) -> None:
    """--verify once compared nothing with --output /dev/null, and a FIFO let cairn hang."""
    pair = ("-r", 1, "-a", "system", "--", "true")
    says = (
        "reads the output, and --output /dev/null is a device that keeps none; give a regular file"
    )
    null = ("--output", "/dev/null")
    assert refused("compare", "--verify", "same-output", *null, *pair) == f"--verify {says}"
    assert refused("compare", "--metric", "x=([0-9]+)", *null, *pair) == f"--metric {says}"
    bound = ("check", "--fail-if", "time>3%", "--verify", "same-output", *null)
    assert refused(*bound, "-a", "system", "-a", "cairn", "--", "true") == f"--verify {says}"
    assert output_file("/dev/null") == "/dev/null"
    for option in (None, "--verify"):
        with pytest.raises(UsageError, match="--output / is a folder; give a file"):
            output_file("/", reader=option)
    os.mkfifo("pipe")
    for hooks in ((), ("true",)):
        with pytest.raises(UsageError, match="--output pipe is a pipe or a socket"):
            output_file("pipe", hooks=hooks)


def test_a_program_does_not_overwrite_its_own_input(empty: Path) -> None:
    """Each run once emptied the user's file, and then read nothing from it."""
    Path("data").write_text("precious")
    Path("link").symlink_to("data")
    says = f"the program would read and overwrite one file, {empty}/link; give --output another"
    given = ("--input", "data", "--output", "link")
    assert refused("compare", *given, "-r", 1, "-a", "system", "--", "cat") == says
    bound = ("check", "--fail-if", "time>3%", *given)
    assert refused(*bound, "-a", "system", "-a", "cairn", "--", "cat") == says
    kept, saved = os.open("data", os.O_RDONLY), os.dup(0)
    os.dup2(kept, 0)
    os.close(kept)
    try:
        with (
            pytest.raises(UsageError, match="would read and overwrite"),
            standard_input.chosen(None, empty, console.stderr("auto"), str(empty / "link")),
        ):
            pass
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    assert Path("data").read_text() == "precious"
    for one, other in (("/dev/null", "/dev/null"), ("data", "new")):
        with standard_input.chosen(one, empty, console.stderr("auto"), other):
            pass


def test_the_report_and_the_programs_output_have_different_files(empty: Path) -> None:
    """This was once told after all rounds, and the report was lost."""
    says = "two outputs would be written to x.json; give each a file"
    one = ("--output", "x.json", "-a", "system", "-a", "cairn", "--", "true")
    assert refused("compare", "-o", "./x.json", *one) == says
    for option in ("-o", "--junit", "--summary"):
        assert refused("check", "--fail-if", "time>3%", option, "x.json", *one) == says
    base = ("check", "--make-base", "x.json", "--output", "x.json", "--", "true")
    assert refused(*base) == says
    assert refused("matrix", "ranges", "-o", "x.json", "--keep", "./x.json") == says
