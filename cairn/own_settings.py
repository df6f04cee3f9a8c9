"""The settings of one program of a run, where they differ from those of the whole run."""

from __future__ import annotations

from msgspec import Struct


class OwnSettings(Struct, frozen=True):
    """Conditions of the trials of one program. None means that the run's setting holds.

    The fields up to `timeout_s` have the names and meanings of the fields of `Settings`.
    """

    shell: bool | None = None
    stdin: str | None = None
    prepare: str | None = None
    conclude: str | None = None
    ready: str | None = None
    ok_exit: tuple[int, ...] | None = None
    verify_output: bool | None = None
    reports: bool | None = None
    timeout_s: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the program, as (name, value)."""
    written: tuple[str, ...] = ()
    """Files that the program has to write. Their content is compared."""
