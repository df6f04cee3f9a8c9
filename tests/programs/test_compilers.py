"""Tests of compilers, which start a process for every pass.

With and without libcairn, the output must be the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from .conftest import INPUTS, Stage, image_of, path_of

FUNCTION = """
static unsigned f%(i)d(unsigned x)
{
    char *p = malloc(x %% %(bytes)d + 16);
    unsigned sum = 0;
    sprintf(p, "%%u", x);
    for (unsigned i = 0; p[i]; i++)
        sum = sum * %(factor)du + (unsigned)p[i];
    free(p);
    switch (x & 7) {
    case 0:
        return f%(half)d(sum);
    case 1:
        return f%(third)d(x ^ sum);
    default:
        return f%(fifth)d(x >> 1) * %(i)du;
    }
}
"""


def functions(count: int) -> str:
    """Returns a C program of this many functions, each of which calls earlier ones."""
    each = (
        FUNCTION
        % {
            "i": i,
            "bytes": i % 50 + 1,
            "factor": 2 * i + 1,
            "half": i // 2,
            "third": i // 3,
            "fifth": i // 5,
        }
        for i in range(1, count)
    )
    calls = "".join(f"    sum += f{i}({i * 37}u);\n" for i in range(count))
    return (
        "#include <stdio.h>\n#include <stdlib.h>\nstatic unsigned f0(unsigned x) { return x + 1; "
        "}\n"
        f'{"".join(each)}int main(void)\n{{\n    unsigned sum = 0;\n{calls}    printf("%u\\n", sum);\n    return 0;\n}}\n'
    )


def digest(stage: Stage, name: str) -> str:
    return hashlib.sha256((stage.folder / name).read_bytes()).hexdigest()


def test_gcc_compiles_c(both: Callable[..., str]) -> None:
    gcc = path_of("gcc")
    source = functions(250)

    def session(stage: Stage) -> str:
        (stage.folder / "long.c").write_text(source)
        stage.run(gcc, "-O2", "-g", "-c", "long.c")
        stage.run(gcc, "long.o", "-o", "long")
        return stage.run("./long") + digest(stage, "long.o") + digest(stage, "long")

    both(session, *map(image_of, (gcc, "as", "ld")), "cc1", "collect2", "long")


def test_gcc_optimises_while_it_links(both: Callable[..., str]) -> None:
    gcc = path_of("gcc")
    source = functions(100)

    def session(stage: Stage) -> str:
        (stage.folder / "long.c").write_text(source)
        stage.run(gcc, "-O2", "-flto=2", "-c", "long.c")
        stage.run(gcc, "-O2", "-flto=2", "long.o", "-o", "long")
        return stage.run("./long") + digest(stage, "long")

    both(session, "cc1", "lto1", "lto-wrapper", "long")


@pytest.mark.long
def test_gplusplus_compiles_templates(both: Callable[..., str]) -> None:
    compiles_templates(both, path_of("g++"), "cc1plus")


@pytest.mark.long
def test_clang_compiles_c_and_templates(both: Callable[..., str]) -> None:
    clang = path_of("clang")
    source = functions(250)

    def session(stage: Stage) -> str:
        (stage.folder / "long.c").write_text(source)
        stage.run(clang, "-O2", "-g", "long.c", "-o", "long")
        return stage.run("./long") + digest(stage, "long")

    both(session, image_of(clang), image_of("ld"), "long")
    compiles_templates(both, path_of("clang++"), image_of(clang))


def compiles_templates(both: Callable[..., str], compiler: str, process: str) -> None:
    def session(stage: Stage) -> str:
        stage.run(
            compiler,
            "-std=c++17",
            "-O1",
            "-pthread",
            "-c",
            INPUTS / "program.cpp",
            "-o",
            "program.o",
        )
        stage.run(compiler, "-pthread", "program.o", "-o", "program")
        return stage.run("./program") + digest(stage, "program.o")

    both(session, process, "program")
