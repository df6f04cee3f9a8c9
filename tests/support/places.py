"""The folders of the sources that tests compile."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
PROGRAMS = SUPPORT / "programs"
"""Programs for tests to start, and libraries to preload into programs."""
ILL = SUPPORT.parents[1] / "cairn" / "bench" / "ill"
"""Libraries that give a healthy allocator one illness each."""
