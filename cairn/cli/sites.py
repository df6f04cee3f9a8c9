"""cairn sites: shows which functions allocate large blocks, by counts of the allocator cairn."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import rich_click as click
from msgspec.structs import asdict

from cairn.cli.root_command import cli
from cairn.report.formatting import printable

if TYPE_CHECKING:
    from cairn.profile.call_sites import Document, Site
    from cairn.profile.symbols import Files


@cli.command()
@click.option(
    "-n",
    "most",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    metavar="N",
    help="Show at most this many call sites of a process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with everything.")
@click.argument(
    "file", metavar="[FILE]", type=click.File("r", encoding="utf-8", errors="replace"), default="-"
)
def sites(file: TextIO, most: int, as_json: bool) -> None:
    """Say which functions allocate large blocks (above 32 KiB), how many live, and how long.

    FILE holds what a program wrote to standard error under the allocator cairn with CAIRN_SITES=1
    and CAIRN_STATS=json. The default is standard input. Function names come from the program and
    its libraries. The functions of a file that has changed since are not named. A program that was
    started by a relative path is looked up from the current folder. A forked child counts its
    parent's blocks again.

    \b
      cairn run -a 'cairn:CAIRN_SITES=1;CAIRN_STATS=json' -- ./prog 2>log
      cairn sites log
      cairn sites log | c++filt

    Exit codes: 0 success, 1 FILE holds no whole counts, 2 usage.
    """
    from cairn.profile import call_sites as told
    from cairn.profile import symbols

    files = symbols.Files()
    documents, damaged = told.parse(file)
    if damaged:
        click.echo(
            f"▲ {damaged} damaged {'line was' if damaged == 1 else 'lines were'} left out",
            err=True,
        )
    if as_json:
        click.echo(json.dumps([_plain(document, files) for document in documents], indent=1))
        _warn(files)
        return
    for place, document in enumerate(documents, 1):
        if document.count or document.others.blocks:
            head = (
                f"process {place} of {len(documents)}, in the order in which they ended\n"
                if len(documents) > 1
                else ""
            )
            text = head + told.render(document, partial(_where, files, document), most)
            click.echo("\n".join(map(printable, text.splitlines())) + "\n" * (len(documents) > 1))
    if none := sum(not (one.count or one.others.blocks) for one in documents):
        click.echo(f"{none} {'process' if none == 1 else 'processes'} had no block above 32 KiB")
    _warn(files)


def _warn(files: Files) -> None:
    """Says on standard error which files have changed, or may have changed, since the report."""
    for path in sorted(files.changed):
        click.echo(
            f"▲ {printable(path)} has changed since the program ran, so its functions are not "
            "named",
            err=True,
        )
    if files.unchecked:
        click.echo(
            "▲ an older version wrote this report without build IDs, so the functions are wrong if "
            "the program or its libraries have changed since",
            err=True,
        )


def _where(files: Files, document: Document, site: Site) -> str:
    return str(files.place(document.object_of(site), site.address, document.unix_ns))


def _plain(document: Document, files: Files) -> dict[str, Any]:
    rows = []
    for site in document.sites:
        place = files.place(document.object_of(site), site.address, document.unix_ns)
        rows.append(
            asdict(site) | {"path": place.path, "function": place.function, "offset": place.offset}
        )
    return {"site_count": document.count, "other_sites": asdict(document.others), "sites": rows}
