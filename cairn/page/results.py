"""The page that lists the pages of many runs, with their dates and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairn.page.render import index


class ListedPage(Struct, frozen=True):
    """A run in the list. `link` is the file of its page; None if the run cannot be read."""

    name: str
    date: str
    verdict: str
    link: str | None


def page(entries: Sequence[ListedPage]) -> str:
    """Returns the list as HTML, in the given order."""
    return index(
        title="Results",
        says="Each name leads to the page of a run: its answer, drawings, tables and raw data.",
        entries=entries,
    )
