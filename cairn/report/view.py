"""How a report is to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["text", "md", "json", "csv"]

WIDTH = 100
"""Columns of a text that does not go to a terminal."""


@dataclass(frozen=True, slots=True)
class View:
    """The form of a report, how much of it, and for which screen."""

    form: Form = "text"
    full: bool = False
    """Also the details: spread and range of every metric, each workload by itself."""
    color: bool = False
    width: int = WIDTH
    """Columns; of a text only."""
