"""cairn allocators: what is on this machine; get, add and remove."""

from __future__ import annotations

import os
import sys

import rich_click as click

from cairn.allocators import catalog, discover
from cairn.cli.console import end_like_ctrl_c, output_of, say, stderr
from cairn.cli.group import cli
from cairn.errors import CairnError, UsageError
from cairn.report.view import View
from cairn.report.words import printable

_PIPED = 1000
"""Columns when nobody reads on a terminal."""


@cli.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--full", is_flag=True, help="All columns, whatever the width of the terminal.")
@click.pass_context
def allocators(context: click.Context, as_json: bool, full: bool) -> None:
    """List the allocators that are here; 'get' brings others, 'add' names your own, 'remove' deletes.

    \b
      cairn allocators get jemalloc mimalloc@2     from pinned sources, or the distribution's package
      cairn allocators add mine ./libmine.so       then: cairn run -a mine -- PROG
      cairn allocators remove jemalloc@5.3.0       from the user's cache; nothing else is touched
    """
    if context.invoked_subcommand is None:
        _list_allocators(as_json, full)
    elif (as_json or full) and context.invoked_subcommand != "list":
        option = "--json" if as_json else "--full"
        raise UsageError(f"'{context.invoked_subcommand}' lists nothing; leave out {option}")


@allocators.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--full", is_flag=True, help="All columns, whatever the width of the terminal.")
@click.pass_context
def list_(context: click.Context, as_json: bool, full: bool) -> None:
    """List the allocators that are here: version, layout, licence, checksum, origin, and caveats."""
    above = context.parent.params if context.parent is not None else {}
    _list_allocators(as_json or above.get("as_json", False), full or above.get("full", False))


def _list_allocators(as_json: bool, full: bool) -> None:
    from cairn.cli import inventory

    known = discover.known_catalog()
    found = discover.discover(known)
    if as_json:
        click.echo(inventory.document(known, found))
        return
    view = output_of("text", full, "auto", None, False).view
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        view = View(full=True, width=_PIPED)  # for grep and awk, each allocator is one line
    click.echo(inventory.render(known, found, view), nl=False)


@allocators.command()
@click.option(
    "--from",
    "origin",
    type=click.Choice(["source", "distribution"]),
    help="Build the pinned source, or unpack the distribution's package. Default: the source, if its tools are here.",
)
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def get(names: tuple[str, ...], origin: str | None) -> None:
    """Bring allocators into the user's cache: built from pinned sources, or unpacked from the distribution's packages.

    Needs no root, and installs nothing. Sources come through the user's own cargo or pip, with the registries and
    mirrors configured for them, and are refused unless their checksum is the pinned one. Packages are checked against
    the distribution's signed index.
    """
    from cairn.allocators import obtain

    console = stderr()
    end_like_ctrl_c()
    failures = []
    for name in names:
        try:
            wanted, version = _name_and_version(name)
            entry = catalog.entry(wanted)
            got = obtain.obtain(
                entry, version, origin, progress=lambda text: say(console, "get", text)
            )
            if got.problem is not None:
                raise CairnError(got.problem)
            click.echo(f"{printable(got.title)}: {printable(got.path or '')}")
            for fault in got.faults:
                say(console, "▲", f"{got.title}: {fault}")
        except CairnError as error:
            if len(names) == 1:
                raise
            failures.append(error)
            say(console, "✘", f"{name}: {error}")
    if failures:
        raise CairnError(
            f"{len(failures)} of {len(names)} could not be had; the sentences above say why"
        )


def _name_and_version(text: str) -> tuple[str, str | None]:
    name, at, version = text.partition("@")
    if at and not version:
        raise UsageError(
            f"'{text}' has no version after '@'; write one, such as jemalloc@5.3.1, or leave out the '@'"
        )
    return name, version or None


@allocators.command()
@click.argument("name", metavar="NAME")
@click.argument("path", metavar="PATH", type=click.Path())
def add(name: str, path: str) -> None:
    """Give a library of your own a name, so that -a NAME means it.

    The file stays where it is. Its checksum is kept, and a warning told when it is no longer the same.
    """
    from cairn.allocators import register

    added = register.add(name, path, lambda text: say(stderr(), "add", text))
    click.echo(f"{printable(name)}: {printable(added.path or '')}")


@allocators.command()
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Delete allocators from the user's cache, and forget added ones.

    Nothing outside the cache is deleted: neither what the system installed nor a library that was added by its path.
    """
    from cairn.allocators import register

    for name in names:
        wanted, version = _name_and_version(name)
        entry = catalog.entry(wanted, discover.known_catalog())
        for item in register.remove(entry, version, lambda text: say(stderr(), "remove", text)):
            click.echo(
                f"removed: {printable(item.title)} ({printable(item.origin or 'unknown origin')})"
            )
