"""A run as CSV, one row per trial, for a user's own statistics."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

from cairn.clock_samples import CpuSamples
from cairn.model import Run, Sample, value
from cairn.report.formatting import printable

_COLUMNS = (
    "run", "workload", "round", "position", "contender", "title", "counts", "failure", "started_at",
    "exit_code", "signal", "timed_out", "wall_ns", "user_ns", "system_ns", "cpu_percent",
    "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "peak_bytes",
    "largest_process_bytes", "peak_less_lazy_bytes", "lazy_peak_bytes", "memory_method",
    "processes", "processes_loaded", "processes_unreached", "malloc_owner", "left_behind",
)  # fmt: skip

_REPORTED = (
    "active_ns", "operations", "batches", "operation_mean_ns", "operation_median_ns",
    "operation_p95_ns", "operation_p99_ns", "busy_ns", "idle_ns", "workload_minor_faults",
    "checksum", "live_peak_bytes",
)  # fmt: skip
"""Columns of the reports of built-in workloads. They are absent if no sample has a report."""

_OVER_TIME = ("mean_memory", "idle_memory", "growth")
"""Columns of memory over time, in bytes. Each is absent if no sample has the number."""

_NOTED = ("own", "calls", "faults", "others", "program", "unknown", "interrupts")
"""Columns of the clock samples of plain runs, in nanoseconds. They are absent if no run has clock
samples."""


def render(run: Run, samples: Sequence[Sample]) -> str:
    """Returns all trials in the order they ran, with the warm-up as round 0.

    An empty field means not measured.
    """
    titles = {contender.name: contender.title for contender in run.contenders}
    workloads = [workload.name for workload in run.settings.workloads]
    metrics = sorted({name for sample in samples for name in sample.metrics})
    counters = sorted({name for sample in samples for name in sample.counters})
    loads = sorted({name for sample in samples for name in sample.load})
    reports = [sample.reported for sample in samples if sample.reported is not None]
    figures = sorted({name for report in reports for name in report.figures})
    reported = _REPORTED if reports else ()
    noted = (
        [f"clock:{name}_ns" for name in _NOTED]
        if any(sample.cpu_samples for sample in samples)
        else []
    )
    over_time = [
        name for name in _OVER_TIME if any(value(one, name) is not None for one in samples)
    ]
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    named = (("metric", metrics), ("load", loads), ("counter", counters), ("figure", figures))
    writer.writerow(
        [
            *_COLUMNS,
            *reported,
            *noted,
            *(f"{name}_bytes" for name in over_time),
            *(f"{kind}:{name}" for kind, names in named for name in names),
        ]
    )
    for sample in samples:
        cpu = value(sample, "cpu")
        row: list[object] = [
            run.id, workloads[sample.trial.workload], sample.trial.round, sample.trial.position,
            sample.trial.contender, titles.get(sample.trial.contender, ""), int(sample.counts),
            sample.failure, f"{sample.started_at:.3f}", sample.exit_code, sample.signal,
            int(sample.timed_out), sample.wall_ns, sample.user_ns, sample.system_ns,
            None if cpu is None else f"{cpu:.1f}", sample.minor_faults, sample.major_faults,
            sample.voluntary_switches, sample.involuntary_switches, sample.memory.peak_bytes,
            sample.largest_process_bytes, sample.memory.peak_less_lazy_bytes,
            sample.memory.lazy_peak_bytes, sample.memory.method, sample.proof.processes,
            sample.proof.loaded, len(sample.proof.unreached), sample.proof.owner,
            sample.left_behind,
        ]  # fmt: skip
        row += _reported(sample) if reported else []
        where = sample.cpu_samples
        row += [_noted_ns(where, name) for name in _NOTED] if noted else []
        row += [value(sample, name) for name in over_time]
        row += [sample.metrics.get(name) for name in metrics]
        row += [sample.load.get(name) for name in loads]
        row += [sample.counters.get(name) for name in counters]
        row += [value(sample, f"figure:{name}") for name in figures]
        writer.writerow([inert(printable(cell) if isinstance(cell, str) else cell) for cell in row])
    return file.getvalue()


def _noted_ns(where: CpuSamples | None, name: str) -> int | None:
    """Returns the CPU time of one place by its clock samples; None if it was not measured."""
    number = getattr(where, name, None)
    return None if where is None or number is None else number * where.period_ns


def _reported(sample: Sample) -> list[object]:
    """Returns the workload's own report in the order of _REPORTED; all None if it printed none."""
    own = sample.reported
    if own is None:
        return [None] * len(_REPORTED)
    return [
        sample.wall_ns - own.idle_ns, own.operations, own.batches, own.mean_ns, own.median_ns,
        own.p95_ns, own.p99_ns, own.busy_ns, own.idle_ns, own.minor_faults, own.checksum,
        own.live_peak_bytes,
    ]  # fmt: skip


def inert(cell: object) -> object:
    """Quotes text that a spreadsheet would run as a formula. Numbers stay numbers."""
    if (
        isinstance(cell, str)
        and cell[:1] in ("=", "+", "-", "@", "\t", "\r")
        and not _is_number(cell)
    ):
        return "'" + cell
    return cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
