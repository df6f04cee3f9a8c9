"""Reads the tables of cairn's own TOML files: allocators.toml and sources.toml."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cairn.errors import CairnError


def values_of(
    table: Mapping[str, Any],
    where: str,
    *,
    lists: Collection[str],
    texts: Collection[str],
    others: Mapping[str, type],
) -> dict[str, Any]:
    """Returns the values of a table by key, with tuples instead of lists.

    where: the name of the table in an error.
    lists: the keys whose values are lists of texts.
    texts: the keys whose values are texts. No text may be empty.
    others: every other key, with the type of its value.

    Raises CairnError for any other key, and for a value that is not as described.
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in lists and isinstance(value, list) and all(map(_is_text, value)):
            values[key] = tuple(value)
        elif (key in texts and _is_text(value)) or (key in others and type(value) is others[key]):
            values[key] = value
        else:
            raise CairnError(f"{where}: {key} is unknown or has a wrong value; install cairn again")
    return values


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
