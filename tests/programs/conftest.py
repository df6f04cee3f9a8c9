"""Fixtures for third-party programs, which run without and with libcairn.

libcairn must not change anything visible. With CAIRN_UNDER_PROBE=NAME, the tests check the probe in
the same way: each program runs under the allocator NAME (a name for `cairn -a`) without and with
the probe. The allocator is fetched into the tests' cache. A test is skipped if its program does not
run under the allocator alone.

Each test defines a session: a function that runs programs and returns their output. The test runs
the session twice, without and with libcairn, and compares the results. The class Stage holds the
folder and the environment of one of these two runs. In the run with libcairn, the witness is
preloaded, too: it makes every process report which library owns malloc. A process without such a
report is a failure, because a failed preload is silent and the test would then test glibc.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import peers
from support.allocator_under_test import under_test
from support.launching import wait_until

from cairn import native
from cairn.allocators import contenders
from cairn.errors import CairnError
from cairn.model import Contender
from cairn.profile import reader
from cairn.run import proof

HERE = Path(__file__).parent
INPUTS = HERE / "inputs"
NOBODY = 65534
MIB = 1 << 20
UNDER_PROBE = os.environ.get("CAIRN_UNDER_PROBE")
PATIENCE_ALONE_S = 60
"""The time limit in seconds for a program in the run without the probe, if CAIRN_UNDER_PROBE names
an allocator. Under some allocators, a program with several threads hangs after fork()."""


# --- the programs ---


def packages(when: str = "") -> dict[str, str]:
    """Returns the Debian package of each program in packages.txt.

    With "test" or "long", returns only the programs that are marked with this word.
    """
    lines = (HERE / "packages.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {program: package for program, package, wanted in rows if when in ("", wanted)}


def path_of(program: str) -> str:
    """Returns the path of the program, and prefers the folders in which Debian installs programs.

    Other folders of PATH may contain a script that only starts one of several versions.
    """
    servers = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    path = os.pathsep.join([*servers, "/usr/bin", "/bin", "/usr/sbin", os.environ["PATH"]])
    found = shutil.which(program, path=path)
    if found is None:
        pytest.skip(
            f"{program} is not here; on Debian: apt-get install {packages().get(program, program)}"
        )
    return found


def image_of(program: str) -> str:
    """Returns the name of the program's file after following links, as the witness reports it."""
    return Path(path_of(program)).resolve().name


# --- the stage ---


@dataclass(frozen=True)
class Injected:
    """Copies of the preloaded libraries, readable by every user."""

    witness: Path
    library: Path | None
    """The allocator's library. None if the probe is tested with libc's own allocator."""
    probe: Path | None = None
    also: tuple[tuple[str, str], ...] = ()
    """Environment variables that the library needs."""

    @property
    def first(self) -> Path:
        """The library that the program calls."""
        found = self.probe or self.library
        assert found is not None
        return found

    def environment(self, report: Path) -> dict[str, str]:
        libraries = [str(path) for path in (self.witness, self.probe, self.library) if path]
        environment = {
            "LD_PRELOAD": ":".join(libraries),
            "CAIRN_WITNESS": str(report),
            **dict(self.also),
        }
        if self.probe is not None:
            folder = report.with_suffix(".profiles")
            folder.mkdir()
            folder.chmod(0o777)
            environment["CAIRN_PROBE"] = str(folder)
        return environment

    def proven(self, report: Path, pid: int, own_malloc: Sequence[str]) -> Counter[str]:
        """Returns how often each program proved that our library owns its malloc.

        Fails for a process without that proof. The malloc of a program in `own_malloc` may belong
        to the program itself instead.
        """
        written = report.read_bytes()
        owners = (os.path.realpath(self.first), *own_malloc)
        contender = Contender(
            "ours", "custom", self.first.name, preload=(str(self.first),), owners=owners
        )
        judged = proof.judge(written, contender, pid, os.path.realpath)
        assert judged.problem is None, judged.problem
        assert not judged.unreached, f"{self.first.name} is not in {judged.unreached}"
        started = [
            record for record in map(json.loads, written.splitlines()) if record["event"] == "start"
        ]
        assert judged.loaded == len(started) > 0
        if self.probe is not None:
            self._counted(report.with_suffix(".profiles"))
        return Counter(Path(record["exe"]).name for record in started)

    def _counted(self, folder: Path) -> None:
        """Checks that every file of the probe is readable and names the allocator."""
        behind = os.path.realpath(self.library) if self.library else None
        found = reader.gather(folder)
        for process in found.processes:
            owner = os.path.realpath(process.allocator)
            assert owner == behind if behind else owner not in (str(self.probe), "/"), process
        assert found.operations > 0


@dataclass
class Started:
    """A running program."""

    stage: Stage
    process: subprocess.Popen[bytes]
    name: str

    def _said(self, where: str) -> str:
        return (self.stage.folder.parent / f"{self.name}.{where}").read_text()

    def holds_the_library(self, pid: int | None = None) -> bool:
        """Returns whether the program or a child has mapped the library that it should use.

        Returns true if nothing is injected.
        """
        if self.stage.injected is None:
            return True
        with suppress(FileNotFoundError, ProcessLookupError):
            return (
                str(self.stage.injected.first)
                in Path(f"/proc/{pid or self.process.pid}/maps").read_text()
            )
        return False

    def end(self, timeout: float = 300, talks: str | None = None) -> str:
        """Waits until the program ends, and returns its output.

        The program must succeed and print nothing on stderr, except for lines that match the
        pattern `talks`.
        """
        pid = self.process.pid
        status = 0
        deadline = time.monotonic() + (
            min(timeout, PATIENCE_ALONE_S) if self.stage.alone else timeout
        )
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done != 0:
                break
            if time.monotonic() > deadline:
                self.kill()
                pytest.fail(
                    f"{self.name} did not end within {timeout} "
                    f"s\n{self._said('out')}{self._said('err')}"
                )
            time.sleep(0.003)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        out, err = self._said("out"), self._said("err")
        assert self.process.returncode == 0, (
            f"{self.name} ended with {self.process.returncode}\n{out}{err}"
        )
        complaints = [
            line for line in err.splitlines() if talks is None or not re.search(talks, line)
        ]
        assert not complaints, f"{self.name} complains\n{err}"
        self.stage.peak_bytes = max(self.stage.peak_bytes, usage.ru_maxrss << 10)
        if self.stage.injected is not None:
            report = self.stage.folder.parent / f"{self.name}.witness"
            self.stage.reached += self.stage.injected.proven(report, pid, self.stage.own_malloc)
        return out

    def kill(self) -> None:
        """Kills the program and its children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Stage:
    """A folder and an environment in which programs run, with or without libcairn."""

    folder: Path
    injected: Injected | None
    alone: Mapping[str, str] = field(default_factory=dict)
    """The variables that load the allocator in the run without the probe (CAIRN_UNDER_PROBE)."""
    user: int | None = None
    own_malloc: Sequence[str] = ()
    """Paths of programs with their own malloc, which a preloaded library cannot replace."""
    reached: Counter[str] = field(default_factory=Counter)
    """Programs that were proved to use libcairn, and how often."""
    peak_bytes: int = 0
    """The largest resident set of one process."""
    count: int = 0

    def start(self, *command: str | Path, stdin: str | bytes = b"", **environment: str) -> Started:
        self.count += 1
        name = (
            f"{'plain' if self.injected is None else 'cairn'}-{self.count}-{Path(command[0]).name}"
        )
        beside = self.folder.parent
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
        }
        env |= self.alone
        if self.injected is not None:
            report = beside / f"{name}.witness"
            report.touch()
            report.chmod(0o666)
            env |= self.injected.environment(report)
        given = beside / f"{name}.in"
        given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        with (
            given.open("rb") as source,
            (beside / f"{name}.out").open("wb") as out,
            (beside / f"{name}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [*map(str, command)],
                cwd=self.folder,
                env=env | environment,
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )
        return Started(self, process, name)

    def run(
        self,
        *command: str | Path,
        stdin: str | bytes = b"",
        timeout: float = 300,
        talks: str | None = None,
        **environment: str,
    ) -> str:
        """Runs a program to its end and returns its output, with the checks of Started.end()."""
        return self.start(*command, stdin=stdin, **environment).end(timeout, talks)

    @contextmanager
    def serving(
        self, *command: str | Path, ready: Callable[[], bool], **environment: str
    ) -> Iterator[Started]:
        """Starts a server and waits until it is ready. The `with` statement must end the server."""
        server = self.start(*command, **environment)
        try:
            assert wait_until(lambda: ready() or server.process.poll() is not None, 30), (
                f"{server.name} is not ready"
            )
            assert server.process.returncode is None, (
                f"{server.name} ended\n{server._said('out')}{server._said('err')}"
            )
            assert server.holds_the_library()
            yield server
            server.end()
        finally:
            if server.process.returncode is None:
                server.kill()


def connected(path: Path) -> socket.socket:
    """Returns a connection to a server's socket."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(str(path))
    return stream


def listens(path: Path) -> bool:
    """Returns whether a server accepts connections. The socket may exist before that."""
    try:
        connected(path).close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


Session = Callable[[Stage], str]


@pytest.fixture(scope="session")
def injected() -> Iterator[Injected]:
    """The library and the witness: the installed ones, or $CAIRN_MALLOC and $CAIRN_WITNESS_LIB."""
    with tempfile.TemporaryDirectory(prefix="cairn-lib-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        witness = Path(shutil.copy(os.environ.get("CAIRN_WITNESS_LIB") or native.witness(), folder))
        if UNDER_PROBE is not None:
            library, also = _allocator(UNDER_PROBE, folder)
            yield Injected(witness, library, Path(shutil.copy(native.probe(), folder)), also)
        else:
            yield Injected(witness, Path(shutil.copy(under_test(folder).shared, folder)))


def _allocator(name: str, folder: Path) -> tuple[Path | None, tuple[tuple[str, str], ...]]:
    """Returns the allocator's library and its environment variables.

    The library is a copy that every user can read, unless it needs others in its folder.
    """
    if name not in ("system", "cairn"):
        peers.peer(name, origin=None)
    try:
        found = contenders.resolve(contenders.parse_contender(name), peers.in_cache(name))
    except CairnError as error:
        pytest.skip(str(error))
    if not found.preload:
        return None, found.knobs
    (library,) = map(Path, found.preload)
    if found.library_path:
        return library, (*found.knobs, ("LD_LIBRARY_PATH", ":".join(found.library_path)))
    return Path(shutil.copy(os.path.realpath(library), folder / library.name)), found.knobs


@pytest.fixture
def both(injected: Injected) -> Callable[..., str]:
    """Returns both(session, *reached, user=…, own_malloc=…), which runs a session on both stages.

    For each program that `reached` names, at least one process must prove its malloc.
    """

    def hold(
        session: Session, *reached: str, user: int | None = None, own_malloc: Sequence[str] = ()
    ) -> str:
        # The path is short, because the length of a socket's path is limited.
        with tempfile.TemporaryDirectory(prefix="cairn-", dir="/tmp") as name:
            top = Path(name)
            top.chmod(0o755)
            own = user if os.getuid() == 0 else None
            plain, ours = (
                Stage(top / "home", what, {}, own, own_malloc) for what in (None, injected)
            )
            if UNDER_PROBE is None:
                expected = play(session, plain)
            else:
                plain.alone = dict(injected.also) | (
                    {"LD_PRELOAD": str(injected.library)} if injected.library else {}
                )
                expected = play_or_skip(session, plain)
            (top / "home").rename(top / "plain")
            assert play(session, ours) == expected
        missing = set(reached) - set(ours.reached)
        assert not missing, f"{missing} did not run, but {dict(ours.reached)}"
        most = 2 * plain.peak_bytes + 64 * MIB
        assert ours.peak_bytes <= most, (
            f"{ours.peak_bytes >> 20} MiB resident, {plain.peak_bytes >> 20} without libcairn"
        )
        return expected

    return hold


def play_or_skip(session: Session, stage: Stage) -> str:
    """Runs a session under the allocator without the probe. Skips the test if the session fails."""
    try:
        return play(session, stage)
    except (AssertionError, pytest.fail.Exception, OSError) as failure:
        pytest.skip(f"does not run under {UNDER_PROBE}: {str(failure).splitlines()[0]}")


def play(session: Session, stage: Stage) -> str:
    """Runs a session and returns its answer.

    The folder of the stage has the same path in both runs, because some programs print the path.
    """
    stage.folder.mkdir()
    if stage.user is not None:
        os.chown(stage.folder, stage.user, stage.user)
    return session(stage)
