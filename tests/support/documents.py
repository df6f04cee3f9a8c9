"""The keys of a JSON document, for golden files."""

from __future__ import annotations

from collections.abc import Iterator


def keys(document: object) -> str:
    """Returns one line for each key, such as "rows[].low". The keys of equal places are merged."""
    return "".join(f"{one}\n" for one in dict.fromkeys(_paths(document, "")))


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            yield below
            yield from _paths(inner, below)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{path}[]")
