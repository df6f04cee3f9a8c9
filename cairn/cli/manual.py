"""Writes the man page and the tables of two documents: `python -m cairn.cli.manual`.

All commands share one man page, so that one search finds everything.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

import cairn
from cairn import native
from cairn.cli.root_command import every_command
from cairn.run import workloads

_EXITS = (
    ("0", "success"),
    (
        "1",
        "cairn itself failed: a file cannot be written, the disk is full, or the measure of --goal "
        "or --pareto could not be measured",
    ),
    (
        "2",
        "the command line is wrong, or one of its files is missing; a command of --setup, "
        "--prepare or --conclude fails; the budget does not suffice for one round (6 for 'cairn "
        "check'); or the program cannot be measured like this, such as a server without --while",
    ),
    (
        "3",
        "the program, or a built-in workload, is missing, or fails or does not end in time under "
        "the baseline; or a file that the baseline uses was replaced while it was measured",
    ),
    (
        "4",
        "the program, or one of its processes, fails under another contender only; a contender "
        "cannot be loaded into it; or a file that the baseline does not use was replaced while it "
        "was measured",
    ),
    ("5", "cairn check: a bound is exceeded"),
    ("6", "cairn check: the data do not decide every bound, or a measure was not measured"),
    ("130", "interrupted; the measurements so far are kept, and --resume last continues"),
    ("141", "the reader of standard output is gone, so the rest of the result is lost"),
)
_ENVIRONMENT = (
    ("CAIRN_RESULTS", "folder that keeps the runs"),
    (
        "XDG_DATA_HOME, XDG_CACHE_HOME",
        "folders for the runs (without CAIRN_RESULTS) and for the unpacked allocators",
    ),
    ("NO_COLOR", "any value: print no colour"),
    (
        "CAIRN_STATS",
        "1, json or prometheus: the allocator cairn prints its statistics on standard error when "
        "the program exits",
    ),
    (
        "CAIRN_SITES",
        "1: the allocator cairn counts large blocks by call site; 'cairn sites' shows them",
    ),
    ("CAIRN_LIMIT", "a size such as 512M: the allocator cairn hands out no more memory than that"),
    (
        "CAIRN_HUGE_PAGES",
        "0: the allocator cairn asks the kernel for no huge pages; 1: it asks even if huge pages "
        "come slowly, and even if the program's buffers are sparse",
    ),
    (
        "CAIRN_BACKGROUND",
        "1: a thread of the allocator cairn returns memory to the kernel while the program sleeps",
    ),
    (
        "CAIRN_PURGE",
        "free: the allocator cairn returns memory to the kernel with MADV_FREE instead of "
        "MADV_DONTNEED",
    ),
    (
        "CAIRN_POLICY",
        "frozen: the allocator cairn does not adapt to the program; ucb1: it also learns how much "
        "memory its threads keep ready",
    ),
    (
        "CAIRN_BIG_CACHE",
        "sites: the threads of the allocator cairn keep the memory of freed large blocks by call "
        "site",
    ),
    ("CAIRN_TRACE", "1: the allocator cairn prints on standard error what it has learnt"),
    (
        "CAIRN_MOVE",
        "0: the allocator cairn copies blocks instead of calling mremap; 1: it calls mremap also "
        "in a sandbox",
    ),
    (
        "CAIRN_GUARDED",
        "N: the allocator cairn places one in N small blocks between guards, and reports the "
        "stacks of a misuse",
    ),
    ("CAIRN_HARDENED", "full: the allocator cairn-hardened protects every large block"),
    ("CAIRN_KEEP_DEEPBIND", "1: the allocator cairn leaves RTLD_DEEPBIND in calls of dlopen"),
)


def page() -> str:
    """Returns the man page in the markup of man(7)."""
    cli = every_command()
    lines = [
        f'.TH CAIRN 1 "" "cairn {cairn.__version__}" "User commands"',
        ".SH NAME",
        "cairn \\- which memory allocator should this program use?",
        ".SH SYNOPSIS",
        ".B cairn",
        ".I command",
        "[options] [\\-\\- program [argument]...]",
        ".SH DESCRIPTION",
        *_paragraphs(cli.help or ""),
        ".SH COMMANDS",
    ]
    for name, command in _commands(cli, ""):
        lines += list(_command(name, command))
    lines += [".SH EXIT STATUS", *_pairs(_EXITS)]
    lines += [
        ".PP",
        "cairn run and cairn profile return the program's own exit code. They return 2 for a wrong "
        "command line, 125 for a failure of their own,",
        "126 when the allocator cannot be preloaded or is not proved to be loaded, 127 when the "
        "program is not found,",
        "and 128 + n when signal n killed the program.",
        ".SH ENVIRONMENT",
        *_pairs(_ENVIRONMENT),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    arguments = " ".join(
        p.make_metavar(context) for p in command.params if isinstance(p, click.Argument)
    )
    yield f".SS cairn {_escape(name)} {_escape(arguments)}".rstrip()
    yield from _paragraphs(command.help or "")
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield from _pairs([record])


def _pairs(pairs: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield ".TP"
        yield f".B {_escape(term)}"
        yield _escape(text)


def _paragraphs(text: str) -> Iterator[str]:
    r"""Yields the man page's lines for a help text.

    Click marks a paragraph that keeps its lines with \b.

    Before Python 3.13, docstrings keep the indent of the source. cleandoc() removes it.
    """
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = [line.strip("\n") for line in paragraph.splitlines()]
        if lines[0].strip() == "\b":
            yield from (".PP", ".nf", *(_escape(line) for line in lines[1:]), ".fi")
        else:
            yield from (".PP", _escape(" ".join(line.strip() for line in lines)))


def _escape(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


CATALOG = "the catalog"
SIZE_CLASSES = "the size classes"
"""Names in the comments around the tables in docs/workloads.md and docs/allocator-reference.md."""


def catalog() -> str:
    """Returns the workloads as Markdown, one table for each group."""
    lines = []
    for group in workloads.GROUPS:
        lines += [
            "",
            f"**{group}**",
            "",
            "| name | what it does | what it puts to the test | as run in the suite |",
        ]
        lines += ["|---|---|---|---|"]
        for entry in workloads.load():
            if entry.group == group:
                command = f"{entry.program} {entry.suite}".strip()
                lines.append(f"| `{entry.name}` | {entry.title} | {entry.stresses} | `{command}` |")
    return "\n".join(lines) + "\n\n"


class SizeClass(Struct, frozen=True):
    """A size class of the allocator: small blocks of one size."""

    block_bytes: int
    smallest: int
    """The smallest request, in bytes, that gets a block of this class."""
    slab_bytes: int
    slab_blocks: int


class _Heap:
    """A heap of the allocator in this process.

    The heap is independent of malloc, so only this class allocates from it.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name, result, *arguments in (
            ("cairn_heap_create", ctypes.c_void_p),
            ("cairn_heap_destroy", None, ctypes.c_void_p),
            ("cairn_heap_malloc", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
            ("cairn_usable_size", ctypes.c_size_t, ctypes.c_void_p),
            ("cairn_statistics_json", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._text = ctypes.create_string_buffer(1 << 16)
        self._heap = self._library.cairn_heap_create()

    def close(self) -> None:
        self._library.cairn_heap_destroy(self._heap)

    def room(self, size: int) -> int:
        """Allocates a block of `size` bytes and returns its usable bytes."""
        return int(
            self._library.cairn_usable_size(self._library.cairn_heap_malloc(self._heap, size))
        )

    def held(self) -> tuple[int, dict[int, int]]:
        """Returns the bytes in use, and the number of slabs by the size of their blocks."""
        self._library.cairn_statistics_json(self._text, len(self._text))
        figures = json.loads(self._text.value)
        return figures["used_bytes"], {
            of["block_bytes"]: of["slab_count"] for of in figures["classes"]
        }


def size_classes(library: Path) -> Iterator[SizeClass]:
    """Yields the size classes of the library.

    The function allocates blocks in a heap and observes their sizes and slabs. A second copy of the
    allocator's formula here could become different from the allocator's own.
    """
    heap = _Heap(library)
    # In a small process, classes share slabs. The allocation of a large block ends the sharing.
    heap.room(4 << 20)
    heap.close()
    smallest = 1
    while True:
        heap = _Heap(library)
        before, _ = heap.held()
        block_bytes = heap.room(smallest)
        after, slabs = heap.held()
        if block_bytes not in slabs:
            heap.close()
            return  # The block has no slab: small sizes end here.
        blocks = 0
        while heap.held()[1][block_bytes] == slabs[block_bytes]:
            heap.room(block_bytes)
            blocks += 1
        heap.close()
        yield SizeClass(block_bytes, smallest, after - before, blocks)
        smallest = block_bytes + 1


def size_class_table(library: Path) -> str:
    """Returns the table in Markdown, a row per class.

    The column "on average" assumes that all request sizes of a class are equally frequent.
    """
    lines = [
        "",
        "| block | for sizes | unused, at worst | on average | slab | blocks in it | left over |",
    ]
    lines.append("|--:|--:|--:|--:|--:|--:|--:|")
    for of in size_classes(library):
        worst = (of.block_bytes - of.smallest) / of.block_bytes
        left = of.slab_bytes - of.slab_blocks * of.block_bytes
        lines.append(
            f"| {of.block_bytes:,} | {of.smallest:,} – {of.block_bytes:,} | {worst:.1%} | "
            f"{worst / 2:.1%} | {of.slab_bytes >> 10} KiB | {of.slab_blocks:,} | {left:,} "
            f"({left / of.slab_bytes:.1%}) |"
        )
    return "\n".join(lines).replace("%", " %") + "\n\n"


def with_catalog(text: str) -> str:
    """Returns the document with the current table of workloads."""
    return _with_table(text, CATALOG, catalog())


def with_size_classes(text: str) -> str:
    """Returns the document with the table of size classes of the installed allocator."""
    return _with_table(text, SIZE_CLASSES, size_class_table(native.allocator()))


def _with_table(text: str, name: str, table: str) -> str:
    before, begin, rest = text.partition(f"<!-- {name}: begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}: end -->")
    return before + begin + table + end + after


def main() -> None:
    """Writes the man page and two tables.

    The arguments are the folder of the man page and two documents: man docs/workloads.md
    docs/allocator-reference.md.
    """
    (Path(sys.argv[1]) / "cairn.1").write_text(page(), encoding="utf-8")
    for argument, with_table in zip(sys.argv[2:], (with_catalog, with_size_classes), strict=True):
        document = Path(argument)
        document.write_text(with_table(document.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
