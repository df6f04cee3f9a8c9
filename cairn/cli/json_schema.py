"""Writes the JSON Schemas of --json into a folder: `python -m cairn.cli.json_schema FOLDER`.

There is one for runs, and one for 'cairn inspect'. A schema is made from the data types, so that it
cannot differ from the documents. The texts below the fields become their descriptions.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from cairn.compare.gate import Checked
from cairn.gate import InstructionCount
from cairn.inspect import facts
from cairn.model import SCHEMA, Comparison, Run, Sample
from cairn.soak.verdict import SoakVerdict, Tried
from cairn.why.gap import Why

NAME = f"run-{SCHEMA}.json"
"""The file name of the schema of runs. The number is the value of "schema" in the documents."""
INSPECT_NAME = f"inspect-{facts.SCHEMA}.json"
"""The file name of the schema of 'cairn inspect'."""
FOLDER = Path(__file__).resolve().parents[1] / "report" / "schema"
_TYPES = (Run, Comparison, Sample, InstructionCount, Checked, Why, SoakVerdict, Tried)
_CHECK = {
    "answer": "The answer of the whole check: worse if a bound is exceeded, pass if all are kept.",
    "base": "The name of the build that is compared with.",
    "now": "The name of the build that is checked.",
    "bounds": "The answer to each bound, in the order of --fail-if. Empty if the check is broken.",
    "says": "The sentences of the report. The first one begins with the answer.",
    "broken": "Why nothing could be checked; null if it could.",
    "stored": "What was compared with stored numbers; null if both builds ran side by side.",
}
_DOCUMENT = {
    "schema": "The version of this format. It changes when a field changes its meaning or is "
    "removed; new fields may be added to a version.",
    "run": "The request, and the machine.",
    "comparisons": "One comparison for each command, in the order of run.settings.workloads.",
    "samples": "Each execution of the program, in the order in which they ran.",
    "whys": "The explained differences of --why.",
    "instructions": "The instructions of each contender, of --instructions.",
    "check": "The answer of 'cairn check'.",
    "soak": "The answer of 'cairn soak' for each contender. `comparisons` is then empty.",
    "tried": "The contenders of 'cairn soak' that surely hold less memory than another one.",
    "verdict": "The sentences of 'cairn soak'.",
    "standings": "The means over all workloads of a suite.",
    "scenarios": "The points of 'cairn bench scenarios'.",
}


_INSPECT = {
    "schema": "The version of this format.",
    "cairn": "The version of Cairn that wrote the document.",
    "inspection": "Everything that is known about the process.",
    "says": "The sentences of the answer.",
    "advice": "The sentences that follow from the facts, the most urgent first.",
}


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of one document."""
    references, definitions = msgspec.json.schema_components(_TYPES, ref_template="#/$defs/{name}")
    by = dict(zip(_TYPES, references, strict=True))
    described = _descriptions(definitions)
    for name, definition in definitions.items():
        _complete(definition, described.get(name, {}))
    _complete(definitions["Comparison"], {})
    definitions["Comparison"]["properties"]["verdict"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "The sentences of the verdict.",
    }
    definitions["Comparison"]["required"].append("verdict")
    definitions["Check"] = _check(by[Checked])
    properties: dict[str, Any] = {
        "schema": {"const": SCHEMA},
        "run": by[Run],
        "comparisons": {"type": "array", "items": by[Comparison]},
        "samples": {"type": "array", "items": by[Sample]},
        "whys": {"type": "array", "items": by[Why]},
        "instructions": {"type": "array", "items": by[InstructionCount]},
        "check": {"$ref": "#/$defs/Check"},
        "soak": {"type": "array", "items": by[SoakVerdict]},
        "tried": {"type": "array", "items": by[Tried]},
        "verdict": {"type": "array", "items": {"type": "string"}},
        "standings": {"type": "object"},
        "scenarios": {"type": "object"},
    }
    for name, text in _DOCUMENT.items():
        properties[name] = {**properties[name], "description": text}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cairn:{NAME}",
        "title": "A run of cairn",
        "description": "The document of 'cairn compare --json', 'cairn check --json', 'cairn bench "
        "--json', 'cairn calibrate --json', 'cairn soak --json' and 'cairn report --json'. Some "
        "runs have another document; docs/json.md names them.",
        "type": "object",
        "properties": properties,
        "required": ["schema", "run", "comparisons", "samples"],
        "$defs": definitions,
    }


def _check(checked: dict[str, Any]) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string"}
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    properties: dict[str, Any] = {
        "answer": {"enum": ["pass", "worse", "not enough data", "not known", "broken"]},
        "base": text,
        "now": text,
        "bounds": {"type": "array", "items": checked},
        "says": {"type": "array", "items": text, "minItems": 1},
        "broken": maybe,
        "stored": maybe,
    }
    for name, description in _CHECK.items():
        properties[name] = {**properties[name], "description": description}
    return {"title": "Check", "type": "object", "properties": properties, "required": [*properties]}


def _complete(definition: dict[str, Any], described: dict[str, str]) -> None:
    """Makes all fields required, since every document has them all, and describes them."""
    # Before Python 3.13, docstrings keep the indentation of the source. cleandoc() removes it.
    if "description" in definition:
        definition["description"] = inspect.cleandoc(definition["description"])
    properties = definition.get("properties")
    if properties is None:
        return
    definition["required"] = [*properties]
    for name, property_ in properties.items():
        property_.pop("default", None)
        if name in described:
            property_["description"] = described[name]


def _descriptions(names: Collection[str]) -> dict[str, dict[str, str]]:
    """Returns the texts below the fields of these records, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for module_name, module in sorted(sys.modules.items()):
        own = {
            name
            for name in names
            if getattr(vars(module).get(name), "__module__", None) == module_name
        }
        if own and module_name.startswith("cairn."):
            tree = ast.parse(inspect.getsource(module))
            found |= {
                node.name: _texts(node)
                for node in tree.body
                if isinstance(node, ast.ClassDef) and node.name in own
            }
    return found


def _texts(tree: ast.ClassDef) -> dict[str, str]:
    texts = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(inspect.cleandoc(str(below.value.value)).split())
    return texts


def inspect_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the document of 'cairn inspect'."""
    references, definitions = msgspec.json.schema_components(
        (facts.Inspection,), ref_template="#/$defs/{name}"
    )
    described = _descriptions(definitions)
    for name, definition in definitions.items():
        _complete(definition, described.get(name, {}))
    sentences = {"type": "array", "items": {"type": "string"}}
    properties: dict[str, Any] = {
        "schema": {"const": facts.SCHEMA},
        "cairn": {"type": "string"},
        "inspection": references[0],
        "says": sentences,
        "advice": sentences,
    }
    for name, description in _INSPECT.items():
        properties[name] = {**properties[name], "description": description}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cairn:{INSPECT_NAME}",
        "title": "A look at a process",
        "description": "The document of 'cairn inspect --json'.",
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "$defs": definitions,
    }


def text(of: dict[str, Any] | None = None) -> str:
    """Returns a schema as the content of its file. None stands for the schema of runs."""
    return json.dumps(schema() if of is None else of, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / NAME).write_text(text(), encoding="utf-8")
    (folder / INSPECT_NAME).write_text(text(inspect_schema()), encoding="utf-8")
