"""The nouns of a comparison, as frozen values.

`plan` makes trials, `runner` turns a trial into a Sample, `store` keeps samples, `compare` turns them into a
Comparison, `report` turns that into text. Times are nanoseconds, memory is bytes, ratios are plain numbers (0.94 is 6 %
less). What was not measured is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

SCHEMA = 2
"""Version of every document that cairn writes. Stored runs of version 1 are read, too; a newer version is refused."""

LARGEST_NUMBER = 1e15
"""What a user's metric, a counter or a workload's own figure stays below."""

INTERRUPTED = "interrupted"
TIME_BUDGET = "time budget"
"""Two of the phrases that say why measuring ended: with these, there is less than was asked for."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One allocator as it will be used: library, mechanism and environment. Knobs are part of who it is."""

    name: str
    """What the user calls it; unique within a run."""
    allocator: str
    """Its name in the catalog, or "custom" for a library given by path."""
    title: str
    """Name and version as printed, for example "mimalloc 2.0.9"."""
    preload: tuple[str, ...] = ()
    """Absolute paths, in order; empty for the program's own allocator."""
    library_path: tuple[str, ...] = ()
    """Folders that the preloaded libraries need on LD_LIBRARY_PATH."""
    owners: tuple[str, ...] = ()
    """Absolute paths of the objects that may own malloc when it works; empty: libc."""
    knobs: tuple[tuple[str, str], ...] = ()
    """Environment variables set for the program, in the order given."""
    version: str | None = None
    origin: str | None = None
    """Where the library came from: a package and its version, or "path"."""
    build_id: str | None = None
    caveats: tuple[str, ...] = ()
    probed: bool = False
    """Runs behind the probe of 'cairn profile', to see what that costs."""
    spec: str = ""
    """What -a takes for this very contender."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One place in the plan: what runs, in which round, at which position of it. Round 0 warms up."""

    round: int
    position: int
    contender: str
    workload: int = 0
    """Which of the settings' workloads."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the whole process tree: anonymous and shared pages, without page cache and kernel memory."""

    method: str
    """"cgroup v2", "cgroup v1", "sampled" or "not measured"."""
    peak_bytes: int | None
    peak_less_lazy_bytes: int | None
    """Peak when pages that the program gave back with MADV_FREE, and the kernel has not yet taken, do not count."""
    lazy_peak_bytes: int | None
    """The most that was lazily freed at any time."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """An executed program that a preloaded library cannot reach."""

    reason: str
    """"static", "setuid", "other class", "own allocator", "environment" or "unknown"."""
    path: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Who owned malloc in the processes of one trial, by the witness inside each of them."""

    processes: int
    """Executed programs that the witness saw or should have seen."""
    loaded: int
    """Those in which the contender's library owned malloc."""
    owner: str | None
    """The object that owned malloc in the command itself."""
    unreached: tuple[Unreached, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that an allocator may read, as the command saw them; cairn's own left out."""
    problem: str | None = None
    """Why this trial does not count; None when the proof is complete."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a built-in workload says of itself, on its last line of output; docs/workloads.md explains the fields."""

    operations: int
    batches: int
    mean_ns: float
    """Per operation, as are the next three; median and percentiles are over batches of operations."""
    median_ns: float
    p95_ns: float
    p99_ns: float
    busy_ns: int
    """Wall time of the measured part, deliberate sleep left out."""
    idle_ns: int
    """Deliberate sleep."""
    minor_faults: int
    """In the measured part."""
    checksum: str | None
    """Over the contents of every block; the same under every correct allocator. None when a time ended the workload."""
    live_peak_bytes: int
    """Most bytes that were requested and not yet freed."""
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """What this workload alone can tell, for example the resident set a second after it went idle."""


@dataclass(frozen=True, slots=True)
class Operations:
    """One kind of operations on blocks, of all processes; None was not measured."""

    count: float
    """Exact for allocations; frees are told apart by those that were timed."""
    timed: int
    total_ns: float | None
    median_ns: float | None


@dataclass(frozen=True, slots=True)
class Calls:
    """One kind of the kernel's calls within the allocator."""

    count: int
    bytes: int | None
    """None where it has none."""
    total_ns: float | None
    cpu_ns: float | None = None
    """What of that was on a processor."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that was met: what the allocator does, what that costs, the evidence, and what to do."""

    name: str
    """For programs: a word of docs/findings.md."""
    says: str
    """A sentence without its full stop."""
    of: Literal["CPU", "thread time", "memory"]
    effect: float
    """The share of `of` that would be saved without the cause: 0.05 is 5 %."""
    advice: str
    interval: Interval | None = None
    """Of the effect."""
    evidence: tuple[str, ...] = ()
    """Each with its numbers and units."""
    measured: bool = True
    """False if a part of the effect is inferred; the upper end of its interval is then a guess."""


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """What the probe counted within the allocator in one trial, all processes together; None was not measured."""

    operations: int
    cpu_ns: int
    """User and system time of the processes that the probe was in; 0: not known."""
    samples: int
    """Of their threads' CPU time, by timers; the next two are parts of it."""
    samples_inside: int
    samples_probe: int
    kinds: Mapping[str, Operations]
    """By name; KINDS of `profiles`."""
    calls: Mapping[str, Calls]
    """By name; CALLS of `profiles`."""
    kernel_ns: float | None
    """CPU time within the kernel's calls; None too where not every one was seen."""
    waiting_ns: float | None
    """Within those, or for pthread's locks, whichever is more: a lock waits in the kernel."""
    waits: int
    faults: int
    faults_inside: float | None
    live_bytes: int | None
    """Asked for and not freed, at most; this and the next two are of the process with the most of it."""
    slack_bytes: int | None
    """Set apart for these blocks beyond what was asked for."""
    resident_bytes: int | None
    """At most; without pages of files."""
    findings: tuple[Finding, ...] = ()
    detours_ns: float = 0.0
    """What calls of the kernel took longer because they were seen, nearly all of it in the kernel."""


@dataclass(frozen=True, slots=True)
class CpuSamples:
    """Where the processors were in a plain run: one note after each period of CPU time."""

    period_ns: int
    own: int
    """In the allocator, or in a library that it called."""
    calls: int
    """In the kernel, called by the allocator."""
    faults: int
    """In the kernel, called by nobody: page faults and interrupts."""
    others: int
    """Elsewhere in the kernel: what the program called, and its end."""
    program: int
    unknown: int = 0
    """Where no file is known to lie, and where nobody knows who called the kernel."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One execution of the command under one contender, as the kernel accounted for it."""

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
    """Peak resident set of the largest single process, its file pages included, as wait4(2) tells it."""
    left_behind: int = 0
    """Descendants still alive when the command ended; they were ended with it."""
    counters: Mapping[str, float | None] = field(default_factory=dict)
    """Whole-tree performance counters by name; None where the machine has none."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What --metric found in the program's output."""
    reported: Reported | None = None
    """Of a built-in workload."""
    probe: ProbeSummary | None = None
    """Of a contender behind the probe, where that was asked for."""
    cpu_samples: CpuSamples | None = None
    """Of one as it is, where that was asked for and the kernel allows it."""
    unseen: str | None = None
    """Why that is not known, as the end of a sentence."""
    output_digest: str | None = None
    failure: str | None = None
    """A sentence, when this run must not be read as a result."""

    @property
    def counts(self) -> bool:
        """True for a run that may enter a comparison: it ended well, with proof, after the warm-up."""
        return self.failure is None and self.trial.round > 0


class Direction(Enum):
    """Which way is good, where there is one."""

    LESS = "less"
    MORE = "more"
    NEITHER = "neither"
    UNKNOWN = "unknown"
    """A user's own number: changes are shown, and the user knows which are good."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A column: how it is called, counted and read."""

    key: str
    title: str
    unit: str
    """"ns", "bytes", "count", "percent", "ratio", or "" for a user's own number."""
    direction: Direction = Direction.LESS


WALL = Metric("wall", "wall", "ns")
ACTIVE = Metric("active", "wall − sleep", "ns")
USER = Metric("user", "user time", "ns")
SYSTEM = Metric("system", "system time", "ns")
CPU_TIME = Metric("cpu_time", "CPU time", "ns")
CPU = Metric("cpu", "CPU", "percent", Direction.NEITHER)
PEAK = Metric("peak", "peak (tree)", "bytes")
PEAK_LESS_LAZY = Metric("peak_less_lazy", "peak − lazily freed", "bytes")
LAZY = Metric("lazy", "lazily freed", "bytes", Direction.NEITHER)
LARGEST = Metric("largest", "largest process", "bytes")
FAULTS = Metric("faults", "faults", "count")
SWITCHES = Metric("switches", "switches", "count")
OPERATION_MEDIAN = Metric("operation_median", "median of an operation", "ns")
OPERATION_P95 = Metric("operation_p95", "P95", "ns")
OPERATION_P99 = Metric("operation_p99", "P99", "ns")
OPERATION_FAULTS = Metric("operation_faults", "faults per operation", "ratio")

BUILT_IN = (
    WALL,
    CPU_TIME,
    USER,
    SYSTEM,
    CPU,
    PEAK,
    PEAK_LESS_LAZY,
    LAZY,
    LARGEST,
    FAULTS,
    SWITCHES,
)


def value(sample: Sample, key: str) -> float | None:
    """The number that `key` (a metric, a counter or a user's metric) has in this sample; None if not measured.

    A user's metric is written "metric:NAME", a counter "counter:NAME" and a workload's own figure "figure:NAME", so
    that none can hide a built-in column.
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
        case "peak":
            return sample.memory.peak_bytes
        case "peak_less_lazy":
            return sample.memory.peak_less_lazy_bytes
        case "lazy":
            return sample.memory.lazy_peak_bytes
        case "faults":
            return sample.minor_faults + sample.major_faults
        case "switches":
            return sample.voluntary_switches + sample.involuntary_switches
    kind, _, name = key.partition(":")
    if kind == "metric":
        return sample.metrics.get(name)
    if kind == "counter":
        return sample.counters.get(name)
    if kind == "figure":
        return own.figures.get(name) if own else None
    raise KeyError(key)


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval; `level` is the nominal level it was made for, after adjustment."""

    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One metric of one contender over its counted runs."""

    median: float
    mean: float
    sigma: float | None
    """Sample standard deviation; None for a single run."""
    minimum: float
    maximum: float
    runs: int


class Shown(Enum):
    """What a paired change shows."""

    LESS = "less"
    MORE = "more"
    EQUIVALENT = "equivalent"
    NOT_SHOWN = "no difference shown"


@dataclass(frozen=True, slots=True)
class Change:
    """A contender against the baseline, paired within rounds: relative change, −0.05 is 5 % less."""

    estimate: float
    interval: Interval | None
    """None when there are too few rounds for an interval of this level."""
    shown: Shown
    p_adjusted: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class Row:
    """All that is known of one contender, by metric key. A key that is absent was not measured."""

    contender: str
    summaries: Mapping[str, Summary]
    changes: Mapping[str, Change]
    """Empty for the baseline."""
    proof: tuple[int, int]
    """Processes with the library loaded, of processes seen; least over the runs."""
    failures: tuple[str, ...] = ()
    outliers: tuple[int, ...] = ()
    """Rounds whose wall time is far from this contender's others; flagged, never dropped."""


ROUNDS_MOST = 2_000
"""That a run may have."""
BENCH_ROUNDS_MOST = 300


@dataclass(frozen=True, slots=True)
class StopRule:
    """When enough rounds have been run.

    precision: half-width of the interval of the relative change, 0.01 is ±1 %; None runs exactly `max_rounds`.
    """

    precision: float | None = 0.01
    min_rounds: int = 10
    max_rounds: int = 60
    margin: float = 0.01
    """Changes within ± this much count as equivalent."""
    budget_s: float | None = None
    judged: Literal["wall", "active"] = "wall"
    """"wall": each comparison is a question of its own, and stops when it can be answered. "active": a suite of many
    workloads, of which each stops once it is known precisely. Either way, deliberate sleep is no time."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A number to look for in the program's output: the first group (or the whole match) of the last match."""

    name: str
    regex: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One command of a run. Contenders are compared within a workload, never across."""

    name: str
    """As printed: the command, or what distinguishes it in a sweep."""
    command: tuple[str, ...]
    group: str = ""
    """Of a built-in workload: the group of the catalog; when instructions are counted, whose size this is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How every trial of a run is carried out; the same for all contenders."""

    workloads: tuple[Workload, ...]
    folder: str
    """Working directory."""
    shell: bool = False
    """Each command is a line for /bin/sh."""
    stdin: str = "/dev/null"
    stdout: str | None = None
    """A file that every trial overwrites; None discards the output once it was searched and compared."""
    setup: str | None = None
    prepare: str | None = None
    conclude: str | None = None
    cleanup: str | None = None
    patterns: tuple[Pattern, ...] = ()
    ok_exit: tuple[int, ...] = (0,)
    verify_output: bool = False
    reports: bool = False
    """Every command is a built-in workload: its last line tells what it did, and its checksum must agree."""
    instructions: bool = False
    """Every command runs under valgrind, which counts its instructions; its times then mean nothing."""
    cpus: str | None = None
    timeout_s: float | None = None
    warmup: int = 1
    warm_memory: int | None = None
    """Bytes of memory to touch before each round: 0 never, None decides by footprint and machine."""
    counters: bool = False
    memory: str = "auto"
    """"auto", "cgroup", "sampled" or "none"."""
    why: bool = False
    """Every contender runs behind the probe, too, as a contender of its own that competes with nobody."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine and its state when a run began. None: could not be read."""

    system: str
    kernel: str
    architecture: str
    libc: str
    cpus: int
    cpu_model: str | None
    memory_bytes: int | None
    page_bytes: int
    virtual: bool
    transparent_huge_pages: str | None
    governor: str | None
    load: float | None


State = Literal["fine", "warning", "obstacle", "unknown"]
"""How a check came out: "obstacle" keeps every preloaded allocator out, "warning" makes its numbers mean less."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at before measuring."""

    subject: str
    state: State
    says: str
    """A sentence without its full stop."""
    next_step: str | None = None
    """What to do about it, a sentence; there is one whenever the state is not "fine"."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The checks of one thing: the program, the machine, or what can be measured."""

    key: str
    title: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked, of what, and where: written once, before the first trial."""

    schema: int
    id: str
    created_at: float
    """Seconds since the epoch."""
    cairn: str
    """Version that made this run."""
    settings: Settings
    contenders: tuple[Contender, ...]
    baseline: str
    rule: StopRule
    seed: int
    host: Host
    notes: tuple[str, ...] = ()
    """What a reader should know of the circumstances, a sentence each."""
    experiment: str | None = None
    """The built-in experiment that this is a run of."""

    @property
    def competing(self) -> tuple[Contender, ...]:
        """The contenders that are compared: not those that run to tell why."""
        return tuple(one for one in self.contenders if not (self.settings.why and one.probed))


@dataclass(frozen=True, slots=True)
class Against:
    """A contender's CPU time against one that is not the baseline, paired within rounds; the interval stands alone."""

    contender: str
    other: str
    change: Change


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a report needs; made from stored samples alone."""

    baseline: str
    rows: tuple[Row, ...]
    """Ranked by `time`, best first; contenders that failed come last."""
    metrics: tuple[Metric, ...]
    """Columns with at least one number, in the order to print."""
    rounds: int
    """Complete rounds: every surviving contender ran once in each."""
    rule: StopRule
    stopped_because: str | None
    """A phrase ("precision reached", "60 rounds", "time budget", "interrupted"); None while running."""
    verdict: tuple[str, ...]
    """Sentences that a person can act on, the main one first."""
    not_tested: tuple[str, ...]
    next_steps: tuple[str, ...]
    memory_method: str | None
    notes: tuple[str, ...] = ()
    time: Metric = WALL
    """What verdict and ranking are about: wall time, or for a workload that sleeps on purpose what is left of it."""
    against: tuple[Against, ...] = ()
    """What an experiment compares beside."""
