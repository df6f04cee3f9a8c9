"""The command that installs a Python package which only one option needs."""

from __future__ import annotations

import importlib.util
import shlex
import sys


def install_line(requirement: str) -> str:
    """Returns a command line for a shell. It installs a package into the environment of cairn.

    requirement: the name of the package, or a name with versions such as "submitit>=1.5".
    """
    here = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip"] if here else ["pip", "--python", sys.executable]
    return shlex.join([*pip, "install", requirement])
