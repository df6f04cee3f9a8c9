"""Reads what a program printed and wrote in a trial: messages, reports, digests, counts."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cairn.model import Reported
from cairn.run import workloads

TAIL_BYTES = 4096
"""The number of bytes at the end of stderr that are kept."""


def reported(path: Path) -> tuple[Reported | None, str | None, str | None]:
    """A workload's report and its digest, or the failure if there is no valid report.

    The digest must be the same under every contender; see workloads.digest().
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - workloads.LINE_MAX_BYTES))
            found = workloads.reported(file.read())
    except OSError as error:
        return None, None, f"left no readable report: {error.strerror}"
    except workloads.NotReported as error:
        return None, None, str(error)
    return found, workloads.digest(found), None


def counted(errors: str) -> tuple[float | None, str]:
    """Returns callgrind's count of the command's instructions, and the command's own stderr.

    The count covers all threads of the command. It is None if callgrind printed no count.
    """
    counts = re.findall(r"^==\d+== Collected : (\d+)$", errors, re.MULTILINE)
    own_errors = re.sub(r"^==\d+==.*\n?", "", errors, flags=re.MULTILINE)
    return (float(counts[-1]) if counts else None), own_errors[-TAIL_BYTES:]


def digest_of(files: Sequence[Path]) -> tuple[str | None, str | None]:
    """Returns the digest of all files together, or the failure if one is missing.

    The digest of a single file is its SHA-256.
    """
    digests = []
    for path in files:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            return None, f"did not write {path}: {error.strerror}"
    if len(digests) == 1:
        return digests[0], None
    return hashlib.sha256("\n".join(digests).encode()).hexdigest(), None


def tail(path: Path, limit: int = TAIL_BYTES) -> str:
    """The end of a text file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_line(text: str) -> str:
    """The last non-empty line, at most 200 characters of it; empty if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
