"""cairn judge: places an allocator in the ranges of others, after one quick run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec.structs import replace

from cairn.cli import measurement as making
from cairn.cli import options
from cairn.cli.console import Output, end_like_ctrl_c, output_of, say, stderr
from cairn.cli.matrix_ranges import profiled
from cairn.cli.root_command import cli
from cairn.errors import ContenderFailed, Interrupted, UsageError
from cairn.report.view import Form
from cairn.run import store

if TYPE_CHECKING:
    from rich.console import Console

    from cairn.model import Contender
    from cairn.report.placing import RangeJudgement
    from cairn.report.run import Measured
    from cairn.why.ranges import ProfileTable

_PLAN = "judge"
_BASELINE = "system"
_CONTINUED_BY = "cairn matrix run"
"""The command that continues the run, which is one of a plan."""


@cli.command()
@click.argument("library", metavar="[LIB]", required=False)
@click.option(
    "--read", "read", metavar="RUN",
    help="Measure nothing; place the contenders of this run, which was made with --profile. "
    "Without --ranges, it must be a run of the plan 'judge'.",
)  # fmt: skip
@click.option(
    "--ranges", "kept", type=click.Path(path_type=Path), metavar="FILE",
    help="Use these ranges, which 'cairn matrix ranges --keep' wrote, instead of cairn's own.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Show the metrics in which it is inside, too.")
@options.JSON
@options.form_option("--csv", "csv", "Print CSV, one line for each contender and metric.")
@options.MARKDOWN
@options.OUT_TABLE
@options.FORCE
@options.RESULTS
@options.COLOR
def judge(
    library: str | None, read: str | None, kept: Path | None, full: bool, form: Form | None,
    out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Say in which metrics an allocator lies outside the ranges of others.

    LIB is a path, or any contender as written for -a of 'cairn compare'. A few small programs run
    with the probe, under LIB and under the system's allocator, for about half a minute. The ranges
    are those of healthy allocators, and come with cairn. For each metric in which LIB is outside,
    the report names other allocators that were outside, too. It says how much CPU time and memory
    they took. docs/judge.md explains the method.

    \b
      cairn judge ./libmine.so
      cairn judge jemalloc:MALLOC_CONF=narenas:1 --full

    Exit codes: 0 success, also if it is outside; 1 cairn failed, 2 usage, 4 the allocator cannot
    be loaded or fails on a program, 130 interrupted.
    """
    from cairn.bench import kept_ranges

    output = output_of(form, full, color, out, force)
    if (library is None) == (read is None):
        raise UsageError(
            "name one library, such as 'cairn judge ./libmine.so', or a run with --read"
        )
    table, about = kept_ranges.read(kept) if kept is not None else kept_ranges.read()
    if library is not None and table.baseline != _BASELINE:
        raise UsageError(
            f"the baseline of the ranges is {table.baseline}, and 'cairn judge LIB' measures with "
            f"{_BASELINE}; measure with 'cairn matrix run --profile', and judge that run with "
            "--read"
        )
    where = results or store.root()
    console = stderr(color)
    found = profiled(where, read) if read is not None else _measured(console, where, library or "")
    if kept is None:
        _refuse_other_plan(found)
    _refuse_other_baseline(found, table)
    judgements = _judgements(found, table, about)
    if not judgements:
        raise UsageError(f"the run has no contender beside {found.run.baseline}")
    if not any(one.placed or one.failures for one in judgements):
        raise UsageError(
            f"the run and the ranges have no measured program in common; the ranges are of "
            f"{', '.join(table.programs)}"
        )
    output.write(_rendered(judgements, output))
    failures = [sentence for one in judgements for sentence in one.failures]
    if failures:
        raise ContenderFailed("; ".join(failures))


def _refuse_other_plan(found: Measured) -> None:
    """Raises UsageError unless the run is one of the plan whose ranges come with cairn.

    Another plan may have a program of the same name that does other work. A plan of the user may
    even have the name of this plan.
    """
    from cairn.matrix import runs

    plan = (found.run.experiment or "").partition(" ")[2]
    other = f"the plan '{plan}'"
    if plan == _PLAN:
        programs = runs.unlike_shipped(plan, found.run)
        if not programs:
            return
        other = f"another plan '{plan}', whose {programs[0]} is another program"
    raise UsageError(
        f"{found.run.id} is a run of {other}, and cairn's own ranges are those of cairn's plan "
        f"'{_PLAN}'; make ranges of that plan with 'cairn matrix ranges --keep FILE' and give them "
        "with --ranges"
    )


def _refuse_other_baseline(found: Measured, table: ProfileTable) -> None:
    """Raises UsageError unless the run and the ranges divide times by the same contender."""
    own = found.run.baseline
    if own != table.baseline:
        raise UsageError(
            f"the baseline of {found.run.id} is {own}, and that of the ranges is {table.baseline}; "
            f"measure again with the baseline {table.baseline}, or give ranges with the baseline "
            f"{own}"
        )


def _measured(console: Console, where: Path, library: str) -> Measured:
    """Runs the plan once with the library and the system's allocator."""
    from cairn.allocators.contenders import parse_contender, split_contenders
    from cairn.matrix import EXPERIMENT, programs, runs

    specs = split_contenders(library)
    if len(specs) != 1:
        raise UsageError(f"cairn judge places one allocator at a time; {library} names several")
    if parse_contender(specs[0]).name == _BASELINE:
        raise UsageError(f"'cairn judge' compares with {_BASELINE}; name another allocator")
    named = runs.load(_PLAN)
    here = runs.runnable(runs.examine(named, ()))
    competing = runs.competing((_BASELINE, *specs), _BASELINE)
    named.folder.mkdir(parents=True, exist_ok=True)
    settings = replace(
        programs.settings_of(here, named.folder),
        why=True,
        profiled_rounds=1,
        warmup=named.plan.warmup,
    )
    contenders = competing.contenders + making.twins_of(competing.contenders, "cairn judge")
    run = making.described(
        settings, contenders, competing.baseline, runs.rule(named.plan, 1, None), None, (),
        experiment=f"{EXPERIMENT} {named.name}", made_by=_CONTINUED_BY,
    )  # fmt: skip
    folder = store.Folder.create(where, run)
    end_like_ctrl_c()
    try:
        making.carry_out(console, run, folder, _CONTINUED_BY)
    except Interrupted:
        raise Interrupted("interrupted; nothing was judged") from None
    say(console, "results", str(folder.path))
    return making.measured(folder)


def _judgements(found: Measured, table: ProfileTable, about: str) -> tuple[RangeJudgement, ...]:
    """Says where every contender of the run except the baseline lies in the ranges of `table`."""
    from cairn.model import twin
    from cairn.report.placing import RangeJudgement
    from cairn.why.placing import placed
    from cairn.why.ranges import gathered

    own = gathered([(found.run, found.samples)], {})
    names = [workload.name for workload in found.run.settings.workloads]
    titles = [contender.title for contender in found.run.competing]
    made = []
    for contender in found.run.competing:
        if contender.name == found.run.baseline:
            continue
        same = _same(contender, table)
        cells = {
            program: row[contender.name]
            for program, row in own.cells.items()
            if contender.name in row
        }
        others = table.without(same)
        failed = {
            (one.trial.workload, one.failure): None
            for one in found.samples
            if one.failure is not None
            and one.trial.contender in (contender.name, twin(contender.name))
        }
        made.append(
            RangeJudgement(
                name=contender.name,
                title=(
                    contender.title
                    if titles.count(contender.title) == 1
                    else f"{contender.name} ({contender.title})"
                ),
                placed=placed(cells, others),
                contenders=others.healthy,
                baseline=table.baseline,
                about=about,
                failures=tuple(
                    f"{contender.name} {failure} on {names[workload]}"
                    for workload, failure in failed
                ),
                missing=tuple(program for program in table.programs if program not in cells),
                left_out=same,
            )
        )
    return tuple(made)


def _same(contender: Contender, table: ProfileTable) -> tuple[str, ...]:
    """The healthy allocators of the ranges that are the contender's own library.

    A library that is given by its path, or that the user has added under another name, is
    recognized by the names of its file and by its SONAME.
    """
    from cairn.allocators.catalog import load_catalog

    catalog = load_catalog()
    entries = [catalog.find(contender.allocator), *map(catalog.of_file, _file_names(contender))]
    own = {contender.allocator}
    own |= {entry.library_of or entry.name for entry in entries if entry is not None}
    return tuple(
        name for name in table.healthy if name in own or table.titles[name] == contender.title
    )


def _file_names(contender: Contender) -> list[str]:
    """The names of the files that a contender preloads, and the SONAME of its library.

    The library may have been changed after the run. Its SONAME then counts no more.
    """
    from cairn.binary.library import inspect_library

    names = [Path(path).name for path in (*contender.preload, *contender.owners)]
    for path in contender.preload:
        with contextlib.suppress(ContenderFailed):
            library = inspect_library(path)
            if library.build_id == contender.build_id and library.soname is not None:
                names.append(library.soname)
    return names


def _rendered(found: Sequence[RangeJudgement], output: Output) -> str:
    from cairn.report import markdown, placing, terminal

    view = output.view
    match view.form:
        case "json":
            return placing.as_json(found)
        case "csv":
            return placing.as_csv(found)
    boards = [placing.board(one, full=view.full) for one in found]
    if view.form == "md":
        each = zip(boards, found, strict=True)
        return "\n".join(markdown.plain_board(board, one.about) for board, one in each)
    return "\n".join(terminal.drawn(board, view, answer_first=True) for board in boards)
