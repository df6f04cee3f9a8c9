"""Reads the variables of a process's environment that allocators and the loader read."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Mapping

from cairn.allocators.catalog import Allocator, load_catalog
from cairn.inspect.facts import EnvironmentVariable
from cairn.inspect.process import NotPermitted, Target

_WANTED = re.compile(
    r"MALLOC_\w+|_RJEM_MALLOC_CONF|RPMALLOC_\w+|SNMALLOC_\w+|LD_PRELOAD|PYTHONMALLOC|GOGC"
    r"|GOMEMLIMIT|ASAN_OPTIONS|CAIRN_PROBE\w*|CAIRN_WITNESS"
)
"""The variables that are shown besides those in the catalog."""
_LOADER = frozenset({"LD_PRELOAD"})
_RUNTIMES = {"PYTHONMALLOC": "CPython", "GOGC": "Go", "GOMEMLIMIT": "Go"}
_OURS = re.compile(r"CAIRN_(PROBE\w*|WITNESS)")
"""Variables of Cairn's measurements, which no allocator reads."""


def read(target: Target) -> dict[str, str] | None:
    """The environment with which the process started; None if it may not be read.

    A process can overwrite this memory, as some servers do to show a title. Text that is no
    variable is left out.
    """
    try:
        content = target.text("environ")
    except NotPermitted:
        return None
    pairs = (text.partition("=") for text in content.split("\0"))
    return {name: value for name, equals, value in pairs if equals and name}


def settings(
    environment: Mapping[str, str], entry: Allocator | None, runtime: str | None
) -> tuple[EnvironmentVariable, ...]:
    """The variables that concern allocators, in the order of their names.

    entry: the allocator that serves malloc; None if it is not in the catalog.
    """
    known = load_catalog().allocators
    return tuple(
        EnvironmentVariable(name, environment[name], _is_read(name, entry, runtime))
        for name in sorted(environment)
        if _WANTED.fullmatch(name) or any(one.reads_knob(name) for one in known)
    )


def allocators_of(preload: str) -> tuple[str, ...]:
    """The words of LD_PRELOAD that are libraries of allocators in the catalog."""
    names = [glob for one in load_catalog().allocators for glob in one.libraries]
    names += [f"lib{one.name}.so*" for one in load_catalog().allocators if one.ours]
    return tuple(
        word
        for word in re.split("[ :]", preload)
        if any(fnmatch.fnmatchcase(os.path.basename(word), glob) for glob in names)
    )


def _is_read(name: str, entry: Allocator | None, runtime: str | None) -> bool | None:
    if name in _LOADER:
        return True
    if name in _RUNTIMES:
        return _RUNTIMES[name] == runtime
    if _OURS.fullmatch(name):
        return None
    if entry is not None and entry.reads_knob(name):
        return True
    if entry is None:
        return None
    # The catalog may lack variables that this allocator reads. Only a variable that the catalog
    # lists for another allocator is surely not read.
    others = [one for one in load_catalog().allocators if one.reads_knob(name)]
    return False if others else None
