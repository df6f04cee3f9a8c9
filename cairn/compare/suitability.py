"""Judges from a program's first runs whether a comparison can tell anything about allocators.

Some programs are not suited: they wait instead of computing, go into the background, need a
terminal, or end so soon that a run is little more than the start of a process. Each gets a sentence
with a next step, before the rest is run and at the beginning of the report. All functions are pure.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cairn import units
from cairn.model import Sample, Settings
from cairn.verdict import WAITS

SHORT_NS = 20_000_000
"""A run that is shorter than this, in nanoseconds, is short.

Starting a process takes a millisecond, and varies by some tenths of a millisecond.
"""

_SHORT = f"less than {SHORT_NS / 1e6:g} ms"
"""The time of a short run. The sentence comes after the warm-up and again in the report, and should
not have two numbers for one quantity."""

STARTER_NS = 100_000_000
"""A command that ends within this time and leaves processes behind has only started them."""

_FOREGROUND = {
    "apache2": "-DFOREGROUND",
    "cron": "-f",
    "dnsmasq": "--keep-in-foreground",
    "haproxy": "-db",
    "httpd": "-DFOREGROUND",
    "lighttpd": "-D",
    "named": "-f",
    "nginx": "-g 'daemon off;'",
    "redis-server": "--daemonize no",
    "rsyslogd": "-n",
    "smbd": "--foreground",
    "squid": "-N",
    "sshd": "-D",
    "valkey-server": "--daemonize no",
    "varnishd": "-F",
}
"""The option that keeps a server in the foreground, by the name of the server."""

_NO_TERMINAL = re.compile(
    r"not a (?:tty|terminal|teletype)|isn't a (?:tty|terminal)|failed tty get|no controlling t"
    r"|/dev/tty|error opening terminal|TERM environment variable|must be (?:run )?(?:in|from|on) a "
    r"(?:tty|terminal)|(?:need|require)s? a (?:tty|terminal)|inappropriate ioctl for device"
    r"|Error reading input, exiting|could not find terminal",
    re.IGNORECASE,
)
"""Messages of programs that need a terminal and have none."""


class Unsuited(Struct, frozen=True):
    """Why the runs of a program say little about allocators."""

    says: str
    """A sentence."""
    next_step: str
    """A sentence; empty if there is nothing to do."""
    hopeless: bool = False
    """Whether the numbers would mean nothing at all, so that measuring must not go on."""

    @property
    def sentence(self) -> str:
        """Both sentences."""
        return f"{self.says} {self.next_step}".rstrip()


def before_rounds(
    samples: Sequence[Sample], baseline: str, settings: Settings, workload: int = 0
) -> tuple[Unsuited, ...]:
    """The judgement on the warm-up of one workload, before the first round."""
    well = [sample for sample in samples if sample.failure is None]
    found = [
        *_background(well, baseline, settings, workload),
        *_short(well, baseline, settings, workload),
    ]
    return tuple(found)


def after_round(
    samples: Sequence[Sample],
    baseline: str,
    settings: Settings | None = None,
    workload: int = 0,
) -> tuple[Unsuited, ...]:
    """The judgement on the first round of one workload.

    The warm-up is not judged, because it may wait for files that are not in memory yet.
    """
    own = [sample for sample in samples if sample.counts and sample.trial.contender == baseline]
    share = cpu_share(own)
    if share is None or share > WAITS or min(sample.wall_ns for sample in own) < SHORT_NS:
        return ()
    under_load = settings is not None and bool(settings.workloads[workload].load)
    return (Unsuited(waiting(under_load=under_load), ""),)


def sentences(
    samples: Sequence[Sample], baseline: str, settings: Settings, workload: int = 0
) -> tuple[str, ...]:
    """The sentences at the beginning of the report on one workload.

    A program that waits is not one of them: the verdict begins with it (`cairn.verdict`).
    """
    counted = [sample for sample in samples if sample.counts]
    return tuple(one.sentence for one in before_rounds(counted, baseline, settings, workload))


def waiting(*, under_load: bool = False) -> str:
    """The sentence on a program that waits.

    under_load: whether the program is a server, which waits for its load.
    """
    used = f"used at most {100 * WAITS:.0f} % of one CPU"
    if under_load:
        return (
            f"The server {used}: the load is too light for an allocator to change the throughput."
        )
    return f"The program {used}: it mostly waits, so no allocator makes it much faster."


def needs_terminal(errors: str) -> bool:
    """Whether the messages of a program that failed say that it needs a terminal."""
    return _NO_TERMINAL.search(errors) is not None


def idle_server(command: str, where: str) -> str:
    """The sentences on a server that waits for clients at `where`, so that its run never ends."""
    return (
        f"{command} waits for clients at {where} and does not end by itself, so there is no time "
        "to compare. Put a load on it with --while, and write {port} in place of its port"
    )


TERMINAL_ADVICE = (
    "it seems to need a terminal, and a measured run has none: use its batch mode, or put "
    "script -qec 'PROG ARG…' /dev/null behind the '--'"
)


def in_background(samples: Sequence[Sample]) -> bool:
    """Whether processes were alive at the end of the command, in every one of these runs.

    A process that was about to end may be left behind in one run, and not in all.
    """
    return bool(samples) and all(sample.left_behind > 0 for sample in samples)


def _background(
    samples: Sequence[Sample], baseline: str, settings: Settings, workload: int
) -> Iterator[Unsuited]:
    # A server under a load is ended by Cairn. Its children may end a moment later.
    if settings.wait_descendants or settings.instructions or settings.workloads[workload].load:
        return
    own = [sample for sample in samples if sample.trial.contender == baseline]
    if not own or not in_background(samples):
        return
    wall = statistics.median(sample.wall_ns for sample in own)
    left = max(sample.left_behind for sample in own)
    went = "1 of its processes" if left == 1 else f"{left} of its processes"
    name = os.path.basename(settings.workloads[workload].command[0])
    option = _FOREGROUND.get(name, "often --foreground")
    yield Unsuited(
        f"The command ended after {units.time(wall)}, but {went} went on in the background. Cairn "
        f"ended them, so all numbers are those of the first {units.time(wall)} alone.",
        "Use --wait-descendants to measure them to their end, or start the program so that it "
        f"stays in the foreground ({option}).",
        hopeless=wall < STARTER_NS,
    )


def _short(
    samples: Sequence[Sample], baseline: str, settings: Settings, workload: int
) -> Iterator[Unsuited]:
    own = [sample for sample in samples if sample.trial.contender == baseline]
    # With --repeat, a run of the warm-up is no batch yet. In the rounds, --repeat auto may choose
    # batches of a single run.
    in_batches = settings.repeat != 1 and not any(sample.counts for sample in own)
    in_batches = in_batches or any(sample.repeats > 1 for sample in own)
    if settings.reports or settings.instructions or in_batches:
        return
    walls = [sample.wall_ns for sample in own]
    if not walls or statistics.median(walls) >= SHORT_NS:
        return
    if settings.workloads[workload].load:
        yield Unsuited(
            f"The load takes {_SHORT}, and its start and first requests are much of that.",
            "Give it more requests.",
        )
        return
    advice = (
        "Give the program more work."
        if settings.by_cell
        else "Give the program more work, or use --repeat "
        f"{'auto' if settings.repeat == 1 else 'N'}: then each number is the mean of several runs."
    )
    yield Unsuited(
        f"A run takes {_SHORT}, and the start of the process is part of that.",
        advice,
    )


def machine_is_busy(samples: Sequence[Sample], baseline: str) -> bool:
    """Whether other programs had the CPUs for more than half of the time under the baseline.

    Only a program that uses less than half a CPU is judged. In a program that uses more, threads
    may wait for a CPU on which another thread of the same program runs.
    """
    own = [sample for sample in samples if sample.counts and sample.trial.contender == baseline]
    shares = [(sample.queued_ns or 0) / max(1, sample.wall_ns) for sample in own]
    used = [(sample.user_ns + sample.system_ns) / max(1, sample.wall_ns) for sample in own]
    return bool(own) and statistics.median(shares) > 0.5 and statistics.median(used) < 0.5


def cpu_share(samples: Sequence[Sample]) -> float | None:
    """CPU time divided by the wall time in which the program could have had a CPU, as a median.

    The time in which other programs had the CPUs does not count as waiting. On a busy machine, a
    program that is always ready to run may get only a small part of the time, and still it does not
    wait. None without samples.
    """
    shares = [
        cpu_ns / max(sample.wall_ns - (sample.queued_ns or 0), min(cpu_ns, sample.wall_ns), 1)
        for sample in samples
        if sample.wall_ns > 0
        for cpu_ns in [sample.user_ns + sample.system_ns]
    ]
    return statistics.median(shares) if shares else None
