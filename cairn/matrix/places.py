"""Puts the paths of {threads}, {data} and {work} into the lines of a plan.

A path may have a space, such as that of the user's cache. A line of /bin/sh gets such a path with
the quotes that its place in the line needs. If the place stands in a text with blanks that another
program divides into words, such as sh -c 'cat {data}/in | wc', no quotes can be right: the line
would run and measure nothing. Such a line is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from cairn.errors import UsageError

_PLACE = re.compile(r"(?<!\$)\{(threads|data|work|out)\}")
_TOKEN = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^'\"\\]+", re.DOTALL)
_DIVIDED = re.compile(r"[\s;|&<>()`]")
"""A quoted text with one of these characters is more than one file name: another program divides it
into words."""


def in_word(text: str, places: Mapping[str, str]) -> str:
    """The text with the names in braces replaced by the paths, which are not quoted.

    The text is a word of a command, the value of a variable, or the name of a file.
    """
    return _PLACE.sub(lambda found: places.get(found[1], found[0]), text)


def in_words(words: list[str], places: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command with the names in braces replaced by the paths.

    Raises UsageError if a path has to be quoted in a word that another program divides at blanks.
    """
    for word in words:
        if _DIVIDED.search(word):
            _refuse_to_quote(word, places)
    return tuple(in_word(word, places) for word in words)


def in_line(line: str, places: Mapping[str, str]) -> str:
    """A line of a shell with the names in braces replaced by the paths, quoted where needed.

    Raises UsageError if a path has to be quoted and its place in the line does not allow it.
    """
    if not _to_quote(line, places):
        return in_word(line, places)
    tokens = _TOKEN.findall(line)
    if "".join(tokens) != line or "<<" in line:
        _refuse_to_quote(line, places)
    return "".join(_token(token, places) for token in tokens)


def _token(token: str, places: Mapping[str, str]) -> str:
    """A part of a line, with the names in braces replaced by the paths.

    The whole part is in single quotes, in double quotes, or in no quotes.
    """
    if token[0] not in "'\"":
        return _PLACE.sub(lambda found: shlex.quote(places.get(found[1], found[0])), token)
    if _DIVIDED.search(token):
        _refuse_to_quote(token, places)
    if token[0] == "'":
        return _PLACE.sub(lambda found: places.get(found[1], found[0]).replace("'", "'\\''"), token)
    return _PLACE.sub(
        lambda found: re.sub(r'([\\$"`])', r"\\\1", places.get(found[1], found[0])), token
    )


def _to_quote(text: str, places: Mapping[str, str]) -> str | None:
    """The first path in the text that a shell would divide or change; None if there is none."""
    found = (places.get(place[1], "-") for place in _PLACE.finditer(text))
    return next((path for path in found if shlex.quote(path) != path), None)


def _refuse_to_quote(text: str, places: Mapping[str, str]) -> None:
    path = _to_quote(text, places)
    if path is not None:
        raise UsageError(
            f"the text {text} would divide the path '{path}' at its blanks; set XDG_CACHE_HOME to "
            "a folder without blanks or quotes in its path"
        )
