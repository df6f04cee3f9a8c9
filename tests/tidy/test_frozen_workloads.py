"""Tests that the workloads use none of our code, and that they change only with a decision record.

All allocators are compared on these workloads.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cairn.bench import experiments

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "workloads"


def sources() -> list[Path]:
    return sorted(
        [
            *WORKLOADS.rglob("*.[ch]"),
            WORKLOADS / "CMakeLists.txt",
            ROOT / "cairn" / "run" / "workloads.toml",
        ]
    )


def without_layout(text: str) -> str:
    """Returns the text with one space between words and none elsewhere.

    Adjacent strings are joined.
    """
    joined = " ".join(re.sub(r'""(\s*"")+', '""', text).split())
    return re.sub(r" (?=\W)|(?<=\W) ", "", joined)


def frozen() -> str:
    """Returns a checksum of the workloads: their work, their compilation and their arguments.

    It covers the sources and build rules without comments, layout and texts. It also covers the
    sizes in the catalog and in the experiments, and the choice for --quick. It does not cover the
    experiments that only explain a difference, because these rank no contender.
    """
    digest = hashlib.sha256()
    for file in sources():
        text = file.read_text()
        if file.suffix in (".c", ".h"):
            text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
            text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
        elif file.name == "CMakeLists.txt":
            text = re.sub(r"#.*", "", text)
        else:
            text = "\n".join(
                re.findall(
                    r"^(?:name|program|suite|smallest|larger|quick) = .*", text, re.MULTILINE
                )
            )
        digest.update(f"{file.name}\n{without_layout(text)}\n".encode())
    for experiment in (one for one in experiments.EXPERIMENTS if not one.why):
        for variant in (*experiment.full.variants, *experiment.quick.variants):
            digest.update(
                f"{experiment.name} {variant.name} {variant.program} {variant.arguments}\n".encode()
            )
    return digest.hexdigest()


def test_a_workload_sees_libc_and_what_workloads_share() -> None:
    wrong = []
    for file in WORKLOADS.rglob("*.[ch]"):
        for quote, include in re.findall(
            r'^\s*#\s*include\s+([<"])([^">]+)', file.read_text(), re.MULTILINE
        ):
            ours = quote == '"' or include.startswith("cairn")
            arena = file.name == "malloctest.c" and include == "cairn/arena.h"
            if ours and not arena and not include.startswith("common/"):
                wrong.append(f"{file.relative_to(ROOT)} includes {include}")
    assert not wrong, "\n".join(wrong)


def test_no_workload_is_compiled_by_a_compiler_that_knows_malloc() -> None:
    assert (WORKLOADS / "CMakeLists.txt").read_text().count("-fno-builtin)") == 2


def test_the_workloads_are_those_that_were_decided_on() -> None:
    """Results on one set of workloads cannot be compared with those on another set.

    If you change a workload, write a decision record with the reason and the new checksum, and
    measure all allocators again.
    """
    decided = "".join(file.read_text() for file in (ROOT / "docs" / "decisions").glob("*.md"))
    assert frozen()[:16] in decided, (
        f"the workloads now have the checksum {frozen()[:16]}; a change needs a record in "
        "docs/decisions with this checksum, the reason, and new results of all allocators"
    )
