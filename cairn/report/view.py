"""The form of a report, its extent and its width."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Form = Literal["text", "md", "json", "csv", "tex", "svg", "html"]

WIDTH = 100
"""Columns of a text that is not written to a terminal."""


class View(Struct, frozen=True):
    """How a report is shown."""

    form: Form = "text"
    full: bool = False
    """Whether to add details: all columns, spread and range of every metric, each workload by
    itself."""
    color: bool = False
    width: int = WIDTH
    """Columns of a text. Other forms ignore it."""
