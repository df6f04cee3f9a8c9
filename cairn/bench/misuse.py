"""Runs the program cairn-misuse: every scenario with every size of block under every contender."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cairn import native
from cairn.allocators import discover
from cairn.allocators.contenders import parse_contender, refuse_duplicates, resolve
from cairn.compare.misuse import (
    BLOCKS,
    MisuseCell,
    MisuseScenario,
    MisuseTable,
    NotJudged,
    judge,
    worst,
)
from cairn.errors import CairnError, ContenderFailed
from cairn.model import Contender
from cairn.run import foreground
from cairn.run.runner import carried, private_folder

NAME = "misuse"
TITLE = "28 misuses of memory with six sizes of block: caught, neutral or exploitable"
SECONDS = 20.0
"""Expected duration for one contender."""
_TIMEOUT_S = 60.0
"""The time limit of one attack. The program ends itself after 20 ticks, one each second
(SECONDS_MOST in src/misuse/misuse.c). An overloaded machine may lose ticks, so this limit is
longer."""


def scenarios() -> tuple[MisuseScenario, ...]:
    """The scenarios that the program has."""
    done = subprocess.run([native.misuse()], capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return tuple(MisuseScenario(name, int(attacks), title) for name, attacks, title in rows)


def default_contenders() -> tuple[str, ...]:
    """The system's allocator, cairn's own, and the hardened ones that are on this machine."""
    usable = [item.allocator for item in discover.discover() if item.problem is None]
    own = [entry.name for entry in usable if entry.name in ("system", "cairn")]
    hardened = [entry.name for entry in usable if entry.hardened]
    return tuple(dict.fromkeys((*own, *hardened)))


def resolved(specs: Sequence[str]) -> tuple[Contender, ...]:
    """The contenders of these arguments of -a. Raises the errors of `resolve`."""
    parsed = [parse_contender(spec) for spec in specs]
    refuse_duplicates(parsed)
    found = discover.discover(names=[spec.allocator for spec in parsed])
    return tuple(resolve(spec, found) for spec in parsed)


def measure(
    contenders: Sequence[Contender],
    times: int,
    say: Callable[[str], None],
    *,
    blocks: tuple[int, ...] = BLOCKS,
) -> MisuseTable:
    """Runs every attack `times` times, and returns the table. `say` reports each contender.

    Raises ContenderFailed if a contender is not proved to be loaded, or if the program cannot do a
    misuse under it.
    """
    known = scenarios()
    cells: list[MisuseCell] = []
    for contender in contenders:
        say(f"{contender.title}: {len(known) * len(blocks)} cells")
        _prove(contender)
        with private_folder() as scratch:
            cells += _cells(carried(contender, scratch), known, blocks, times)
    return MisuseTable(
        tuple(one.name for one in contenders),
        tuple(one.title for one in contenders),
        known,
        blocks,
        tuple(cells),
    )


def _prove(contender: Contender) -> None:
    """Runs the program without a misuse. Raises ContenderFailed if the contender is not loaded."""
    ended = foreground.run(contender, [str(native.misuse())], quiet=True)
    if ended.problem is not None or ended.exit_code != 0:
        raise ContenderFailed(
            f"{contender.name}: {ended.problem or f'the program ends with {ended.exit_code}'}"
        )


def _cells(
    contender: Contender, known: Sequence[MisuseScenario], blocks: Sequence[int], times: int
) -> Iterator[MisuseCell]:
    environment = _environment(contender)
    program = native.misuse()

    def cell(place: tuple[MisuseScenario, int]) -> MisuseCell:
        scenario, size = place
        tried = [
            (attack, *_attack(program, environment, contender, scenario, size, attack))
            for attack in range(scenario.attacks)
            for _ in range(times)
        ]
        attack, verdict, how = worst(tried)
        return MisuseCell(contender.name, scenario.name, size, verdict, attack, how)

    places = [(scenario, size) for scenario in known for size in blocks]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(cell, places)


def _environment(contender: Contender) -> dict[str, str]:
    """The environment of the program.

    Only the contender is preloaded, because the blocks of other libraries would change the cells.
    """
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    environment |= dict(contender.knobs)
    if contender.preload:
        environment["LD_PRELOAD"] = ":".join(contender.preload)
    if contender.library_path:
        environment["LD_LIBRARY_PATH"] = ":".join(contender.library_path)
    return environment


def _attack(
    program: Path,
    environment: dict[str, str],
    contender: Contender,
    scenario: MisuseScenario,
    size: int,
    attack: int,
) -> tuple[str, str]:
    command = [str(program), scenario.name, str(size), str(attack)]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CairnError(
            f"'{' '.join(command)}' does not end; the machine may be overloaded: try again later"
        ) from None
    output, errors = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
    try:
        return judge(output, errors, done.returncode)
    except NotJudged as error:
        raise ContenderFailed(
            f"the scenario {scenario.name} with blocks of {size} bytes cannot run under "
            f"{contender.name}: {error}"
        ) from None
