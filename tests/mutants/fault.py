"""A fault is one small change of one file. The seed alone determines which faults a run plants."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Candidates = Callable[[str], dict[int, dict[str, list[Callable[[], str]]]]]
"""A function that takes the text of a file and returns all its possible faults, by line and by kind
of fault. Each fault is a function that returns the text with this fault."""


@dataclass(frozen=True)
class Fault:
    """One change, as the lines that it removes and adds."""

    path: str
    line: int
    kind: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    text: str
    """The whole file with the fault in it."""

    @property
    def where(self) -> str:
        """The place, in the format of compilers."""
        return f"{self.path}:{self.line}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the fault, even after other lines of the file have changed."""
        return self.path, squeezed(self.before), squeezed(self.after)

    @property
    def diff(self) -> str:
        """The removed and the added lines, as text for the report."""
        return "\n".join(
            [*(f"  - {line}" for line in self.before), *(f"  + {line}" for line in self.after)]
        )


def squeezed(lines: Sequence[str]) -> str:
    """Returns the lines without indentation. So they stay the same if a block is indented anew."""
    return "\n".join(line.strip() for line in lines)


def fault(path: str, kind: str, text: str, changed: str) -> Fault:
    """Returns the fault that turns `text` into `changed`."""
    old, new = text.splitlines(), changed.splitlines()
    same = [before == after for before, after in zip(old, new, strict=False)]
    first = same.index(False) if False in same else len(same)
    most = min(len(old), len(new)) - first
    last = next((count for count in range(most) if old[-1 - count] != new[-1 - count]), most)
    return Fault(
        path,
        first + 1,
        kind,
        tuple(old[first : len(old) - last]),
        tuple(new[first : len(new) - last]),
        changed,
    )


def draw(root: Path, files: Sequence[str], candidates: Candidates, seed: int) -> Iterator[Fault]:
    """Yields faults in random order.

    Every line that can have a fault is equally likely, and is drawn once.

    All kinds of fault of a line are equally likely, too. Otherwise most faults in a call with many
    arguments would be missing arguments.

    The place of a line in the order follows from the seed, its file, its text, and how often the
    same text stands above it in the file. So a change of some lines leaves the faults of all others
    as they were, and two runs of a seed can be compared after a change of the sources.
    """
    texts = {path: (root / path).read_text() for path in files}
    lines = []
    for path in files:
        above: Counter[str] = Counter()
        for number, line in enumerate(texts[path].splitlines(), 1):
            key = f"{seed}\0{path}\0{line.strip()}\0{above[line.strip()]}"
            above[line.strip()] += 1
            if line.strip():
                lines.append((hashlib.sha256(key.encode()).hexdigest(), path, number))
    found: dict[str, dict[int, dict[str, list[Callable[[], str]]]]] = {}
    for drawn, path, number in sorted(lines):
        if path not in found:
            found[path] = candidates(texts[path])
        kinds = found[path].get(number)
        if kinds:
            choice = random.Random(drawn)
            kind = choice.choice(sorted(kinds))
            yield fault(path, kind, texts[path], choice.choice(kinds[kind])())
