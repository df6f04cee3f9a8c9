"""allocators, doctor, clean, completion: what is here, and what is kept."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import rich_click as click

import cairn
from cairn import catalog, discover, options, store, units
from cairn.cli.group import cli
from cairn.cli.talking import end_like_ctrl_c, say, stderr, wants_color
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.report.words import printable
from cairn.tools import bytes_below


@cli.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def allocators(context: click.Context, as_json: bool) -> None:
    """List the allocators that are here; 'get' brings others, 'add' names your own, 'remove' deletes.

    \b
      cairn allocators get jemalloc mimalloc@2     from pinned sources, or the distribution's package
      cairn allocators add mine ./libmine.so       then: cairn run -a mine -- PROG
      cairn allocators remove jemalloc@5.3.0       from the user's cache; nothing else is touched
    """
    if context.invoked_subcommand is None:
        _list_allocators(as_json)
    elif as_json and context.invoked_subcommand != "list":
        raise UsageError(f"'{context.invoked_subcommand}' prints no JSON; leave --json away")


@allocators.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def list_(context: click.Context, as_json: bool) -> None:
    """Show what is here: version, layout, licence, checksum of the library, origin, and what to beware of."""
    above = context.parent.params["as_json"] if context.parent is not None else False
    _list_allocators(as_json or above)


def _list_allocators(as_json: bool) -> None:
    from cairn import inventory

    known = discover.known_catalog()
    found = discover.discover(known)
    if as_json:
        click.echo(inventory.document(known, found))
        return
    width = max(120, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 140
    click.echo(inventory.render(known, found, color=wants_color("auto", sys.stdout), width=width), nl=False)


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
    from cairn import obtain

    console = stderr()
    end_like_ctrl_c()
    failures = []
    for name in names:
        try:
            wanted, version = _name_and_version(name)
            entry = catalog.entry(wanted)
            got = obtain.obtain(entry, version, origin, progress=lambda text: say(console, "get", text))
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
        raise CairnError(f"{len(failures)} of {len(names)} could not be had; the sentences above say why")


def _name_and_version(text: str) -> tuple[str, str | None]:
    name, at, version = text.partition("@")
    if at and not version:
        raise UsageError(f"'{text}' has no version after '@'; write one, such as jemalloc@5.3.1, or leave out the '@'")
    return name, version or None


@allocators.command()
@click.argument("name", metavar="NAME")
@click.argument("path", metavar="PATH", type=click.Path())
def add(name: str, path: str) -> None:
    """Give a library of your own a name, so that -a NAME means it.

    The file stays where it is. Its checksum is kept, and a warning told when it is no longer the same.
    """
    from cairn import register

    added = register.add(name, path, lambda text: say(stderr(), "add", text))
    click.echo(f"{printable(name)}: {printable(added.path or '')}")


@allocators.command()
@click.argument("names", metavar="NAME[@VERSION]…", nargs=-1, required=True)
def remove(names: tuple[str, ...]) -> None:
    """Delete allocators from the user's cache, and forget added ones.

    Nothing outside the cache is deleted: neither what the system installed nor a library that was added by its path.
    """
    from cairn import register

    for name in names:
        wanted, version = _name_and_version(name)
        entry = catalog.entry(wanted, discover.known_catalog())
        for item in register.remove(entry, version, lambda text: say(stderr(), "remove", text)):
            click.echo(f"removed: {printable(item.title)} ({printable(item.origin or 'unknown origin')})")


@cli.command(context_settings={"allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@options.COLOR
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [PROG [ARG]…]")
def doctor(command: tuple[str, ...], as_json: bool, color: str) -> None:
    """Say whether a program's allocator can be swapped, how noisy this machine is, and what can be measured here.

    Nothing of the program is executed. Without PROG, only the machine is looked at.

    Exit codes: 0 nothing stands in the way, or warnings only; 3 there is no such program; 4 no preloaded allocator can
    work in it, as 'cairn compare' would say.
    """
    from cairn import doctor, machine
    from cairn.abilities import abilities
    from cairn.report import checkup

    diagnosis = doctor.diagnose(command, os.environ) if command else None
    here = machine.host()
    now = machine.conditions(here, thorough=True)
    groups = doctor.examined(diagnosis, now, abilities(), here)
    if as_json:
        click.echo(checkup.document(groups, cairn=cairn.__version__))
    else:
        width = max(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else checkup.WIDTH
        colored = wants_color(color, sys.stdout)
        click.echo(checkup.render(groups, color=colored, width=width), nl=False, color=colored)
    if diagnosis is not None and diagnosis.obstacle is not None:
        sys.exit(ContenderFailed.exit_code)


@cli.command()
@click.option("--older-than", type=options.DURATION, default="0", help="Only runs that began longer ago, such as 72h.")
@click.option("--cache", "also_cache", is_flag=True, help="Also the cache: allocators that were fetched, experiments.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.RESULTS
def clean(older_than: float, also_cache: bool, yes: bool, results: Path | None) -> None:
    """Remove stored runs, and with --cache what was fetched; asks before anything goes."""
    where = results or store.root()
    now = time.time()
    going = [path for path in store.runs(where) if now - store.began(path) >= older_than]
    cache = discover.cache_folder().parent
    if also_cache and cache.is_dir():
        going.append(cache)
    if not going:
        click.echo(f"nothing to remove in {printable(str(where))}")
        return
    for path in going:
        click.echo(f"{units.size(bytes_below(path)):>10}  {printable(str(path))}")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("nobody is here to be asked; -y removes without asking")
        click.confirm(f"Remove {'this' if len(going) == 1 else f'these {len(going)}'}?", abort=True)
    for path in going:
        if store.is_measured(path):
            click.echo(f"kept, for it is being measured: {printable(str(path))}")
        else:
            store.remove(path)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print completions for a shell.

    \b
      bash   eval "$(cairn completion bash)"
      zsh    eval "$(cairn completion zsh)"
      fish   cairn completion fish | source
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CairnError(f"this version of click knows no completion for {shell}")
    click.echo(kind(cli, {}, "cairn", "_CAIRN_COMPLETE").source())
