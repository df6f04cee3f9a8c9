"""Reads what a program printed and wrote in a trial: messages, reports, digests, counts."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cairn.model import LARGEST_NUMBER, Pattern, Reported
from cairn.run import workloads

TAIL_BYTES = 4096
"""The number of bytes at the end of stderr that are kept."""
_GROUPED = re.compile(r"\s*[-+]?\d{1,3}(,\d{3})+(\.\d*)?([eE][-+]?\d+)?\s*")
"""A number whose digits are grouped by commas. Any other comma may stand before decimals."""
State = tuple[int, ...] | None
"""The state of a file; None if there is none."""


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


def state(path: Path) -> State:
    """The identity, size and times of a file, which any write changes; None if there is none."""
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def unwritten(before: Mapping[Path, State]) -> str | None:
    """The failure if a file is there as it was before the trial; None if all were written.

    An unchanged file comes from an earlier trial. Files are not removed before a trial, because the
    program may be meant to change a file of the user.
    """
    for path, then in before.items():
        if then is not None and state(path) == then:
            return f"did not write {path}: it is as it was before"
    return None


def digest_of(
    printed: Sequence[Path], written: Mapping[Path, State]
) -> tuple[str | None, str | None]:
    """Returns the digest of all files together, or the failure if one was not written.

    The digest of a single file is its SHA-256.

    printed: the files of the output. written: the files that the program has to write, with their
    states before the trial.
    """
    problem = unwritten(written)
    if problem is not None:
        return None, problem
    digests = []
    for path in (*printed, *written):
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        except OSError as error:
            return None, f"did not write {path}: {error.strerror}"
    if len(digests) == 1:
        return digests[0], None
    return hashlib.sha256("\n".join(digests).encode()).hexdigest(), None


def searched(
    patterns: Sequence[Pattern], printed: Sequence[Path], first: str | None = None
) -> tuple[dict[str, float], str | None]:
    """The user's numbers in the output, and the failure if a pattern finds none.

    first: a text in which a pattern is searched before it is searched in the output.
    """
    found: dict[str, float] = {}
    if not patterns:
        return found, None
    text = "\n".join(path.read_text(encoding="utf-8", errors="surrogateescape") for path in printed)
    for pattern in patterns:
        matches = list(re.finditer(pattern.regex, first or "", re.MULTILINE))
        matches = matches or list(re.finditer(pattern.regex, text, re.MULTILINE))
        if not matches:
            return found, f"printed nothing that matches --metric {pattern.name}"
        last = matches[-1]
        number = last[1] if last.re.groups else last[0]
        if number is None:
            return found, f"printed no number in the last match of --metric {pattern.name}"
        try:
            if "," in number and not _GROUPED.fullmatch(number):
                return found, (
                    f"printed {number!r} where --metric {pattern.name} expects a number with a "
                    "decimal point; set LC_ALL=C, or match the digits alone"
                )
            value = float(number.replace(",", "").replace("_", ""))
            if not math.isfinite(value):
                raise ValueError(number)
            if abs(value) >= LARGEST_NUMBER:
                return (
                    found,
                    f"printed {number}, but --metric {pattern.name} takes numbers below 10^15",
                )
            found[pattern.name] = value
        except ValueError:
            return found, f"printed {number!r} where --metric {pattern.name} expects a number"
    return found, None


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
