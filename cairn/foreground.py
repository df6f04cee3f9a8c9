"""Runs a program for its user, not for a measurement: terminal, stdin and signals are the program's own."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from cairn import native
from cairn.errors import CairnError, ProgramMissing, ProgramNotExecutable
from cairn.model import Contender
from cairn.proof import judge
from cairn.runner import Launched, carried, carried_witness, preload_environment, private_folder, real_path, setenv

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended, as a shell would say it, and why the allocator was not proved (None if it was)."""

    exit_code: int
    problem: str | None
    left_behind: int
    """Processes that were still alive when the command ended, and were ended with it."""


def run(contender: Contender, command: Sequence[str], *, probe: Mapping[str, str] | None = None) -> Ended:
    """Runs `command` under `contender` until it ends.

    `probe`: variables for the probe, which then stands between the witness and the allocator in every process.
    Raises CairnError when the launcher cannot work.
    """
    with private_folder() as scratch:
        ours, resolve = (carried(contender, scratch), real_path) if probe is None else _probed(contender, scratch)
        witness = scratch / "witness.jsonl"
        witness.touch(mode=0o600)
        environment = preload_environment(ours, carried_witness(scratch), witness, os.environ) | dict(probe or {})
        reading, writing = os.pipe()
        # In a pipeline the terminal is not ours alone to hand over: `cairn run -- prog | less`.
        alone = os.isatty(0) and os.isatty(1)
        options = [
            *(["--terminal"] if alone else []),
            "--memory",
            "none",
            "--report-fd",
            str(writing),
            *setenv(environment),
        ]
        process = subprocess.Popen(
            [native.launcher(), *options, "--", *command], pass_fds=[writing], process_group=None if alone else 0
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe, _signals_to(process):
            line = pipe.read()
            process.wait()
        if process.returncode != 0 or not line:
            raise CairnError("the launcher failed; its message stands above")
        launched = msgspec.json.decode(line, type=Launched)
        proof = judge(witness.read_bytes(), ours, launched.pid, resolve)
    if launched.exec_errno is not None:
        kind = ProgramMissing if launched.exec_errno == errno.ENOENT else ProgramNotExecutable
        raise kind(f"cannot execute {command[0]}: {launched.exec_error}")
    code = launched.exit_code if launched.exit_code is not None else 128 + (launched.signal or 0)
    return Ended(exit_code=code, problem=proof.problem, left_behind=launched.left_behind)


def _probed(contender: Contender, scratch: Path) -> tuple[Contender, Callable[[str], str]]:
    """The contender behind the probe, and how paths resolve for its proof: who sees the probe sees what is behind it.

    That the probe found the contender there is its own to tell (`proof.not_behind`).
    """
    library = str(native.probe())
    behind = contender.owners[0] if contender.owners else "libc.so.6"

    def resolve(path: str) -> str:
        real = real_path(path)
        return behind if real == real_path(library) else real

    probed = replace(contender, preload=(library, *contender.preload), build_id=None)
    return carried(probed, scratch), resolve


@contextlib.contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """What is sent to us is meant for the program; the launcher passes it on."""

    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
