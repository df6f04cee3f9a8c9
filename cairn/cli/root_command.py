"""The command `cairn` itself. Each subcommand has a module of its own."""

from __future__ import annotations

import importlib
import os
import sys
from itertools import chain

import rich_click as click

import cairn
from cairn.cli.console import fail
from cairn.errors import CairnError

click.rich_click.TEXT_PARAGRAPH_LINEBREAKS = "\n\n"
click.rich_click.MAX_WIDTH = 100
# A range such as [0<=x<=4294967295] does not fit beside an option on 60 columns. The error for a
# number out of range names the range.
click.rich_click.RANGE_STRING = ""
click.rich_click.OPTION_GROUPS = {
    "cairn compare": [
        {"name": "Contenders", "options": ["-a", "-p", "--baseline"]},
        {"name": "The question", "options": ["--goal", "--may-cost", "--pareto"]},
        {"name": "When to stop",
         "options": ["--precision", "--margin", "--min-rounds", "--max-rounds", "--budget",
                     "-r", "--resume"]},
        {"name": "The program", "options": [
            "-c", "-L", "--shell", "--input", "--output", "--ok-exit", "--verify", "--timeout",
            "--cpus", "--wait-descendants", "--repeat", "--warmup", "--setup", "--prepare",
            "--conclude", "--cleanup"]},
        {"name": "A server under load", "options": ["--while", "--ready", "--idle"]},
        {"name": "What to measure",
         "options": ["--why", "--metric", "--instructions", "--counters", "--memory",
                     "--warm-memory", "--seed"]},
        {"name": "Results", "options": [
            "--full", "--json", "--csv", "--md", "-o", "--force", "--results", "--color"]},
    ],
    "cairn check": [
        {"name": "The question", "options": [
            "--fail-if", "-p", "-a", "--against", "--trust-base", "--make-base"]},
        {"name": "When to stop",
         "options": ["--min-rounds", "--max-rounds", "--budget", "-r", "--resume"]},
        {"name": "The program", "options": [
            "--shell", "--input", "--output", "--ok-exit", "--verify", "--timeout", "--cpus",
            "--wait-descendants", "--repeat", "--warmup", "--setup", "--prepare", "--conclude",
            "--cleanup"]},
        {"name": "A server under load", "options": ["--while", "--ready", "--idle"]},
        {"name": "What to measure", "options": ["--memory", "--warm-memory", "--seed"]},
        {"name": "Results", "options": [
            "--junit", "--summary", "--json", "--md", "-o", "--force", "--results", "--color"]},
    ],
    "cairn profile": [
        {"name": "What to count, and how", "options": [
            "-a", "--gap", "--paths", "--live-bytes", "--layout", "--kernel-calls", "--counters",
            "--no-cpu-timers", "--runs"]},
        {"name": "Who allocates", "options": [
            "--stacks", "--stacks-every", "--tree", "--by", "--debug-path", "--collapsed",
            "--speedscope", "--pprof", "--flame-graph"]},
        {"name": "When", "options": ["--delay", "--duration", "--signal"]},
        {"name": "Report", "options": [
            "--live", "--full", "--json", "--csv", "-o", "--force", "--keep", "--read", "--against",
            "--color"]},
        {"name": "Instead", "options": ["--pid", "--for", "--overhead", "--instructions"]},
    ],
}  # fmt: skip


_READ_ONLY = frozenset(
    {"clean", "completion", "explain", "inspect", "report", "sites", "symbolize"}
)
"""The commands that start no program and search for no file in the working directory."""
_AS_ENV = frozenset({"run", "profile"})
"""The commands with the exit codes of env(1), which returns 125 if it fails itself."""


_MODULES = {
    **{
        name: (name,)
        for name in (
            "allocators", "bench", "calibrate", "check", "clean", "compare", "completion", "doctor",
            "explain", "inspect", "judge", "profile", "report", "run", "sites", "soak", "symbolize",
        )
    },
    "matrix": ("matrix", "matrix_ranges"),
}  # fmt: skip
"""The modules of cairn.cli that define each subcommand."""


class Subcommands(click.RichGroup):
    """The subcommands. The modules of one are imported when it is wanted.

    The modules of all together take longer to import than most commands take otherwise.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the subcommand of this name, or None.

        All modules are imported for an unknown name, because click then suggests similar names
        among the imported commands.
        """
        for module in _MODULES.get(cmd_name) or chain(*_MODULES.values()):
            importlib.import_module(f"cairn.cli.{module}")
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Returns the names of all subcommands, in alphabetical order."""
        return sorted(_MODULES)


def every_command() -> click.Group:
    """Returns the command `cairn` with all its subcommands in `commands`."""
    for name in _MODULES:
        cli.get_command(click.Context(cli), name)
    return cli


@click.group(
    cls=Subcommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(cairn.__version__, "-V", "--version", message="cairn %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Say which allocator a program should use.

    Cairn runs a program under several memory allocators, in random interleaved rounds. It proves in
    every process which library was in use. It names the best allocator, with a confidence interval
    and the price in memory.

    \b
      cairn compare -- ninja -C build       which allocator is best for this build?
      cairn run -a jemalloc -- ./server     use one, with proof that it is loaded
      cairn allocators                      which allocators are installed
      cairn doctor ./server                 can its allocator be swapped?
      cairn report last --md                the last result again, as Markdown
      cairn check --fail-if 'time>3%' …     fail a pipeline if a build is slower
      cairn profile -- ./server             what its allocator does
      cairn soak --for 1h -- ./worker       does its memory leak?
    """
    words = set(sys.argv)
    reads = context.invoked_subcommand in _READ_ONLY and "--simulate" not in words
    if reads or {"-h", "--help"} & words:
        return
    try:
        os.getcwd()
    except FileNotFoundError:
        # Without this check, the error would be about a program or a library.
        fail(
            CairnError("the working directory was deleted; change to another one with cd"),
            125 if context.invoked_subcommand in _AS_ENV else CairnError.exit_code,
        )
