"""Paths of the native parts of this installation: launcher, injected libraries, workloads.

Every function raises CairnError when the file is missing.
"""

from __future__ import annotations

from pathlib import Path

from cairn.errors import CairnError

_FOLDER = Path(__file__).resolve().parent / "native"


def _part(name: str) -> Path:
    path = _FOLDER / name
    if not path.is_file():
        raise CairnError(
            f"this installation of cairn lacks {name}; install it again with 'make install' or pip"
        )
    return path


def launcher() -> Path:
    """The program that starts, confines, measures and reaps a command."""
    return _part("cairn-launch")


def witness() -> Path:
    """The library that records, in every process, which object owns malloc."""
    return _part("libcairn-witness.so")


def probe() -> Path:
    """The library that is preloaded before an allocator to count and time the calls to it."""
    return _part("libcairn-probe.so")


def instructions() -> Path:
    """The library that is preloaded before an allocator to name its paths for callgrind."""
    return _part("libcairn-instructions.so")


def latency() -> Path:
    """The program that measures how long a load from a cache or from memory takes."""
    return _part("cairn-latency")


def misuse() -> Path:
    """The program of `cairn bench misuse`, which misuses malloc's memory."""
    return _part("cairn-misuse")


def allocator(name: str = "cairn") -> Path:
    """The allocator "cairn" or "cairn-hardened", as a library to preload."""
    return _part(f"lib/lib{name}.so.0")


def workload(program: str) -> Path:
    """A program of the built-in workloads."""
    return _part(f"workloads/{program}")
