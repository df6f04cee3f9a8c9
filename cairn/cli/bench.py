"""cairn bench: the built-in experiments and workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click
from msgspec.structs import replace

from cairn import units
from cairn.cli import measurement as making
from cairn.cli import options
from cairn.cli.console import PAGE, TABLE, given, output_of, say, stderr
from cairn.cli.root_command import cli
from cairn.errors import CairnError, Interrupted, UsageError
from cairn.model import BENCH_ROUNDS_MOST, StopRule
from cairn.report.formatting import printable
from cairn.report.view import Form
from cairn.run import store

if TYPE_CHECKING:
    from cairn.bench.run_settings import Chosen


@cli.command(context_settings=options.ROUNDS_ARE_RUNS)
@click.argument("names", metavar="[NAME]…", nargs=-1)
@options.contenders(
    "Use these contenders instead of the experiment's own; written as for 'cairn compare'."
)
@click.option(
    "--quick",
    is_flag=True,
    help="Finish in minutes: use fewer contenders and rounds, and smaller sizes.",
)
@click.option(
    "--plan", is_flag=True, help="Print what would run and how long it would take; run nothing."
)
@click.option(
    "-r", "--runs", type=click.IntRange(1, BENCH_ROUNDS_MOST), metavar="N",
    help="Run exactly N rounds. Default: the experiment's own number, or until the result is "
    "precise enough.",
)  # fmt: skip
@click.option(
    "--instructions", is_flag=True,
    help="Count instructions per operation with valgrind instead of measuring time. Each workload "
    "runs at two small sizes.",
)  # fmt: skip
@click.option(
    "--counters",
    is_flag=True,
    help="Count perf's default events for each workload, if the machine has them; as for 'cairn "
    "compare'.",
)
@click.option(
    "--why", is_flag=True,
    help="Also run every contender with the probe, and split each gap into its parts; as for "
    "'cairn compare'.",
)  # fmt: skip
@options.RESUME
@options.SEED
@options.NOT_N
@options.output_options()
def bench(
    names: tuple[str, ...], specs: tuple[str, ...], quick: bool, plan: bool, runs: int | None,
    instructions: bool, counters: bool, why: bool, resume: str | None, seed: int | None,
    form: Form | None, full: bool, out: Path | None, force: bool, results: Path | None, color: str,
) -> None:  # fmt: skip
    """Run built-in experiments and workloads; without a name, list them.

    The result is a table, a verdict, pictures and raw data. Several workloads make one run with
    geometric means; each experiment is a run of its own. The pictures (SVG and PNG) are in the
    results folder. 'cairn report' shows a run again.

    \b
      cairn bench suite --quick          a dozen workloads, six allocators
      cairn bench suite                  all workloads: within an hour
      cairn bench larson -a system,jemalloc
      cairn bench suite --why -a system,mimalloc
      cairn bench suite --instructions   instructions per operation
      cairn bench misuse                 which misuse of memory is caught, and which does damage

    Exit codes: 0 success, 1 cairn failed, 2 usage, 3 a workload fails under the baseline, 4 a
    workload fails under another contender only, or no contender is installed, 130 interrupted
    (continue with --resume last).
    """
    from cairn.bench import misuse as misuses
    from cairn.bench import run_settings as benching
    from cairn.run import preflight

    console = stderr(color)
    endings = TABLE if misuses.NAME in names else PAGE
    output = output_of(form, full, color, out, force, endings=endings)
    where = results or store.root()
    if misuses.NAME in names:
        from cairn.cli import misuse

        misuse.bench(console, names, _split(specs), runs, output)
        return
    if resume is not None:
        making.refuse_beside_resume()
        run, folder = making.resumed(where, resume, "cairn bench", names)
        making.conduct(console, run, folder, "cairn bench", output)
        return
    if not names or "list" in names:
        for name in given({"names", "results", "color"}):
            raise UsageError(f"which experiment? {name} needs one; 'cairn bench' alone lists them")
        _list(names)
        return
    choices = benching.chosen(names, quick)
    if why and instructions:
        raise UsageError(
            "--why splits CPU time into parts, and --instructions measures no time; leave out one "
            "of them"
        )
    if counters and instructions:
        raise UsageError(
            "--counters reads the processor's counters, and --instructions counts under valgrind, "
            "which hides them; leave out one of them"
        )
    if why:
        choices = benching.explained(choices)
    if instructions:
        choices = benching.counted(choices)
    if plan and (out is not None or output.view.form != "text"):
        raise UsageError(
            "--plan measures nothing, so it has no document and no file to write; leave out one "
            "of the options"
        )
    if len(choices) > 1 and (out is not None or output.view.form != "text"):
        raise UsageError(
            f"these are {len(choices)} runs, and a document or file holds one run; name one "
            "experiment at a time"
        )
    failures: list[CairnError] = []
    for place, choice in enumerate(choices):
        try:
            chosen = _split(specs) or benching.contenders(
                choice.size, lambda text: say(console, "note", text)
            )
            # A plan compiles nothing, so it knows only the names of the ill allocators.
            ill = benching.ill_names(choice) if plan else ()
            if not plan:
                chosen += benching.ill_contenders(
                    choice, lambda text: say(console, "prepare", text)
                )
            competing = preflight.named(chosen, ill)
            rule = benching.rule(choice, runs, None if instructions else len(competing))
            if plan:
                _plan(
                    choice, competing, rule, instructions, lambda text: say(console, "note", text)
                )
                continue
            settings = benching.settings(
                choice, lambda text: say(console, "prepare", text), instructions=instructions
            )
            settings = replace(settings, counters=counters)
            run = making.new_run(
                console, settings, chosen, None, rule, seed, choice.experiment.name,
                made_by="cairn bench",
            )  # fmt: skip
            folder = store.Folder.create(where, run := replace(run, quick=quick))
            if place:
                click.echo()
            making.conduct(console, run, folder, "cairn bench", output)
        except (Interrupted, UsageError):
            raise
        except KeyboardInterrupt:
            if place:
                raise Interrupted(
                    f"interrupted before {choice.experiment.name}; what was measured before is kept"
                ) from None
            raise
        except CairnError as error:
            # The next experiment does not depend on this one.
            failures.append(error)
            if place + 1 < len(choices) or _gravest(failures) is not error:
                say(console, "✘", str(error))
    if failures:
        raise _gravest(failures)


def _gravest(failures: Sequence[CairnError]) -> CairnError:
    """Returns the failure with the lowest exit code.

    1 means that nothing was measured, 3 that the baseline failed, 4 that another contender failed.
    """
    return min(failures, key=lambda error: error.exit_code)


def _list(beside: Sequence[str]) -> None:
    """Prints all experiments and workloads by group, with the time that a run of each takes."""
    from cairn.allocators import discover
    from cairn.allocators.contenders import default_contenders
    from cairn.cli import bench_list

    others = [name for name in beside if name != "list"]
    if others:
        raise UsageError(
            f"'list' shows everything and runs nothing; leave out {', '.join(others)} or 'list'"
        )
    here = len(default_contenders(discover.discover()))
    view = output_of("text", False, "auto", None, False).view
    click.echo(bench_list.render(here, view), nl=False, color=True)


def _split(specs: Sequence[str]) -> tuple[str, ...]:
    from cairn.allocators.contenders import split_contenders

    return tuple(part for spec in specs for part in split_contenders(spec))


def _plan(
    choice: Chosen,
    contenders: Sequence[str],
    rule: StopRule,
    instructions: bool,
    note: Callable[[str], None],
) -> None:
    """Prints what would run and how long it would take.

    contenders: the names of the contenders. Fails with the same errors as the run itself.
    """
    from cairn.bench import real_programs
    from cairn.bench import run_settings as benching

    if not instructions and choice.variants:
        choice = choice.of(benching.fitting(choice.variants, note))
    seconds = choice.expected_s(len(contenders), rule, instructions=instructions)
    names = [variant.name for variant in choice.variants]
    if choice.experiment.programs:
        names += [one.name for one in real_programs.installed(note)]
    count = len(contenders)
    title = (
        "instructions per operation, counted by valgrind"
        if instructions
        else choice.experiment.title
    )
    click.echo(
        f"{title}: {count} contender{'s' * (count > 1)} ({', '.join(map(printable, contenders))})"
    )
    if names:
        click.echo(f"{len(names)} workload{'s' * (len(names) > 1)}: {', '.join(names)}")
    if instructions:
        click.echo(
            f"about {units.duration(seconds)} for both sizes of each, counted "
            f"{rule.min_rounds + 1} times"
        )
        return
    rounds = f"{rule.min_rounds} round{'s' * (rule.min_rounds > 1)}"
    if rule.precision is not None:
        rounds = f"{rule.min_rounds}–{rule.max_rounds} rounds"
    most = f", {units.duration(rule.budget_s)} at most" if rule.budget_s is not None else ""
    click.echo(f"about {units.duration(seconds)} for {rounds}{most}")
