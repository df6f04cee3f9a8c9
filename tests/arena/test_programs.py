"""Tests of programs with the installed arena: examples, containers, sanitizers and the header."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.compilers import COMPILERS, ROOT, STANDARD, WARNINGS, run, succeed

EXAMPLES = sorted((ROOT / "examples" / "arena").glob("*.*"))
HERE = Path(__file__).parent
SANITIZERS = ["address", "thread", "undefined"]


def first_is_quick(suffix: str) -> list[Any]:
    """Returns the compilers, for tests that take seconds. All but the first are for long tests."""
    return [
        pytest.param(compiler, marks=[pytest.mark.long] if place > 0 else [])
        for place, compiler in enumerate(COMPILERS[suffix])
    ]


BY_COMPILER = [
    pytest.param(source, *compiler.values, marks=compiler.marks)
    for source in EXAMPLES
    for compiler in first_is_quick(source.suffix)
]
MISTAKES = {
    "read-after-reset": "use-after-poison",
    "write-after-rewind": "use-after-poison",
    "read-past-the-end": "use-after-poison",
    "read-after-giving-back": "use-after-poison",
    "write-after-giving-back-to-a-shared-pool": "use-after-poison",
    "write-the-first-word-after-giving-back": "use-after-poison",
    "rewind-twice": "rewound to a mark that is no longer valid",
    "give-back-twice": "given back twice",
}
CHECKED = {
    "write-after-rewind": "written to after it was rewound or reset",
    "write-after-giving-back-to-a-shared-pool": "written to after it was given back",
    "write-the-first-word-after-giving-back": "written to after it was given back",
    "rewind-twice": "rewound to a mark that is no longer valid",
    "give-back-twice": "given back twice",
}


def name(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


@pytest.mark.parametrize(("source", "compiler"), BY_COMPILER, ids=name)
def test_every_example_compiles_and_does_what_its_document_says(
    program: Callable[..., Path], source: Path, compiler: str
) -> None:
    built = program(source, compiler)
    said = succeed("bash", "-c", f"printf 'a b\\nthe quick brown fox\\nc' | {built}")
    document = " ".join((ROOT / "docs" / "arena.md").read_text().split())
    for line in said.splitlines():
        assert line in document, f"{source.name} says {line!r}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (r"a b\n\nthe quick brown fox\n", "fox brown quick the"),
        (r"a      b\nabcd\n", "b a"),
        (r"abcd\na      b", "b a"),
        (r"\n\n", ""),
        ("", "nothing to read"),
        (f"{'x' * 63} y\\n{'x' * 64}\\n", f"y {'x' * 63}"),
    ],
)
def test_the_longest_line_is_found(program: Callable[..., Path], text: str, says: str) -> None:
    """An empty line once ended the input. Repeated blanks were once missing in the length."""
    built = program(ROOT / "examples" / "arena" / "rewind.c", "gcc")
    assert succeed("bash", "-c", f"printf '{text}' | {built}") == f"{says}\n"


def shown() -> list[str]:
    return re.findall(
        r"^```c(?:pp)?\n(.*?)^```",
        (ROOT / "docs" / "arena.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )


def test_all_code_in_the_document_is_that_of_the_examples() -> None:
    texts = [source.read_text() for source in EXAMPLES]
    for block in shown():
        assert any(block in text for text in texts), block


@pytest.mark.parametrize("source", EXAMPLES, ids=name)
def test_every_example_is_in_the_document(source: Path) -> None:
    text = source.read_text()
    document = (ROOT / "docs" / "arena.md").read_text()
    assert (
        any(block in text for block in shown()) and f"(../examples/arena/{source.name})" in document
    )


@pytest.mark.parametrize("compiler", first_is_quick(".cpp"))
@pytest.mark.parametrize(
    "static", [False, pytest.param(True, marks=pytest.mark.long)], ids=["shared", "static"]
)
@pytest.mark.parametrize("checked", ["", "1"], ids=["plain", "checked"])
def test_containers_live_in_an_arena(
    program: Callable[..., Path], compiler: str, static: bool, checked: str
) -> None:
    succeed(program(HERE / "containers.cpp", compiler, static=static), CAIRN_ARENA_CHECKED=checked)


@pytest.mark.long
@pytest.mark.parametrize("compiler", COMPILERS[".cpp"])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitizers_find_no_error_in_containers(
    program: Callable[..., Path], compiler: str, sanitizer: str
) -> None:
    succeed(program(HERE / "containers.cpp", compiler, f"-fsanitize={sanitizer}"))


@pytest.mark.parametrize("compiler", first_is_quick(".c"))
@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_address_sanitizer_of_a_program_sees_mistakes_through_a_library_built_without_it(
    program: Callable[..., Path], compiler: str, static: bool, mistake: str
) -> None:
    built = program(HERE / "mistakes.c", compiler, "-fsanitize=address", static=static)
    succeed(built, "none")
    # Without this option, the sanitizer would look up symbols for half a second.
    done = run(built, mistake, ASAN_OPTIONS="symbolize=0")
    assert done.returncode != 0 and MISTAKES[mistake] in done.stderr


@pytest.mark.parametrize("compiler", COMPILERS[".c"])
def test_the_leak_checker_looks_into_arenas(program: Callable[..., Path], compiler: str) -> None:
    built = program(HERE / "leaks.c", compiler, "-fsanitize=address")
    succeed(built)
    done = run(built, "destroy")
    assert done.returncode != 0 and "detected memory leaks" in done.stderr


@pytest.mark.parametrize("static", [False, True], ids=["shared", "static"])
@pytest.mark.parametrize("mistake", CHECKED)
def test_a_checked_arena_finds_mistakes_without_a_sanitizer(
    program: Callable[..., Path], static: bool, mistake: str
) -> None:
    built = program(HERE / "mistakes.c", "gcc", static=static)
    succeed(built, "none", CAIRN_ARENA_CHECKED="1")
    done = run(built, mistake, CAIRN_ARENA_CHECKED="1")
    assert done.returncode < 0
    assert (
        done.stderr.startswith("cairn: ")
        and done.stderr.count("\n") == 1
        and CHECKED[mistake] in done.stderr
    )


@pytest.mark.parametrize("compiler", first_is_quick(".c"))
def test_the_thread_sanitizer_finds_no_error_in_threads_with_a_shared_pool(
    program: Callable[..., Path], compiler: str
) -> None:
    built = program(ROOT / "examples" / "arena" / "shared_pool.c", compiler, "-fsanitize=thread")
    assert succeed(built) == "sum 49995000\n"


@pytest.mark.parametrize(
    ("header", "suffix", "compiler", "standard"),
    [
        *(
            ("arena.h", ".c", compiler, std)
            for compiler in COMPILERS[".c"]
            for std in ("-std=c11", "-std=gnu17")
        ),
        *(("arena.h", ".cpp", compiler, "-std=c++11") for compiler in COMPILERS[".cpp"]),
        *(
            ("arena.hpp", ".cpp", compiler, std)
            for compiler in COMPILERS[".cpp"]
            for std in ("-std=c++17", "-std=c++20")
        ),
    ],
)
def test_a_header_compiles_by_itself(
    tmp_path: Path, header: str, suffix: str, compiler: str, standard: str
) -> None:
    source = tmp_path / f"alone{suffix}"
    source.write_text(
        f"#include <cairn/{header}>\n#include <cairn/{header}>\nint main(void) {{ return 0; }}\n"
    )
    include = ["-I", str(ROOT / "include")]
    succeed(
        compiler, standard, *WARNINGS, "-O2", *include, "-c", source, "-o", tmp_path / "alone.o"
    )


@pytest.mark.parametrize("compiler", COMPILERS[".c"])
def test_the_inline_path_is_short(tmp_path: Path, compiler: str) -> None:
    """An allocation takes nine instructions and a return, or seven if the size is constant.

    The nine instructions are: two loads, one that computes the room, a comparison, a branch, two
    that round the size up, an addition and a store. The test allows two more, for compilers that
    move a value once more.
    """
    source = tmp_path / "path.c"
    source.write_text(
        "#include <cairn/arena.h>\n"
        "void *any(struct cairn_arena *arena, size_t size) { return cairn_arena_alloc(arena, size); }\n"
        "void *known(struct cairn_arena *arena) { return cairn_arena_alloc(arena, 32); }\n"
        "void *object(struct cairn_pool *pool) { return cairn_pool_alloc(pool); }\n"
    )
    target = tmp_path / "path.o"
    succeed(
        compiler, STANDARD[".c"], "-O2", "-I", str(ROOT / "include"), "-c", source, "-o", target
    )
    listing = succeed("objdump", "-d", "--no-show-raw-insn", target)
    if "x86-64" not in listing:
        pytest.skip("counted on x86-64 alone")
    for function, most in (("any", 11), ("known", 9), ("object", 8)):
        body = listing.split(f"<{function}>:\n")[1]
        until_return = re.split(r"\bret", body)[0]
        assert until_return.count("\n") <= most, body
        assert "call" not in until_return
