"""Tests of PHP, which opens its extensions with RTLD_DEEPBIND.

For that reason, PHP crashes under every other preloaded allocator. libcairn removes the flag.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import INPUTS, Stage, image_of, path_of


@pytest.mark.parametrize("own", ["1", "0"], ids=["php's own pools", "each block by malloc"])
def test_arrays_expressions_and_included_files(both: Callable[..., str], own: str) -> None:
    php = path_of("php")

    def session(stage: Stage) -> str:
        return stage.run(php, INPUTS / "work.php", USE_ZEND_ALLOC=own)

    both(session, image_of("php"))
