"""The failures that a user can meet, as exceptions with an exit code.

The text of each exception is a sentence that names the next step. The exit codes are part of the
command's contract (`docs/measuring.md` lists them). Only `cairn/cli` turns an exception into an
exit.
"""

from __future__ import annotations

import errno
from os import PathLike

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk, and of a user whose quota is used up."""

NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
"""The errors of flock(2) on a file system without locks, which some clusters have."""


class CairnError(Exception):
    """Cairn itself fails: a file cannot be written, or the installation is damaged."""

    exit_code = 1


class UsageError(CairnError):
    """The command line names a thing that does not exist, or options that exclude each other."""

    exit_code = 2


class BudgetTooShort(UsageError):
    """The time budget ends before the first round is complete."""


class ProgramFailed(CairnError):
    """The program fails or runs too long under the baseline, so nothing can be compared."""

    exit_code = 3


class ProgramMissing(ProgramFailed):
    """The command does not exist; `cairn run` returns 127 for it, as `env` does."""


class ProgramNotExecutable(ProgramFailed):
    """The command exists but cannot be executed; `cairn run` returns 126 for it, as `env` does."""


class ContenderFailed(CairnError):
    """The program fails under a contender only, or a contender cannot be loaded into it."""

    exit_code = 4


class Interrupted(CairnError):
    """The user stopped the run; the trials measured so far are kept."""

    exit_code = 130


def cannot(what: str, path: str | PathLike[str], error: OSError) -> CairnError:
    """Returns the error for a file that cannot be used. `what` is a verb, such as "read"."""
    remedy = "; free some space there, or write to another disk" if error.errno in _FULL else ""
    return CairnError(f"cannot {what} {path}: {error.strerror or error}{remedy}")
