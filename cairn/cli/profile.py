"""cairn profile: reports what an allocator does inside a program."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import rich_click as click
from msgspec.structs import replace

import cairn
from cairn.cli import attach, callers_change, options
from cairn.cli.console import (
    check_out,
    emit,
    fail,
    given,
    refused,
    say,
    stderr,
    wants_color,
    was_given,
    width_of,
)
from cairn.cli.root_command import cli
from cairn.cli.run import ALLOCATOR, EXIT_CANNOT_RUN, contender_for, end, failing_as_env
from cairn.cli.stack_outputs import FoundStacks, StackOutputs
from cairn.cli.window import Counting, Span
from cairn.errors import CairnError, ContenderFailed, UsageError, cannot
from cairn.report.view import View
from cairn.run import store

if TYPE_CHECKING:
    from cairn.cli import share_runs
    from cairn.model import Contender
    from cairn.profile.callers import Stack
    from cairn.profile.spare import Spare
    from cairn.profile.tally import Profile, Tree
    from cairn.run.foreground import Ended
    from cairn.why.prediction import Prediction


@cli.command(context_settings={"allow_interspersed_args": False})
@ALLOCATOR
@click.option(
    "--kernel-calls", type=click.Choice(["auto", "dispatch", "interpose", "off"]), default="auto",
    show_default=True, metavar="HOW",
    help="How to see the allocator's system calls: all of them (dispatch), those through "
    "libc's functions (interpose), off, or auto.",
)  # fmt: skip
@click.option(
    "--gap", type=click.IntRange(1, 1_000_000), default=256, show_default=True, metavar="N",
    help="Time one in N operations on small and medium blocks. All operations on large blocks are "
    "timed.",
)  # fmt: skip
@click.option(
    "--paths", type=click.Choice(["sampled", "exact"]), default="sampled", show_default=True,
    metavar="HOW",
    help="Tell local from remote frees for a sample of blocks (sampled), or for all (exact), which "
    "costs a quarter of the live memory.",
)  # fmt: skip
@click.option(
    "--live", "shows", is_flag=True,
    help="Show a screen that is renewed each second while the program runs: share, rates, system "
    "calls, memory, and with --stacks who allocates. The report follows.",
)  # fmt: skip
@click.option(
    "--live-bytes", "live", type=click.Choice(["auto", "exact"]), default="auto", show_default=True,
    metavar="HOW",
    help="Count live bytes where that costs 1 ns an operation (auto: glibc's malloc), or under any "
    "allocator (exact: 3 to 5 ns). Otherwise they are estimated. --stacks=exact counts them, "
    "too.",
)  # fmt: skip
@click.option(
    "--layout", type=click.Choice(["off", "sampled", "exact"]), default="off", show_default=True,
    metavar="HOW",
    help="Say where blocks lie: how full their pages and cache lines are, how far apart they are, "
    "and how soon freed memory is used again. In a sample of the memory (sampled, at most 5 % more "
    "time), or in all of it (exact, which costs half of the live memory and several times the "
    "time).",
)  # fmt: skip
@click.option(
    "--stacks", type=click.Choice(["off", "sampled", "exact"]), default="off", is_flag=False,
    flag_value="sampled", metavar="[HOW]",
    help="Say which functions allocate, by the call stacks of a sample of the allocations "
    "(--stacks or --stacks=sampled), or of all (--stacks=exact: 4 µs for each allocation).",
)  # fmt: skip
@click.option(
    "--stacks-every", "every", type=options.EVERY, metavar="SIZE", default=None,
    help="Record one call stack for this many allocated bytes, on average. Default: 16 KiB, and "
    "more in programs that allocate much.",
)  # fmt: skip
@click.option(
    "--tree", "callers", is_flag=True,
    help="Add the tree of the functions that call the allocator.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(["function", "line"]), default="function", show_default=True,
    metavar="WHAT",
    help="Report who allocates by function, or by source line (line), if there is debug "
    "information (-g).",
)  # fmt: skip
@options.DEBUG_PATH
@click.option(
    "--collapsed", type=options.FILE_OR_DASH, metavar="FILE|-",
    help="Write the call stacks and their bytes (with --pid: samples) as lines for flame graphs.",
)  # fmt: skip
@click.option(
    "--speedscope", type=options.FILE_OR_DASH, metavar="FILE|-",
    help="Write the call stacks for speedscope.",
)  # fmt: skip
@click.option(
    "--pprof", type=options.FILE_OR_DASH, metavar="FILE|-",
    help="Write the call stacks for 'go tool pprof'.",
)  # fmt: skip
@click.option(
    "--flame-graph", type=options.FILE_OR_DASH, metavar="FILE|-",
    help="Draw the call stacks as an SVG file in which one can zoom and search.",
)  # fmt: skip
@click.option(
    "--no-cpu-timers", is_flag=True,
    help="Use no timers of CPU time. They check the kernel's clock, or replace it where it is not "
    "permitted.",
)  # fmt: skip
@click.option(
    "-r", "--runs", type=click.IntRange(1, 10_000), metavar="N", default=None,
    help="Run the program N times for the allocator's share of CPU time. The first run has the "
    "probe. The others have none where the kernel may be sampled, and show no output. Default: as "
    "often as needed, for at most 10 s. Use --runs 1 for a program that must not run again.",
)  # fmt: skip
@click.option(
    "--counters", type=options.EVENTS, metavar="EVENT[,EVENT]…",
    help="Also count these events inside operations, at most four: cycles, instructions, "
    "branch-misses, cache-misses, "
    "dTLB-load-misses, page-faults. Each thread then holds file descriptors for them.",
)  # fmt: skip
@click.option(
    "--delay", type=options.DURATION, help="Begin counting this long after the program's start."
)
@click.option(
    "--duration", type=options.SOME_TIME,
    help="Count for this long, then report; the program continues. --keep still keeps the counts "
    "of the whole run.",
)  # fmt: skip
@click.option(
    "--signal", "toggle", type=click.Choice(["USR1", "USR2", "HUP"]), metavar="SIGNAL",
    help="Begin counting when cairn gets this signal (USR1, USR2 or HUP), and end at the next one. "
    "The program does not get it.",
)  # fmt: skip
@click.option("--while", "load", hidden=True)
@click.option(
    "--overhead", is_flag=True,
    help="Measure what the probe costs this program instead: 'cairn compare' with and without it.",
)  # fmt: skip
@click.option(
    "--instructions", is_flag=True,
    help="Count the allocator's instructions by path and size with valgrind instead. The program "
    "runs twice, some 50 times as slowly.",
)  # fmt: skip
@click.option(
    "--full",
    is_flag=True,
    help="Add times by size and phase, lifetimes of blocks, memory over time, and how the numbers "
    "were measured.",
)
@click.option(
    "--json",
    "as_json",
    type=options.FILE_OR_DASH,
    metavar="FILE|-",
    help="Write everything as one JSON document; - is standard output.",
)
@click.option(
    "--csv", "as_csv", type=options.FILE_OR_DASH, metavar="FILE|-",
    help="Write the tables as CSV; - is standard output.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=options.NEW_FILE, metavar="FILE",
    help="Also write one page with drawings, tables and raw data to FILE, which ends in .html.",
)  # fmt: skip
@click.option(
    "--force", is_flag=True, help="Let the options that write a FILE replace existing ones."
)
@click.option(
    "--keep",
    type=options.NEW_FILE,
    metavar="FOLDER",
    help="Keep the raw files in FOLDER, one per process.",
)
@click.option(
    "--read",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Run nothing; report what --keep kept in FOLDER.",
)
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="FOLDER",
    help="With --read: report how the functions that allocate differ from those of the profile "
    "kept in this FOLDER.",
)  # fmt: skip
@click.option(
    "--pid", type=options.PID,
    help="Run nothing; watch this running process by clock samples. Nothing is loaded into it.",
)  # fmt: skip
@click.option(
    "--for", "length", type=options.SOME_TIME, default=None, metavar="DURATION",
    help="With --pid: watch for this long. Default: 10s; with --live: until ctrl-C, at most 10min.",
)  # fmt: skip
@options.COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROG [ARG]…")
def profile(
    command: tuple[str, ...], spec: str, kernel_calls: str, gap: int, paths: str, shows: bool,
    live: str,
    layout: str, stacks: str, every: int | None, callers: bool, by: str,
    debug_path: tuple[str, ...], collapsed: str | None,
    speedscope: str | None, pprof: str | None, flame_graph: str | None, no_cpu_timers: bool,
    runs: int | None,
    counters: tuple[str, ...] | None,
    delay: float | None, duration: float | None, toggle: str | None, load: str | None,
    overhead: bool, instructions: bool, full: bool, as_json: str | None, as_csv: str | None,
    out: Path | None, force: bool, keep: Path | None, read: Path | None, against: Path | None,
    pid: int | None, length: float | None, color: str,
) -> None:  # fmt: skip
    """Say what an allocator does inside a program, and how much CPU time it takes.

    The report has calls, times, system calls, locks and memory.
    Counts are exact. The allocator's share of CPU time comes from samples that the kernel takes by
    a clock, and has an interval. A short program runs again until the interval is narrow. Medians
    and tails come from a sample of operations. All processes of the program are included. The
    report is printed on standard error when the program has ended, because standard output is the
    program's.

    \b
      cairn profile -- ./prog                               the system's allocator
      cairn profile -a jemalloc --full -- ./prog
      cairn profile --delay 5s --duration 30s -- ./server   the server continues afterwards
      cairn profile --live -- ./prog                        a screen while the program runs
      cairn profile --stacks --by line -- ./prog            which lines allocate most
      cairn profile --keep raw -- ./prog
      cairn profile --read raw --csv -
      cairn profile --read after --against before           which functions allocate more
      cairn profile -a jemalloc -o page.html -- ./prog
      cairn profile -a jemalloc --instructions -- ./prog
      cairn profile --pid 1234 --for 30s                    a process that runs already

    Exit codes: those of 'cairn run'; without a program 0 to 3; with --overhead those of 'cairn
    compare'.
    """
    if load is not None:
        raise UsageError(
            "--while belongs to 'cairn compare'; here, start the server with --signal USR2, and "
            "send USR2 to cairn before and after the load"
        )
    if pid is not None:
        attach.report(pid, length, shows, full, as_json, as_csv, collapsed, force, color)
        return
    if length is not None:
        raise UsageError("--for belongs to --pid; --duration says how long to count in a program")
    forms = StackOutputs(
        callers, collapsed, speedscope, pprof, flame_graph, by == "line", debug_path
    )
    if read is not None:
        if command or keep or delay or duration or toggle:
            raise UsageError(
                "--read reports a profile that exists; leave out the program, --keep, --delay, "
                "--duration and --signal"
            )
        if against is not None:
            callers_change.report(read, against, debug_path, as_json, as_csv, force, color)
            return
        written = {
            *("callers", "by", "debug_path", "collapsed", "speedscope", "pprof", "flame_graph")
        }
        for name in given({"read", "full", "as_json", "as_csv", "out", "force", "color"} | written):
            raise UsageError(f"--read reports a profile as it was counted; leave out {name}")
        from cairn.profile.reader import gather

        outs = _Outs(full, as_json, as_csv, out, force, color, forms)
        outs.report(gather(read), None, sys.stderr if outs.to_stdout else sys.stdout, read)
        return
    if against is not None:
        raise UsageError("--against compares profiles that exist; name the other one with --read")
    if not command:
        raise UsageError(
            "which program? For example: cairn profile -a jemalloc -- ls -R /usr/share"
        )
    if shows:
        _check_live(command, alone=not (overhead or instructions or delay or duration or toggle))
    if instructions:
        from cairn.cli import path_instructions

        path_instructions.profile(spec, command, runs, as_json, as_csv, force, color)
    if delay is not None and toggle:
        raise UsageError("--delay and --signal both say when to begin; leave out one of them")
    if stacks == "off" and forms.wanted and was_given("stacks"):
        raise UsageError(
            "--stacks=off records no call stacks; leave it out, or leave out what needs them"
        )
    if stacks == "off" and (forms.wanted or every is not None) and not was_given("stacks"):
        stacks = "sampled"
    for name, how in (("--stacks", stacks), ("--layout", layout)):
        if how != "off" and (delay is not None or duration is not None or toggle):
            raise UsageError(
                f"{name} counts the whole run; leave out --delay, --duration and --signal"
            )
    span = Span(delay, duration, signal.Signals[f"SIG{toggle}"] if toggle else None)
    told = {
        "GAP": str(gap),
        "KERNEL": kernel_calls,
        "PATHS": paths,
        "LIVE": "exact" if stacks == "exact" else live,
        "LAYOUT": layout,
        "STACKS": stacks,
        "TIMER": "off" if no_cpu_timers else "on",
    }
    if every is not None:
        told["STACKS_EVERY"] = str(every)
    if counters:
        told["COUNTERS"] = ",".join(counters)
    if overhead:
        if as_json or as_csv or out or keep or runs or forms.wanted or not span.whole:
            raise UsageError(
                "--overhead compares whole runs; leave out the other options, and use 'cairn "
                "report last' for JSON and CSV"
            )
        _measure_overhead(spec, command, told, full, color)
        return
    if runs is not None and runs > 1 and not span.whole:
        raise UsageError("--runs is for whole runs; leave out --delay, --duration and --signal")
    from cairn.allocators.contenders import with_links
    from cairn.cli import share_runs
    from cairn.run.runner import private_folder
    from cairn.run.spare_memory import spare_memory

    given_input = share_runs.GivenInput.now()
    share_runs.refuse(runs, given_input)
    with failing_as_env():
        outs = _Outs(full, as_json, as_csv, out, force, color, forms)
        contender = replace(contender_for(spec, command), probed=True)
        with (
            _raw_files(keep) as folder,
            private_folder() as scratch,
            spare_memory() as spare,
        ):
            contender = with_links(contender, scratch)
            samples, witness = scratch / "cpu_samples", scratch / "witness.jsonl"
            report = partial(_report, contender, outs, samples)
            with (
                Counting(span, folder, spare, witness, report) as counting,
                _screen(shows, contender, command, folder, spare, scratch, color) as output,
            ):
                probe = _probe_variables(folder, told, spare)
                ended = _run(
                    contender, command, probe, samples, counting.signals, witness, output=output
                )
            if ended.problem is None:
                again = share_runs.Again(
                    contender,
                    command,
                    runs if span.whole else 1,
                    given_input,
                    samples,
                    lambda to, spare: _run(
                        contender,
                        command,
                        _probe_variables(to, told, spare),
                        samples,
                        {},
                        None,
                        quiet=True,
                    ),
                )
                tree = None
                try:
                    tree = _tree(command, contender, ended, folder, spare, again, layout != "off")
                    ended = _finished(counting, tree, ended)
                finally:
                    if keep is not None:
                        _keep(folder, tree, spare)
    end(ended)


def _check_live(command: Sequence[str], *, alone: bool) -> None:
    """Raises UsageError if --live cannot be used, for example because there is no terminal.

    alone: whether the user gave no option that --live excludes.
    """
    from cairn.cli import live_screen

    if command[0] in ("auto", "exact"):
        raise UsageError(
            f"--live shows a screen; to choose how live bytes are counted, use --live-bytes "
            f"{command[0]}"
        )
    if not alone:
        raise UsageError(
            "--live shows a whole run; leave out --delay, --duration, --signal, --overhead and "
            "--instructions"
        )
    live_screen.check()


@contextlib.contextmanager
def _screen(
    shows: bool, contender: Contender, command: Sequence[str], folder: Path, spare: Spare | None,
    scratch: Path, color: str,
) -> Iterator[int | None]:  # fmt: skip
    """Shows the counts while the program runs, if that is wanted.

    Yields the descriptor for what the program writes to the terminal; None for the terminal.
    """
    if not shows:
        yield None
        return
    from cairn.cli import live_screen
    from cairn.cli.live_look import Looking
    from cairn.profile.code_owners import AllocatorCode
    from cairn.profile.cpu_samples import GrowingSamples
    from cairn.report.live_screen import title

    samples = GrowingSamples(scratch / "cpu_samples", AllocatorCode.of(contender))
    looking = Looking(folder, spare, samples, time.monotonic_ns())
    head = title(shlex.join(command), contender.title)
    with live_screen.LiveScreen(looking.look, head, scratch, color) as shown:
        yield shown.output


class _Outs:
    """The destinations of the report.

    A file that cannot be written is refused before the program runs.
    """

    def __init__(
        self, full: bool, as_json: str | None, as_csv: str | None, page: Path | None, force: bool,
        color: str, forms: StackOutputs,
    ) -> None:  # fmt: skip
        self._full, self._force, self._color = full, force, color
        self._page = page
        if page is not None and page.suffix != ".html":
            raise UsageError(
                f"-o writes a page, and {page} does not end in .html; --json and --csv write the "
                "other forms"
            )
        self._json, self._csv, self._forms = as_json, as_csv, forms
        if as_json == as_csv == "-":
            raise UsageError(
                "--json - and --csv - would be mixed on standard output; give one of them a file"
            )
        for out in (_path(as_json), _path(as_csv), page):
            check_out(out, force)
        forms.check((as_json, as_csv, None if page is None else str(page)), force)

    @property
    def to_stdout(self) -> bool:
        """Whether one of the files is standard output."""
        return "-" in (self._json, self._csv, *self._forms.files)

    def report(
        self, found: Profile, title: str | None, stream: TextIO, folder: Path | None = None
    ) -> None:
        """Writes the report in all forms that were asked for. The text comes first.

        title: the allocator's name. folder: as for `stack_outputs.names_of`.

        If a form cannot be written, the others are written nevertheless. Then one error is raised
        for all forms that failed.
        """
        from cairn.report import profile

        others = _predicted(found)
        callers = self._forms.stacks(found, folder)
        stacks = callers.shown
        colored = wants_color(self._color, stream)
        view = View("text", self._full, colored, width_of(stream))
        text = profile.render(
            found,
            view,
            allocator=title,
            others=others,
            stacks=stacks,
            tree=self._forms.tree,
            stacks_notes=callers.notes,
        )
        writes: tuple[Callable[[], None], ...] = (
            lambda: click.echo(text, nl=False, err=stream is sys.stderr, color=True),
            lambda: self._write_data(found, title, others, stacks),
            lambda: self._write_rows(found, stacks),
            lambda: self._write_page(found, title, others, callers),
            *self._forms.writes(callers, profile.program_of(found), self._force),
        )
        failed: list[CairnError | OSError] = []
        for write in writes:
            try:
                write()
            except (CairnError, OSError) as error:
                failed.append(error)
        if failed:
            raise _all_in_one(failed)

    def _write_data(
        self,
        found: Profile,
        title: str | None,
        others: Sequence[Prediction],
        stacks: Sequence[Stack],
    ) -> None:
        if not self._json:
            return
        from cairn.report import profile_export

        text = profile_export.document(
            found, allocator=title, cairn=cairn.__version__, others=others, stacks=stacks
        )
        emit(text, _path(self._json), self._force)

    def _write_rows(self, found: Profile, stacks: Sequence[Stack]) -> None:
        if not self._csv:
            return
        from cairn.report import profile_export

        emit(profile_export.rows(found, stacks), _path(self._csv), self._force)

    def _write_page(
        self, found: Profile, title: str | None, others: Sequence[Prediction], callers: FoundStacks
    ) -> None:
        if self._page is None:
            return
        from cairn.page import profile as pages

        text = pages.page(
            found,
            allocator=title,
            others=others,
            stacks=callers.shown,
            stacks_notes=callers.notes,
            made_by=shlex.join(["cairn", *sys.argv[1:]]),
        )
        emit(text, self._page, self._force)


def _all_in_one(failed: Sequence[CairnError | OSError]) -> CairnError | OSError:
    """Returns the error to raise for all outputs that failed.

    It names each of them. A broken pipe is no failure to tell of: the reader of standard output has
    just exited. So it is returned only if nothing else failed.
    """
    told = [one for one in failed if not isinstance(one, BrokenPipeError)]
    if len(told) < 2:
        return (told or failed)[0]
    return CairnError(
        "; ".join(str(refused(one) if isinstance(one, OSError) else one) for one in told)
    )


def _predicted(found: Profile) -> tuple[Prediction, ...]:
    """Returns the predicted savings of the allocators of the last 'cairn calibrate'.

    Returns () for a part of a run, for several processes, and without a calibration.
    """
    from cairn.profile.tally import lasting
    from cairn.why import prediction
    from cairn.why.profile_summary import summarized

    if found.tree is None or found.window is not None or len(lasting(found.processes)) > 1:
        return ()
    try:
        folder = store.last_of(store.root(), prediction.EXPERIMENT)
        if folder is None:
            return ()
        run, samples = folder.run(), folder.samples()
    except CairnError as error:
        # The profile is complete without a prediction.
        say(stderr(), "note", f"no prediction: {error}")
        return ()
    known = prediction.costs(run, samples)
    name = next((one.name for one in run.competing if _is_same(one, found.tree)), "")
    faults = found.tree.minor_faults + found.tree.major_faults
    return prediction.predict(summarized(found), found.tree.system_ns, faults, name, known)


def _is_same(contender: Contender, tree: Tree) -> bool:
    """Returns whether the calibrated allocator is the profiled one, with the same environment."""
    builds = {contender.build_id, tree.build_id} - {None}
    return contender.title == tree.allocator and contender.knobs == tree.knobs and len(builds) < 2


def _path(out: str | None) -> Path | None:
    return None if out in (None, "-") else Path(str(out))


@contextlib.contextmanager
def _raw_files(keep: Path | None) -> Iterator[Path]:
    """Yields the folder for the probe's files: the user's, or a private one that is deleted later.

    A folder that was made here is removed if it stays empty.

    Raises UsageError if the user's folder is not empty, and CairnError if it cannot be made.
    """
    from cairn.run.runner import private_folder

    if keep is None:
        with private_folder() as folder:
            yield folder
        return
    made = False
    try:
        keep.mkdir(mode=0o700)
        made = True
    except FileExistsError:
        if keep.is_symlink() or not keep.is_dir() or any(keep.iterdir()):
            raise UsageError(
                f"--keep {keep} exists and is not an empty folder; name an empty or a new one"
            ) from None
    except OSError as error:
        raise cannot("make", keep, error) from error
    folder = keep.absolute()
    try:
        yield folder
    finally:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _measure_overhead(
    spec: str, command: tuple[str, ...], told: Mapping[str, str], full: bool, color: str
) -> None:
    from cairn.allocators.contenders import behind_probe
    from cairn.cli.compare import compare

    os.environ.update(_variables(told))
    both = (spec, behind_probe(spec))
    context = click.get_current_context()
    assert context is not None
    context.invoke(compare, command=command, specs=both, full=full, color=color)


def _variables(told: Mapping[str, str]) -> dict[str, str]:
    return {f"CAIRN_PROBE_{name}": value for name, value in told.items()}


def _probe_variables(folder: Path, told: Mapping[str, str], spare: Spare | None) -> dict[str, str]:
    """Returns the probe's environment, with the folder for its files and the spare memory."""
    memory = spare.variable() if spare is not None else {}
    return {"CAIRN_PROBE": str(folder)} | _variables(told) | memory


def _run(
    contender: Contender,
    command: tuple[str, ...],
    probe: Mapping[str, str],
    samples: Path,
    ours: Mapping[signal.Signals, Callable[[], None]],
    witness: Path | None,
    quiet: bool = False,
    output: int | None = None,
) -> Ended:
    from cairn.run import foreground

    return foreground.run(
        contender,
        command,
        probe=probe,
        ours=ours,
        cpu_samples=samples,
        witness=witness,
        quiet=quiet,
        output=output,
    )


def _tree(
    command: tuple[str, ...],
    contender: Contender,
    ended: Ended,
    folder: Path,
    spare: Spare | None,
    again: share_runs.Again,
    layout: bool,
) -> Tree | None:
    """Returns what the probe's files lack: the launcher's figures, and the clock samples.

    The figures include the processes that are missing from the files. Runs the program again if the
    share of CPU time needs more samples.
    """
    from cairn.profile.missing import missing_processes
    from cairn.profile.reader import gather
    from cairn.run.runner import tree_of

    if ended.launched is None:
        return None
    noted = (spare.missing(), spare.executed()) if spare is not None else ((), ())
    tree = tree_of(ended.launched, command, contender)
    missing = missing_processes(*noted, ended.unreached, ())
    tree = replace(tree, missing=missing, layout=layout)
    try:
        found = gather(folder, spare.profiles() if spare is not None else (), tree)
    except CairnError:
        # The files cannot be read, and the report says so later.
        return tree
    missing = missing_processes(*noted, ended.unreached, found.processes)
    return replace(tree, missing=missing, clock=again.clock(found, ended))


_OF_THE_PROBE = re.compile(r"\d+\.\d+\.(probe|layout|stacks)")
"""The names of the probe's files: PID.START, and an ending for each kind."""


def _keep(folder: Path, tree: Tree | None, spare: Spare | None) -> None:
    """Completes the folder: cuts the probe's files, and writes what the probe did not write.

    Without a profile, the files of the probe are removed again. The folder was empty before. So it
    has only the program's own files then, if there are any. If there are none, the same --keep can
    be given to the next call.
    """
    from cairn.profile.reader import names, trim, write_tree

    for name in names(folder):
        trim(folder / name)
    if spare is not None:
        spare.save(folder)
    if not _has_profile(folder):
        for path in folder.iterdir():
            if _OF_THE_PROBE.fullmatch(path.name):
                path.unlink()
    elif tree is not None:
        write_tree(folder, tree)


def _has_profile(folder: Path) -> bool:
    """Returns whether any file has counts. A damaged file is kept, so it counts as a profile."""
    from cairn.profile.reader import names, read_begun

    try:
        return any(read_begun(folder / name) is not None for name in names(folder))
    except CairnError:
        return True


def _report(contender: Contender, outs: _Outs, samples: Path, found: Profile) -> None:
    """Writes the report. `samples` is the file of the clock samples.

    Raises ContenderFailed if the probe found another allocator than the contender.
    """
    from cairn.cli import share_runs
    from cairn.run.proof import not_behind
    from cairn.run.runner import real_path

    for program, owner in dict.fromkeys(
        (process.program, process.allocator) for process in found.processes
    ):
        problem = not_behind(contender, program, owner, real_path)
        if problem is not None:
            raise ContenderFailed(problem)
    if found.window is not None:
        between = found.window.begin_ns, found.window.end_ns
        found = replace(found, clock=share_runs.sampled(found, contender, samples, between))
    outs.report(found, contender.title, sys.stderr)


def _finished(counting: Counting, tree: Tree | None, ended: Ended) -> Ended:
    """Reports after the program has ended.

    If the report fails, the program's own failure decides the exit code.
    """
    from cairn.profile.reader import NoProfile
    from cairn.report.profile_notes import not_recorded

    try:
        counting.finish(tree)
    except ContenderFailed as error:
        return replace(ended, problem=str(error))
    except NoProfile as error:
        missing = not_recorded(tree.missing if tree is not None else ())
        known = f"there is no profile: {missing or 'no process of the program allocated memory'}"
        if not counting.whole:
            known = f"{error}; missing: {missing}" if missing else str(error)
        fail(CairnError(known), ended.exit_code or EXIT_CANNOT_RUN)
    except CairnError as error:
        fail(error, ended.exit_code or EXIT_CANNOT_RUN)
    return ended
