"""Recipes of generated inputs: "generate KIND SIZE seed=N" and "run LINE". Pure.

The same recipe gives the same bytes on every machine: only Python's own generator is used, whose
sequence for a seed is fixed.
"""

from __future__ import annotations

import itertools
import random
import re
import struct
from collections.abc import Callable, Iterator

from msgspec import Struct

from cairn import units

GENERATION = 1
"""This number must change when a recipe begins to give other bytes. Inputs are then made anew."""
LARGEST = 4 << 30
_SMALLEST = 1


class Recipe(Struct, frozen=True):
    """A parsed recipe: a kind with its size and seed, or a line for /bin/sh."""

    kind: str = ""
    size: int = 0
    seed: int = 0
    line: str = ""
    """A line that writes {out} and may read {data}; empty for a generated input."""


def parse(text: str) -> Recipe:
    """Parses a recipe. Raises ValueError, whose text is the rest of a sentence."""
    verb, _, rest = text.strip().partition(" ")
    if verb == "run":
        if "{out}" not in rest:
            raise ValueError("a line after 'run' must write to {out}")
        return Recipe(line=rest.strip())
    if verb != "generate":
        raise ValueError(
            "a recipe begins with 'generate' or 'run', as in generate text 1MiB seed=1"
        )
    words = rest.split()
    if len(words) != 3:
        raise ValueError("write 'generate KIND SIZE seed=N', as in generate text 1MiB seed=1")
    kind, size, seed = words
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind}; the kinds are {', '.join(sorted(KINDS))}")
    try:
        number = units.parse_size(size)
    except ValueError as error:
        raise ValueError(str(error)) from None
    if not _SMALLEST <= number <= LARGEST:
        raise ValueError(f"{size} is not between 1 byte and {units.size(LARGEST)}")
    found = re.fullmatch(r"seed=(\d{1,9})", seed)
    if found is None:
        raise ValueError(f"{seed!r} is not a seed; write for example seed=1")
    return Recipe(kind=kind, size=number, seed=int(found[1]))


def content(recipe: Recipe) -> Iterator[bytes]:
    """Yields the bytes of a generated input.

    A kind in `EXACT` has `size` bytes, and a text then ends with a line break. Every other kind
    ends with the record in which it reaches `size` bytes, so that a compiler can read it.
    """
    rng = random.Random(f"{recipe.kind}/{recipe.seed}")
    left = recipe.size
    if recipe.kind in _WHOLE:
        yield from _WHOLE[recipe.kind](rng, recipe.size)
        return
    for part in KINDS[recipe.kind](rng):
        if len(part) >= left and recipe.kind in EXACT:
            yield part[: left - 1] + b"\n" if recipe.kind != "bytes" else part[:left]
            return
        left -= len(part)
        yield part
        if left <= 0:
            return


_SYLLABLE_TEXT = (
    "a an ar be con da de di el en er es for ga hi in is ka la le lo ma me mi mo na ne ni no on or "
    "pa per ra re ri ro sa se si so ta te ti to tra un ur va ve vi za ze zu"
)
_SYLLABLES = _SYLLABLE_TEXT.split()


def _vocabulary(rng: random.Random, number: int = 4_000) -> list[str]:
    return ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(number)]


def _weights(number: int) -> list[float]:
    """Cumulative weights by Zipf's law, which the words of a language follow."""
    total, sums = 0.0, []
    for place in range(number):
        total += 1 / (place + 2)
        sums.append(total)
    return sums


def _text(rng: random.Random) -> Iterator[bytes]:
    words, weights = _vocabulary(rng), _weights(4_000)
    while True:
        picked = rng.choices(words, cum_weights=weights, k=2_000)
        lines = [" ".join(picked[at : at + 12]) for at in range(0, 2_000, 12)]
        yield ("\n".join(lines) + "\n").encode()


def _bytes(rng: random.Random) -> Iterator[bytes]:
    while True:
        yield rng.randbytes(1 << 16)


def _lines(rng: random.Random) -> Iterator[bytes]:
    while True:
        yield "".join(f"{rng.getrandbits(64):016x}\n" for _ in range(1_000)).encode()


def _numbered(row: Callable[[int], str], count: int) -> Iterator[bytes]:
    """Yields lines without end, `count` at a time. `row` makes a line from its number."""
    for first in itertools.count(1, count):
        rows = [row(number) for number in range(first, first + count)]
        yield ("\n".join(rows) + "\n").encode()


def _csv(rng: random.Random) -> Iterator[bytes]:
    words = _vocabulary(rng)

    def row(number: int) -> str:
        return (
            f"{number},{rng.choice(words)},{rng.choice(words[:50])},"
            f"{rng.random() * 1000:.2f},2024-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        )

    yield b"id,name,group,amount,day\n"
    yield from _numbered(row, 40)


def _jsonl(rng: random.Random) -> Iterator[bytes]:
    words = _vocabulary(rng)

    def row(number: int) -> str:
        tags = ",".join(f'"{word}"' for word in rng.choices(words, k=rng.randint(0, 6)))
        return (
            f'{{"id":{number},"name":"{rng.choice(words)}","value":{rng.random():.6f},'
            f'"tags":[{tags}],"place":{{"x":{rng.randint(0, 999)},"y":{rng.randint(0, 999)}}}}}'
        )

    yield from _numbered(row, 20)


def _c(rng: random.Random) -> Iterator[bytes]:
    number = 0
    yield b"struct node { struct node *next; long key; double value; };\n"
    while True:
        parts = []
        for _ in range(3):
            number += 1
            lines = [f"long work_{number}(struct node *from, long count) {{", "    long sum = 0;"]
            lines += [
                f"    for (long i = {rng.randint(0, 9)}; i < count; i += {rng.randint(1, 5)}) "
                f"{{ sum += i * {rng.randint(1, 99)}L ^ (from ? from->key : {step}); }}"
                for step in range(rng.randint(3, 9))
            ]
            lines += ["    return sum;", "}", ""]
            parts.append("\n".join(lines))
        yield ("\n".join(parts) + "\n").encode()


def _sql(rng: random.Random) -> Iterator[bytes]:
    words = _vocabulary(rng)

    def row(number: int) -> str:
        return (
            f"INSERT INTO item VALUES({number},'{rng.choice(words)}','{rng.choice(words)}',"
            f"{rng.random() * 1000:.3f});"
        )

    yield from _numbered(row, 20)


def _markdown(rng: random.Random) -> Iterator[bytes]:
    words, weights = _vocabulary(rng), _weights(4_000)
    number = 0
    while True:
        number += 1
        picked = rng.choices(words, cum_weights=weights, k=120)
        yield (
            f"## {number}. {' '.join(picked[:4])}\n\n{' '.join(picked[4:60])} *{picked[60]}* "
            f"[{picked[61]}](https://example.org/{picked[62]}).\n\n"
            f"- {' '.join(picked[63:70])}\n- {' '.join(picked[70:80])}\n- `{picked[80]}`\n\n"
            f"{' '.join(picked[81:])}\n\n"
        ).encode()


def _fasta(rng: random.Random) -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        letters = "".join(rng.choices("ACGT", k=1_200))
        lines = [letters[at : at + 60] for at in range(0, 1_200, 60)]
        yield (f">sequence{number}\n" + "\n".join(lines) + "\n").encode()


def _elements(rng: random.Random, size: int, head: str, tail: str) -> Iterator[bytes]:
    """A document of elements, closed as soon as it has about `size` bytes."""
    words = _vocabulary(rng)
    made = len(head) + len(tail)
    number = 0
    yield head.encode()
    while made < size:
        number += 1
        picked = rng.choices(words, k=14)
        part = (
            f'<section id="s{number}" class="{picked[0]}"><h2>{picked[1]} {picked[2]}</h2>'
            f'<p>{" ".join(picked[3:9])} <b>{picked[9]}</b> <a href="#{picked[10]}">{picked[11]}'
            f"</a></p><ul><li>{picked[12]}</li><li>{picked[13]}</li></ul></section>\n"
        )
        made += len(part)
        yield part.encode()
    yield tail.encode()


def _xml(rng: random.Random, size: int) -> Iterator[bytes]:
    return _elements(rng, size, '<?xml version="1.0"?>\n<document>\n', "</document>\n")


def _html(rng: random.Random, size: int) -> Iterator[bytes]:
    head = "<!DOCTYPE html>\n<html><head><title>Sections</title></head><body>\n"
    return _elements(rng, size, head, "</body></html>\n")


def _json(rng: random.Random, size: int) -> Iterator[bytes]:
    """One array of objects; the array has about `size` bytes."""
    made = 0
    yield b"["
    for part in _jsonl(rng):
        whole = part.strip().replace(b"\n", b",\n")
        yield (b",\n" if made else b"") + whole
        made += len(whole)
        if made >= size:
            break
    yield b"]\n"


def _ppm(rng: random.Random, size: int) -> Iterator[bytes]:
    """A picture with soft shapes and noise, of about `size` bytes."""
    side = max(8, int((size / 3) ** 0.5))
    yield f"P6\n{side} {side}\n255\n".encode()
    tilt = [rng.uniform(0.5, 4) for _ in range(3)]
    for y in range(side):
        noise = rng.randbytes(side * 3)
        yield bytes(
            (int(x * tilt[at % 3] + y * tilt[(at + 1) % 3]) + (noise[at] >> 4)) & 255
            for x in range(side)
            for at in range(3 * x, 3 * x + 3)
        )


def _wav(rng: random.Random, size: int) -> Iterator[bytes]:
    """Sound of 44.1 kHz in one channel: a slowly changing wave with noise."""
    samples = max(1, (size - 44) // 2)
    data = 2 * samples
    yield struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + data, b"WAVE", b"fmt ", 16, 1, 1, 44_100, 88_200, 2, 16,
        b"data", data,
    )  # fmt: skip
    level, step, block = 0, 150, []
    for at in range(samples):
        if at % 500 == 0:
            step = rng.randint(50, 900)
        level += step
        if abs(level) > 20_000:
            step = -step
            level = max(-20_000, min(20_000, level))
        block.append(level + (rng.getrandbits(8) - 128))
        if len(block) == 8_192:
            yield struct.pack(f"<{len(block)}h", *block)
            block = []
    if block:
        yield struct.pack(f"<{len(block)}h", *block)


def _none(rng: random.Random) -> Iterator[bytes]:
    raise AssertionError(f"{rng} belongs to a kind of whole documents")


EXACT = frozenset({"bytes", "lines", "text"})
_WHOLE: dict[str, Callable[[random.Random, int], Iterator[bytes]]] = {
    "html": _html,
    "json": _json,
    "ppm": _ppm,
    "wav": _wav,
    "xml": _xml,
}
"""Kinds whose content is one whole document. It has about the requested size."""
KINDS: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "bytes": _bytes,
    "c": _c,
    "csv": _csv,
    "fasta": _fasta,
    "jsonl": _jsonl,
    "lines": _lines,
    "markdown": _markdown,
    "sql": _sql,
    "text": _text,
    **dict.fromkeys(_WHOLE, _none),
}
