"""Who may see whom, as one table; docs/architecture.md says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

C_MAY_SEE: dict[str, set[str]] = {
    "base": {"base"},
    "os": {"base", "os"},
    "arena": {"base", "os", "cairn", "arena"},
    "policy": {"base", "policy"},
    "alloc": {"base", "os", "cairn", "alloc"},
    "abi": {"base", "os", "cairn", "alloc", "abi"},
    "launch": {"base", "launch"},
    "witness": {"base", "witness"},
    "record": {"base", "record"},
    "probe": {"base", "record", "probe"},
}

C_ORDER: dict[str, list[str]] = {
    "os": ["os", "os_linux", "lock"],
    "alloc": [
        *(
            "broken",
            "size_class",
            "region",
            "free_map",
            "chunk",
            "learning",
            "first_touch",
            "page_heap",
            "slab",
            "remote",
            "run_cache",
            "site",
            "huge_page",
            "purge",
            "large",
            "kept_runs",
            "heap",
            "heap_check",
        ),
        *("shared_heap", "thread", "background", "alloc", "options", "stats", "stats_text", "walk"),
    ],
    "abi": [
        "abi",
        "cxx",
        "cxx_forms",
        "malloc",
        "glibc",
        "cairn",
        "dlopen",
        "thread_shared",
        "cxx_shared",
        "cxx_archive",
    ],
    "policy": ["policy"],
    "arena": ["chunk", "guard", "arena", "pool"],
    "launch": [
        *("complaint", "file", "options", "signals", "pace", "processes", "peak", "cgroup", "memory", "sampler"),
        *("counters", "whereabouts", "touch", "child", "terminal", "report", "launch"),
    ],
    "witness": ["kernel", "environment", "target", "owner", "record", "exec", "witness"],
    "probe": [
        *(
            "stub",
            "latch",
            "next",
            "watched",
            "self",
            "shadow",
            "residence",
            "session",
            "owners",
            "canary",
            "cpu_timer",
            "counters",
        ),
        *("kernel_calls", "thread"),
        *("account", "interpose", "operators", "locks", "signals", "process"),
    ],
}
"""Within a folder a file sees only files before it."""

PYTHON_MAY_SEE: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "model": set(),
    "units": set(),
    "stats": {"model"},
    "plan": {"model"},
    "compare": {"model", "stats", "units"},
    "ratios": {"model"},
    "standings": {"model", "stats", "ratios"},
    "scenario": {"model", "stats", "ratios"},
    "profiles": set(),
    "estimates": {"model", "profiles"},
    "behaviour": {"model", "profiles", "estimates"},
    "findings": {"model", "units", "stats", "profiles", "estimates", "behaviour", "findings"},
    "account": {"model", "profiles", "estimates", "behaviour", "findings"},
    "why": {"model", "units", "stats", "estimates", "profiles", "findings"},
    "founding": {"why"},
    "prediction": {"model", "estimates", "why"},
    "profile": {"errors", "model", "profiles"},
    "window": {"errors", "profile", "profiles"},
    "report": {
        *("model", "stats", "units", "ratios", "standings", "scenario", "instructions", "report"),
        *("profiles", "estimates", "behaviour", "findings", "why", "founding", "prediction"),
    },
    "elf": set(),
    "sites": {"errors", "units"},
    "program": {"errors", "elf"},
    "library": {"errors", "elf", "program"},
    "symbols": {"errors", "elf", "program", "sites"},
    "whereabouts": {"model", "elf", "symbols"},
    "catalog": {"errors"},
    "discover": {"__init__", "errors", "catalog", "library", "native"},
    "contenders": {"errors", "model", "program", "library", "catalog", "discover"},
    "tools": set(),
    "sources": {"errors"},
    "download": {"discover", "sources", "tools"},
    "recipes": set(),
    "get": {"errors", "catalog", "discover", "tools"},
    "obtain": {"errors", "catalog", "discover", "tools", "sources", "download", "recipes", "get"},
    "register": {"errors", "catalog", "library", "discover", "tools"},
    "machine": {"errors", "model"},
    "inside": {"elf"},
    "abilities": {"errors", "native", "whereabouts"},
    "doctor": {"errors", "model", "program", "library", "machine", "inside", "abilities", "units"},
    "preflight": {"errors", "model", "catalog", "contenders", "discover", "doctor", "machine", "reached"},
    "reached": {"model", "contenders", "doctor", "runner"},
    "native": {"errors"},
    "workloads": {"errors", "model", "native"},
    "instructions": {"model"},
    "store": {"errors", "model"},
    "proof": {"model"},
    "runner": {
        *("errors", "model", "contenders", "native", "proof", "workloads", "instructions"),
        *("profile", "whereabouts", "profiles", "account"),
    },
    "foreground": {"errors", "model", "native", "proof", "runner"},
    "measure": {"errors", "model", "machine", "plan", "stats", "compare", "runner", "store"},
    "sweep": {"errors", "model"},
    "options": {"model", "profiles", "units", "report", "sweep"},
    "progress": {"model", "measure", "plan", "units", "report"},
    "experiments": {"errors", "model", "discover", "sources", "download", "tools"},
    "bench": {
        *("errors", "model", "units", "contenders", "discover", "machine", "native", "tools"),
        *("workloads", "experiments", "standings", "scenario", "store", "report"),
    },
    "inventory": {"model", "catalog", "discover", "obtain", "report"},
    "manual": {"__init__", "cli", "native", "workloads"},
    "__main__": {"cli"},
}
"""`cli` sees everything and is seen by `__main__` and `manual` alone."""

PURE = {
    *("model", "errors", "units", "stats", "plan", "sweep", "compare", "report", "proof"),
    *("ratios", "standings", "scenario", "instructions", "profiles", "estimates", "behaviour", "findings"),
    *("account", "why", "founding", "prediction", "sites"),
}
IMPURE_MODULES = {"time", "pathlib", "subprocess", "socket", "shutil", "tempfile", "signal", "threading", "sys"}
PRINTING = {"cli", "manual"}


def c_includes() -> Iterator[tuple[Path, str]]:
    for file in sorted((ROOT / "src").glob("*/*.[ch]")):
        for line in file.read_text().splitlines():
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match:
                yield file.relative_to(ROOT / "src"), match[1]


def python_imports() -> Iterator[tuple[str, Path, str]]:
    """(our module, file, imported module) for every import, wherever in the file it stands."""
    for file in sorted((ROOT / "cairn").rglob("*.py")):
        inside = file.relative_to(ROOT / "cairn")
        module = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield module, file, name.name
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                if node.module == "cairn":
                    for name in node.names:
                        yield module, file, f"cairn.{name.name}"
                else:
                    yield module, file, node.module


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


def test_every_python_module_sees_only_what_the_table_allows() -> None:
    wrong = []
    for module, file, imported in python_imports():
        if imported != "cairn" and not imported.startswith("cairn."):
            continue
        seen = imported.split(".")[1] if "." in imported else "__init__"
        if seen.startswith("__version__"):
            seen = "__init__"
        if module == "cli":
            continue
        assert module in PYTHON_MAY_SEE, f"{module} has no place in the table"
        if seen not in PYTHON_MAY_SEE[module] and seen != module:
            wrong.append(f"{file.relative_to(ROOT)} sees {imported}")
    assert not wrong, "\n".join(wrong)


def test_pure_modules_touch_no_file_no_clock_and_no_process() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {imported}"
        for module, file, imported in python_imports()
        if module in PURE and imported.split(".")[0] in IMPURE_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_prints_exits_and_reads_its_arguments() -> None:
    wrong = []
    for file in sorted((ROOT / "cairn").rglob("*.py")):
        if file.relative_to(ROOT / "cairn").parts[0].removesuffix(".py") in PRINTING:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "exit"):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {node.func.id}")
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in (("sys", "exit"), ("sys", "argv"))
            ):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} uses sys.{node.attr}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("suffix", ["*.c", "*.h", "*.py"])
def test_no_file_is_two_nouns(suffix: str) -> None:
    long = [
        f"{file.relative_to(ROOT)}: {lines} lines"
        for top in ("src", "cairn", "tests")
        for file in (ROOT / top).rglob(suffix)
        if (lines := len(file.read_text().splitlines())) >= 800
    ]
    assert not long, "\n".join(long)
