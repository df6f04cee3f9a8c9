"""Compares a trial with earlier trials of its program: the environment, the output, the load."""

from __future__ import annotations

from msgspec.structs import replace

from cairn import units
from cairn.errors import UsageError
from cairn.model import Sample, Settings


def refuse_other_environment(sample: Sample, before: Sample) -> None:
    """Raises UsageError if variables that an allocator reads changed since an earlier trial.

    That can happen when a run is resumed. One run must not mix two environments.

    before: an earlier trial of the same contender on the same workload.
    """
    if sample.failure is None and before.proof.knobs != sample.proof.knobs:
        changed = sorted(before.proof.knobs.keys() ^ sample.proof.knobs.keys()) or sorted(
            sample.proof.knobs
        )
        raise UsageError(
            f"{', '.join(changed)} is not as it was when this run began; "
            "set it as it was, or begin a new run"
        )


def verified(sample: Sample, first: Sample, settings: Settings, baseline: str) -> Sample:
    """The sample, marked as failed if its output differs from that of the baseline.

    With --verify same-output, the whole output must be the same. For built-in workloads, the
    checksum in the report must be the same. The files that a plan's program writes must always be
    the same. Older versions of cairn kept no checksum of these files in some runs. If the first
    trial has no checksum, there is nothing to compare with.

    first: the baseline's first trial of the workload that did not fail. settings: those of the
    workload.
    """
    if sample.failure is None and first.load and not sample.load:
        why = f"was loaded, but its load printed no numbers as it did under {baseline}"
        return replace(sample, failure=why)
    if sample.failure is not None:
        return sample
    if settings.verify_output and " " in (sample.output_digest or ""):
        why = "printed something else in some of its runs (--verify same-output)"
        return replace(sample, failure=why)
    if first.output_digest in (None, sample.output_digest):
        return sample
    written = settings.workloads[sample.trial.workload].own.written
    if not (settings.verify_output or settings.reports or written):
        return sample
    own = sample.trial.contender == baseline
    other = "than in its first run" if own else f"than under {baseline}"
    if settings.reports:
        return replace(sample, failure=f"computed another checksum {other}")
    if not settings.verify_output:
        option = " (a plan allows that without 'writes')" if own else ""
        return replace(sample, failure=f"wrote something else {other}{option}")
    option = "" if settings.by_cell else " (--verify same-output)"
    if settings.by_cell and own:
        option = " (a plan allows that with 'unchecked')"
    return replace(sample, failure=f"printed something else {other}{option}")


def beside_successes(sample: Sample, good: int) -> Sample:
    """The sample. If it failed, the failure also says how often this contender succeeded.

    good: the number of earlier trials of the contender on the workload that did not fail.
    """
    if not good or sample.failure is None:
        return sample
    # A failure that begins so already has such a number, or says that the proof of load failed.
    if sample.failure.startswith("failed: "):
        return sample
    return replace(
        sample, failure=f"{sample.failure}; {units.counted(good, 'run')} before had succeeded"
    )
