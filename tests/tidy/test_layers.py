"""Tests that each layer of the code sees only the layers that the tables here allow.

A file sees another file if it includes or imports it. docs/architecture.md gives the reasons.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from cairn.cli.root_command import every_command

ROOT = Path(__file__).resolve().parents[2]

C_MAY_SEE: dict[str, set[str]] = {
    "base": {"base"},
    "os": {"base", "os"},
    "arena": {"base", "os", "cairn", "arena"},
    "policy": {"base", "policy"},
    "alloc": {"base", "os", "cairn", "policy", "alloc"},
    "hardened": {"base", "os", "alloc", "hardened"},
    "abi": {"base", "os", "cairn", "alloc", "hardened", "abi"},
    "launch": {"base", "launch"},
    "witness": {"base", "record", "witness"},
    "record": {"base", "record"},
    "probe": {"base", "record", "probe"},
    "misuse": {"misuse"},
    "latency": {"latency"},
    "instructions": {"base", "instructions"},
}

C_ORDER: dict[str, list[str]] = {
    "os": ["os", "os_linux", "lock"],
    "alloc": [
        *(
            "code_address",
            "hardening",
            "broken",
            "emergency",
            "guarded_block",
            "size_class",
            "region",
            "block_map",
            "free_map",
            "chunk",
            "learning_control",
            "huge_page_timing",
            "huge_page_unasked",
            "huge_page_density",
            "page_heap",
            "page_heap_dense",
            "page_heap_reused",
            "slab",
            "slab_trim",
            "large_guard",
            "guarded_run",
            "slab_list",
            "batch",
            "remote",
            "run_cache",
            "run_cache_learning",
            "big_cache",
            "site",
            "huge_page_collapse",
            "purge",
            "large",
            "run_cache_policy",
            "heap",
            "heap_batch",
            "heap_by_place",
            "heap_check",
            "heap_large",
            "heap_locks",
            "heap_trim",
            "quarantine",
        ),
        *(
            "shared_heap",
            "thread",
            "detour",
            "background",
            "alloc",
            "options",
            "stats",
            "stats_text",
            "walk",
        ),
    ],
    "hardened": ["hardened"],
    "abi": [
        "front",
        "abi",
        "cxx_runtime",
        "cxx_forms",
        "atfork",
        "vfork",
        "malloc",
        "glibc",
        "cairn",
        "deepbind",
        "program_start",
        "sandbox",
        "background_shared",
        "cxx_shared",
        "cxx_archive",
    ],
    "policy": ["knob_learner"],
    "arena": ["chunk", "guard", "arena", "pool"],
    "launch": [
        *(
            "complaint",
            "file",
            "options",
            "signals",
            "pace",
            "division",
            "processes",
            "peak",
            "cgroup",
            "memory",
            "series",
            "sampler",
        ),
        *("counters", "cpu_samples", "touch", "child", "terminal", "report", "reaped", "launch"),
    ],
    "witness": [
        *("kernel", "environment", "target", "owner", "record", "sandbox", "exec", "endings"),
        "witness",
    ],
    "probe": [
        *(
            "direct_syscall",
            "peek",
            "seccomp_filter",
            "poisson",
            "signal_mask",
            "futex_lock",
            "next",
            "watched",
            "own_memory",
            "thread_state",
            "own_stack",
            "handed_out",
            "freed_sample",
            "residence",
            "spare",
            "owners",
            "lock_table",
            "session",
            "executed",
            "live",
            "preemption",
            "cpu_timer",
            "perf_events",
            "line_watch",
            "layout",
        ),
        *("objects", "unwind", "pinned", "call_stacks"),
        *("kernel_calls", "thread"),
        *("account", "interpose", "operators", "locks", "signals", "helper_threads"),
        *("sandbox", "trim", "interpose_inspecting", "interpose_nonallocating"),
    ],
    "instructions": ["paths", "blocks", "history", "interpose"],
    "latency": ["latency"],
    "misuse": ["live", "scenarios", "frees", "overruns", "accesses", "misuse"],
}
"""The files of each folder of src in their order. A file may include only files before it."""

GROUND = (
    "__init__",
    "errors",
    "extras",
    "verdict",
    "memory",
    "clock_samples",
    "own_settings",
    "build",
    "gate",
    "simulated_misses",
    "model",
    "units",
    "native",
)
"""The modules of the package outside its folders ("ground"). Each may import only modules before
it."""

PYTHON_LAYERS: dict[str, set[str]] = {
    "ground": set(),
    "binary": {"ground"},
    "compare": {"ground"},
    "profile": {"ground", "binary"},
    "allocators": {"ground", "binary"},
    "findings": {"ground", "compare", "profile"},
    "doctor": {"ground", "binary", "profile"},
    "why": {"ground", "compare", "profile", "findings"},
    "run": {"ground", "binary", "compare", "profile", "allocators", "doctor", "why"},
    "matrix": {"ground", "binary", "compare", "allocators", "doctor", "run"},
    "soak": {"ground"},
    "inspect": {"ground", "binary", "profile", "allocators", "soak"},
    "report": {"ground", "compare", "profile", "findings", "why", "soak", "inspect"},
    "page": {"ground", "compare", "profile", "findings", "why", "soak", "report"},
    "bench": {"ground", "compare", "allocators", "doctor", "why", "run", "matrix", "report"},
    "cli": {
        "ground",
        "binary",
        "compare",
        "profile",
        "allocators",
        "doctor",
        "why",
        "run",
        "matrix",
        "soak",
        "inspect",
        "report",
        "page",
        "bench",
    },
}
"""Each folder of cairn/, and the folders from which it may import. These must be above it in this
table."""

PURE = {"compare", "findings", "why", "report", "profile", "soak"}
"""Folders that may use no file, clock or process, except for the modules in `READERS`."""
READERS = {
    f"profile/{name}.py"
    for name in (
        "reader",
        "layout",
        "call_stacks",
        "window",
        "spare",
        "cpu_samples",
        "kernel_entries",
        "kept_names",
    )
}
IMPURE_MODULES = {
    "time",
    "pathlib",
    "subprocess",
    "socket",
    "shutil",
    "tempfile",
    "signal",
    "threading",
    "sys",
}
PACKAGE = ROOT / "cairn"


def c_includes() -> Iterator[tuple[Path, str]]:
    for file in sorted((ROOT / "src").glob("*/*.[ch]")):
        for line in file.read_text().splitlines():
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match:
                yield file.relative_to(ROOT / "src"), match[1]


def folder_of(file: Path) -> str:
    """Returns the folder of a file of the package. Files outside all folders belong to "ground"."""
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "ground"


@cache
def python_imports() -> tuple[tuple[Path, str], ...]:
    """Returns (file, imported module or name) for every import, wherever it is in the file."""
    return tuple(_python_imports())


def _python_imports() -> Iterator[tuple[Path, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield file, name.name
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for name in node.names:
                    yield file, f"{node.module}.{name.name}"


def our_imports() -> Iterator[tuple[Path, str, str]]:
    """Yields (file, folder, module) for every import of our own modules.

    The folder and the module are those of the imported file. If a file imports a whole folder, the
    module is "__init__".
    """
    for file, imported in python_imports():
        package, *words = imported.split(".")
        if package != "cairn":
            continue
        words = words or ["__init__"]
        folder = words[0] if words[0] in PYTHON_LAYERS else "ground"
        words = words[1:] if folder != "ground" else words
        known = PACKAGE if folder == "ground" else PACKAGE / folder
        yield (
            file,
            folder,
            words[0] if words and (known / f"{words[0]}.py").is_file() else "__init__",
        )


def test_every_folder_of_c_sees_only_those_below() -> None:
    wrong = []
    for file, include in c_includes():
        folder, _, target = include.partition("/")
        if not target:
            wrong.append(f'src/{file} includes "{include}" without its folder')
        elif folder not in C_MAY_SEE[file.parts[0]]:
            wrong.append(f"src/{file} sees {include}")
    assert not wrong, "\n".join(wrong)


def test_within_a_folder_a_file_sees_only_those_before_it() -> None:
    wrong = []
    for file, include in c_includes():
        order = C_ORDER.get(file.parts[0])
        if order is None or not include.startswith(file.parts[0] + "/"):
            continue
        for name in (file.stem, Path(include).stem):
            assert name in order, f"src/{file.parts[0]}/{name} has no place in the order"
        if order.index(Path(include).stem) > order.index(file.stem):
            wrong.append(f"src/{file} sees {include}, which stands above it")
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_row_and_sees_only_rows_above_it() -> None:
    folders = {folder_of(file) for file in PACKAGE.rglob("*.py")}
    assert folders == set(PYTHON_LAYERS)
    order = list(PYTHON_LAYERS)
    for place, (folder, seen) in enumerate(PYTHON_LAYERS.items()):
        assert seen <= set(order[:place]), f"{folder} sees a folder that does not stand above it"


def test_every_python_folder_sees_only_what_its_row_allows() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} sees {seen}/{module}"
        for file, seen, module in our_imports()
        if file.name != "__main__.py"
        and seen != folder_of(file)
        and seen not in PYTHON_LAYERS[folder_of(file)]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_row_names_only_folders_that_are_seen() -> None:
    seen = {(folder_of(file), seen) for file, seen, _ in our_imports()}
    unused = [
        (folder, other)
        for folder, others in PYTHON_LAYERS.items()
        for other in others
        if (folder, other) not in seen
    ]
    assert not unused


def test_the_command_is_seen_by_its_entry_alone() -> None:
    assert [
        file.name for file, seen, _ in our_imports() if seen == "cli" and folder_of(file) != "cli"
    ] == ["__main__.py"]


def test_modules_beside_the_folders_stand_in_their_order() -> None:
    beside = {file.stem for file in PACKAGE.glob("*.py")} - {"__main__"}
    assert beside == set(GROUND)
    wrong = [
        f"{file.name} sees {module}"
        for file, seen, module in our_imports()
        if folder_of(file) == seen == "ground" and GROUND.index(module) >= GROUND.index(file.stem)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", [name for name in PYTHON_LAYERS if name != "ground"])
def test_no_circle_is_inside_a_folder(folder: str) -> None:
    sees: dict[str, set[str]] = defaultdict(set)
    for file, seen, module in our_imports():
        if folder_of(file) == seen == folder and file.stem != "__init__":
            sees[file.stem].add(module)
    tuple(TopologicalSorter(sees).static_order())  # raises CycleError, which names the circle


def test_pure_modules_touch_no_file_no_clock_and_no_process() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {imported}"
        for file, imported in python_imports()
        if folder_of(file) in PURE and str(file.relative_to(PACKAGE)) not in READERS
        if imported.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_prints_exits_and_reads_its_arguments() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if folder_of(file) == "cli":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("print", "exit")
            ):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {node.func.id}")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in (("sys", "exit"), ("sys", "argv"))
            ):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} uses sys.{node.attr}")
    assert not wrong, "\n".join(wrong)


def test_every_command_has_a_file_of_its_name() -> None:
    commands = every_command().commands
    missing = [
        name
        for name, command in commands.items()
        if command.callback is None or command.callback.__module__ != f"cairn.cli.{name}"
    ]
    assert commands and not missing, f"no cairn/cli/NAME.py for the command: {missing}"


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize("suffix", ["*.c", "*.h", "*.py"])
def test_no_file_is_too_long(suffix: str) -> None:
    long = [
        f"{file.relative_to(ROOT)}: {lines} lines"
        for top in ("src", "cairn", "tests")
        for file in (ROOT / top).rglob(suffix)
        if (lines := len(file.read_text().splitlines())) >= 800
    ]
    assert not long, "\n".join(long)
