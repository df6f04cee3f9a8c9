"""Node.

V8 allocates its objects itself, but V8, buffers, zlib and OpenSSL use malloc in many threads.
"""

from __future__ import annotations

from collections.abc import Callable

from .conftest import INPUTS, Stage, image_of, path_of


def test_objects_workers_and_children(both: Callable[..., str]) -> None:
    node = path_of("node")

    def session(stage: Stage) -> str:
        said = stage.run(node, INPUTS / "work.mjs")
        assert stage.injected is None or stage.reached.total() == 4, (
            "itself, two forked and one executed"
        )
        return said

    both(session, image_of("node"))
