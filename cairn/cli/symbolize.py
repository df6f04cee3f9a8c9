"""cairn symbolize: keeps the names of functions and their lines beside a profile."""

from __future__ import annotations

import sys
from pathlib import Path

import rich_click as click

from cairn.cli import options
from cairn.cli.console import wants_color, width_of
from cairn.cli.root_command import cli
from cairn.errors import CairnError, UsageError
from cairn.report.view import View


@cli.command()
@options.DEBUG_PATH
@options.COLOR
@click.argument("profile", type=click.Path(path_type=Path), metavar="FOLDER|FILE")
def symbolize(profile: Path, debug_path: tuple[str, ...], color: str) -> None:
    """Keep the names of a profile's functions beside it, so that it can be read elsewhere.

    FOLDER was made by 'cairn profile --stacks --keep FOLDER'. FILE is one of its files that end in
    .stacks. Run this on a machine that has the program and its libraries, or their debug files.
    They are recognized by build ID: at their old paths, in /usr/lib/debug, and in the folders of
    --debug-path. The names and lines are written to FOLDER/names.json. 'cairn profile --read
    FOLDER' then shows them on any machine. Names that an earlier call found are kept.

    \b
      cairn profile --stacks --keep raw -- ./prog       on one machine
      cairn symbolize --debug-path build raw            on another one
      cairn profile --read raw --by line                on any machine

    Exit codes: 0 success, 1 the profile has no call stacks, or no file with their build IDs is
    here, 2 usage.
    """
    from cairn.binary.build_ids import FilesByBuildId
    from cairn.extras import install_line
    from cairn.profile import kept_names
    from cairn.profile.naming import named
    from cairn.profile.reader import gather
    from cairn.profile.source_lines import PACKAGE
    from cairn.report import naming_table

    if profile.is_file() and profile.suffix != ".stacks":
        raise UsageError(f"{profile} has no call stacks; name a file that ends in .stacks")
    folder = profile.parent if profile.is_file() else profile
    found = gather(folder)
    if not found.stacks:
        raise CairnError(
            found.stacks_problem
            or f"there are no call stacks in {folder}; record them with 'cairn profile --stacks'"
        )
    chosen = [file for file in found.stacks if folder == profile or file.name == profile.name]
    if not chosen:
        raise CairnError(f"{profile} belongs to no process of the profile in {folder}")
    before = kept_names.read(folder) or kept_names.KeptNames()
    namings, is_missing = named(chosen, FilesByBuildId(debug_path), before)
    if not any(one.functions for one in namings):
        raise CairnError(
            f"no file with the build IDs of the profile in {folder} is here; name the folder of "
            "the program or of its debug files with --debug-path"
        )
    files = before.files | {one.file.build_id: one.file for one in namings if one.file.build_id}
    kept_names.write(folder, files.values())
    view = View("text", False, wants_color(color, sys.stdout), width_of(sys.stdout))
    warning = naming_table.lines_missing(install_line(PACKAGE)) if is_missing else ""
    text = naming_table.render(namings, str(folder / kept_names.NAME), view, warning)
    click.echo(text, nl=False, color=True)
