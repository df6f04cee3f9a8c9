"""Tests of what --why says about parts and processes that were not measured, in invented runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.gaps import looked_at, trials, why_run

from cairn.errors import UsageError
from cairn.model import twin
from cairn.report.run import Measured, explained, explained_pairs
from cairn.report.why import boards, sentences
from cairn.why.causes import causes
from cairn.why.gap import explain


def test_processes_that_the_probe_could_not_record_are_named() -> None:
    """Once, a comparison did not mention such processes."""
    fast = [
        replace(one, unrecorded={"server": {"EFBIG": 2}, "": {"": 1}} if one.probe else {})
        for one in trials("fast")
    ]
    found = explain(why_run("fast"), [*trials("system"), *fast], "fast", "system")
    assert found.unrecorded == {"fast": {"server": {"EFBIG": 16}, "": {"": 8}}}
    (told,) = [text for text in sentences(found) if "missing" in text]
    assert told == (
        "▲ Of fast's runs with the probe, 24 processes are missing: server could not write a "
        "profile: File too large (EFBIG); and others. The operations, system calls and findings "
        "here do not contain them."
    )
    none = [replace(one, probe=None) if one.probe else one for one in fast]
    (board,) = boards(
        why_run("fast"), [explain(why_run("fast"), [*trials("system"), *none], "fast", "system")]
    )
    (failure,) = board.failures
    assert failure.startswith(
        "fast against system: the probe saw no allocation under fast. ▲ Of fast's runs with the "
        "probe, 24 processes are missing: server could not write"
    )


def test_a_program_that_a_contender_never_ran_is_left_out() -> None:
    """`cairn explain RUN CONTENDER` once called it a failure of the contender."""
    run = why_run("fast", "lean")
    first = run.settings.workloads[0]
    of = {"fast": (0,), "lean": (1,)}
    only = {name: places for one, places in of.items() for name in (one, twin(one))}
    settings = replace(run.settings, workloads=(first, replace(first, name="other")), only=only)
    samples = [
        replace(one, trial=replace(one.trial, workload=workload))
        for name, places in {"system": (0, 1), **of}.items()
        for workload in places
        for one in trials(name)
    ]
    run = replace(run, settings=settings)
    measured = Measured(run, tuple(samples), ("8 rounds",), "last")
    for name, places in of.items():
        whys = explained_pairs(measured, name, None)
        assert tuple(one.workload for one in whys) == places
        assert whys == tuple(one for one in explained(measured) if one.contender == name)
        assert explained_pairs(measured, "system", name)[0].workload == places[0]
    with pytest.raises(UsageError, match="fast and lean ran no program in common"):
        explained_pairs(measured, "fast", "lean")


def test_parts_that_were_not_measured_are_not_called_unexplained() -> None:
    """A short run has fewer clock samples and timer samples than the report needs.

    Once, the report said that 102 % of the difference is unexplained, although nothing had divided
    the difference into parts.
    """
    few = {"own": 2, "calls": 0, "faults": 1, "interrupts": 0, "others": 0, "program": 2}
    timers = {"samples": 3, "samples_inside": 1, "samples_probe": 0}
    samples = [
        *looked_at(trials("system", **timers), **few),
        *looked_at(trials("fast", 300.0, **timers), **few),
    ]
    found = explain(why_run("fast"), samples, "fast", "system")
    first, *others = sentences(found)
    assert first == (
        "fast takes 2.9 times the CPU time of system: all of the difference may lie in parts "
        "that were not measured: allocator code and program code (only 40 clock samples of fast "
        "(100 needed); use more rounds (-r) or a longer run)."
    )
    assert not any("nexplained" in text or "not known" in text for text in others)
    assert causes(found, "fast") == ()
    (board,) = boards(why_run("fast"), [found])
    rows = [row[0].text.strip() for row in board.tables[0].rows]
    assert "not divided" in rows and "unexplained" not in rows
    assert "not divided CPU time can hold allocator code and program code and" in board.footer[0]
