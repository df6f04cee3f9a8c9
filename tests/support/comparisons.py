"""Makes invented runs and comparisons for tests of reports."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.compare import comparison
from cairn.doctor import machine
from cairn.memory import Memory
from cairn.model import (
    SCHEMA,
    Contender,
    Proof,
    Run,
    Sample,
    Settings,
    StopRule,
    Trial,
    Workload,
)

EVIL = "evil\x1b[31m\u009b\u202e<script>|*"


def a_sample(round_: int, contender: str, wall_ms: float, **more: object) -> Sample:
    sample = Sample(
        trial=Trial(round_, 0, contender),
        started_at=1e9,
        exit_code=0,
        signal=None,
        timed_out=False,
        wall_ns=int(wall_ms * 1e6),
        user_ns=int(wall_ms * 8e5),
        system_ns=int(wall_ms * 1e5),
        minor_faults=1000,
        major_faults=0,
        voluntary_switches=1,
        involuntary_switches=2,
        memory=Memory("cgroup v1", 100 << 20, 100 << 20, 0),
        proof=Proof(2, 2, "/lib/libc.so.6"),
    )
    return replace(sample, **more)  # type: ignore[arg-type]


def a_run(*contenders: Contender) -> Run:
    everybody = contenders or (
        Contender("system", "system", "glibc 2.36"),
        Contender("fast", "custom", "libfast.so"),
    )
    return Run(
        schema=SCHEMA,
        id="20260101-000000-abcd",
        created_at=1e9,
        cairn="0",
        settings=Settings(workloads=(Workload(f"prog {EVIL}", ("prog", EVIL)),), folder="/"),
        contenders=everybody,
        baseline="system",
        rule=StopRule(precision=None, max_rounds=12),
        seed=1,
        host=machine.host(),
    )


def samples(fast: float = 80.0, **more: object) -> list[Sample]:
    result = []
    for round_ in range(1, 13):
        result.append(a_sample(round_, "system", 100 + round_ % 3))
        result.append(a_sample(round_, "fast", fast + round_ % 4, **more))
    return result


def compared(run: Run, of: list[Sample]) -> object:
    return comparison.compare(
        of, run.contenders, run.baseline, run.rule, stopped_because="12 rounds"
    )
