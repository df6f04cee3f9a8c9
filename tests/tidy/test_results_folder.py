"""Tests that docs/results stays small, and that its runs can be reported.

docs/results/README.md must name every file of the folder.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairn.cli.measurement import measured
from cairn.report.run import comparisons, rendered
from cairn.report.view import Form, View
from cairn.run.run_archive import ENDING, RunArchive

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
FILES = sorted(RESULTS.iterdir())
RUNS = [path for path in FILES if path.name.endswith(ENDING)]

MOST_BYTES = 6 << 20
MOST_FILES = 60
ENDINGS = (".md", ".svg", ENDING, ".tex")


def test_the_results_are_few_and_small() -> None:
    assert all(path.is_file() for path in FILES)
    assert len(FILES) <= MOST_FILES
    assert sum(path.stat().st_size for path in FILES) <= MOST_BYTES


def test_a_result_is_a_page_a_picture_a_table_or_a_run() -> None:
    assert [path.name for path in FILES if not path.name.endswith(ENDINGS)] == []


def test_the_readme_names_every_file() -> None:
    named = set(re.findall(r"\]\(([^)\s#]+)\)", (RESULTS / "README.md").read_text()))
    assert {path.name for path in FILES} - {"README.md"} - named == set()


def test_links_to_results_lead_to_a_file() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)\s#]*results/[^)\s#]+)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document} links to {target}"


def test_texts_name_only_results_that_exist() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"docs/results/[\w.-]*\w", document.read_text()):
            assert name.endswith("/NAME.tar.xz") or (ROOT / name).exists(), (
                f"{document} names {name}"
            )


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if place % 4 == 0 else pytest.mark.long)
        for place, path in enumerate(RUNS)
    ],
    ids=lambda path: path.name,
)
def test_a_run_is_reported(path: Path) -> None:
    found = measured(RunArchive(path))
    assert rendered(found, comparisons(found), View())


@pytest.mark.parametrize("form", ["md", "json", "csv"])
def test_a_run_is_reported_in_every_form(form: Form) -> None:
    found = measured(RunArchive(RESULTS / "build.tar.xz"))
    assert rendered(found, comparisons(found), View(form=form, full=True))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_run_names_no_folder_of_the_machine_that_measured(path: Path) -> None:
    stored = RunArchive(path)
    for part in ("run.json", "samples.jsonl"):
        content = stored.content(part) or b""
        assert re.search(rb'[" =](?:/(?:home|root|tmp)/|~/)', content) is None
