"""cairn inspect: a look at the memory of a running process."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

import cairn
from cairn.cli import options
from cairn.cli.console import output_of
from cairn.cli.root_command import cli
from cairn.errors import ProgramFailed, UsageError
from cairn.report.view import Form

_LONGEST_S = 86400.0


@cli.command()
@click.option(
    "--for", "length", type=options.SOME_TIME, metavar="DURATION", default=None,
    help="Watch the process for this long, such as 30s, and say how fast its memory grows.",
)  # fmt: skip
@click.option(
    "--full", is_flag=True,
    help="Add all kinds of mappings, the settings that glibc uses now, and the evidence.",
)  # fmt: skip
@options.form_option("--json", "json", "Print one JSON document.")
@options.form_option("--csv", "csv", "Print CSV: a name and a value in each row.")
@click.option(
    "-o", "--out", type=options.NEW_FILE, metavar="FILE",
    help="Write the report to FILE. Its ending (.json .csv .txt) chooses the form.",
)  # fmt: skip
@options.FORCE
@options.COLOR
@click.argument("pid", type=options.PID)
def inspect(
    pid: int, length: float | None, full: bool, form: Form | None, out: Path | None, force: bool,
    color: str,
) -> None:  # fmt: skip
    """Say how a running process uses memory, and which allocator serves it.

    The report names the allocator, its settings, the memory by kind, and how much of it is live. It
    says what follows from that. Nothing is loaded into the process, and it is never stopped. A
    number that cannot be read from outside is "not known", with the reason. Ctrl-C ends only the
    watching with --for, and the report follows.

    \b
      cairn inspect 1234
      cairn inspect --for 30s 1234           does its memory grow?
      cairn inspect --json 1234
      cairn profile --pid 1234               how much CPU time does malloc take in it?

    You may inspect your own processes; root may inspect all.

    Exit codes: 0 success; 1 the kernel does not let you read the process, or the report cannot be
    written, for example because FILE exists; 2 usage, or there is no such process, or it has no
    memory; 3 the process ended meanwhile.
    """
    from cairn import units
    from cairn.inspect.growth import EndedWhileWatched
    from cairn.inspect.look import look
    from cairn.report import inspection

    if length is not None and length > _LONGEST_S:
        raise UsageError("--for is at most one day; 'cairn soak' watches programs for longer")
    output = output_of(form, full, color, out, force, endings=(".json", ".csv", ".txt"))
    try:
        found = look(pid, length)
    except EndedWhileWatched as ended:
        raise ProgramFailed(
            f"process {pid} was watched, and it ended after {units.about(ended.growth.seconds)}. "
            + inspection.growth_of(ended.growth)
        ) from None
    if output.view.form == "json":
        output.write(inspection.document(found, cairn=cairn.__version__))
    elif output.view.form == "csv":
        output.write(inspection.rows(found))
    else:
        output.write(inspection.render(found, output.view))
