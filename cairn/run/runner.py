"""Carries out one trial: starts the launcher, reads its report and the proof, returns a Sample."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cairn import native, units
from cairn.allocators.contenders import carryable, is_another_build, with_links
from cairn.clock_samples import CpuSamples
from cairn.compare import instructions, load_output, suitability
from cairn.compare.plan import settings_of
from cairn.errors import CairnError, ContenderFailed, UsageError
from cairn.memory import Memory, MemoryDivision
from cairn.model import (
    Contender,
    ProbeSummary,
    Proof,
    Sample,
    Settings,
    Trial,
)
from cairn.run import batches, builds, hooks, memory_series, outputs, soak
from cairn.run.endings import endings
from cairn.run.hooks import ending
from cairn.run.idle_server import IdleServer
from cairn.run.outputs import last_line
from cairn.run.proof import another_build, judge, lost_preload, not_behind, without_proof
from cairn.run.server import Session
from cairn.run.valgrind import ALONE, Under

if TYPE_CHECKING:
    from cairn.profile.spare import Spare
    from cairn.profile.tally import Tree

_POLL_S = 0.05
"""The interval at which the witness's file of a watched trial is read."""
_GRACE_S = 1.0
"""The time to wait for the launcher after the first request to end; see _end()."""
_LAST_GRACE_S = 12.0
"""The time to wait for the launcher after the second request to end."""

_FAILED_REQUESTS_MOST = 0.01
"""The largest share of a load's requests that may fail: a server that answers with errors is fast.

A busy machine loses a few connections, which is less than this share.
"""

_VALGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
"""The command that counts instructions.

Callgrind does not replace malloc, so the preloaded allocator runs and the witness proves it as
usual.
"""
_VALGRIND_BYTES = 256 * 1024
"""The number of bytes at the end of stderr that are read under valgrind.

Valgrind's report of a crash follows the program's output. One line of the report may hold a
kilobyte of C++ names.
"""


class LaunchMemory(msgspec.Struct):
    """The launcher's report on the memory of the process tree."""

    method: str
    peak_bytes: int | None
    peak_less_lazy_bytes: int | None
    lazy_peak_bytes: int | None
    reason: str | None = None
    division: MemoryDivision | None = None


class Launched(msgspec.Struct):
    """The launcher's report, one line of JSON."""

    schema: int
    pid: int
    exit_code: int | None
    signal: int | None
    core_dumped: bool
    timed_out: bool
    interrupted_by: int | None
    exec_errno: int | None
    exec_error: str | None
    wall_ns: int | None
    user_ns: int
    system_ns: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    left_behind: int
    largest_process_bytes: int
    memory: LaunchMemory
    counters: dict[str, float | bool | None] | None
    ran_ns: int | None = None
    """The CPU time of the first threads of the processes that the launcher reaped."""
    queued_ns: int | None = None
    """The time in which the threads that `ran_ns` covers were ready to run and had no CPU."""


class Trace(Struct, frozen=True):
    """The raw output of a trial, for the results directory."""

    witness: bytes
    """The witness's file."""
    stderr_tail: str
    """The end of the program's stderr."""


def preload_environment(
    contender: Contender, witness: Path, report: Path, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The variables that load the witness and the contender into a program and its descendants.

    report: the file for the witness's records.
    inherited: the environment of cairn. Libraries in its LD_PRELOAD stay, after the allocator.
    """
    theirs = [entry for entry in re.split(r"[ :]", inherited.get("LD_PRELOAD", "")) if entry]
    environment = {
        "LD_PRELOAD": ":".join([str(witness), *contender.preload, *theirs]),
        "CAIRN_WITNESS": str(report),
        **dict(contender.knobs),
    }
    if contender.library_path:
        folders = [*contender.library_path, *filter(None, [inherited.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = ":".join(folders)
    if contender.knobs:
        environment["CAIRN_WITNESS_KNOBS"] = ":".join(name for name, _ in contender.knobs)
    return environment


def setenv(environment: Mapping[str, str]) -> list[str]:
    """The launcher's options that set these variables for its command and not for the launcher."""
    return [word for name, value in environment.items() for word in ("--setenv", f"{name}={value}")]


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder whose path LD_PRELOAD can carry: it has no space and no colon.

    If a process that is being killed still writes into the folder, files may stay behind. That is
    no error.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-", ignore_cleanup_errors=True) as name:
        if not re.search(r"[\s:]", name):
            yield Path(name)
            return
    with tempfile.TemporaryDirectory(
        prefix="cairn-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


def real_path(path: str) -> str:
    """Resolves the symbolic links of a path that the dynamic loader printed."""
    return os.path.realpath(path)


class Runner:
    """Carries out the trials of one run, one at a time. It is not thread-safe."""

    def __init__(
        self,
        settings: Settings,
        contenders: Sequence[Contender],
        scratch: Path,
        under: Under = ALONE,
    ) -> None:
        self._settings = settings
        self._under = under
        self._of = [settings_of(settings, index) for index in range(len(settings.workloads))]
        """By workload: the settings of its trials."""
        self._contenders = {one.name: carried(one, scratch, under.between) for one in contenders}
        for contender in contenders:
            for path in contender.preload:
                if not os.path.exists(path):
                    raise ContenderFailed(
                        f"{path} of {contender.name} is gone; put it back, or begin a new run"
                    )
            if is_another_build(contender):
                raise ContenderFailed(another_build(contender))
        self._scratch = scratch
        self._launcher = native.launcher()
        self._witness = carried_witness(scratch)
        self._notes = scratch / "cpu_samples"
        self._profiles = scratch / "profiles"
        self._profiles.mkdir(exist_ok=True)

    @functools.cached_property
    def _compared(self) -> frozenset[str]:
        """The names of the programs of -p if they differ.

        They are found after the first trial, because --setup or --prepare may make the programs.
        """
        programs = [one.program for one in self._contenders.values() if one.program]
        return builds.names_of_programs(programs, self._settings.folder)

    def trial(self, trial: Trial, *, watch: bool = False) -> tuple[Sample, Trace]:
        """Runs one trial and returns its sample. A failure of the program is part of the sample.

        watch: ends the trial as soon as a process drops the preload. Cairn then wakes up during the
        trial to read the witness's file, which disturbs the measurement. So callers set `watch`
        only for trials that do not count.

        Raises UsageError when --prepare or --conclude fails, and CairnError when the launcher
        fails.
        """
        if not self._contenders[trial.contender].probed:
            return self._trial(trial, watch, None)
        # Imported here: it loads numpy, which takes longer than most programs take to run.
        from cairn.run.spare_memory import spare_memory

        with spare_memory() as spare:
            return self._trial(trial, watch, spare)

    def _trial(self, trial: Trial, watch: bool, spare: Spare | None) -> tuple[Sample, Trace]:
        """The same as trial(). `spare` is the spare memory of a trial with the probe.

        The line `conclude` also runs if the trial ends early. Otherwise a server that `prepare`
        started would go on after an interrupted run. In a plan, `prepare` and `conclude` each have
        the time limit of a run, because there may be no user to see that one of them hangs.
        """
        settings = self._of[trial.workload]
        session = self._session(trial.workload)
        written = {path: outputs.state(path) for path in self._written(trial.workload)}

        def hook(name: str, line: str | None) -> None:
            if line is not None:
                filled = session.filled(line) if session else line
                self.hook(name, filled, settings.timeout_s if settings.by_cell else None)

        try:
            hook("prepare", settings.prepare)
            found = self._prepared(trial, watch, spare, session, written)
        except BaseException:
            with contextlib.suppress(UsageError):
                hook("conclude", settings.conclude)
            raise
        hook("conclude", settings.conclude)
        return found

    def _written(self, workload: int) -> list[Path]:
        """The files of the program whose content is compared, beside its output."""
        own = self._settings.workloads[workload].own
        return [Path(self._settings.folder, path) for path in own.written]

    def _prepared(
        self,
        trial: Trial,
        watch: bool,
        spare: Spare | None,
        session: Session | None,
        written: Mapping[Path, outputs.State],
    ) -> tuple[Sample, Trace]:
        """The trial between its preparation and its conclusion.

        written: the files that the program has to write, with their states before the preparation.
        """
        settings, own = self._of[trial.workload], self._settings.workloads[trial.workload].own
        contender = self._contenders[trial.contender]
        command = [*self._under.command, *command_line(settings, trial.workload, contender.program)]
        if session is not None:
            command = session.filled_all(command)
        stdin = settings.stdin
        if own.stdin is not None:
            stdin = str(Path(settings.folder, own.stdin))
            if not os.access(stdin, os.R_OK):
                raise UsageError(f"its standard input {stdin} cannot be read")
        report = self._scratch / "witness.jsonl"
        report.write_bytes(b"")
        series = self._scratch / "memory"
        stdout = Path(settings.stdout) if settings.stdout else self._scratch / "stdout"
        stderr = self._scratch / "stderr"
        keep_output = bool(
            settings.stdout
            or settings.patterns
            or settings.verify_output
            or settings.reports
            or (session and settings.soak_s is None)
        )
        looked_at = settings.why and not contender.probed and not settings.instructions
        variables = session.filled_values(own.environment) if session else dict(own.environment)
        environment = variables | preload_environment(contender, self._witness, report, os.environ)
        if contender.probed:
            environment |= {"CAIRN_PROBE": str(self._profiles)}
            if settings.profiled_rounds is not None:
                environment |= {"CAIRN_PROBE_LAYOUT": "sampled", "CAIRN_PROBE_GAP": "64"}
            elif settings.why:
                environment |= {"CAIRN_PROBE_LAYOUT": "thorough"}
        if settings.soak_s is not None:
            environment |= soak.PROBE
        environment |= self._under.environment
        if spare is not None:
            environment |= spare.variable()
        options = [
            *("--memory", settings.memory),
            *("--memory-series", str(series)),
            *("--stdin", stdin),
            *("--stdout", str(stdout) if keep_output else "/dev/null"),
            *("--stderr", str(stderr)),
            *("--chdir", settings.folder),
            *("--endings", str(report)),
            "--no-core",
            *(
                ["--timeout", f"{settings.timeout_s:.3f}"]
                if settings.timeout_s is not None and session is None
                else []
            ),
            *(["--cpus", settings.cpus] if settings.cpus is not None else []),
            *(["--wait-descendants"] if settings.wait_descendants else []),
            *(["--counters"] if settings.counters else []),
            *(["--cpu-samples", str(self._notes), "--divide-memory"] if looked_at else []),
            *setenv(environment),
        ]
        started_at = time.time()
        inherited = [spare.descriptor] if spare is not None else []
        launched, lost = self._launch(
            options, command, report if watch else None, session, inherited
        )

        witness = report.read_bytes()
        errors = outputs.tail(stderr)
        counted = None
        if settings.instructions:
            counted, errors = outputs.counted(outputs.tail(stderr, _VALGRIND_BYTES))
        seen = seen_by(contender, self._under.between)
        proof = judge(witness, contender, launched.pid, seen)
        summary = None
        unrecorded: dict[str, dict[str, int]] = {}
        course = None
        if isinstance(session, soak.SoakSession):
            course = soak.series(self._profiles, session.asked)
        if contender.probed:
            proof, summary, unrecorded = self._behind_probe(
                contender, proof, trial, launched, spare
            )
        where, unseen = self._cpu_samples(contender) if looked_at else (None, None)
        output = stdout if keep_output else None
        metrics: dict[str, float] = {}
        digest, reported = None, None
        failure = self._failure(launched, trial, lost or proof.problem, errors)
        if session is not None and launched.exec_errno is None:
            failure = session.failure(
                launched.exit_code,
                launched.signal,
                launched.left_behind,
                settings.ok_exit,
                last_line(errors) or last_line(outputs.tail(stdout)),
            )
            if failure is None and proof.problem is not None:
                failure = without_proof(proof.problem)
        loaded = session.loaded if session is not None else None
        load = load_output.read(loaded.output) if loaded is not None else {}
        if failure is None and output is not None:
            metrics, failure = outputs.searched(
                self._settings.patterns, (output, stderr), loaded.output if loaded else None
            )
        if failure is None and (settings.verify_output or written):
            printed = [stdout] if settings.verify_output else []
            digest, failure = outputs.digest_of(printed, written)
        if failure is None and settings.reports:
            reported, digest, failure = outputs.reported(stdout)
        if failure is None and load_output.failed_share(load) > _FAILED_REQUESTS_MOST:
            failure = (
                f"failed in {units.percent(load_output.failed_share(load), signed=False)} of the "
                "requests of the load"
            )
        counters = {
            name: float(number) if number is not None else None
            for name, number in (launched.counters or {}).items()
            if not isinstance(number, bool)
        }
        if failure is None and settings.instructions:
            counters[instructions.COUNTER] = counted
            failure = (
                None
                if counted is not None
                else "ended without valgrind's count of its instructions"
            )
        used = loaded.usage if loaded is not None else launched
        return Sample(
            trial=trial,
            started_at=started_at,
            exit_code=launched.exit_code,
            signal=launched.signal,
            timed_out=launched.timed_out or (session is not None and session.timed_out),
            wall_ns=(loaded.wall_ns if loaded is not None else launched.wall_ns) or 0,
            user_ns=used.user_ns,
            system_ns=used.system_ns,
            minor_faults=used.minor_faults,
            major_faults=used.major_faults,
            voluntary_switches=launched.voluntary_switches,
            involuntary_switches=launched.involuntary_switches,
            memory=replace(
                memory_series.added(
                    memory_of(launched, proof, workload=settings.reports), series, session
                ),
                series=course,
            ),
            proof=proof,
            largest_process_bytes=launched.largest_process_bytes,
            left_behind=launched.left_behind,
            queued_ns=loaded.usage.queued_ns if loaded is not None else queued_ns(launched),
            endings=endings(witness, self._compared),
            counters=counters,
            counted=tuple(name for name, flag in (launched.counters or {}).items() if flag is True),
            metrics=metrics,
            load=load,
            reported=reported,
            probe=summary,
            unrecorded=unrecorded,
            cpu_samples=where,
            unseen=unseen,
            output_digest=digest,
            failure=failure,
        ), Trace(witness=witness, stderr_tail=errors)

    def batch(self, trial: Trial, number: int) -> tuple[Sample, Trace]:
        """Runs one trial `number` times in a row, or until a run fails.

        Returns the means as one sample, and the trace of the last run.
        """
        samples = []
        for _ in range(number):
            sample, trace = self.trial(trial)
            samples.append(sample)
            if sample.failure is not None:
                break
        return batches.merged(samples), trace

    def _session(self, workload: int) -> Session | None:
        """The session of a server or of 'cairn soak', for one trial; None if there is none."""
        return soak.session_of(self._of[workload], workload, self._scratch, self._profiles)

    def _behind_probe(
        self,
        contender: Contender,
        proof: Proof,
        trial: Trial,
        launched: Launched,
        spare: Spare | None,
    ) -> tuple[Proof, ProbeSummary | None, dict[str, dict[str, int]]]:
        """Reads and deletes the probe's files.

        Returns the completed proof, a summary, and the processes that the probe could not record,
        as in `Sample.unrecorded`. `spare` has the processes that could make no file.

        The witness only reports that the probe owns malloc. The probe's files complete the proof:
        they name the allocator that the probe calls. The summary is None without --why, and if no
        file of the probe can be read.
        """
        # Imported here: numpy takes longer to load than most programs take to run.
        from cairn.profile.early_ends import lived_to_the_end
        from cairn.run.probe_files import NOTHING_COUNTED, gathered, unrecorded
        from cairn.why import profile_summary

        found, owners = gathered(self._profiles, spare)
        shutil.rmtree(self._profiles)
        self._profiles.mkdir()
        problems = (not_behind(contender, program, owner, real_path) for program, owner in owners)
        problem = proof.problem or next(filter(None, problems), None)
        if problem is None and not owners and not self._settings.why:
            problem = NOTHING_COUNTED
        if found is None or not self._settings.why:
            probed = None
        else:
            command = tuple(command_line(self._of[trial.workload], trial.workload))
            tree = tree_of(launched, command, contender, self._settings.cpus)
            whole = replace(found, tree=tree)
            probed = profile_summary.summarized(lived_to_the_end(whole))
        return replace(proof, problem=problem), probed, unrecorded(found, spare)

    def _cpu_samples(self, contender: Contender) -> tuple[CpuSamples | None, str | None]:
        """The clock samples of the run that has just ended, or the reason why there are none."""
        from cairn.profile import code_owners, cpu_samples

        found, why = cpu_samples.read(self._notes, code_owners.AllocatorCode.of(contender))
        self._notes.unlink(missing_ok=True)
        return found, why or None

    def hook(self, name: str, command: str, limit_s: float | None = None) -> None:
        """Runs --setup, --prepare, --conclude or --cleanup; see `hooks.run`."""
        option = name if self._settings.by_cell else f"--{name}"
        hooks.run(option, command, self._settings.folder, self._scratch / "hook", limit_s)

    def touch(self, size: int) -> None:
        """Touches `size` bytes of memory, so that a virtual machine's host backs them in advance.

        Raises CairnError if the launcher fails.
        """
        done = subprocess.run(
            [self._launcher, "--touch", str(size)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            why = last_line(done.stderr) or f"cairn-launch was {ending(done.returncode)}"
            raise CairnError(f"cannot warm {size >> 20} MiB of memory: {why}")

    def _launch(
        self,
        options: list[str],
        command: list[str],
        watched: Path | None,
        session: Session | None = None,
        inherited: Sequence[int] = (),
    ) -> tuple[Launched, str | None]:
        """Runs the launcher. Returns its report, and the reason if the trial was ended early.

        watched: the witness's file, read while the trial runs; None if it is not watched.
        session: puts the load on a server; a server under load is not watched.
        inherited: descriptors that the program inherits.

        Raises CairnError if the launcher fails or was interrupted by a signal, and UsageError if a
        watched trial is that of a server that waits for clients.
        """
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(
                [self._launcher, "--report-fd", str(writing), *options, "--", *command],
                pass_fds=[writing, *inherited], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            os.close(reading)
            lacks = f"{error.filename}: " if error.filename == os.devnull else ""
            raise CairnError(f"cannot start {self._launcher}: {lacks}{error.strerror}") from error
        finally:
            os.close(writing)
        with process, os.fdopen(reading, "rb") as pipe:
            try:
                lost, server = None, None
                if session is not None:
                    session.conduct(process, pipe.fileno())
                else:
                    lost, server = _watch(pipe.fileno(), watched, process.pid)
                if lost is not None or server is not None:
                    _end(process)
                line = pipe.read()
                complaint = process.stderr.read() if process.stderr else b""
                process.wait()
            except BaseException:
                _end(process)
                raise
        if server is not None:
            raise UsageError(suitability.idle_server(command[0], server))
        if process.returncode != 0 or not line:
            reason = last_line(complaint.decode("utf-8", "replace"))
            raise CairnError(reason.removeprefix("cairn-launch: ") or _lost(process.returncode))
        launched = msgspec.json.decode(line, type=Launched)
        ended_by_us = lost is not None or (session is not None and session.asked_to_end)
        if launched.interrupted_by is not None and not ended_by_us:
            raise CairnError(
                f"another process sent signal {launched.interrupted_by} to a run of the program, "
                "so that run does not count; --resume continues"
            )
        return launched, lost

    def _failure(
        self, launched: Launched, trial: Trial, problem: str | None, errors: str
    ) -> str | None:
        """Why this trial is not a result; None if it is a result.

        problem: the sentence that says why the proof is missing; None if there is a proof.

        Returns the rest of a sentence that begins with the program. If the program failed and also
        gave no proof, the failure of the program is returned.
        """
        unproven = None if problem is None else without_proof(problem)
        settings = self._of[trial.workload]
        why = f": {last_line(errors)}" if last_line(errors) else ""
        if launched.exec_errno is not None:
            command = settings.workloads[trial.workload].command
            program = self._contenders[trial.contender].program or command
            return f"cannot execute {program[0]}: {launched.exec_error}"
        if unproven is not None and (
            launched.interrupted_by or launched.exit_code in settings.ok_exit
        ):
            return unproven
        if launched.timed_out and launched.wall_ns is None:
            return f"was not started within {settings.timeout_s:g} s (--timeout)"
        if launched.wall_ns is None:
            return "ended before the program was started"
        if launched.timed_out:
            return f"did not end within {settings.timeout_s:g} s" + (
                "" if settings.reports or settings.by_cell else " (--timeout)"
            )
        if launched.signal is not None:
            return f"was {ending(-launched.signal)}{why}"
        if launched.exit_code not in settings.ok_exit:
            return f"failed with exit code {launched.exit_code}{why}"
        return unproven


def failed_before(trial: Trial, started_at: float, why: str) -> tuple[Sample, Trace]:
    """The failed sample of a trial that could not begin, because its preparation failed."""
    return Sample(
        trial=trial, started_at=started_at, exit_code=None, signal=None, timed_out=False,
        wall_ns=0, user_ns=0, system_ns=0, minor_faults=0, major_faults=0, voluntary_switches=0,
        involuntary_switches=0, memory=Memory("not measured", None, None, None),
        proof=Proof(processes=0, loaded=0, owner=None), failure=f"cannot be run: {why}",
    ), Trace(witness=b"", stderr_tail=why)  # fmt: skip


def memory_of(launched: Launched, proof: Proof, *, workload: bool) -> Memory:
    """The launcher's report on memory, corrected for built-in workloads.

    For the time between two readings, the launcher relies on the cgroup's peak counter, which may
    include page cache.
    A tree of one process cannot have held more memory than the largest resident set of that
    process, which the kernel counts exactly. Built-in workloads do not fork, so this resident set
    limits their numbers. Other programs may fork without executing a program, so their numbers stay
    as they are: four forked children of 100 MB are a tree of 421 MB whose largest process has 103
    MB.
    """
    measured = launched.memory
    alone = workload and proof.processes == 1 and not proof.unreached and launched.left_behind == 0
    most = launched.largest_process_bytes if alone and launched.largest_process_bytes > 0 else None

    def capped(number: int | None) -> int | None:
        return number if number is None or most is None else min(number, most)

    return Memory(
        method=measured.method,
        peak_bytes=capped(measured.peak_bytes),
        peak_less_lazy_bytes=capped(measured.peak_less_lazy_bytes),
        lazy_peak_bytes=capped(measured.lazy_peak_bytes),
        division=measured.division,
    )


def queued_ns(launched: Launched) -> int | None:
    """The time in which the tree was ready to run and had no CPU; None if it is not known.

    The launcher knows this time only of the first threads of the processes that it reaped. The
    others are assumed to have queued equally long for each second of CPU time.
    """
    if launched.queued_ns is None or not launched.ran_ns:
        return None
    cpu_ns = launched.user_ns + launched.system_ns
    return round(launched.queued_ns * max(1.0, cpu_ns / launched.ran_ns))


def tree_of(
    launched: Launched, command: tuple[str, ...], contender: Contender, cpus: str | None = None
) -> Tree:
    """The launcher's report in the form of a profile. Escapes bytes that are not UTF-8."""
    from cairn.doctor.machine import processors
    from cairn.profile.tally import Tree

    counters = launched.counters or {}
    return Tree(
        command=tuple(os.fsencode(word).decode("utf-8", "backslashreplace") for word in command),
        allocator=contender.title,
        knobs=contender.knobs,
        build_id=contender.build_id,
        wall_ns=launched.wall_ns,
        user_ns=launched.user_ns,
        system_ns=launched.system_ns,
        voluntary_switches=launched.voluntary_switches,
        involuntary_switches=launched.involuntary_switches,
        minor_faults=launched.minor_faults,
        major_faults=launched.major_faults,
        counters={name: value for name, value in counters.items() if not isinstance(value, bool)},
        user_mode_only=bool(counters.get("user_mode_only")),
        scaled=bool(counters.get("scaled")),
        processors=processors(cpus),
    )


def command_line(settings: Settings, workload: int, program: tuple[str, ...] = ()) -> list[str]:
    """The command line that the launcher executes for this workload.

    program: the words that take the place of the first word of the command; () keeps it.
    """
    command = settings.workloads[workload].command
    command = (*program, *command[1:]) if program else command
    if settings.instructions:
        return [*_VALGRIND, *command]
    return ["/bin/sh", "-c", " ".join(command)] if settings.shell else list(command)


def _lost(status: int) -> str:
    """The sentence on a launcher that ended without a report."""
    if status >= 0:
        return f"cairn-launch, which starts the program, ended with {ending(status)} and no report"
    return (
        f"cairn-launch, which starts the program, was {ending(status)}: by the program, by another "
        "process, or for lack of memory; that run does not count, and --resume continues"
    )


def carried(contender: Contender, scratch: Path, between: Path | None = None) -> Contender:
    """The contender with paths that LD_PRELOAD can carry. A probed contender preloads the probe.

    scratch: a folder for links; see carryable(). between: a library to preload before the others.
    """
    between = native.probe() if contender.probed else between
    before = (str(between),) if between is not None else ()
    built = None if before else contender.build_id
    all_of = replace(contender, preload=(*before, *contender.preload), build_id=built)
    return with_links(all_of, scratch)


def seen_by(contender: Contender, between: Path | None = None) -> Callable[[str], str]:
    """The function that resolves paths for the contender's proof.

    For a probed contender, the function maps the probe's path to the contender's library, because
    the witness reports the probe as the owner of malloc. The probe's own files prove that the probe
    calls this library (`proof.not_behind`). A library `between` is mapped in the same way.
    """
    if (between := native.probe() if contender.probed else between) is None:
        return real_path
    library = real_path(str(between))
    behind = contender.owners[0] if contender.owners else "libc.so.6"

    def resolve(path: str) -> str:
        real = real_path(path)
        return behind if real == library else real

    return resolve


def carried_witness(scratch: Path) -> Path:
    """The witness's library by a path that LD_PRELOAD can carry."""
    (path,) = carryable([str(native.witness())], scratch)
    return Path(path)


def _watch(pipe: int, report: Path | None, launcher: int) -> tuple[str | None, str | None]:
    """Waits for the launcher's report.

    Returns early if a preload is lost: the first value is the reason. Also returns early if the
    program is a server that waits for clients: the second value says where it listens.

    report: the witness's file; with None the function returns at once. launcher: its process id.
    """
    if report is None:
        return None, None
    seen = 0
    server = IdleServer(launcher)
    while not select.select([pipe], [], [], _POLL_S)[0]:
        size = report.stat().st_size
        if size > seen:
            seen = size
            lost = lost_preload(report.read_bytes())
            if lost is not None:
                return lost, None
        listens = server.found()
        if listens is not None:
            return None, listens
    return None, None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher, which ends the whole process tree.

    The launcher is asked twice. After the first request it waits until the tree ends by itself.
    After the second it kills the tree, and waits up to ten seconds for the end of the killed
    processes. If the launcher itself were killed earlier, processes and cgroup would stay behind.
    """
    for patience_s in (_GRACE_S, _LAST_GRACE_S):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return
    process.kill()
