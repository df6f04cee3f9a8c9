"""Makes the workloads of a run from commands with parameters, which are written {name}.

All functions are pure.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence

from cairn.errors import UsageError
from cairn.model import Workload

WORKLOADS_MAX = 1000
"""The most workloads of a run: a cross product grows fast, and this many would run for days."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
"""A {name} that is not preceded by "$": ${name} belongs to the shell."""


def parse_parameter(text: str) -> tuple[str, tuple[str, ...]]:
    """The name and the values of an argument of -L, written NAME=VALUE,VALUE….

    Raises ValueError, whose text says what is wrong.
    """
    name, equals, values = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not values:
        raise ValueError(f"{text!r} is not NAME=VALUE,VALUE…, for example threads=1,2,4")
    return name, tuple(values.split(","))


def expand(
    commands: Sequence[Sequence[str]],
    parameters: Sequence[tuple[str, tuple[str, ...]]],
    *,
    shell: bool,
    load: str = "",
) -> tuple[Workload, ...]:
    """Every command with every combination of the parameters that it uses, without duplicates.

    load: the load of the servers that the commands start, as one line; may use parameters as well.

    Raises UsageError for a parameter that no command uses, for a parameter that is given twice, and
    for more than WORKLOADS_MAX combinations.
    """
    names = [name for name, _ in parameters]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"-L {name} is given twice; put all its values into one, separated by commas"
            )
        if not any(uses((*command, load), name) for command in commands):
            raise UsageError(
                f"-L {name} is used by no command; write {{{name}}} where its value belongs"
            )
    workloads: dict[str, Workload] = {}
    for command in commands:
        whole = (*command, load)
        used = [(name, values) for name, values in parameters if uses(whole, name)]
        for chosen in itertools.product(*(values for _, values in used)):
            values = dict(zip((name for name, _ in used), chosen, strict=True))
            words = tuple(_filled(word, values) for word in command)
            shown = " ".join(words) if shell else shlex.join(words)
            under = _filled(load, values)
            if under != load:
                shown = f"{shown} while {under}"
            workloads.setdefault(shown, Workload(name=shown, command=words, load=under))
            if len(workloads) > WORKLOADS_MAX:
                raise UsageError(
                    f"these parameters make more than {WORKLOADS_MAX} combinations; leave some out"
                )
    return tuple(workloads.values())


def uses(command: Sequence[str], name: str) -> bool:
    """Whether one of these words has the parameter {name}."""
    return any(match[1] == name for word in command for match in _PLACE.finditer(word))


def _filled(word: str, values: Mapping[str, str]) -> str:
    """The word with each {name} replaced. Values are not expanded again."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), word)
