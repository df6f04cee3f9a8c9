"""Tests that a wrong command line is refused in one sentence that names the next step."""

from __future__ import annotations

import sys

import pytest

from cairn import cli


def called() -> None:
    """Runs the command in this process, without its handlers of signals."""
    with cli._sentences():
        cli.cli.main(prog_name="cairn", standalone_mode=False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("comparr", "there is no command comparr; did you mean compare? 'cairn --help' lists the "
         "commands"),
        ("xyzzy", "there is no command xyzzy; 'cairn --help' lists the commands"),
        ("matrix chek", "there is no command chek; did you mean check? 'cairn matrix --help' "
         "lists the commands"),
        ("--foo", "there is no option --foo; 'cairn --help' lists the options"),
        ("compare --goall time", "there is no option --goall; did you mean --full or --goal? "
         "'cairn compare --help' lists the options"),
        ("compare -Z", "there is no option -Z; 'cairn compare --help' lists the options"),
        ("compare --goal", "--goal needs a value; 'cairn compare --help' lists the options"),
        ("matrix report --between a", "--between needs 2 values; 'cairn matrix report --help' "
         "lists the options"),
        ("compare --force=x", "--force takes no value; 'cairn compare --help' lists the options"),
        ("compare --goal foo", "--goal: 'foo' is not one of 'time', 'cpu', 'memory'; "
         "'cairn compare --help' lists the options"),
        ("compare -r x", "-r: 'x' is not a whole number; 'cairn compare --help' lists the "
         "options"),
        ("compare -r 0", "-r: 0 is not in the range 1 to 2000; 'cairn compare --help' lists the "
         "options"),
        ("profile --debug-path /no", "--debug-path: '/no' does not exist; 'cairn profile --help' "
         "lists the options"),
        ("check --fail-if x", "--fail-if: 'x' is not a bound; write for example 'time>3%'"),
        ("allocators add", "NAME is missing; 'cairn allocators add --help' lists the arguments"),
        ("allocators get", "NAME[@VERSION] is missing; 'cairn allocators get --help' lists the "
         "arguments"),
        ("explain a b c d", "too many arguments: d; 'cairn explain --help' lists the arguments"),
        ("report --list --full", "--list has one form for all runs; leave out --full"),
        *((f"report last {aim} -o x.tar.xz", "a run file holds the run as it was measured, and "
           "not the answer to another question; leave out --goal, --may-cost and --pareto")
          for aim in ("--goal memory", "--goal time --may-cost memory=5%", "--pareto")),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_sentence(
    line: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Click printed such an error with the usage and a hint, on up to six lines."""
    monkeypatch.setattr(sys, "argv", ["cairn", *line.split()])
    with pytest.raises(SystemExit) as ended:
        called()
    assert (ended.value.code, capsys.readouterr().err) == (2, f"✘ {says}\n")


def test_the_command_alone_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cairn"])
    with pytest.raises(SystemExit):
        called()
    assert "Usage: cairn" in capsys.readouterr().out
