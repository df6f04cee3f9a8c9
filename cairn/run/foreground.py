"""Runs a program for its user rather than for a measurement.

Terminal, stdin and signals belong to the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from cairn import native
from cairn.compare.endings import Trials, crashes_of
from cairn.errors import CairnError, ProgramMissing, ProgramNotExecutable
from cairn.model import Contender, Unreached
from cairn.run.endings import endings
from cairn.run.proof import judge, unreached_processes
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


class Ended(Struct, frozen=True):
    """The end of a program that was run in the foreground."""

    exit_code: int
    """The exit code as a shell reports it: 128 plus the signal for a killed program."""
    problem: str | None
    """Why the proof of load failed; None if the proof is complete."""
    left_behind: int
    """The number of processes still running when the command ended; the launcher ended them."""
    crashes: str | None = None
    """Which processes were killed by a crash signal, as a clause; None if none was."""
    launched: Launched | None = None
    """The launcher's report; None if the program was run without the launcher."""
    unreached: tuple[tuple[int, Unreached], ...] = ()
    """(process id, program) for each program that the probe could not reach; () if the program ran
    without the probe."""


def run(
    contender: Contender,
    command: Sequence[str],
    *,
    probe: Mapping[str, str] | None = None,
    ours: Mapping[signal.Signals, Callable[[], None]] | None = None,
    cpu_samples: Path | None = None,
    witness: Path | None = None,
    quiet: bool = False,
    between: Path | None = None,
    output: int | None = None,
) -> Ended:
    """Runs `command` under `contender` until it ends.

    probe: environment variables, such as those of the probe; needed if the contender runs with it.
    ours: signals that are not passed on to the program, with the function to call instead.
    cpu_samples: the file for the clock samples of the kernel; None for none.
    witness: the file for the witness's records, so that others can read them while the program
        runs; None for a private one.
    quiet: gives the program no terminal, and drops its output.
    between: a library of cairn that is preloaded before the allocator, and calls it.
    output: a descriptor for what the program would write to the terminal, while cairn draws there.
        The program then reads nothing from the terminal.

    Raises ProgramMissing or ProgramNotExecutable if the command cannot be executed, and CairnError
    if the launcher fails.
    """
    with private_folder() as scratch:
        used = carried(contender, scratch, between)
        witness = witness or scratch / "witness.jsonl"
        witness.touch(mode=0o600)
        environment = preload_environment(
            used, carried_witness(scratch), witness, os.environ
        ) | dict(probe or {})
        reading, writing = os.pipe()
        # The launcher may give the terminal to the program only if no other program uses it. In a
        # pipeline such as `cairn run -- prog | less`, another one does.
        alone = os.isatty(0) and os.isatty(1) and not quiet and output is None
        taken = [output is not None and os.isatty(stream) for stream in range(3)]
        options = [
            *(["--terminal"] if alone else []),
            "--memory",
            "none",
            "--endings",
            str(witness),
            *(["--counters"] if contender.probed else []),
            *(
                ["--cpu-samples", str(cpu_samples), "--adaptive-period"]
                if cpu_samples is not None
                else []
            ),
            *(["--stdout", "/dev/null", "--stderr", "/dev/null"] if quiet else []),
            *(["--stdin", "/dev/null"] if quiet and os.isatty(0) else []),
            "--report-fd",
            str(writing),
            *setenv(environment),
        ]
        os.set_inheritable(writing, True)
        with os.fdopen(reading, "rb") as pipe, _signals_passed_on(ours or {}) as pass_to:
            # The program inherits all descriptors of cairn, for commands such as
            # cairn run -- cat <(ls), where the shell passes an open descriptor.
            process = subprocess.Popen(
                [native.launcher(), *options, "--", *command],
                close_fds=False,
                process_group=None if alone else 0,
                stdin=subprocess.DEVNULL if taken[0] else None,
                stdout=output if taken[1] else None,
                stderr=output if taken[2] else None,
            )
            pass_to(process)
            os.close(writing)
            line = pipe.read()
            process.wait()
        if not line and -process.returncode in _PASSED_ON:
            # A signal that was passed on killed the launcher before it had started the program.
            return Ended(exit_code=128 - process.returncode, problem=None, left_behind=0)
        if process.returncode != 0 or not line:
            raise CairnError("the launcher failed; see its message above")
        launched = msgspec.json.decode(line, type=Launched)
        records = witness.read_bytes()
        # If the probe does not reach a program, the profile names it and is still useful. Without
        # the probe, the proof of load fails if the allocator is not loaded in every program.
        probed = contender.probed
        proof = judge(records, used, launched.pid, seen_by(contender, between), complete=not probed)
        unreached = unreached_processes(records) if probed else ()
        trials = Trials()
        trials.add(endings(records), counted=True)
    if launched.exec_errno is not None:
        kind = ProgramMissing if launched.exec_errno == errno.ENOENT else ProgramNotExecutable
        raise kind(f"cannot execute {command[0]}: {launched.exec_error}")
    code = launched.exit_code if launched.exit_code is not None else 128 + (launched.signal or 0)
    return Ended(
        exit_code=code,
        problem=proof.problem,
        left_behind=launched.left_behind,
        crashes=crashes_of(trials),
        launched=launched,
        unreached=unreached,
    )


@contextlib.contextmanager
def _signals_passed_on(
    ours: Mapping[signal.Signals, Callable[[], None]],
) -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Passes signals on to the launcher, which passes them on to the program.

    Yields a function to call with the launcher's process. Signals that come before this call are
    passed on during the call. A signal in `ours` is not passed on, but its function is called.

    A signal that the caller ignores stays ignored, also by the launcher and the program: a program
    under nohup survives SIGHUP.
    """
    launchers: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if number in ours:
            ours[signal.Signals(number)]()
        elif launchers:
            launchers[0].send_signal(number)
        else:
            early.append(number)

    def begin(process: subprocess.Popen[bytes]) -> None:
        launchers.append(process)
        for number in early:
            process.send_signal(number)

    passed = {one for one in _PASSED_ON if signal.getsignal(one) is not signal.SIG_IGN}
    before = {number: signal.signal(number, pass_on) for number in {*passed, *ours}}
    try:
        yield begin
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
