"""Tells whether a program of a plan is the same in two runs, so that their ratios may be merged.

The paths of the places {data} and {work} differ from machine to machine and from run to run, and so
does the folder of the built-in workloads. Everything else of a command must be equal. The name of
the folder {data} ends in a digest of the recipes of the inputs, so other inputs are noticed, too.
All functions are pure.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from cairn.model import Workload
from cairn.own_settings import OwnSettings

_QUOTED = re.compile(r"'/[^']*/matrix/(data|work)/([^']*)'")
_PLAIN = re.compile(r"/[^\s'\"]*?/matrix/(data|work)/")
_OF_A_RUN = re.compile(r"\{work\}/run-[^/\s'\"]*/")
"""The part of the working folder's path that differs from run to run."""


def without_places(text: str) -> str:
    """The text with the folders of inputs and of working files replaced by {data} and {work}."""
    text = _QUOTED.sub(r"{\1}/\2", text)
    return _OF_A_RUN.sub("{work}/", _PLAIN.sub(r"{\1}/", text))


def identity(workload: Workload) -> Workload:
    """Returns the parts of a workload that must be equal in two runs.

    The paths of {data} and {work} and the limits of the workload are left out.
    """
    own = workload.own
    command = workload.command
    if own.reports:  # a built-in workload, in the folder of cairn
        command = (command[0].rpartition("/")[2], *command[1:])
    return replace(
        workload,
        command=tuple(map(without_places, command)),
        load=without_places(workload.load),
        own=OwnSettings(
            shell=bool(own.shell),
            stdin=without_places(own.stdin or ""),
            prepare=without_places(own.prepare or ""),
            conclude=without_places(own.conclude or ""),
            ready=without_places(own.ready or ""),
            ok_exit=own.ok_exit,
            environment=tuple((name, without_places(value)) for name, value in own.environment),
            written=tuple(map(without_places, own.written)),
        ),
    )


def difference(one: Workload, other: Workload) -> str | None:
    """The name of the first part in which the workloads differ; None if they are the same."""
    first, second = identity(one), identity(other)
    if first == second:
        return None
    parts = {
        "command": (first.command, second.command),
        "load": (first.load, second.load),
        "kind": (first.group, second.group),
        "environment": (first.own.environment, second.own.environment),
        "standard input": (first.own.stdin, second.own.stdin),
    }
    return next((name for name, (here, there) in parts.items() if here != there), "settings")
