"""Runs a program for its user, not for a measurement: terminal, stdin and signals are the program's own."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from cairn import native
from cairn.errors import CairnError, ProgramMissing, ProgramNotExecutable
from cairn.model import Contender
from cairn.run.proof import judge
from cairn.run.runner import (
    Launched,
    carried,
    carried_witness,
    preload_environment,
    private_folder,
    seen_by,
    setenv,
)

_PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended, as a shell would say it, and why the allocator was not proved (None if it was)."""

    exit_code: int
    problem: str | None
    left_behind: int
    """Processes that were still alive when the command ended, and were ended with it."""
    launched: Launched | None = None
    """All that the launcher said; None: it was not asked."""


def run(
    contender: Contender,
    command: Sequence[str],
    *,
    probe: Mapping[str, str] | None = None,
    ours: Mapping[signal.Signals, Callable[[], None]] | None = None,
) -> Ended:
    """Runs `command` under `contender` until it ends.

    `probe`: variables for the probe, where the contender runs behind it.
    `ours`: signals that are not passed on to the program, and what is done instead.
    Raises CairnError when the launcher cannot work.
    """
    with private_folder() as scratch:
        used = carried(contender, scratch)
        witness = scratch / "witness.jsonl"
        witness.touch(mode=0o600)
        environment = preload_environment(
            used, carried_witness(scratch), witness, os.environ
        ) | dict(probe or {})
        reading, writing = os.pipe()
        # In a pipeline the terminal is not ours alone to hand over: `cairn run -- prog | less`.
        alone = os.isatty(0) and os.isatty(1)
        options = [
            *(["--terminal"] if alone else []),
            "--memory",
            "none",
            *(["--counters"] if contender.probed else []),
            "--report-fd",
            str(writing),
            *setenv(environment),
        ]
        os.set_inheritable(writing, True)
        process = (
            subprocess.Popen(  # what the caller opened is the program's: cairn run -- cat <(ls)
                [native.launcher(), *options, "--", *command],
                close_fds=False,
                process_group=None if alone else 0,
            )
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe, _signals_to(process, ours or {}):
            line = pipe.read()
            process.wait()
        if process.returncode != 0 or not line:
            raise CairnError("the launcher failed; its message stands above")
        launched = msgspec.json.decode(line, type=Launched)
        proof = judge(witness.read_bytes(), used, launched.pid, seen_by(contender))
    if launched.exec_errno is not None:
        kind = ProgramMissing if launched.exec_errno == errno.ENOENT else ProgramNotExecutable
        raise kind(f"cannot execute {command[0]}: {launched.exec_error}")
    code = launched.exit_code if launched.exit_code is not None else 128 + (launched.signal or 0)
    return Ended(
        exit_code=code, problem=proof.problem, left_behind=launched.left_behind, launched=launched
    )


@contextlib.contextmanager
def _signals_to(
    process: subprocess.Popen[bytes], ours: Mapping[signal.Signals, Callable[[], None]]
) -> Iterator[None]:
    """What is sent to us is meant for the program, and the launcher passes it on; but for what is ours."""

    def pass_on(number: int, _: object) -> None:
        if number in ours:
            ours[signal.Signals(number)]()
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in {*_PASSED_ON, *ours}}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
