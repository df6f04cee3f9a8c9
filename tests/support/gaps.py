"""Makes invented trials of two contenders with --why, in which every part of the gap is known."""

from __future__ import annotations

from msgspec.structs import replace
from support.comparisons import a_run, a_sample

from cairn.clock_samples import CpuSamples, FunctionSamples
from cairn.model import Calls, Contender, Operations, ProbeSummary, Run, Sample, twin
from cairn.why.gap import explain
from cairn.why.parts import Gap, Part

MS = 1_000_000
MIB = 1 << 20


def an_account(**more: object) -> ProbeSummary:
    """Returns the probe's summary of a run of 100 ms user and 20 ms system time.

    40 of these 120 ms are in the allocator. 6 of these 40 ms are in its system calls.
    """
    made = ProbeSummary(
        operations=3_000_000,
        cpu_ns=120 * MS,
        samples=120,
        samples_inside=40,
        samples_probe=12,
        kinds={
            "new": Operations(100_000, 400, 4.0 * MS, 30.0),
            "reused": Operations(1_400_000, 6_000, 14.0 * MS, 9.0),
            "free, local": Operations(1_500_000, 6_000, 15.0 * MS, 9.0),
        },
        calls={"munmap": Calls(100, 1 << 20, 6.0 * MS)},
        kernel_ns=6.0 * MS,
        waiting_ns=0.0,
        waits=0,
        faults=1400,
        faults_inside=200.0,
        live_bytes=64 * MIB,
        slack_bytes=8 * MIB,
        resident_bytes=100 * MIB,
        live_counted=True,
        processors=64.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def trials(
    name: str, user_ms: float = 90.0, system_ms: float = 20.0, **probe: object
) -> list[Sample]:
    """Returns a warm-up and eight rounds of a contender. Each has a plain run and a probed run.

    `probe` changes fields of the probe's summary. Times scatter by a thousandth.
    """
    made = []
    for round_ in range(9):
        off = 1 + (round_ % 4 - 1.5) / 1500
        plain = {
            "user_ns": round(user_ms * MS * off),
            "system_ns": round(system_ms * MS),
            "minor_faults": 1400,
        }
        made.append(a_sample(round_, name, 120, **plain))
        known = an_account(**probe)
        probed = {
            "user_ns": round(100 * MS * off),
            "system_ns": 20 * MS,
            "minor_faults": 1400,
            "probe": known,
        }
        made.append(a_sample(round_, twin(name), 130, **probed))
    return made


def why_run(*names: str) -> Run:
    plain = [Contender(name, "custom", name) for name in ("system", *names)]
    run = a_run(*plain, *(replace(one, name=twin(one.name), probed=True) for one in plain))
    return replace(run, settings=replace(run.settings, why=True))


def gap(samples: list[Sample], of: str = "time") -> Gap:
    found = explain(why_run("fast"), samples, "fast", "system")
    chosen = found.time if of == "time" else found.memory
    assert found.why_not == "" and found.rounds == 8 and chosen is not None
    return chosen


def part(of: Gap, name: str) -> Part:
    return next(one for one in of.parts if one.name == name)


def looked_at(samples: list[Sample], **counts: int) -> list[Sample]:
    """Returns the trials, with these numbers of clock samples (0.5 ms each) in the plain runs."""
    known = {"own": 60, "calls": 12, "faults": 22, "interrupts": 4, "others": 10, "program": 110}
    own = (known | counts)["own"]
    names = ("malloc", "free", "_ZN9unchanged", "libc.so.6+0x97a40")
    functions = tuple(
        FunctionSamples(name, "libc.so.6", own // 2**place)
        for place, name in enumerate(names, start=1)
    )
    where = CpuSamples(MS // 2, **(known | counts), functions=functions)
    return [replace(one, cpu_samples=None if one.probe else where) for one in samples]
