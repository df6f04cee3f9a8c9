"""Makes the report of a run, and reads the list of faults that change nothing observable."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from mutants.copy import ROOT
from mutants.fault import squeezed
from mutants.lane import NOTICED, SURVIVED, Planted

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
LEAST = 0.95
Key = tuple[str, str, str]


class Stale(Exception):
    """Raised if an explanation belongs to a line that no longer exists."""


def explained(file: Path = EQUIVALENT, root: Path = ROOT) -> dict[Key, str]:
    """Returns the reason why no test can notice a fault, by (file, lines before, lines after)."""
    found: dict[Key, str] = {}
    for entry in tomllib.loads(file.read_text()).get("fault", []):
        path, before, after = (
            entry["file"],
            squeezed(entry["before"].splitlines()),
            entry["after"].splitlines(),
        )
        source = root / path
        if (
            not source.is_file()
            or f"\n{before}\n" not in f"\n{squeezed(source.read_text().splitlines())}\n"
        ):
            raise Stale(
                f"{file.name} explains a fault of {path} in a line that no longer exists: {before}"
            )
        found[path, before, squeezed(after)] = entry["reason"]
    return found


def told(seed: int, planted: Iterable[Planted], known: Mapping[Key, str]) -> tuple[str, float]:
    """Returns the report, and the share of the faults that were noticed or explained."""
    real = [one for one in planted if one.outcome in (NOTICED, SURVIVED)]
    survived = [one for one in real if one.outcome == SURVIVED]
    reasons = {
        one: known.get((one.path, squeezed(one.before), squeezed(one.after))) for one in survived
    }
    noticed = len(real) - len(survived)
    equivalent = sum(reason is not None for reason in reasons.values())
    share = (noticed + equivalent) / len(real) if real else 1.0
    lines = [
        f"seed {seed}: {len(real)} faults planted, {noticed} noticed, {equivalent} explained,"
        f" {len(survived) - equivalent} not noticed ({share:.1%} noticed or explained)"
    ]
    for title, wanted in (
        ("not noticed", False),
        ("explained: nothing observable changes", True),
    ):
        chosen = [one for one in survived if (reasons[one] is not None) == wanted]
        if chosen:
            lines += ["", f"{title}:"]
        for one in chosen:
            reason = reasons[one] or one.by or f"{one.tests} tests pass"
            lines += [f"{one.where}  {one.kind}: {reason}", *diff(one)]
    lines += ["", "noticed:"]
    for one in real:
        if one.outcome == NOTICED:
            lines += [f"{one.where}  {one.kind}: {one.by} ({one.seconds} s)", *diff(one)]
    return "\n".join(lines) + "\n", share


def diff(one: Planted) -> list[str]:
    """Returns the changed lines."""
    return [*(f"  - {line}" for line in one.before), *(f"  + {line}" for line in one.after)]
