"""The data types of a comparison, as frozen values.

`plan` makes trials, `runner` turns a trial into a Sample, `store` keeps samples, `compare` turns
them into a Comparison, and `report` turns that into text. Times are in nanoseconds, memory is in
bytes, ratios are plain numbers (0.94 is 6 % less). A number that was not measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from signal import Signals
from typing import Literal

from msgspec import Struct, field

from cairn import memory
from cairn.build import Build, Tools
from cairn.clock_samples import CpuSamples
from cairn.gate import Gate
from cairn.memory import Memory
from cairn.own_settings import OwnSettings
from cairn.verdict import EVERY_AIM, Aim, Verdict

SCHEMA = 2
"""The version of every document that cairn writes.

Stored runs of version 1 are read, too. Newer versions are refused.
"""

LARGEST_NUMBER = 1e15
"""The absolute value of a user's metric or a workload's own figure is less than this."""

NOT_SEEN = "not seen"
"""The ending of a process if neither the process nor its parent reported how it ended."""

INTERRUPTED = "interrupted"
TIME_BUDGET = "time budget"
"""Two reasons why measuring ended. With them, fewer rounds were run than the user asked for."""
NOT_MEASURED = "not measured: "
"""Part of the reason why measuring on several machines ended, if it gave up rounds."""
UNSUITED = "cannot be compared"  # why no round of a program was run, although it did not fail


NO_INPUT = "/dev/null"
COPY = "-"
"""Two values of `Settings.stdin`: no input, and the copy that is kept with the run."""


def signal_name(number: int) -> str:
    """The name of a signal, such as "SIGSEGV"; "signal 40" for one without a name."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


class Contender(Struct, frozen=True):
    """One allocator as it is used in a run: its library, and the environment that it runs with.

    The same library with other knobs is another contender.
    """

    name: str
    """The user's name for this contender; unique within a run."""
    allocator: str
    """The allocator's name in the catalog, or "custom" for a library given by path."""
    title: str
    """Name and version as printed, for example "mimalloc 2.0.9"."""
    preload: tuple[str, ...] = ()
    """Absolute paths of the libraries to preload, in order; () for the program's own allocator."""
    library_path: tuple[str, ...] = ()
    """The folders that the preloaded libraries need on LD_LIBRARY_PATH."""
    owners: tuple[str, ...] = ()
    """Absolute paths of libraries. One of them must own malloc. If empty, libc must own malloc."""
    knobs: tuple[tuple[str, str], ...] = ()
    """Environment variables set for the program, in the order given."""
    version: str | None = None
    origin: str | None = None
    """The origin of the library: a package and its version, or "path"."""
    build_id: str | None = None
    caveats: tuple[str, ...] = ()
    probed: bool = False
    """Whether the probe of 'cairn profile' is preloaded in front of the allocator."""
    spec: str = ""
    """The argument of -a that selects this contender, without the part NAME=."""
    program: tuple[str, ...] = ()
    """The words of -p that take the place of the first word of each command; () without -p."""


def twin(name: str) -> str:
    """The name under which a contender runs once more, with the probe, for --why."""
    return f"{name}+probe"


class Trial(Struct, frozen=True):
    """One planned execution of one workload under one contender."""

    round: int
    """0 for the warm-up, whose trials do not count."""
    position: int
    """The position within the round, from 0."""
    contender: str
    workload: int = 0
    """The index of the workload in the settings."""


class Unreached(Struct, frozen=True):
    """An executed program that a preloaded library cannot reach."""

    reason: str
    """"static", "setuid", "other class", "own allocator", "environment", "silent" or "unknown"."""
    path: str


class Proof(Struct, frozen=True):
    """The proof of load of one trial: which object owned malloc in each process.

    The witness inside each process reports it.
    """

    processes: int
    """The number of executed programs, including those of which the witness has no record."""
    loaded: int
    """The number of these programs in which the contender's library owned malloc."""
    owner: str | None
    """The object that owned malloc in the command itself."""
    unreached: tuple[Unreached, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)
    """Other environment variables that an allocator may read, as the command saw them.

    Variables that the contender sets and variables of cairn itself are left out.
    """
    problem: str | None = None
    """Why this trial does not count, as a sentence; None when the proof is complete."""


class Reported(Struct, frozen=True):
    """The report of a built-in workload, its last line of output (docs/workloads.md)."""

    operations: int
    batches: int
    mean_ns: float
    """The mean time of an operation. This field and the next three are computed from the times of
    batches of operations."""
    median_ns: float
    p95_ns: float
    p99_ns: float
    busy_ns: int
    """The wall time of the measured part, without deliberate sleep."""
    idle_ns: int
    """The time of deliberate sleep."""
    minor_faults: int
    """The minor page faults of the measured part."""
    checksum: str | None
    """A checksum over the contents of every block, equal under every correct allocator.

    None when the workload runs for a given time, so that its work differs from run to run.
    """
    live_peak_bytes: int
    """The largest number of bytes that were requested and not yet freed."""
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """Numbers of this workload alone, such as the resident set a second after it went idle."""


class Operations(Struct, frozen=True):
    """One kind of operation on blocks, over all processes. None means not measured."""

    count: float
    """The number of operations. It is exact for allocations. For frees it is estimated from the
    frees that were timed."""
    timed: int
    """The number of operations that were timed."""
    total_ns: float | None
    """The estimated time of all operations of this kind."""
    median_ns: float | None
    kernel_ns: float | None = None
    """The part of `total_ns` in the allocator's system calls. Also None for runs of versions that
    did not store it."""
    detours_ns: float = 0.0
    """The estimated time by which the probe's interception made these system calls longer. It is
    not part of `total_ns`. The error of the estimate may be as large as the estimate."""

    @property
    def own_ns(self) -> float | None:
        """The estimated time of all operations of this kind, without their system calls.

        None if it is not measured: the probe's interception of the system calls took longer.
        """
        if self.total_ns is None:
            return None
        own = max(0.0, self.total_ns - (self.kernel_ns or 0.0))
        return own if self.detours_ns <= own else None


class Calls(Struct, frozen=True):
    """The system calls of one kind within the allocator. None for times means not measured."""

    count: int
    bytes: int | None
    """The bytes of all calls; None for system calls that have no size."""
    total_ns: float | None
    cpu_ns: float | None = None
    """The part of `total_ns` spent on a processor."""


class Finding(Struct, frozen=True):
    """A rule that was met: what the allocator does, its cost, the evidence, and the advice."""

    name: str
    """The key of the rule, for programs; docs/findings.md lists the keys."""
    says: str
    """The action of the allocator, as a sentence without a full stop."""
    of: Literal["CPU", "thread time", "memory"]
    effect: float
    """The share of `of` that would be saved without the cause: 0.05 is 5 %."""
    advice: str
    interval: Interval | None = None
    """The interval of `effect`."""
    evidence: tuple[str, ...] = ()
    """Phrases, each with its numbers and units."""
    measured: bool = True
    """False if a part of `effect` is inferred; the upper end of `interval` is then a guess."""


class LockSummary(Struct, frozen=True):
    """One lock of the allocator in a probed run. None means not measured."""

    name: str
    taken: float | None
    waits: float
    wait_ns: float | None
    held_ns: float | None


class ProbeSummary(Struct, frozen=True):
    """The results of the probe in one trial, for all processes unless a field says otherwise.

    None means not measured.
    """

    operations: int
    """The number of allocations and frees."""
    cpu_ns: int
    """User and system time of the processes with the probe; 0 if it is not known."""
    samples: int
    """CPU timer samples of all threads. The next two fields count parts of these samples."""
    samples_inside: int
    """CPU timer samples inside the allocator."""
    samples_probe: int
    """CPU timer samples inside the probe itself."""
    kinds: Mapping[str, Operations]
    """The operations of each kind, by the names of KINDS in `profile.tally`."""
    calls: Mapping[str, Calls]
    """The system calls of each kind, by the names of CALLS in `profile.tally`."""
    kernel_ns: float | None
    """CPU time within system calls of the allocator; None also if some calls were not seen."""
    waiting_ns: float | None
    """Time waiting in system calls or time waiting for pthread locks, whichever is more. The two
    overlap, because a thread waits for a lock in a system call."""
    waits: int
    """The number of waits in system calls or of waits for pthread locks, whichever is more."""
    faults: int
    """The page faults of the processes, within the allocator and elsewhere."""
    faults_inside: float | None
    """The page faults within the allocator, estimated from examined operations."""
    live_bytes: int | None
    """The largest number of bytes that were requested and not yet freed, in the process in which
    this number is largest. The next two fields describe the same process."""
    slack_bytes: int | None
    """The bytes that the allocator reserved for these blocks beyond the requested bytes."""
    resident_bytes: int | None
    """The largest resident set of that process, without pages of files."""
    live_counted: bool = False
    """Whether `live_bytes` was counted. Otherwise it is estimated from a sample of blocks."""
    spun_ns: float = 0.0
    """Time waiting for pthread spin locks. Unlike `waiting_ns`, it takes CPU time."""
    threads_ns: float = 0.0
    """The life times of all threads, without the time in the probe; 0 if they are not known."""
    processors: float | None = None
    """The number of processors that the program may use. None if it is not known, as in a run of an
    earlier version."""
    refused: int = 0
    """Number of allocations whose result was NULL. 0 for runs of versions that did not store it."""
    findings: tuple[Finding, ...] = ()
    detours_ns: float = 0.0
    """The extra time of system calls that the probe watched, nearly all of it in the kernel."""
    locks: tuple[LockSummary, ...] = ()
    """The locks with the longest waits, and then those held longest, at most ten."""
    locks_taken: int | None = None
    """The number of different locks. None if not known, as in a run of an earlier version."""
    locks_waited_for: int | None = None
    """The number of these locks that some thread waited for."""
    metrics: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """The value of each metric and the ends of its interval, by key of `profile.metrics`."""


class Sample(Struct, frozen=True):
    """The results of one trial: one execution of the command under one contender."""

    trial: Trial
    started_at: float
    """Seconds since the epoch."""
    exit_code: int | None
    signal: int | None
    timed_out: bool
    wall_ns: int
    user_ns: int
    system_ns: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    memory: Memory
    proof: Proof
    largest_process_bytes: int | None = None
    """The peak resident set of the largest single process, with file pages, from wait4(2)."""
    repeats: int = 1
    """The number of runs whose mean this sample is."""
    left_behind: int = 0
    """The number of descendants still running when the command ended; the launcher ended them."""
    queued_ns: int | None = None
    """Estimated time in which the program was ready to run and had no CPU; None if not known."""
    endings: Mapping[str, Mapping[str, int]] | None = None
    """How the processes of the tree ended: by program, the number of each ending.

    An ending is "exit 0" with the exit status, the name of a signal such as "SIGSEGV", or NOT_SEEN.
    None for a run of an earlier version, which did not record it.
    """
    counters: Mapping[str, float | None] = field(default_factory=dict)
    """Performance counters of the whole tree, by name; None for those the machine does not have."""
    counted: tuple[str, ...] = ()
    """The launcher's flags of `counters` that are set: "scaled", "user_mode_only"."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The numbers that --metric found in the program's output, by name."""
    load: Mapping[str, float] = field(default_factory=dict)
    """The numbers that the load of a server printed, by the names of `compare.load_output`. With a
    load, `wall_ns` is that of the load, and times and faults are those of the server meanwhile."""
    reported: Reported | None = None
    """The report of a built-in workload."""
    probe: ProbeSummary | None = None
    """The probe's results, if `Settings.why` is set and this contender runs with the probe."""
    unrecorded: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of processes that the probe could not record, by program ("" if not known) and by
    the reason of `profile.tally.Missing`."""
    cpu_samples: CpuSamples | None = None
    """The clock samples, if `Settings.why` is set and this contender runs without the probe."""
    unseen: str | None = None
    """Why clock samples were requested but are missing, as the end of a sentence."""
    output_digest: str | None = None
    failure: str | None = None
    """Why this run is not a result; None if it is a result.

    The text is the rest of a sentence that begins with the contender.
    """

    @property
    def counts(self) -> bool:
        """Whether this run may enter a comparison: it did not fail and is not a warm-up."""
        return self.failure is None and self.trial.round > 0


class Direction(Enum):
    """The change of a metric that counts as good."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"
    UNKNOWN = "unknown"
    """For a user's own number. Changes are shown, and only the user knows which are good."""


class Metric(Struct, frozen=True):
    """A column of a table: its key, its title, its unit and its good direction."""

    key: str
    title: str
    unit: str
    """"ns", "bytes", "count", "percent", "ratio", "rate" (per second), "bytes per second",
    or "" for a user's own number."""
    direction: Direction = Direction.LESS


WALL = Metric("wall", "wall", "ns")
ACTIVE = Metric("active", "wall − sleep", "ns")
USER = Metric("user", "user time", "ns")
SYSTEM = Metric("system", "system time", "ns")
CPU_TIME = Metric("cpu_time", "CPU time", "ns")
CPU = Metric("cpu", "CPU use", "percent", Direction.NEITHER)
PEAK = Metric("peak", "peak memory", "bytes")
PEAK_LESS_LAZY = Metric("peak_less_lazy", "peak − lazily freed", "bytes")
LAZY = Metric("lazy", "lazily freed", "bytes", Direction.NEITHER)
MEAN_MEMORY = Metric("mean_memory", "mean memory", "bytes")
IDLE_MEMORY = Metric("idle_memory", "memory after idle", "bytes")
GROWTH = Metric("growth", "growth, 2nd half", "bytes", Direction.NEITHER)
LARGEST = Metric("largest", "largest process", "bytes")
FAULTS = Metric("faults", "faults", "count")
SWITCHES = Metric("switches", "context switches", "count")
OPERATION_MEDIAN = Metric("operation_median", "median of an operation", "ns")
OPERATION_P95 = Metric("operation_p95", "P95", "ns")
OPERATION_P99 = Metric("operation_p99", "P99", "ns")
OPERATION_FAULTS = Metric("operation_faults", "faults per operation", "ratio")

BUILT_IN = (
    WALL, CPU_TIME, USER, SYSTEM, CPU, PEAK, PEAK_LESS_LAZY, LAZY, MEAN_MEMORY, IDLE_MEMORY,
    GROWTH, LARGEST, FAULTS, SWITCHES,
)  # fmt: skip


def value(sample: Sample, key: str) -> float | None:
    """The number of this sample for `key`; None if it was not measured.

    `key` is the key of a built-in metric, or "metric:NAME" for a user's metric, "counter:NAME" for
    a counter, "figure:NAME" for a workload's own figure, or "load:NAME" for a number that a load
    printed. Because of the prefixes, NAME cannot hide a built-in metric. Raises KeyError for any
    other key.
    """
    own = sample.reported
    match key:
        case "wall":
            return sample.wall_ns
        case "active":
            return sample.wall_ns - (own.idle_ns if own else 0)
        case "operation_median":
            return own.median_ns if own else None
        case "operation_p95":
            return own.p95_ns if own else None
        case "operation_p99":
            return own.p99_ns if own else None
        case "operation_faults":
            return own.minor_faults / own.operations if own and own.operations else None
        case "user":
            return sample.user_ns
        case "system":
            return sample.system_ns
        case "cpu_time":
            return sample.user_ns + sample.system_ns
        case "largest":
            return sample.largest_process_bytes
        case "cpu":
            return (
                100.0 * (sample.user_ns + sample.system_ns) / sample.wall_ns
                if sample.wall_ns
                else None
            )
        case _ if key in memory.NUMBERS:
            return sample.memory.number(key)
        case "faults":
            return sample.minor_faults + sample.major_faults
        case "switches":
            return sample.voluntary_switches + sample.involuntary_switches
        case "request_time":
            rate = sample.load.get("requests/s")
            return 1e9 / rate if rate else None
        case "request_cpu_time":
            requests = sample.load.get("requests")
            return (sample.user_ns + sample.system_ns) / requests if requests else None
    kind, _, name = key.partition(":")
    if kind == "metric":
        return sample.metrics.get(name)
    if kind == "counter":
        return sample.counters.get(name)
    if kind == "load":
        return sample.load.get(name)
    if kind == "figure":
        return own.figures.get(name) if own else None
    raise KeyError(key)


class Interval(Struct, frozen=True):
    """A confidence interval; `level` is its nominal level after adjustment."""

    low: float
    high: float
    level: float


class Summary(Struct, frozen=True):
    """One metric of one contender over its counted runs."""

    median: float
    mean: float
    sigma: float | None
    """Sample standard deviation; None for a single run."""
    minimum: float
    maximum: float
    runs: int


class Shown(Enum):
    """The conclusion from a paired change and its interval."""

    LESS = "less"
    MORE = "more"
    EQUIVALENT = "equivalent"
    NOT_SHOWN = "no difference shown"


class Change(Struct, frozen=True):
    """A contender's relative change against the baseline, paired by round; −0.05 means 5 % less."""

    estimate: float
    interval: Interval | None
    """The interval of `estimate`; None if there are too few rounds for one of the wanted level."""
    shown: Shown
    p_adjusted: float | None
    rounds: int
    one_sided: Interval | None = None
    """The interval of the test of equivalence. Its error may be twice that of `interval`."""


class Row(Struct, frozen=True):
    """The results of one contender, by metric key. A key that is absent was not measured."""

    contender: str
    summaries: Mapping[str, Summary]
    changes: Mapping[str, Change]
    """Empty for the baseline."""
    proof: tuple[int, int]
    """The number of processes with the library loaded, and the number of processes seen. Both
    numbers are from the trial with the smallest share of loaded processes."""
    failures: tuple[str, ...] = ()
    outliers: tuple[int, ...] = ()
    """Rounds in which this contender was far slower than usual; they are flagged and kept."""


ROUNDS_MOST = 2_000
"""The most rounds of a run of 'cairn compare'. For 'cairn bench' it is BENCH_ROUNDS_MOST."""
BENCH_ROUNDS_MOST = 300


class StopRule(Struct, frozen=True):
    """The rule that decides when enough rounds have been run."""

    precision: float | None = 0.01
    """The half-width to reach in the interval of the relative change; 0.01 is ±1 %.

    None runs exactly `max_rounds`.
    """
    min_rounds: int = 10
    max_rounds: int = 200
    margin: float = 0.01
    """Changes within ±margin count as equivalent."""
    budget_s: float | None = None
    judged: Literal["wall", "active"] = "wall"
    """"wall": each workload is a comparison of its own, and stops when its verdict is certain.

    "active": a suite of many workloads, each of which stops when its times are known precisely.
    With either value, deliberate sleep does not count as time.
    """


class Pattern(Struct, frozen=True):
    """A user's number in the program's output, found by the last match of a pattern.

    The number is the first group of the match, or the whole match if the pattern has no group.
    """

    name: str
    regex: str


class Workload(Struct, frozen=True):
    """One command of a run. Contenders are compared within a workload, never across workloads."""

    name: str
    """The printed name: the command with its parameters, or the name of a built-in workload."""
    command: tuple[str, ...]
    group: str = ""
    """The group of a built-in workload in the catalog.

    When instructions are counted, it is the name of the built-in workload of which this is one
    size.
    """
    load: str = ""
    """The load on the server that `command` starts, as a line for /bin/sh; empty without one.
    {port} stands for the port of the trial here, in `command`, and in the lines of the settings."""
    own: OwnSettings = field(default_factory=OwnSettings)


class Settings(Struct, frozen=True):
    """The conditions of every trial of a run, the same for all contenders."""

    workloads: tuple[Workload, ...]
    folder: str
    """The working directory."""
    shell: bool = False
    """Whether each command is a line for /bin/sh."""
    stdin: str = NO_INPUT
    """The file that every trial reads, or COPY."""
    stdout: str | None = None
    """A file that every trial overwrites; None discards the output after it was checked."""
    setup: str | None = None
    prepare: str | None = None
    conclude: str | None = None
    cleanup: str | None = None
    ready: str | None = None
    """A line for /bin/sh that succeeds when a server is ready for its load. With None, a server is
    ready when it accepts a connection on {port}."""
    idle_s: float | None = None
    """The time for which a server lives on after its load, to measure its idle memory."""
    soak_s: float | None = None
    """The length of each run of 'cairn soak'; None for another command."""
    patterns: tuple[Pattern, ...] = ()
    ok_exit: tuple[int, ...] = (0,)
    verify_output: bool = False
    reports: bool = False
    """Whether every command is a built-in workload, which prints a report in its last line.

    The checksums in the reports must agree.
    """
    instructions: bool = False
    """Whether every command runs under valgrind, which counts its instructions.

    Times then mean nothing.
    """
    count_instructions: bool = False
    """Whether callgrind counts the instructions of each contender after the rounds."""
    cpus: str | None = None
    timeout_s: float | None = None
    warmup: int = 1
    wait_descendants: bool = False
    """Whether a trial lasts until all descendants of the command have ended, too."""
    repeat: int | None = 1
    """The number of runs whose mean is one sample. None chooses it by the length of a run."""
    warm_memory: int | None = None
    """The bytes of memory to touch before each round; 0 touches none.

    With None, memory is touched only in a virtual machine, and only if the program's peak is large.
    """
    counters: bool = False
    """Whether performance counters are read."""
    memory: str = "auto"
    """How memory is measured: "auto", "cgroup", "sampled" or "none"."""
    why: bool = False
    """Whether each contender also runs with the probe preloaded, as a contender of its own.

    These runs provide evidence and are never ranked.
    """
    profiled_rounds: int | None = None
    """With `why`: the probe runs in the rounds up to this number. None means in all rounds."""
    by_cell: bool = False
    """Whether a failure ends only its cell (program and contender). Every round is then whole."""
    only: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The indexes of the workloads of each contender. A contender that is not here runs on all."""


class Host(Struct, frozen=True):
    """The machine and its state when a run began. None means that it could not be read."""

    system: str
    kernel: str
    architecture: str
    libc: str
    cpus: int
    cpu_model: str | None
    memory_bytes: int | None
    page_bytes: int
    virtual: bool | None
    transparent_huge_pages: str | None
    governor: str | None
    load: float | None


State = Literal["fine", "warning", "obstacle", "unknown"]
"""The result of a check.

"obstacle": no preloaded allocator can work here. "warning": the numbers are less reliable.
"""


class Check(Struct, frozen=True):
    """One check of the program or the machine before measuring."""

    subject: str
    state: State
    says: str
    """The result of the check, as a sentence without a full stop."""
    next_step: str | None = None
    """The next step, as a sentence; None only if the state is "fine"."""


class Examined(Struct, frozen=True):
    """The checks of one thing: the program, the machine, or what can be measured."""

    key: str
    title: str
    checks: tuple[Check, ...]


class Run(Struct, frozen=True):
    """The request of a run: settings, contenders, rule and machine.

    It is written before the first trial, and again when instructions are counted.
    """

    schema: int
    id: str
    created_at: float
    """Seconds since the epoch."""
    cairn: str
    """The version of cairn that made this run."""
    settings: Settings
    contenders: tuple[Contender, ...]
    baseline: str
    rule: StopRule
    seed: int
    host: Host
    notes: tuple[str, ...] = ()
    """The circumstances that a reader should know, a sentence each."""
    experiment: str | None = None
    """The name of the built-in experiment, if this is a run of one."""
    quick: bool | None = None
    """Whether the experiment has its quick size. None if not known, as in a run of an earlier
    version, and for a run of another command."""
    builds: tuple[Build, ...] = ()
    """The builds of its programs, libraries and contenders; empty before the first trial."""
    tools: Tools | None = None
    """The tools behind its counts of instructions; None without counts, or in an older run."""
    aim: Aim = EVERY_AIM
    gate: Gate | None = None
    """The bounds of 'cairn check', which decide when measuring stops."""
    made_by: str | None = None
    """The command that continues the run with --resume, such as "cairn compare".

    It is "cairn matrix run" for a run of 'cairn judge', and "cairn check --make-base" for a run
    that no command continues. None for a run of an earlier version.
    """

    @property
    def competing(self) -> tuple[Contender, ...]:
        """The contenders that are compared, without those that run with the probe for --why."""
        return tuple(one for one in self.contenders if not (self.settings.why and one.probed))


class Against(Struct, frozen=True):
    """A contender's CPU time compared with that of `other`, paired within rounds.

    `other` need not be the baseline. The interval is not adjusted for other comparisons.
    """

    contender: str
    other: str
    change: Change


class Prospect(Struct, frozen=True):
    """The result of more rounds, as predicted from the noise of the rounds so far."""

    rounds: int
    """The number of rounds in all."""
    more: int
    """The rounds that are missing."""
    half_width: float
    """Half the length of the widest interval of time after these rounds; 0.01 is ±1 %."""
    more_s: float
    """The time that the missing rounds take, in seconds."""


class Comparison(Struct, frozen=True):
    """Everything a report needs, made from stored samples alone."""

    baseline: str
    rows: tuple[Row, ...]
    """Ranked by `time`, best first; contenders that failed come last."""
    metrics: tuple[Metric, ...]
    """The columns with at least one number, in the order to print."""
    rounds: int
    """The number of complete rounds: every surviving contender ran once in each."""
    rule: StopRule
    stopped_because: str | None
    """A phrase: "precision reached", "60 rounds", "time budget" or "interrupted".

    None while the run goes on.
    """
    unsuited: tuple[str, ...]
    """Why the numbers mean less than they seem to, a sentence each. A report begins with them."""
    judged: Verdict
    """The proven results, and the advice. `report.verdict` turns them into sentences."""
    not_tested: tuple[str, ...]
    next_steps: tuple[str, ...]
    memory_method: str | None
    notes: tuple[str, ...] = ()
    """Caveats, a sentence each."""
    prospect: Prospect | None = None
    """The effect of more rounds; None if the question of time is settled, or if it is not known."""
    details: tuple[str, ...] = ()
    """Sentences that only the full report shows."""
    time: Metric = WALL
    """The metric of verdict and ranking.

    It is wall time, wall time without deliberate sleep for a workload that sleeps, or the time per
    request of a load.
    """
    cpu_time: Metric = CPU_TIME
    """The metric of CPU time in the verdict: that of a run, or of a request under a load."""
    against: tuple[Against, ...] = ()
    """Further pairs that an experiment compares."""
