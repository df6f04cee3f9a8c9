"""The types of option values, and the options that all reports share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from cairn import units
from cairn.compare.sweep import parse_parameter
from cairn.errors import UsageError
from cairn.model import Pattern
from cairn.report.formatting import printable
from cairn.report.view import Form
from cairn.verdict import Aim, Bound, Measure

if TYPE_CHECKING:
    from cairn.run.program_contenders import NamedProgram

REPEAT_MOST = 1000
"""The most runs that --repeat averages to one sample."""

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(click.ParamType[Any]):
    """The type of an option that one function parses.

    The text of its ValueError is the message to the user.
    """

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Returns the parsed value, or fails with a usage error. Click calls this method."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(printable(str(error)), param, ctx)


def parse_pattern(text: str) -> Pattern:
    """Parses NAME=REGEX.

    The number is the regular expression's only group, or the whole match if it has none.
    """
    name, equals, regex = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w./-]{0,39}", name):
        raise ValueError(f"{text!r} is not NAME=REGEX, for example 'rate=([0-9.]+) requests/s'")
    try:
        groups = re.compile(regex).groups
    except re.error as error:
        raise ValueError(f"{regex!r} is not a regular expression: {error}") from error
    if groups > 1:
        raise ValueError(
            f"{regex!r} has {groups} groups; use one group for the number, or none for the whole "
            "match"
        )
    return Pattern(name=name, regex=regex)


def parse_exits(text: str) -> tuple[int, ...]:
    """Parses exit codes separated by commas."""
    codes = text.split(",")
    if not all(code.isascii() and code.isdigit() and int(code) <= 255 for code in codes):
        raise ValueError(f"{text!r} is not a list of exit codes, for example 0,1")
    return tuple(int(code) for code in codes)


def parse_cpus(text: str) -> str:
    """Checks a list of CPUs such as 0,2-3 and returns it as it is, for the launcher.

    Raises ValueError if this process may not use one of these CPUs.
    """
    allowed = os.sched_getaffinity(0)
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"{text!r} is not a list of CPUs, for example 0,2-3")
        chosen.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not chosen <= allowed:
        raise ValueError(
            f"CPU {min(chosen - allowed)} is not available; this process may use "
            f"{', '.join(map(str, sorted(allowed)))}"
        )
    return text


def parse_warm(text: str) -> int | None:
    """Parses --warm-memory: None for auto, 0 for off, else bytes."""
    if text == "auto":
        return None
    if text in ("off", "never"):
        return 0
    try:
        return units.parse_size(text)
    except ValueError:
        raise ValueError(f"{text!r} is not auto, off or a size such as 512M") from None


def parse_verify(text: str) -> str:
    """Checks the only value of --verify, and returns it."""
    if text != "same-output":
        raise ValueError(f"{text!r} is unknown; write --verify same-output")
    return text


def parse_repeat(text: str) -> int | None:
    """Parses --repeat: None for auto, else a number of runs."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= REPEAT_MOST):
        raise ValueError(f"{text!r} is not auto or a number from 1 to {REPEAT_MOST}")
    return int(text)


def parse_share(text: str) -> float:
    """Parses a percentage above 0 and below 100. Returns it as a ratio."""
    ratio = units.parse_percent(text)
    if not 0 < ratio < 1:
        raise ValueError(f"{text!r} must be more than 0 % and less than 100 %")
    return ratio


def parse_some_time(text: str) -> float:
    """Parses a duration of at least a millisecond. Returns seconds."""
    seconds = units.parse_duration(text)
    if seconds < 0.001:
        raise ValueError(f"{text!r} is less than a millisecond; write for example 90s or 10min")
    return seconds


_GOALS = {"time": Measure.TIME, "cpu": Measure.CPU_TIME, "memory": Measure.MEMORY}
_BOUND = re.compile(r"\s*(time|cpu|memory)[\s:=]+(\S.*?)\s*")


def parse_bound(text: str) -> Bound:
    """Parses a measure and the most that it may rise, such as "memory 5%"."""
    match = _BOUND.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a measure and a percentage: write 'time 5%', 'cpu 5%' or 'memory 5%'"
        )
    most = units.parse_percent(match[2])
    if not 0 < most < 10:
        raise ValueError(f"{match[2]!r} is not more than 0 % and less than 1000 %")
    return Bound(_GOALS[match[1]], most)


def aim_of(goal: str | None, may_cost: Sequence[Bound], pareto: bool, margin: float | None) -> Aim:
    """Returns the aim that the options of `aim_options` ask for.

    margin: the margin within which differences are equivalent; None if it is not known yet.

    Raises UsageError for options that contradict each other.
    """
    if pareto and (goal or may_cost):
        other = "--goal" if goal else "--may-cost"
        raise UsageError(
            f"--pareto asks for the best of time and memory together; leave out {other}"
        )
    if may_cost and goal is None:
        raise UsageError("--may-cost bounds the price of an aim; add --goal time, cpu or memory")
    names = {measure: name for name, measure in _GOALS.items()}
    for place, bound in enumerate(may_cost):
        name = names[bound.measure]
        if name == goal:
            raise UsageError(
                f"--may-cost {name} bounds the goal itself; name another measure, or leave it out"
            )
        if any(one.measure is bound.measure for one in may_cost[:place]):
            raise UsageError(f"--may-cost {name} is given twice; give it once")
        if margin is not None and bound.most < margin:
            raise UsageError(
                f"--may-cost '{name} {100 * bound.most:.6g}%' is less than --margin "
                f"{100 * margin:.6g}%, within which differences count as none; give a larger bound"
            )
    return Aim(_GOALS[goal] if goal else None, tuple(may_cost), pareto)


def parse_events(text: str) -> tuple[str, ...]:
    """Parses hardware events separated by commas: at most tally.SLOTS members of tally.EVENTS."""
    from cairn.profile.tally import EVENTS, SLOTS

    chosen = tuple(dict.fromkeys(text.split(",")))
    if unknown := [event for event in chosen if event not in EVENTS]:
        raise ValueError(f"{unknown[0]!r} is not an event; the events are {', '.join(EVENTS)}")
    if len(chosen) > SLOTS:
        raise ValueError(
            f"at most {SLOTS} events can be counted together, and these are {len(chosen)}"
        )
    return chosen


def parse_program(text: str) -> NamedProgram:
    """Parses an argument of -p; see `program_contenders.parse_program`."""
    from cairn.run.program_contenders import parse_program

    return parse_program(text)


def parse_every(text: str) -> int:
    """Parses a number of bytes of which one is sampled: 1 byte to 1 GiB."""
    every = units.parse_size(text)
    if not 1 <= every <= 1 << 30:
        raise ValueError(f"{text!r} is not between 1 byte and 1 GiB")
    return every


_PID_MOST = 1 << 22
"""The kernel's process ids are less than this."""


def parse_pid(text: str) -> int:
    """Parses the number of a process."""
    if not text.isdecimal() or not 0 < int(text) < _PID_MOST:
        raise ValueError(f"{text!r} is not the number of a process; 'ps' or 'pgrep NAME' shows it")
    return int(text)


class NewFile(click.Path):
    """The type of an option that names a file or a folder to write.

    A value that begins with '-' is refused, since it is the next word of the command line: in
    '--csv -- PROG', the name of a file is missing.
    """

    def __init__(self, *, dash: bool = False, **how: Any) -> None:
        """dash: whether '-' is standard output."""
        super().__init__(**how)
        self._dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, or fails with a usage error. Click calls this method."""
        if isinstance(value, str) and value.startswith("-") and not (self._dash and value == "-"):
            option = param.opts[0] if param is not None else "the option"
            if self._dash:
                program = " -- PROG" if value == "--" else ""
                says = f"{option} needs a file, or - for standard output: {option} -{program}"
            else:
                kind = (param.metavar if param is not None else None) or "file"
                says = f"{option} needs a {kind.lower()}, and '{value}' is not one"
            if value not in ("-", "--"):
                says += f"; if the name begins with '-', write ./{value}"
            raise UsageError(printable(says))
        return super().convert(value, param, ctx)


FILE_OR_DASH = NewFile(dash=True, allow_dash=True, path_type=str)
NEW_FILE = NewFile(path_type=Path)
PID = Parsed("PID", parse_pid)
EVERY = Parsed("SIZE", parse_every)
DURATION = Parsed("DURATION", units.parse_duration)
SOME_TIME = Parsed("DURATION", parse_some_time)
EVENTS = Parsed("EVENTS", parse_events)
PERCENT = Parsed("PERCENT", parse_share)
EXITS = Parsed("CODES", parse_exits)
CPUS = Parsed("LIST", parse_cpus)
PATTERN = Parsed("NAME=REGEX", parse_pattern)
BOUND = Parsed("'MEASURE PERCENT'", parse_bound)
PARAMETER = Parsed("NAME=A,B", parse_parameter)
PROGRAM = Parsed("[NAME=]PROG", parse_program)
VERIFY = Parsed("HOW", parse_verify)
REPEAT = Parsed("auto|N", parse_repeat)
WARM = Parsed("auto|off|SIZE", parse_warm)
COLOR = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    metavar="WHEN",
    help="Use colour: always, never, or auto (on a terminal, unless NO_COLOR is set).",
)  # fmt: skip
DEBUG_PATH = click.option(
    "--debug-path", multiple=True, metavar="FOLDER",
    type=click.Path(exists=True, path_type=str),
    help="Also look for programs, libraries and their debug files in this folder and below, by "
    "build ID. It can be given several times. /usr/lib/debug is always searched.",
)  # fmt: skip
RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Folder that keeps the runs. Default: $CAIRN_RESULTS, else cairn/results in your data "
    "folder.",
)  # fmt: skip


def contenders(says: str) -> Callable[[F], F]:
    """Returns the option -a of a command that takes several contenders, with this help text."""
    return click.option("-a", "--allocator", "specs", multiple=True, metavar="SPEC", help=says)


def _refuse_n(_: click.Context, __: click.Parameter, number: str | None) -> None:
    if number is not None:
        raise UsageError(f"the number of rounds is -r here; write -r {number}")


NOT_N = click.option(
    "-n", "not_n", metavar="N", hidden=True, expose_value=False, callback=_refuse_n
)
"""Other tools call the number of runs -n."""


def _as(names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the setting of a command that also knows options by other names."""
    return {"token_normalize_func": lambda token: names.get(token, token)}


ROUNDS_ARE_RUNS = _as({"rounds": "runs"})
RUNS_ARE_ROUNDS = _as({"runs": "rounds"})
"""Both names mean the number of rounds. Each command shows one and knows the other one, too."""


def _out(says: str) -> Callable[[F], F]:
    """Returns the option -o with this help text."""
    return click.option("-o", "--out", type=NEW_FILE, metavar="FILE", help=says)


class _FormOption(click.Option):
    """An option that chooses the form of a result. Two forms contradict each other."""

    def add_to_parser(self, parser: Any, _: click.Context) -> None:
        """Lets the parser keep all forms that are given, and not the last one alone."""
        parser.add_option(
            obj=self, opts=self.opts, dest=self.name, action="append_const", const=self.flag_value
        )

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Returns the form and its source. Raises UsageError for two forms."""
        found, source = super().consume_value(ctx, opts)
        if not isinstance(found, list):
            return found, source
        forms = list(dict.fromkeys(found))
        if len(forms) > 1 and not ctx.resilient_parsing:
            names = {
                one.flag_value: one.opts[0]
                for one in ctx.command.params
                if isinstance(one, _FormOption)
            }
            raise UsageError(f"{names[forms[0]]} and {names[forms[1]]} are two forms; give one")
        return forms[0], source


def form_option(name: str, form: Form, says: str) -> Callable[[F], F]:
    """Returns the option `name` that chooses a form, with this help text."""
    return click.option(name, "form", flag_value=form, cls=_FormOption, help=says)


OUT = _out(
    "Write the report to FILE. Its ending (.html .json .csv .md .txt) chooses the form; .html "
    "is one page with drawings, tables and raw data. .tar.xz is the whole run, for 'cairn report'. "
    "'compare', 'report' and 'soak' also write a picture, .svg."
)
OUT_DOCUMENT = _out("Write the report to FILE. Its ending (.json .md .txt) chooses the form.")
OUT_TABLE = _out("Write to FILE. Its ending chooses the form: .txt .md .csv .json.")
FORCE = click.option("--force", is_flag=True, help="Let -o replace an existing file.")
ALL_COLUMNS = click.option(
    "--full", is_flag=True, help="Show all columns, whatever the width of the terminal."
)
JSON = form_option("--json", "json", "Print one JSON document.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
MARKDOWN = form_option("--md", "md", "Print Markdown.")
RESUME = click.option(
    "--resume", metavar="RUN",
    help="Continue an interrupted run: 'last', an id or a path. Its options stay as they were.",
)  # fmt: skip
SEED = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), metavar="N",
    help="Seed of the random order of runs. Default: a random seed, which is printed.",
)  # fmt: skip


def output_options(rows: str = "one row per run") -> Callable[[F], F]:
    """Adds the options that all reports share to a command. `rows` says what the CSV has."""
    made = (
        click.option(
            "--full", is_flag=True,
            help="Show all columns, and mean ± σ, range and number of runs of every metric."),
        form_option("--json", "json", "Print one JSON document with run, comparison and samples."),
        form_option("--csv", "csv", f"Print CSV, {rows}."),
        MARKDOWN, OUT, FORCE, RESULTS, COLOR,
    )  # fmt: skip

    def add(command: F) -> F:
        for option in reversed(made):
            command = option(command)
        return command

    return add


def aim_options(command: F) -> F:
    """Adds the options that choose the question of the verdict to a command; see `aim_of`."""
    return _aim_options(command, "recommend by it, and stop measuring when it is known")


def aim_options_of_a_report(command: F) -> F:
    """Adds the same options to a command that measures nothing."""
    return _aim_options(command, "recommend by it")


def _aim_options(command: F, does: str) -> F:
    for option in reversed((
        click.option(
            "--goal", type=click.Choice(list(_GOALS)), metavar="AIM",
            help=f"Answer by this aim alone, which is time, cpu or memory (the peak): {does}. "
            "Default: all three."),
        click.option(
            "--may-cost", "may_cost", type=BOUND, multiple=True, metavar="BOUND",
            help="With --goal: recommend only contenders that are shown to keep this bound, such "
            "as 'memory 5%': at most 5 % more memory than the baseline. Repeatable."),
        click.option(
            "--pareto", is_flag=True,
            help="Name the contenders that no other beats in time and memory together, and draw "
            "them."),
    )):  # fmt: skip
        command = option(command)
    return command
