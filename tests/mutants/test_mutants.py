"""Tests of the tool that plants faults: the faults it draws, and its report on a small tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import coverage
import pytest
from mutants import in_c, in_python, report
from mutants.belonging import C_PARTS
from mutants.fault import Candidates, Fault, draw
from mutants.lane import LIBRARIES, NOTICED, SURVIVED, Planted

ROOT = Path(__file__).resolve().parents[2]

CALC = '''"""Sums."""

from __future__ import annotations


def total(values: list[int]) -> int:
    """Of all values."""
    result: int = 0
    for value in values:
        result += value
    return result


def largest(first: int, second: int) -> int:
    """Of two."""
    if first > second:
        return first
    return second
'''

LIMIT = """/* limit.c - a bound. */
#include <stdbool.h>
#include "policy/limit.h"
#define MOST (2 + 2)
_Static_assert(MOST > 3, "1 < 2");

/* 1 + 2 */
bool limit_holds(int value) {
    const char *text = "a + b < c";
    assert(value < 100);
    return value < MOST && text[0] == 'a';
}
"""

CMAKE = f"""cmake_minimum_required(VERSION 3.20)
project(tiny LANGUAGES C)
enable_testing()
foreach(name {" ".join(LIBRARIES)})
  add_custom_target(${{name}})
endforeach()
add_executable(policy_larger larger_test.c src/policy/larger.c)
add_test(NAME policy_larger COMMAND policy_larger)
"""


def found(candidates: Candidates, text: str) -> list[str]:
    """Returns the text of the file with each possible fault."""
    return [
        make() for kinds in candidates(text).values() for makes in kinds.values() for make in makes
    ]


def drawn(folder: Path, path: str, text: str, candidates: Candidates, seed: int) -> list[Fault]:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return list(draw(folder, [path], candidates, seed))


def seed_for(
    folder: Path, path: str, text: str, candidates: Candidates, after: str
) -> tuple[int, int]:
    """Returns a seed and n: with this seed, the n-th fault changes a line to `after`."""
    for seed in range(1000):
        for index, fault in enumerate(drawn(folder, path, text, candidates, seed)):
            if fault.after and fault.after[0].strip() == after:
                return seed, index + 1
    raise AssertionError(f"no seed gives {after}")


def test_every_folder_of_the_native_parts_has_its_tests() -> None:
    """Faults in the hardened build once ended the run."""
    assert {path.name for path in (ROOT / "src").iterdir() if path.is_dir()} == set(C_PARTS)


def test_everything_that_is_installed_is_built_with_a_fault() -> None:
    """The library of instruction counts was once not built, and so nothing was installed."""
    installed: set[str] = set()
    for file in sorted((ROOT / "src").glob("*/CMakeLists.txt")):
        for names in re.findall(
            r"install\(TARGETS ([^)]*?)(?:DESTINATION|EXPORT)", file.read_text()
        ):
            installed.update(names.split())
    variables = {name for name in installed if name.startswith("$")}
    assert variables == {"${shared}", "${archive}"}
    built = {f"cairn-malloc{suffix}" for suffix in ("", "-static", "-hardened", "-hardened-static")}
    assert (installed - variables) | built == {one for one in LIBRARIES if one != "malloctest"}


def test_the_same_seed_draws_the_same_faults_and_another_draws_others(tmp_path: Path) -> None:
    for path, candidates in (
        ("src/alloc/slab.c", in_c.candidates),
        ("cairn/run/retries.py", in_python.candidates),
    ):
        text = (ROOT / path).read_text()
        first, again, other = (drawn(tmp_path, path, text, candidates, seed) for seed in (7, 7, 8))
        assert first == again
        assert first[:20] != other[:20]


def test_a_change_of_some_lines_leaves_the_faults_of_all_others(tmp_path: Path) -> None:
    for path, candidates, more in (
        ("src/alloc/slab.c", in_c.candidates, "static int more = 1;"),
        ("cairn/compare/plan.py", in_python.candidates, "MORE = 1"),
    ):
        text = (ROOT / path).read_text()
        before = [fault.key for fault in drawn(tmp_path, path, text, candidates, 7)]
        after = [fault.key for fault in drawn(tmp_path, path, f"{text}{more}\n", candidates, 7)]
        assert [key for key in after if more not in key[1].splitlines()] == before
        assert len(after) == len(before) + 1


def test_every_line_that_can_have_a_fault_is_drawn_once(tmp_path: Path) -> None:
    faults = drawn(tmp_path, "cairn/calc.py", CALC, in_python.candidates, 1)
    assert (
        sorted(fault.line for fault in faults) == sorted(in_python.candidates(CALC)) == [8, 10, 16]
    )


def test_faults_in_c_leave_comments_strings_macros_and_assertions_alone() -> None:
    kept = [line for line in LIMIT.splitlines() if "return" not in line]
    texts = found(in_c.candidates, LIMIT)
    assert len(texts) >= 5
    for text in texts:
        assert [line for line in text.splitlines() if "return" not in line] == kept
        assert '"a + b < c"' in text
    changed = {line.strip() for text in texts for line in text.splitlines() if "return" in line}
    assert "return value <= MOST && text[0] == 'a';" in changed
    assert "return value < MOST || text[0] == 'a';" in changed
    assert "return 0;" in changed


def test_a_statement_in_c_is_dropped_and_a_declaration_is_not() -> None:
    text = "    int x = 1;\n    x = f(2);\n    g(x);\n    return g(x);\n    a->b[i].c += 2;\n"
    dropped = {
        number
        for number, kinds in in_c.candidates(text).items()
        for kind in kinds
        if kind == "dropped"
    }
    assert dropped == {2, 3, 5}


def test_faults_in_python_leave_declarations_alone() -> None:
    text = (
        '"""Doc 1."""\nfrom a import b\n__all__ = ["b"]\n\n\n'
        '@b(1)\ndef f(x: "list[int]" = 3) -> "int":\n'
        '    """Doc 2."""\n    y: "int" = x\n    return y + 1\n\n\n'
        'class C(D, frozen=True):\n    """Doc 3."""\n    z: int = 5\n'
    )
    texts = found(in_python.candidates, text)
    changed = {line for other in texts for line in set(other.splitlines()) - set(text.splitlines())}
    assert changed == {
        'def f(x: "list[int]" = 4) -> "int":',
        '    y: "int" = None',
        "    return y - 1",
        "    return y + 2",
        "    z: int = 6",
        "    z: int = None",
    }


def test_every_fault_in_python_is_a_program_and_another_one() -> None:
    text = (ROOT / "cairn" / "run" / "retries.py").read_text()
    texts = found(in_python.candidates, text)
    assert len(texts) > 20
    for other in texts:
        compile(other, "retries.py", "exec")
        assert other != text


def planted(outcome: str, before: str, after: str) -> Planted:
    return Planted(
        "c", "src/a.c:1", "operator", "src/a.c", (before,), (after,), outcome, "", 1.0, 1, ""
    )


def test_an_explained_survivor_counts_as_noticed_and_is_listed_separately() -> None:
    survivors = [
        planted(SURVIVED, "  if (a > b)", "  if (a >= b)"),
        planted(SURVIVED, "  a();", "  (void)0;"),
    ]
    known = {("src/a.c", "if (a > b)", "if (a >= b)"): "both are right"}
    text, share = report.told(1, [*survivors, *[planted(NOTICED, "  x", "  y")] * 2], known)
    assert share == 0.75
    assert "4 faults planted, 2 noticed, 1 explained, 1 not noticed" in text
    first, second = text.split("explained: nothing")
    assert "(void)0;" in first and "both are right" not in first
    assert "both are right" in second


def test_an_explanation_of_a_line_that_no_longer_exists_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "equivalent.toml"
    file.write_text(
        '[[fault]]\nfile = "a.c"\nbefore = "if (a > b)"\nafter = "if (a >= b)"\n'
        'reason = "both are right"\n'
    )
    (tmp_path / "a.c").write_text("x\n    if (a > b)\ny\n")
    assert report.explained(file, tmp_path) == {
        ("a.c", "if (a > b)", "if (a >= b)"): "both are right"
    }
    (tmp_path / "a.c").write_text("x\n    if (a > b + 1)\ny\n")
    with pytest.raises(report.Stale, match="no longer exists"):
        report.explained(file, tmp_path)


def test_the_lines_of_all_explanations_exist() -> None:
    report.explained()


def tree(folder: Path) -> Path:
    """Makes a tree that contains the tool."""
    shutil.copytree(ROOT / "tests" / "mutants", folder / "tests" / "mutants")
    (folder / "tests" / "mutants" / "equivalent.toml").write_text("")
    (folder / ".gitignore").write_text("/build/\n__pycache__/\n.mypy_cache/\n")
    (folder / "pyproject.toml").write_text(
        '[tool.mypy]\npackages = ["cairn"]\nstrict = true\n'
        '[tool.pytest.ini_options]\npythonpath = ["tests"]\n'
        'addopts = "--import-mode=importlib"\nmarkers = ["long: x"]\n'
    )
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def mutants(folder: Path, *arguments: object) -> tuple[int, str]:
    """Runs the tool of a tree."""
    done = subprocess.run(
        [sys.executable, "-m", "mutants", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "tests")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def python_tree(folder: Path) -> Path:
    tree(folder)
    (folder / "cairn").mkdir()
    (folder / "cairn" / "__init__.py").write_text("")
    (folder / "cairn" / "calc.py").write_text(CALC)
    (folder / "tests" / "python").mkdir()
    (folder / "tests" / "python" / "test_calc.py").write_text(
        "from cairn.calc import largest, total\n\n\n"
        "def test_total() -> None:\n    assert total([1, 2]) == 3\n\n\n"
        "def test_largest() -> None:\n"
        "    assert largest(1, 2) == largest(2, 1) == largest(2, 2) == 2\n"
    )
    return folder


@pytest.mark.long
def test_a_survivor_is_planted_again_when_there_is_a_test_for_it(tmp_path: Path) -> None:
    folder = python_tree(tmp_path / "tree")
    test = folder / "tests" / "python" / "test_calc.py"
    strong = test.read_text()
    test.write_text(strong.replace("total([1, 2]) == 3", "total([]) == 0"))
    seed, count = seed_for(tmp_path, "cairn/calc.py", CALC, in_python.candidates, "result -= value")
    code, said = mutants(folder, "--python", "--seed", seed, "--count", count)
    assert code == 1
    assert "result -= value" in said.partition("not noticed:")[2].partition("\nnoticed:")[0], said
    test.write_text(strong)
    code, said = mutants(folder, "--python", "--seed", seed, "--count", count)
    assert "tests/python/test_calc.py::test_total" in said, said
    assert "result -= value" in said.partition("\nnoticed:")[2], said


@pytest.mark.long
def test_a_fault_that_changes_nothing_survives_until_it_is_explained(tmp_path: Path) -> None:
    folder = python_tree(tmp_path / "tree")
    seed, count = seed_for(
        tmp_path, "cairn/calc.py", CALC, in_python.candidates, "if first >= second:"
    )
    code, said = mutants(folder, "--only", "cairn/calc.py", "--seed", seed, "--count", count)
    assert code == 1, said
    assert "if first >= second:" in said.partition("not noticed:")[2].partition("\nnoticed:")[0], (
        said
    )
    (folder / "tests" / "mutants" / "equivalent.toml").write_text(
        '[[fault]]\nfile = "cairn/calc.py"\nbefore = "if first > second:"\n'
        'after = "if first >= second:"\n'
        'reason = "equal numbers"\n'
    )
    begun = (folder / "build" / "mutants" / "python" / "told.json").stat().st_mtime_ns
    code, said = mutants(folder, "--only", "cairn/calc.py", "--seed", seed, "--count", count)
    assert code == 0 and "equal numbers" in said.partition("\nnoticed:")[0], said
    assert (folder / "build" / "mutants" / "python" / "told.json").stat().st_mtime_ns == begun, (
        "the fault was planted again"
    )


@pytest.mark.long
def test_a_tree_that_fails_without_faults_is_refused_and_its_processes_are_ended(
    tmp_path: Path,
) -> None:
    """A fault may keep a program from ending. If it were not killed, it would slow later tests."""
    folder = python_tree(tmp_path / "tree")
    (folder / "tests" / "python" / "test_left.py").write_text(
        "import subprocess\nfrom pathlib import Path\n\n\n"
        "def test_left() -> None:\n"
        "    left = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        f"    Path({str(tmp_path / 'left')!r}).write_text(str(left.pid))\n"
        "    assert False\n"
    )
    code, said = mutants(folder, "--python", "--seed", 1, "--count", 1)
    assert code == 1
    assert "the tree without faults fails tests/python/test_left.py::test_left" in said
    assert not Path("/proc", (tmp_path / "left").read_text()).exists()


@pytest.mark.long
def test_a_test_that_also_fails_without_faults_has_noticed_none(tmp_path: Path) -> None:
    """The tool's processes once ignored SIGHUP, so a test of SIGHUP failed with every fault."""
    folder = python_tree(tmp_path / "tree")
    (folder / "tests" / "python" / "test_calc.py").write_text(
        "from pathlib import Path\n\nfrom cairn.calc import largest, total\n\n\n"
        "def test_once() -> None:\n"
        "    assert largest(1, 2) + total([1]) == 3\n"
        f"    Path({str(tmp_path / 'ran')!r}).mkdir()\n"
    )
    code, said = mutants(folder, "--python", "--seed", 2, "--count", 1)
    assert code == 1
    assert "test_calc.py::test_once fails without faults too" in said, said
    assert "0 faults planted" in said, said


LARGER = """#include "larger.h"

int larger(int first, int second)
{
    return first > second ? first : second;
}
"""
"""A C file whose function returns the larger of two numbers."""


def c_tree(folder: Path) -> Path:
    tree(folder)
    (folder / "src" / "policy").mkdir(parents=True)
    (folder / "src" / "policy" / "larger.h").write_text("int larger(int first, int second);\n")
    (folder / "src" / "policy" / "larger.c").write_text(LARGER)
    (folder / "larger_test.c").write_text(
        '#include "src/policy/larger.h"\n'
        "int main(void) { return larger(1, 2) != 2 || larger(2, 1) != 2; }\n"
    )
    (folder / "CMakeLists.txt").write_text(CMAKE)
    return folder


@pytest.mark.parametrize(
    ("after", "noticed"), [("return 0;", True), ("return first >= second ? first : second;", False)]
)
def test_a_fault_in_c_is_noticed_if_it_changes_something(
    tmp_path: Path, after: str, noticed: bool
) -> None:
    folder = c_tree(tmp_path / "tree")
    seed, count = seed_for(tmp_path, "src/policy/larger.c", LARGER, in_c.candidates, after)
    code, said = mutants(folder, "--c", "--seed", seed, "--count", count)
    assert f"+     {after}" in said, said
    assert (code == 0) == noticed, said
    assert ("policy_larger" in said) == noticed, said


def test_a_file_without_faults_is_an_error(tmp_path: Path) -> None:
    """A run with a misspelt name once planted nothing, and ended as if all faults were noticed."""
    folder = python_tree(tmp_path / "tree")
    for name in ("wrong", "cairn/wrong.py", "cairn/__init__.py"):
        code, said = mutants(folder, "--only", name, "--seed", 1)
        assert code == 1
        assert f"mutants: no line of {name} can have a fault" in said, said


def test_a_change_of_the_sources_during_a_run_does_not_hide_its_faults(tmp_path: Path) -> None:
    """Such a change once made the report say that 0 faults were planted, and the run succeed."""
    folder = c_tree(tmp_path / "tree")
    changed = folder / "src" / "policy" / "more.h"
    test = folder / "larger_test.c"
    test.write_text(
        test.read_text().replace("{ return", f'{{ fclose(fopen("{changed}", "w")); return')
    )
    test.write_text(f"#include <stdio.h>\n{test.read_text()}")
    _, said = mutants(folder, "--c", "--seed", 1, "--count", 1)
    assert changed.exists(), said
    assert "1 faults planted" in said, said


def names(faults: Sequence[Fault]) -> list[str]:
    return [fault.where for fault in faults]


def test_the_list_of_faults_can_be_shown_without_planting(tmp_path: Path) -> None:
    folder = python_tree(tmp_path / "tree")
    code, said = mutants(folder, "--python", "--seed", 5, "--count", 3, "--show")
    assert code == 0
    faults = islice(drawn(tmp_path, "cairn/calc.py", CALC, in_python.candidates, 5), 3)
    assert [line.split()[0] for line in said.splitlines() if line.startswith("cairn/")] == names(
        list(faults)
    )
    assert not (folder / "build").exists()


def test_a_line_that_a_prepared_process_runs_belongs_to_the_test_that_runs_then(
    tmp_path: Path,
) -> None:
    """A process of a shared fixture forks for each test.

    Its lines were once recorded for "fixture …|tests/…", so no such test was run for a fault.
    """
    for folder in ("cairn", "tests/mutants"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "cairn" / "lines.py").write_text("def run():\n    return 1\n")
    shutil.copy(ROOT / "tests" / "mutants" / "follow.py", tmp_path / "tests" / "mutants")
    (tmp_path / "recorded").mkdir()
    script = f"""
import os, sys
from pathlib import Path
sys.path[:0] = [{str(tmp_path / "tests")!r}, {str(tmp_path)!r}]
from mutants import follow
follow.FOLDER = Path({str(tmp_path / "recorded")!r})
follow.NAME = follow.FOLDER / "test"
follow.NAME.write_text("fixture prepared")
follow.follow()
from cairn import lines
follow.NAME.write_text("tests/test_a.py::test_b[x|y]")
if os.fork() == 0:
    lines.run()
    sys.exit()
sys.exit(os.wait()[1])
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    found: dict[int, set[str]] = {}
    for part in (tmp_path / "recorded").glob("lines.*"):
        data = coverage.CoverageData(basename=str(part))
        data.read()
        for line, contexts in data.contexts_by_lineno(str(tmp_path / "cairn/lines.py")).items():
            found.setdefault(line, set()).update(filter(None, contexts))
        data.close()
    assert found == {1: {"fixture prepared"}, 2: {"tests/test_a.py::test_b[x|y]"}}


def test_the_size_of_an_element_gets_no_fault_in_its_index() -> None:
    line = "    long bytes = count * sizeof entries[0] + sizeof(entries[1]);\n"
    assert "number" not in in_c.candidates(f"void f(void)\n{{\n{line}}}\n").get(3, {})
