"""Turns click's errors about the command line into one sentence, like all other errors.

Click itself prints such an error on several lines: the usage, a hint at --help, and the error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

_WORDS = (
    (re.compile(r"is not a valid integer(?: range)?\Z"), "is not a whole number"),
    (re.compile(r"is not a valid float(?: range)?\Z"), "is not a number"),
    (re.compile(r"is not in the range (\d+)<=x<=(\d+)\Z"), r"is not in the range \1 to \2"),
    (re.compile(r"\A(?:Path|File|Directory) '"), "'"),
)
"""The texts of click about wrong values, each with a plainer text."""
_NEEDS = re.compile(r"Option '[^']*' requires (an argument|(\d+) arguments)\.")
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)


def sentence(error: click.ClickException, root: click.Command, words: Sequence[str]) -> str:
    """Returns what is wrong and the next step.

    root: the command `cairn`. words: its arguments. They tell which command the error is about, if
    the error itself does not.
    """
    says, lists = _problem(error), "options"
    near = getattr(error, "possibilities", None)
    if hasattr(error, "command_name"):
        lists = "commands"
    elif _is_about_arguments(error):
        lists = "arguments"
    if near:
        says += f"; did you mean {' or '.join(sorted(near))}?"
    elif isinstance(error, click.BadParameter) and ";" in says:
        return says  # the sentence of the option's own type has the next step already
    elif not isinstance(error, click.UsageError):
        return says
    else:
        says += ";"
    return f"{says} '{_command(error, root, words)} --help' lists the {lists}"


def _problem(error: click.ClickException) -> str:
    """Returns what is wrong, without a full stop."""
    text = error.message.removesuffix(".")
    name = getattr(error, "option_name", None)
    match error:
        case click.NoSuchOption():
            return f"there is no option {name}"
        case click.MissingParameter():
            return f"{_name(error.param)} is missing"
        case click.BadParameter():
            for clicks, ours in _WORDS:
                text = clicks.sub(ours, text)
            return f"{_name(error.param)}: {text}"
        case click.BadOptionUsage():
            needs = _NEEDS.fullmatch(error.message)
            if needs is None:
                return f"{name} takes no value" if "does not take" in text else text
            return f"{name} needs {f'{needs[2]} values' if needs[2] else 'a value'}"
    if hasattr(error, "command_name"):
        return f"there is no command {error.command_name}"
    extra = _EXTRA.fullmatch(error.message)
    return f"too many arguments: {extra[1]}" if extra is not None else text


def _is_about_arguments(error: click.ClickException) -> bool:
    about = isinstance(getattr(error, "param", None), click.Argument)
    return about or _EXTRA.fullmatch(error.message) is not None


def _name(parameter: click.Parameter | None) -> str:
    """Returns the name of an option or an argument, as the user knows it."""
    if parameter is None:
        return "a value"
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    shown = (parameter.metavar or parameter.human_readable_name).removesuffix("…")
    return shown[1:-1] if shown.startswith("[") and shown.endswith("]") else shown


def _command(error: click.ClickException, root: click.Command, words: Sequence[str]) -> str:
    """Returns the command that the error is about, such as "cairn matrix run"."""
    context = getattr(error, "ctx", None)
    if context is not None:
        return str(context.command_path)
    path, command = ["cairn"], root
    for word in words:
        inner = command.commands.get(word) if isinstance(command, click.Group) else None
        if inner is None:
            break
        path.append(word)
        command = inner
    return " ".join(path)
