"""Tests that the documents of --json have the shape that the shipped JSON Schema describes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from support.comparisons import a_run, samples
from support.invented_process import INSPECTION

from cairn.cli import json_schema
from cairn.cli.measurement import measured
from cairn.compare import comparison
from cairn.gate import InstructionCount
from cairn.model import StopRule
from cairn.report import inspection, run_json
from cairn.report.run import comparisons, rendered
from cairn.report.view import View
from cairn.run.run_archive import RunArchive
from cairn.verdict import Aim, Bound, Measure

ROOT = Path(__file__).resolve().parents[2]
KEPT = [*sorted((ROOT / "docs" / "results").glob("*.tar.xz")),
        *sorted((ROOT / "tests" / "python" / "runs").glob("*.tar.xz"))]  # fmt: skip


@pytest.fixture(scope="module")
def strict() -> jsonschema.Draft202012Validator:
    """A validator that also refuses fields that the schema does not know."""
    schema = json.loads((ROOT / "cairn" / "report" / "schema" / json_schema.NAME).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    schema = copy.deepcopy(schema)
    for one in (schema, *schema["$defs"].values()):
        if "properties" in one:
            one["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def test_the_shipped_schema_is_that_of_the_data_types() -> None:
    shipped = ROOT / "cairn" / "report" / "schema" / json_schema.NAME
    assert shipped.read_text() == json_schema.text(), "'make man' writes it anew"


@pytest.mark.parametrize("changed", [
    {},
    {"fast": 100.0},
    {"failure": "was killed by signal 11 (SIGSEGV)", "endings": {"prog": {"SIGSEGV": 1}}},
    {"metrics": {"rate": 5.0}, "counters": {"cycles": None}},
    {"load": {"requests": 10.0, "requests/s": 5.0}},
])  # fmt: skip
@pytest.mark.parametrize("aim", [
    Aim(), Aim(pareto=True), Aim(Measure.MEMORY, (Bound(Measure.TIME, 0.05),)),
], ids=["every", "pareto", "goal"])  # fmt: skip
def test_every_shape_of_a_comparison_is_valid(
    strict: jsonschema.Draft202012Validator, changed: dict[str, Any], aim: Aim
) -> None:
    run, of = replace(a_run(), aim=aim), samples(**changed)
    found = comparison.compare(of, run.contenders, run.baseline, run.rule, aim=aim)
    counts = [InstructionCount("system", (5, 6)), InstructionCount("fast", (), 0, "cannot run")]
    strict.validate(json.loads(run_json.render(run, [found], of, instructions=counts)))


def test_a_run_without_rounds_is_valid(strict: jsonschema.Draft202012Validator) -> None:
    run = replace(a_run(), rule=StopRule(budget_s=5.0))
    found = comparison.compare([], run.contenders, run.baseline, run.rule)
    strict.validate(json.loads(run_json.render(run, [found], [])))


def kept(path: Path) -> Any:
    found = measured(RunArchive(path))
    return json.loads(rendered(found, comparisons(found), View("json")))


@pytest.mark.parametrize("name", ["why", "scenarios"])
def test_a_kept_run_is_valid(strict: jsonschema.Draft202012Validator, name: str) -> None:
    document = kept(ROOT / "tests" / "python" / "runs" / f"{name}.tar.xz")
    del document["samples"][5:]  # the others have the same shape, and take a second
    strict.validate(document)


@pytest.mark.long
@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_every_kept_run_is_valid(strict: jsonschema.Draft202012Validator, path: Path) -> None:
    try:
        found = measured(RunArchive(path))
    except Exception:  # some archives hold many runs, or pictures
        pytest.skip("no run")
    if found.run.settings.instructions or found.kind == "matrix":
        pytest.skip("another document")
    strict.validate(json.loads(rendered(found, comparisons(found), View("json"))))


def test_the_schema_of_a_look_is_that_of_the_data_types_and_of_the_document() -> None:
    shipped = ROOT / "cairn" / "report" / "schema" / json_schema.INSPECT_NAME
    assert shipped.read_text() == json_schema.text(json_schema.inspect_schema()), "'make man'"
    schema = json.loads(shipped.read_text())
    for one in (schema, *schema["$defs"].values()):
        one["additionalProperties"] = False
    document = json.loads(inspection.document(INSPECTION, cairn="1"))
    jsonschema.Draft202012Validator(schema).validate(document)
