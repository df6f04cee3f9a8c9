"""Tests of where results are written: files, pipes, devices and descriptors."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.probes import busy

from cairn.cli import cli, profile
from cairn.cli.console import check_out, emit, refuse_one_file
from cairn.cli.stack_outputs import StackOutputs
from cairn.errors import CairnError, UsageError
from cairn.model import Pattern
from cairn.profile import reader
from cairn.run import outputs, soak


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, '--junit /dev/stdout' once put a file in the place of the link /dev/stdout."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_out(pipe, False)
    emit("answer\n", pipe, True)
    assert os.read(reader, 100) == b"answer\n"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]
    os.close(reader)


def test_a_descriptor_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("w") as log:
        log.write("before\n")
        log.flush()
        emit("after\n", Path(f"/dev/fd/{log.fileno()}"), False)
    assert file.read_text() == "before\nafter\n"


def test_a_full_device_is_an_error_of_one_sentence() -> None:
    with pytest.raises(CairnError, match="cannot write /dev/full: No space left on device"):
        emit("answer\n", Path("/dev/full"), False)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_file_has_the_permissions_of_the_umask_or_of_the_file_before(tmp_path: Path) -> None:
    """Another user, such as the service that reads --junit, once could not read any output."""
    before = os.umask(0o027)
    try:
        emit("answer\n", file := tmp_path / "new", False)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    for mode in (0o600, 0o664):
        file.chmod(mode)
        emit("again\n", file, True)
        assert (stat.S_IMODE(file.stat().st_mode), file.read_text()) == (mode, "again\n")


def test_an_interruption_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the write once left a hidden file behind."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "base.json").write_text("before\n")
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        emit("after\n", tmp_path / "base.json", True)
    assert [one.name for one in tmp_path.iterdir()] == ["base.json"]
    assert (tmp_path / "base.json").read_text() == "before\n"


def test_without_a_reader_of_standard_output_the_command_ends_as_by_sigpipe() -> None:
    """The exit code was once 1, which means that cairn failed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cairn", "--help"], stdout=writing, stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2], check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_two_outputs_do_not_share_a_file(tmp_path: Path) -> None:
    refuse_one_file(tmp_path / "a", tmp_path / "b", None, Path("/dev/null"), Path("/dev/null"))
    (tmp_path / "link").symlink_to("a")
    for other in ("a", "link", "../" + tmp_path.name + "/a"):
        with pytest.raises(UsageError, match="two outputs would be written to"):
            refuse_one_file(tmp_path / "a", tmp_path / other)


def test_a_file_of_the_probe_that_is_not_there_is_soon_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(soak.time, "sleep", slept.append)
    assert soak._read(tmp_path / "nothing") is None
    assert sum(slept) < 0.1


@pytest.mark.parametrize(
    ("regex", "value"), [(r"took ([\d.]+) s", 2.5), (r"[\d.]+(?= s)", 2.5), (r"(?:\d+)$", 7.0)]
)
def test_a_number_is_that_of_the_group_or_of_the_whole_match(
    tmp_path: Path, regex: str, value: float
) -> None:
    (tmp_path / "out").write_text("took 1.5 s\ntook 2.5 s, and 7")
    found, failure = outputs.searched([Pattern("n", regex)], [tmp_path / "out"])
    assert (found, failure) == ({"n": value}, None)


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("1,025", 1025.0), ("-12,345,678.5", -12345678.5), ("1,000e3", 1e6), ("1_000", 1000.0),
        ("9,5", None), ("10,25", None), ("1.234,5", None), ("1,2345", None), ("1234,567", None),
        (",5", None), ("1,", None),
    ],
)  # fmt: skip
def test_a_comma_groups_digits_and_is_no_decimal_comma(
    tmp_path: Path, printed: str, value: float | None
) -> None:
    """9,5 and 10,25 were once read as 95 and 1,025, a ratio of 10.8."""
    (tmp_path / "out").write_text(f"time {printed} s")
    found, failure = outputs.searched([Pattern("t", r"time (\S+)")], [tmp_path / "out"])
    says = (
        f"printed '{printed}' where --metric t expects a number with a decimal point; "
        "set LC_ALL=C, or match the digits alone"
    )
    assert (found, failure) == (({"t": value}, None) if value is not None else ({}, says))


def test_a_group_that_is_not_in_the_last_match_gives_no_number(tmp_path: Path) -> None:
    """It was once a traceback."""
    (tmp_path / "out").write_text("rate=5 req/s\nrate=no requests\n")
    pattern = Pattern("rate", r"rate=(?:([0-9.]+) req/s|no requests)")
    found, failure = outputs.searched([pattern], [tmp_path / "out"])
    assert (found, failure) == ({}, "printed no number in the last match of --metric rate")


def test_a_program_without_the_probes_handler_is_not_asked_for_memory() -> None:
    """Cairn asks the probe by a signal, which would kill a program that exec() has just started."""
    program = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None and one.stdout.readline() == b"up\n"
        assert not soak._has_probe(one.pid)
        one.communicate()
        assert one.returncode == 0
    assert not soak._has_probe(one.pid)


class Profiled:
    """A kept profile whose report goes to several files."""

    def __init__(self, folder: Path, *, tree: bool = False, flame_graph: str | None = None) -> None:
        self.raw = folder / "raw"
        self.raw.mkdir()
        busy().write(self.raw)
        self.gone = folder / "gone"
        self.gone.mkdir()
        self.csv, self.page = folder / "out.csv", folder / "page.html"
        forms = StackOutputs(tree, None, None, None, flame_graph)
        self.outs = profile._Outs(
            False, str(self.gone / "out.json"), str(self.csv), self.page, False, "never", forms
        )


def test_an_output_that_fails_leaves_the_report_and_the_other_outputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page without a folder once threw the whole measured report away."""
    made = Profiled(tmp_path)
    made.gone.rmdir()
    with pytest.raises(CairnError, match=r"cannot write .*out\.json: there is no folder"):
        made.outs.report(reader.gather(made.raw), None, sys.stderr, made.raw)
    assert "--full adds times" in capsys.readouterr().err
    assert made.csv.read_text() and made.page.read_text()


def test_each_output_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first failure was once told. If it was a reader that had exited, none was."""

    def no_reader(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    drawing = tmp_path / "drawing.svg"
    made = Profiled(tmp_path, flame_graph=str(drawing))
    made.gone.rmdir()
    monkeypatch.setattr(profile.click, "echo", no_reader)
    with pytest.raises(CairnError) as failed:
        made.outs.report(reader.gather(made.raw), None, sys.stderr)
    json_failed, drawing_failed = str(failed.value).split("; ")
    assert "out.json: there is no folder" in json_failed
    assert drawing_failed == f"without call stacks, nothing is written to {drawing}"
    made.gone.mkdir()
    alone = Profiled(made.gone)
    with pytest.raises(BrokenPipeError):
        alone.outs.report(reader.gather(alone.raw), None, sys.stderr, alone.raw)
    assert alone.csv.exists()


def test_a_run_without_call_stacks_is_reported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --tree, a program whose stacks could not be recorded once had no report at all."""
    drawing = tmp_path / "drawing.svg"
    made = Profiled(tmp_path, tree=True, flame_graph=str(drawing))
    # The command once ended as if the drawing had been written.
    with pytest.raises(CairnError) as failed:
        made.outs.report(reader.gather(made.raw), None, sys.stderr)
    assert str(failed.value) == f"without call stacks, nothing is written to {drawing}"
    told = " ".join(capsys.readouterr().err.split())
    assert "--full adds times" in told and "▲ No call stacks were recorded." in told
    assert "or finds no room for its file" in told
    assert not drawing.exists() and made.csv.exists()
    with pytest.raises(CairnError, match="record it with --stacks"):
        made.outs.report(reader.gather(made.raw), None, sys.stderr, made.raw)


def test_a_form_of_stacks_without_stacks_is_refused_before_the_program_runs() -> None:
    done = CliRunner().invoke(cli, ["profile", "--stacks=off", "--tree", "--", "true"])
    assert isinstance(done.exception, UsageError)
    assert "--stacks=off records no call stacks" in str(done.exception)


def test_two_outputs_of_a_comparison_of_profiles_need_two_files(tmp_path: Path) -> None:
    """The second output once replaced the first one, without a word."""
    same = str(tmp_path / "out")
    words = ["profile", "--read", "a", "--against", "b", "--json", same, "--csv", same]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UsageError)
    assert "two outputs would be written to" in str(done.exception)
