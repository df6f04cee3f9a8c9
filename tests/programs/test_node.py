"""Tests of Node.

V8 allocates JavaScript objects itself. V8's other parts, buffers, zlib and OpenSSL use malloc in
many threads.
"""

from __future__ import annotations

from collections.abc import Callable

from .conftest import INPUTS, Stage, image_of, path_of


def test_objects_workers_and_children(both: Callable[..., str]) -> None:
    node = path_of("node")

    def session(stage: Stage) -> str:
        said = stage.run(node, INPUTS / "work.mjs")
        assert stage.injected is None or stage.reached.total() == 4, (
            "four processes: node, two forked ones and an executed one"
        )
        return said

    both(session, image_of("node"))
