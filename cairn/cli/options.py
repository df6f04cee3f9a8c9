"""What options of the command look like: the texts they take, and those that every report shares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from cairn import units
from cairn.compare.sweep import parse_parameter
from cairn.model import Pattern
from cairn.report.words import printable

F = TypeVar("F", bound=Callable[..., Any])


class Parsed(click.ParamType[Any]):
    """An option whose text one function understands; its ValueError is the message."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Click's interface: the parsed value, or a usage error."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(printable(str(error)), param, ctx)


def parse_pattern(text: str) -> Pattern:
    """NAME=REGEX; the number is the whole match or its one group."""
    name, equals, regex = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w./-]{0,39}", name):
        raise ValueError(f"{text!r} is not NAME=REGEX, for example 'rate=([0-9.]+) requests/s'")
    try:
        groups = re.compile(regex).groups
    except re.error as error:
        raise ValueError(f"{regex!r} is not a regular expression: {error}") from error
    if groups > 1:
        raise ValueError(
            f"{regex!r} has {groups} groups; the number is the whole match or one group"
        )
    return Pattern(name=name, regex=regex)


def parse_exits(text: str) -> tuple[int, ...]:
    """Exit codes, separated by commas."""
    codes = text.split(",")
    if not all(code.isascii() and code.isdigit() and int(code) <= 255 for code in codes):
        raise ValueError(f"{text!r} is not a list of exit codes, for example 0,1")
    return tuple(int(code) for code in codes)


def parse_cpus(text: str) -> str:
    """CPUs that this process may use, as 0,2-3; kept as text for the launcher."""
    allowed = os.sched_getaffinity(0)
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ValueError(f"{text!r} is not a list of CPUs, for example 0,2-3")
        chosen.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not chosen <= allowed:
        raise ValueError(
            f"no CPU {min(chosen - allowed)} for this process; it may use {', '.join(map(str, sorted(allowed)))}"
        )
    return text


def parse_warm(text: str) -> int | None:
    """None for auto, 0 for off, else bytes."""
    if text == "auto":
        return None
    return 0 if text in ("off", "never") else units.parse_size(text)


def parse_share(text: str) -> float:
    """A percentage above 0 and below 100, as a ratio."""
    ratio = units.parse_percent(text)
    if not 0 < ratio < 1:
        raise ValueError(f"{text!r} is not between 0 % and 100 %")
    return ratio


def parse_some_time(text: str) -> float:
    """A duration of at least a millisecond, in seconds."""
    seconds = units.parse_duration(text)
    if seconds < 0.001:
        raise ValueError(f"{text!r} is no time at all; write for example 90s or 10min")
    return seconds


def parse_events(text: str) -> tuple[str, ...]:
    """Events that a processor counts, separated by commas: some of profiles.EVENTS, at most profiles.SLOTS."""
    from cairn.profile.tally import EVENTS, SLOTS

    chosen = tuple(dict.fromkeys(text.split(",")))
    if unknown := [event for event in chosen if event not in EVENTS]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(EVENTS)}")
    if len(chosen) > SLOTS:
        raise ValueError(
            f"at most {SLOTS} events are counted together, and these are {len(chosen)}"
        )
    return chosen


DURATION = Parsed("DURATION", units.parse_duration)
SOME_TIME = Parsed("DURATION", parse_some_time)
EVENTS = Parsed("EVENTS", parse_events)
PERCENT = Parsed("PERCENT", parse_share)
EXITS = Parsed("CODES", parse_exits)
CPUS = Parsed("LIST", parse_cpus)
PATTERN = Parsed("NAME=REGEX", parse_pattern)
PARAMETER = Parsed("NAME=A,B", parse_parameter)
WARM = Parsed("auto|off|SIZE", parse_warm)
COLOR = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
    help="Colour on terminals; the NO_COLOR variable turns it off too.",
)  # fmt: skip
RESULTS = click.option(
    "--results", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Where runs are kept. Default: $CAIRN_RESULTS, else ~/.local/share/cairn/results.",
)  # fmt: skip


OUT = click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the report to FILE; its ending (.json .csv .md .txt) chooses the form.",
)  # fmt: skip
FORCE = click.option("--force", is_flag=True, help="Let -o replace a file that exists.")


def output_options(command: F) -> F:
    """The options that every report has."""
    for option in reversed((
        click.option("--full", is_flag=True, help="Add mean ± σ, range and runs of every metric, and switches."),
        click.option("--json", "form", flag_value="json", help="One JSON document with run, comparison and samples."),
        click.option("--csv", "form", flag_value="csv", help="CSV, one row per run."),
        click.option("--md", "form", flag_value="md", help="Markdown."),
        OUT,
        FORCE,
        RESULTS,
        COLOR,
    )):  # fmt: skip
        command = option(command)
    return command
