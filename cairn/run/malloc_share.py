"""Runs a program once with the probe preloaded to find how much of its memory malloc provides."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cairn.allocators.contenders import behind_probe
from cairn.doctor.program_checks import Reached
from cairn.errors import UsageError
from cairn.model import Contender, Settings, Trial
from cairn.run.runner import Runner, private_folder

_SOAK_S = 5.0
"""The longest run of a program of 'cairn soak', which may be meant to run for hours. This time is
also the shortest that 'cairn soak' permits."""


def look(settings: Settings, contender: Contender, told: Callable[[str], None]) -> Reached | None:
    """Runs the first workload under this contender, with the probe preloaded.

    told: shows the user a failure of --cleanup, which changes no result.

    Returns None if the run fails; the comparison will then fail in the same way and report it.
    Raises UsageError when --setup, --prepare or --conclude fails.
    """
    behind = (
        contender
        if contender.probed
        else replace(contender, probed=True, spec=behind_probe(contender.spec))
    )
    length_s = None if settings.soak_s is None else min(settings.soak_s, _SOAK_S)
    with private_folder() as scratch:
        runner = Runner(replace(settings, why=True, soak_s=length_s), [behind], scratch)
        if settings.setup is not None:
            runner.hook("setup", settings.setup)
        try:
            sample, _ = runner.trial(Trial(0, 0, behind.name), watch=True)
        finally:
            if settings.cleanup is not None:
                try:
                    runner.hook("cleanup", settings.cleanup)
                except UsageError as error:
                    told(str(error))
    summary = sample.probe
    if sample.failure is not None or summary is None:
        return None
    return Reached(summary.operations, summary.live_bytes, summary.resident_bytes)
