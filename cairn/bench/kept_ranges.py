"""The ranges that come with Cairn: a compressed file that `cairn matrix ranges --keep` wrote.

tools/judge_ranges.py makes the file from two runs of the plan `judge`. docs/judge.md describes
these runs.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec

from cairn.errors import CairnError, UsageError, cannot
from cairn.run.stored_run import DamagedFile, other_version
from cairn.why.ranges import Cost, ProfileTable

KEPT = Path(__file__).parent / "ranges.json.xz"
_VERSION = 1
_LARGEST = 64 << 20
_DIGITS = 4
_MAKE_AGAIN = "make it with 'cairn matrix ranges RUN --keep FILE'"

Row = tuple[float, ...]


class _File(msgspec.Struct):
    """The content of the file."""

    version: int
    about: str
    """Sentences on the origin of the runs: the machine, the date, and the version of cairn."""
    baseline: str
    titles: dict[str, str]
    programs: list[str]
    ill: list[str]
    groups: dict[str, list[str]]
    values: dict[str, dict[str, dict[str, Row]]]
    """By metric, program and contender: the value and the two ends of its interval; the value alone
    if all three are equal."""
    costs: dict[str, dict[str, tuple[float, float]]]
    """By program and contender: CPU time and memory, divided by the baseline's; 0 if not known."""


def encoded(table: ProfileTable, about: str) -> bytes:
    """Returns the content of the file, with four significant digits."""
    values: dict[str, dict[str, dict[str, Row]]] = {}
    for program, row in table.cells.items():
        for name, of in row.items():
            for key, number in of.items():
                short = tuple(_short(one) for one in number)
                kept = short[:1] if len(set(short)) == 1 else short
                values.setdefault(key, {}).setdefault(program, {})[name] = kept
    costs = {
        program: {name: (_short(one.cpu), _short(one.memory)) for name, one in row.items()}
        for program, row in table.costs.items()
    }
    content = _File(
        _VERSION, about, table.baseline, dict(table.titles), list(table.programs), list(table.ill),
        {name: list(of) for name, of in table.groups.items()}, values, costs,
    )  # fmt: skip
    return lzma.compress(msgspec.json.encode(content), preset=9)


def _short(number: float | None) -> float:
    return float(f"{number:.{_DIGITS}g}") if number is not None else 0.0


def read(path: Path = KEPT) -> tuple[ProfileTable, str]:
    """Returns the kept table, and sentences about its runs.

    Raises UsageError if there is no such file, and CairnError if it is damaged.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(_LARGEST + 1)
        if len(packed) > _LARGEST:
            raise CairnError(f"{path} is too large for kept ranges; {_MAKE_AGAIN}")
        unpacking = lzma.LZMADecompressor(memlimit=256 << 20)
        found = msgspec.json.decode(unpacking.decompress(packed, _LARGEST), type=_File)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; {_MAKE_AGAIN}") from None
    except OSError as error:
        raise cannot("read", path, error) from error
    except (lzma.LZMAError, EOFError, msgspec.DecodeError, ValueError) as error:
        raise CairnError(f"{path} holds no ranges: {error}; {_MAKE_AGAIN}") from error
    if found.version != _VERSION:
        raise other_version(path, found.version, f"version {_VERSION}")
    return _table(found, path), found.about


def _table(found: _File, path: Path) -> ProfileTable:
    cells: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {}
    for key, programs in found.values.items():
        for program, row in programs.items():
            for name, of in row.items():
                low, high = min(of, default=-1.0), max(of, default=-1.0)
                if len(of) not in (1, 3) or low < 0 or not low <= of[0] <= high < float("inf"):
                    raise DamagedFile(str(path), f"{key} of {name} is not a number", _MAKE_AGAIN)
                if name not in found.titles or program not in found.programs:
                    why = f"it does not list {name} or {program}"
                    raise DamagedFile(str(path), why, _MAKE_AGAIN)
                number = (of[0], of[1], of[2]) if len(of) == 3 else (of[0], of[0], of[0])
                cells.setdefault(program, {}).setdefault(name, {})[key] = number
    costs = {
        program: {name: Cost(cpu or None, memory or None) for name, (cpu, memory) in row.items()}
        for program, row in found.costs.items()
    }
    for program, cell in cells.items():
        for name in cell:
            costs.setdefault(program, {}).setdefault(name, Cost(None, None))
    return ProfileTable(
        found.baseline, found.titles, tuple(found.programs), cells, costs,
        {name: tuple(of) for name, of in found.groups.items()}, tuple(found.ill),
    )  # fmt: skip
