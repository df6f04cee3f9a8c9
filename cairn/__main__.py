"""The command `cairn`. `python -m cairn` is the same.

Importing the command takes a fifth of a second. Ctrl-C within that time ends the process at once,
since an exception in the middle of an import would be printed as a traceback.
"""

from __future__ import annotations

import os
import signal


def _quit(_number: int, _frame: object) -> None:
    """Ends the process at once: nothing was made yet that would have to be cleaned up."""
    os.write(2, "✘ interrupted; nothing was measured yet\n".encode())
    os._exit(130)


def main() -> None:
    """Runs the command. The entry point of the installed script."""
    # A shell starts background commands with SIGINT ignored. Then it must remain ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _quit)
    from cairn.cli import main as command

    command()


if __name__ == "__main__":
    main()
