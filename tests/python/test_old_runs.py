"""Tests that runs of version 0.1.0 are still reported with the same numbers and the same units.

runs/NAME.tar.xz holds such a run. runs/NAME.txt is the text that version 0.1.0 printed for the run
at 110 columns. The run is stored in version 1 of the format, in which some keys had other names.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cairn.cli.measurement import measured
from cairn.report.run import comparisons, rendered
from cairn.report.view import View
from cairn.run import store
from cairn.run.run_archive import RunArchive

RUNS = Path(__file__).parent / "runs"
NAMES = ("why", "workloads", "scenarios")

NUMBER = re.compile(
    r"(?<![\w.])[−+-]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?:\s(?:%|[nµm]?s|[KMG]iB|B|M|rounds)(?!\w))?"
)


def numbers(text: str) -> Counter[str]:
    """Returns how often each number occurs with its unit.

    Version 0.1.0 called rounds "blocks", so both words count as the same. Lines "Next" are left
    out, because they contain the name of the run. The reach of intervals that show no difference is
    left out, too, because the verdict now says instead how much less is still possible.
    """
    text = re.sub(r"^Next: .*$", "", text, flags=re.MULTILINE).replace("blocks", "rounds")
    # Version 0.1.0 divided each part of a gap by the baseline, not by the difference.
    text = re.sub(r"(?<=\]) +[−+][\d.]+ %$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\(a run lasts [\d.]+ ms\)", "", text)
    text = re.sub(r"the intervals still reach ±[\d.]+ %", "", text)
    return Counter(" ".join(token.split()) for token in NUMBER.findall(text))


def report(name: str) -> str:
    found = measured(RunArchive(RUNS / f"{name}.tar.xz"))
    return rendered(found, comparisons(found), View(full=True, width=110))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_version_0_1_0_is_reported_as_before(name: str) -> None:
    text = (RUNS / f"{name}.txt").read_text()
    # Beside ≈, a report now shows the 90 % interval, so the old interval is left out.
    text = re.sub(r"\[[−+]0\.\d+, [−+]0\.\d+\]", "", text)
    text = re.sub(r"(\d+) of \1 processes", r"\1 processes", text)
    was = numbers(text)
    assert was.total() > 30
    missing = was - numbers(report(name))
    assert not missing


def test_the_numbers_of_a_text_are_found_with_their_units() -> None:
    text = "▸ a  165 ms  ≈ −1.9 %  [−9.8, +4.4]  32,712  3.34e-05\n6 blocks of python3\nNext: -r 12"
    assert set(numbers(text)) == {
        "165 ms", "−1.9 %", "−9.8", "+4.4", "32,712", "3.34e-05", "6 rounds",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_version_1_are_read_as_those_of_version_2(name: str) -> None:
    stored = RunArchive(RUNS / f"{name}.tar.xz")
    kept = json.loads(stored.content("run.json") or b"")
    lines = [json.loads(line) for line in (stored.content("samples.jsonl") or b"").splitlines()]
    assert kept["schema"] == 1
    rule = stored.run().rule
    assert (rule.min_rounds, rule.max_rounds) == (
        kept["rule"]["min_blocks"],
        kept["rule"]["max_blocks"],
    )
    samples = stored.samples()
    assert [sample.trial.round for sample in samples] == [line["trial"]["block"] for line in lines]
    for sample, line in zip(samples, lines, strict=True):
        assert (sample.probe is None) == (line["account"] is None)
        assert (sample.cpu_samples is None) == (line["whereabouts"] is None)
        if sample.probe is not None:
            assert sample.probe.operations == line["account"]["operations"]
        if sample.cpu_samples is not None:
            later = {"interrupts": None, "interrupts_unseen": "", "functions": (), "atomics": ()}
            assert msgspec.to_builtins(sample.cpu_samples) == line["whereabouts"] | later


def test_the_renamed_keys_of_a_run_with_the_probe_are_read() -> None:
    samples = RunArchive(RUNS / "why.tar.xz").samples()
    assert any(sample.probe is not None for sample in samples)
    assert any(sample.cpu_samples is not None for sample in samples)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_version_0_1_0_can_be_continued(name: str, tmp_path: Path) -> None:
    path = tmp_path / "20260101-000000-abcd"
    with tarfile.open(RUNS / f"{name}.tar.xz") as archive:
        archive.extractall(path)
    before = store.Folder(path).samples()

    folder = store.to_resume(tmp_path, path.name)
    folder.mark_resumed()
    last = before[-1]
    another = replace(last, trial=replace(last.trial, round=last.trial.round + 1))
    folder.append(another)

    assert store.Folder(path).samples() == (*before, another)
    assert not store.Folder(path).stopped()
