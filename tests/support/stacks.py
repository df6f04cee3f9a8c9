"""Invented call stacks that allocate."""

from __future__ import annotations

import random

from cairn.profile.callers import Frame, Stack, Sum, Sums


def a_stack(size: float, *names: str, library: str = "/usr/bin/prog") -> Stack:
    """A stack with `size` allocated bytes in blocks of 64 bytes; the outermost name is first."""
    half = Sum(size / 128, size / 2)
    sums = Sums(samples=50, allocated=Sum(size / 64, size), peak=half, live=half)
    return Stack(tuple(Frame(name, library) for name in names), sums)


def random_stacks(seed: int, number: int, functions: int, depth: int) -> tuple[Stack, ...]:
    """Returns `number` different stacks with at most `depth` functions below main."""
    source = random.Random(seed)
    found: dict[tuple[str, ...], Stack] = {}
    while len(found) < number:
        names = [f"ns::f{source.randrange(functions)}(int)" for _ in range(depth)]
        path = ("_start", "main", *names[: source.randint(1, depth)])
        found[path] = a_stack(float(source.randint(1, 1000) ** 2), *path)
    return tuple(found.values())
