"""Every failure a user can meet is one of these: a sentence that names the next step, and an exit code.

The codes are the command's contract (`docs/measuring.md` lists them); only `cli.py` turns an exception into an exit.
"""

from __future__ import annotations


class CairnError(Exception):
    """Our own failure: a file that cannot be written, a full disk, a damaged installation."""

    exit_code = 1


class UsageError(CairnError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class ProgramFailed(CairnError):
    """The program fails, or does not end in time, under the baseline: there is nothing to compare with."""

    exit_code = 3


class ProgramMissing(ProgramFailed):
    """There is no such command; `cairn run` returns 127 for it, as `env` does."""


class ProgramNotExecutable(ProgramFailed):
    """The command exists and cannot be executed; `cairn run` returns 126 for it, as `env` does."""


class ContenderFailed(CairnError):
    """It fails under some contender only, or a contender cannot be loaded into it."""

    exit_code = 4


class Interrupted(CairnError):
    """The user stopped the run; what was measured until then is kept."""

    exit_code = 130
