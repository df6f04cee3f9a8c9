"""Turns a page into HTML: one text that contains everything, and needs no network.

Always true here:

- Every text is escaped, and characters that cannot be seen are written as escape sequences. The
  only raw parts are the templates, the style sheet and the script of this folder.
- The page's policy permits the script of this folder by its hash, and no other.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import itertools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cairn.page import sorting
from cairn.page.parts import Download, Page
from cairn.report.formatting import pieces, printable

_PLAIN_MOST = 256 << 10
"""The most bytes of raw data that a page holds uncompressed."""


def html(page: Page) -> str:
    """Returns the page."""
    return _rendered("page.html", page=page)


def index(**values: Any) -> str:
    """Returns the page that lists other pages."""
    return _rendered("index.html", **values)


def _rendered(template: str, **values: Any) -> str:
    style, script = _source("page.css"), _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    numbers = itertools.count()
    return (
        _environment()
        .get_template(f"templates/{template}")
        .render(
            **values,
            style=Markup(style),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            next_number=lambda: next(numbers),
        )
        + "\n"
    )


def download(name: str, text: str, says: str) -> Download:
    """Returns a CSV as a link within the page. A long one is compressed, and then named .csv.gz."""
    content = text.encode("utf-8", "backslashreplace")
    if len(content) <= _PLAIN_MOST:
        return Download(f"{name}.csv", _link("text/csv;charset=utf-8", content), says)
    packed = gzip.compress(content, mtime=0)
    return Download(f"{name}.csv.gz", _link("application/gzip", packed), says)


def _link(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("cairn", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["kept"] = _kept
    made.globals["sort_keys"] = sorting.keys
    made.globals["has_numbers"] = sorting.has_numbers
    made.globals["number"] = _number
    made.globals["percent"] = lambda share: f"{100 * share:.4f}"
    return made


def _source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _shown(value: Any) -> Any:
    """Returns a text without control characters and marks of direction. Markup stays as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _kept(text: str) -> Markup:
    """Returns a sentence in which no line ends between a number and its unit."""
    words = (printable(piece).replace(" ", "\u00a0") for piece in pieces(text))
    return escape(" ".join(words))


def _number(value: float) -> str:
    """Returns a number with ten significant digits, which tests compare with those of the JSON."""
    return f"{value:.10g}"
