"""cairn completion: prints the script with which a shell completes the command."""

from __future__ import annotations

import rich_click as click

from cairn.cli.root_command import cli
from cairn.errors import CairnError


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print completions for a shell.

    \b
      bash   eval "$(cairn completion bash)"
      zsh    eval "$(cairn completion zsh)"
      fish   cairn completion fish | source

    Exit codes: 0 success, 2 usage.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise CairnError(f"this version of click knows no completion for {shell}")
    click.echo(kind(cli, {}, "cairn", "_CAIRN_COMPLETE").source())
