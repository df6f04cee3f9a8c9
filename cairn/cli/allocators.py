"""cairn allocators: lists, fetches, adds and removes allocators."""

from __future__ import annotations

import os
import sys

import rich_click as click

from cairn.allocators import catalog, discover
from cairn.cli import options
from cairn.cli.console import end_like_ctrl_c, output_of, say, stderr
from cairn.cli.root_command import cli
from cairn.errors import CairnError, UsageError
from cairn.report.formatting import printable
from cairn.report.view import View

_PIPED = 1000
"""The width of the list in columns, if standard output is not a terminal."""


@cli.group(cls=click.RichGroup, invoke_without_command=True)
@options.AS_JSON
@options.ALL_COLUMNS
@click.pass_context
def allocators(context: click.Context, as_json: bool, full: bool) -> None:
    """List the allocators on this machine; fetch, add or remove some.

    \b
      cairn allocators get jemalloc mimalloc@2   fetch: from pinned sources or packages
      cairn allocators outdated                  which pinned releases have a newer one
      cairn allocators add mine ./libmine.so     name a library of yours: cairn run -a mine -- PROG
      cairn allocators remove jemalloc@5.3.0     delete it from your cache, and no other file

    Exit codes: 0 success, 1 cairn failed, 2 usage.
    """
    if context.invoked_subcommand is None:
        _list_allocators(as_json, full)
    elif (as_json or full) and context.invoked_subcommand != "list":
        option = "--json" if as_json else "--full"
        raise UsageError(f"'{context.invoked_subcommand}' prints no list; leave out {option}")


@allocators.command("list")
@options.AS_JSON
@options.ALL_COLUMNS
@click.pass_context
def list_(context: click.Context, as_json: bool, full: bool) -> None:
    """List the allocators on this machine: version, layout, licence, checksum, origin, caveats.

    Exit codes: 0 success, 1 cairn failed, 2 usage.
    """
    above = context.parent.params if context.parent is not None else {}
    _list_allocators(as_json or above.get("as_json", False), full or above.get("full", False))


def _list_allocators(as_json: bool, full: bool) -> None:
    from cairn.cli import allocator_list

    known = discover.known_catalog()
    found = discover.discover(known)
    if as_json:
        click.echo(allocator_list.document(known, found))
        return
    view = output_of("text", full, "auto", None, False).view
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        view = View(full=True, width=_PIPED)  # for grep and awk, each allocator is one line
    click.echo(allocator_list.render(known, found, view), nl=False)


@allocators.command()
@click.option(
    "--from",
    "origin",
    type=click.Choice(["source", "distribution"]),
    metavar="KIND",
    help="Build the pinned source (source), or unpack the distribution's package (distribution). "
    "Default: source, if the build tools are installed.",
)
@click.option(
    "--newest",
    is_flag=True,
    help="Build the registry's newest release, which 'cairn allocators outdated' lists.",
)
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def get(names: tuple[str, ...], origin: str | None, newest: bool) -> None:
    """Fetch allocators into your cache, from pinned sources or the distribution's packages.

    This needs no root and installs nothing on the system. cargo or pip downloads the sources, with
    the registries and mirrors that you configured for them. A source whose checksum is not the
    pinned one is refused. A package is checked against the distribution's signed index. A release
    of --newest is checked against the registry's own checksum.

    Exit codes: 0 success, 1 an allocator could not be fetched or built, 2 usage, or no allocator
    has this name.
    """
    from cairn.allocators import obtain

    if newest and origin == "distribution":
        raise UsageError("--newest asks the registries; leave out --from distribution.")
    console = stderr()
    end_like_ctrl_c()
    failures: list[CairnError] = []
    for name in names:
        try:
            wanted, version = _name_and_version(name)
            if newest and version is not None:
                raise UsageError(f"--newest chooses the version; leave out '@{version}'.")
            entry = catalog.entry(wanted, or_path=False)
            got = obtain.obtain(
                entry,
                version,
                origin,
                newest=newest,
                progress=lambda text: say(console, "get", text),
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
        kind = UsageError if all(isinstance(one, UsageError) for one in failures) else CairnError
        raise kind(
            f"{len(failures)} of {len(names)} allocators could not be fetched; the lines above "
            "say why"
        )


def _name_and_version(text: str) -> tuple[str, str | None]:
    name, at, version = text.partition("@")
    if at and not version:
        raise UsageError(
            f"'{text}' has no version after '@'; write one, such as jemalloc@5.3.1, or leave out "
            "the '@'"
        )
    return name, version or None


@allocators.command()
@click.option(
    "--from",
    "place",
    type=click.Path(),
    metavar="FOLDER|ARCHIVE",
    help="Build this source: a folder, or a tar or zip file. Needs --build.",
)
@click.option("--build", metavar="COMMAND", help="The shell command that builds the source.")
@click.option(
    "--library",
    metavar="FILE",
    help="The library in the built source. Default: the only one that defines malloc.",
)
@click.argument("name", metavar="NAME")
@click.argument(
    "path", type=click.Path(), required=False,
    metavar="PATH | NAME[@VERSION] --from PLACE --build COMMAND",
)  # fmt: skip
def add(
    name: str, path: str | None, place: str | None, build: str | None, library: str | None
) -> None:
    """Give a library of your own a name for -a.

    \b
      cairn allocators add mine ./libmine.so
      cairn allocators add mine@2.0 --from ./checkout --build 'make -j4' --library lib/libmine.so

    With PATH, the file stays where it is. Its checksum is recorded; if the file changes later,
    'cairn allocators' warns.

    With --from, a copy of the source is built in your cache. The cache keeps the library and the
    output of the build. With a version, NAME may be an allocator of the catalog, and
    several versions can be compared: -a mine@1.0,mine@2.0.

    Exit codes: 0 success, 1 cairn failed or the build did, 2 usage, 4 the library cannot be loaded.
    """
    from cairn.allocators import own_source, register

    def tell(text: str) -> None:
        say(stderr(), "add", text)

    wanted, version = _name_and_version(name)
    if place is None:
        if path is None:
            raise UsageError("name the library's PATH, or its source with --from and --build.")
        if build is not None or library is not None:
            raise UsageError("--build and --library need --from; leave them out.")
        if version is not None:
            raise UsageError(f"a version needs --from and --build; leave out '@{version}'.")
        added = register.add(name, path, tell)
    else:
        if path is not None:
            raise UsageError(
                "--from builds the library, so PATH is not needed; "
                "name the library in the source with --library."
            )
        if build is None:
            raise UsageError(
                "--from needs the command that builds the source, such as --build make."
            )
        end_like_ctrl_c()
        source = own_source.OwnSource(wanted, place, build, library, version)
        added = own_source.add_from_source(source, tell)
    click.echo(f"{printable(added.title)}: {printable(added.path or '')}")


@allocators.command()
@options.AS_JSON
@options.ALL_COLUMNS
def outdated(as_json: bool, full: bool) -> None:
    """List which pinned releases have a newer one in the registries or the distribution.

    The answers come from cargo and pip, which use the registries and mirrors that you configured
    for them. Nothing is fetched. The distribution's versions are those of this machine's package
    lists.

    Exit codes: 0 success, 1 cairn failed or a registry could not be read, 2 usage.
    """
    from cairn.allocators import outdated as registries
    from cairn.cli import allocator_list

    console = stderr()
    end_like_ctrl_c()
    found = registries.survey(lambda text: say(console, "outdated", text))
    if as_json:
        click.echo(allocator_list.outdated_document(found))
    else:
        view = output_of("text", full, "auto", None, False).view
        if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
            view = View(full=True, width=_PIPED)
        click.echo(allocator_list.render_outdated(found, view), nl=False)
    for failure in found.failures:
        say(console, "✘", f"{failure}.")
    if found.failures:
        raise CairnError("not all registries could be read; the lines above say why")


@allocators.command()
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Delete allocators from your cache, and forget the ones that you added.

    Nothing outside the cache is deleted: no installed library, and no library that you added by its
    path.

    Exit codes: 0 success, 1 cairn failed, 2 usage, or no allocator has this name.
    """
    from cairn.allocators import register

    for name in names:
        wanted, version = _name_and_version(name)
        entry = catalog.entry(wanted, discover.known_catalog(), or_path=False)
        for item in register.remove(entry, version, lambda text: say(stderr(), "remove", text)):
            click.echo(
                f"removed: {printable(item.title)} ({printable(item.origin or 'unknown origin')})"
            )
