"""Tests of the call stacks of the probe, with programs whose sums follow by a formula."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace
from support import known_stacks
from support.probing import Probed
from support.protobuf import fields
from support.stacks import a_stack

from cairn.binary.build_ids import FilesByBuildId
from cairn.errors import CairnError
from cairn.profile.call_stacks import head_type, stacks_of, table_types
from cairn.profile.callers import (
    Frame,
    Stack,
    Sum,
    Sums,
    functions,
    interval,
    stacks,
    total,
    tree,
)
from cairn.profile.demangle import demangled, plain, without_arguments
from cairn.profile.function_names import Names
from cairn.report import stack_forms
from cairn.report.callers_table import (
    branches_table,
    callers_notes,
    callers_table,
    callers_tree,
    unrecorded_note,
)
from cairn.report.fit import fit
from cairn.report.flame_graph import flame_graph

Compiled = Callable[..., Path]
NAMES = Names()
FLAGS = ("-O2", "-pthread", "-fno-builtin")


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


def found(probed: Probed) -> tuple[Stack, ...]:
    return stacks(probed.profile.stacks, NAMES.function_at)


def sums_of(probed: Probed) -> dict[str, Sums]:
    return {frame.function: sums for frame, sums in functions(found(probed))}


# --- known truth ----------------------------------------------------------------------------------


def test_exact_sums_are_those_of_the_formula(probed: Probed, compiled: Compiled) -> None:
    rounds = 101
    probed(compiled("known_stacks.c", *FLAGS), rounds, CAIRN_PROBE_STACKS="exact")
    by_name = sums_of(probed)
    for number in range(known_stacks.FUNCTIONS):
        sums = by_name[f"known_{number}"]
        for name, true in known_stacks.truth(number, rounds).items():
            value = known_stacks.value(sums, name)
            assert value == (true, true, true), (number, name)
        blocks = sums.allocated.blocks - sums.live.blocks
        assert sums.freed == sum(sums.lives) == blocks
        assert sums.freed_elsewhere == 0
    # Blocks of every fourth round stay until the end. The peak comes in or after the last such
    # round. known_30 frees its other blocks at once, so at the peak it has only the blocks that
    # stay.
    at_peak = {name: sums.peak.bytes for name, sums in by_name.items()}
    assert at_peak["known_30"] == by_name["known_30"].live.bytes
    assert all(sums.peak.bytes <= sums.allocated.bytes for sums in by_name.values())
    (file,) = probed.profile.stacks
    assert (file.way, file.unread, file.without_room, file.unwatched) == ("exact", 0, 0, 0)


def test_stacks_lead_from_the_start_to_the_function(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("known_stacks.c", *FLAGS), 4, CAIRN_PROBE_STACKS="exact")
    by_function = {stack.function.function: stack for stack in found(probed)}
    for number in range(known_stacks.FUNCTIONS):
        names = [frame.function for frame in by_function[f"known_{number}"].frames]
        caller = "one" if number % 8 == 0 else "other"
        assert names[-3:] == ["main", caller, f"known_{number}"]
        assert names[0] == "_start"
    whole = tree(found(probed))
    assert whole.sums.allocated == total(found(probed)).allocated
    assert [branch.frame.function for branch in whole.ordered] == ["_start"]


@pytest.mark.parametrize(
    ("tries", "every"),
    [
        (2, "8192"),
        pytest.param(100, "8192", marks=pytest.mark.long),
        pytest.param(100, "0", marks=pytest.mark.long),  # 0: the probe adapts the interval
    ],
)
def test_intervals_hold_the_truth_in_93_of_100_tries(
    tries: int, every: str, probed: Probed, compiled: Compiled
) -> None:
    program, rounds = compiled("known_stacks.c", *FLAGS), 2000
    missed: Counter[str] = Counter()
    all_of: Counter[str] = Counter()
    for seed in range(1, tries + 1):
        probed(
            program,
            rounds,
            CAIRN_PROBE_STACKS="sampled",
            CAIRN_PROBE_STACKS_EVERY=every,
            CAIRN_PROBE_STACKS_SEED=str(seed),
        )
        for name, is_missed in known_stacks.misses(dict(functions(found(probed))), rounds):
            all_of[name] += 1
            missed[name] += is_missed
    # Two tries give only some 60 intervals of each kind, of which 5 % miss on average. Chance may
    # make it up to 16 %. In 100 tries, more than 7 % would be an error.
    most = 0.07 if tries > 50 else 0.16
    assert all(missed[name] <= most * all_of[name] for name in all_of), (missed, all_of)


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_functions_of_cxx_are_named_with_their_arguments(
    way: str, probed: Probed, compiled: Compiled
) -> None:
    program = compiled("known_stacks.cpp", "-O2", "-Wl,--no-as-needed", "-lstdc++")
    rounds = 3000
    probed(
        program,
        rounds,
        CAIRN_PROBE_STACKS=way,
        CAIRN_PROBE_STACKS_EVERY="1000",
        CAIRN_PROBE_STACKS_SEED="7",
    )
    found_here = found(probed)
    for name, (blocks, size) in known_stacks.truth_of_cxx(rounds).items():
        sums = known_stacks.within(found_here, name)
        _, low, high = known_stacks.value(sums, "allocated.bytes")
        spare = 0.0 if way == "exact" else high - low
        assert low - spare <= size <= high + spare, name
        if way == "exact":
            assert (sums.allocated.blocks, sums.allocated.bytes) == (blocks, size), name
        kept = blocks if "400" in name else 0
        assert (sums.live.blocks > 0) == (kept > 0)


def test_samples_adapt_to_a_program_that_allocates_much(probed: Probed, compiled: Compiled) -> None:
    rounds = 10000  # 300 MB
    probed(compiled("known_stacks.c", *FLAGS), rounds, CAIRN_PROBE_STACKS="sampled")
    (file,) = probed.profile.stacks
    assert file.every_first == 16384
    assert file.every > 16384
    assert 400 < file.samples < 30000
    true = sum(
        known_stacks.truth(number, rounds)["allocated.bytes"]
        for number in range(known_stacks.FUNCTIONS)
    )
    whole = total(found(probed)).allocated
    low, high = whole.bytes_interval
    assert low - (high - low) < true < high + (high - low)


# --- what a program may do ------------------------------------------------------------------------

STORMS = {
    "fork": ("storm_allocates", None),
    "threads": ("storm_allocates", 20),
    "libraries": ("plugin_allocates", 1),
    "signals": ("storm_allocates", 2),
    "fibres": ("storm_allocates", 1),
}


@pytest.mark.parametrize("way", ["exact", "sampled"])
@pytest.mark.parametrize(
    ("what", "count"),
    [
        *(("fork", 8), ("threads", 80), ("libraries", 60), ("signals", 400), ("fibres", 400)),
        pytest.param("fork", 1000, marks=pytest.mark.long),
        pytest.param("threads", 1000, marks=pytest.mark.long),
        pytest.param("libraries", 10_000, marks=pytest.mark.long),
        pytest.param("signals", 100_000, marks=pytest.mark.long),
        pytest.param("fibres", 100_000, marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_in_a_storm(
    what: str, count: int, way: str, probed: Probed, compiled: Compiled
) -> None:
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    plugin = compiled("stacks_plugin.c", "-O2", "-fno-builtin", "-shared", "-fPIC")
    assert "done" in probed(
        *(program, what, count, plugin),
        CAIRN_PROBE_STACKS=way,
        CAIRN_PROBE_STACKS_EVERY="100",
    )
    function, each = STORMS[what]
    sums = sums_of(probed)[function]
    assert not any(file.unread or file.without_room for file in probed.profile.stacks)
    if way == "exact" and each is not None:
        assert sums.allocated.blocks == sums.temporary.blocks == each * count
    if what == "fork":
        children = [file for file in probed.profile.stacks if file.samples < 10]
        assert len(children) >= (count if way == "exact" else 1)


def test_the_stack_of_a_signal_handler_leads_to_the_interrupted_function(
    probed: Probed, compiled: Compiled
) -> None:
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    probed(program, "signals", 100, CAIRN_PROBE_STACKS="exact")
    names = [[frame.function for frame in stack.frames] for stack in found(probed)]
    assert any("raise" in stack and stack[-1] == "storm_allocates" for stack in names)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param({"CAIRN_PROBE_STACKS": "exact"}, id="stacks"),
        pytest.param({"CAIRN_PROBE_LAYOUT": "exact"}, id="layout"),
        pytest.param({"CAIRN_PROBE_PATHS": "exact", "CAIRN_PROBE_GAP": "2"}, id="paths"),
    ],
)
def test_a_handler_that_jumps_out_of_an_operation_leaves_no_lock(
    probed: Probed, compiled: Compiled, records: dict[str, str]
) -> None:
    """Once, the jump left a lock of the probe taken, and the program waited forever."""
    allocator = compiled("ring_malloc.c", "-shared")
    program = compiled("jumps_from_handler.c", *FLAGS)
    probed(program, allocator=allocator, **({"CAIRN_PROBE_GAP": "1000000"} | records))
    if "CAIRN_PROBE_STACKS" in records:
        assert sums_of(probed)["main"].samples > 1000


@pytest.mark.parametrize("records", ["CAIRN_PROBE_STACKS", "CAIRN_PROBE_LAYOUT"])
def test_a_handler_may_allocate_while_the_process_ends(
    probed: Probed, compiled: Compiled, records: str
) -> None:
    """Once, the handler waited forever for a lock that its own thread held."""
    program = compiled("allocates_at_exit.c", *FLAGS)
    for _ in range(10):  # one run in three hung
        probed(program, CAIRN_PROBE_GAP="1", **{records: "exact"})


def test_a_deep_stack_keeps_its_innermost_frames(probed: Probed, compiled: Compiled) -> None:
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    probed(program, "deep", 1000, CAIRN_PROBE_STACKS="exact")
    stack = next(one for one in found(probed) if one.function.function == "storm_allocates")
    assert stack.frames[0].function == "(further callers)"
    # The probe's own frames are among the 128 that are recorded.
    assert 120 <= len(stack.frames) <= 128
    assert {frame.function for frame in stack.frames[1:-1]} == {"storm_deep"}


def test_code_without_unwind_tables_is_passed_by_its_frame_pointers(
    probed: Probed, compiled: Compiled
) -> None:
    flags = ("-O2", "-fno-builtin", "-shared", "-fPIC", "-fno-optimize-sibling-calls")
    plugin = compiled(
        "stacks_plugin.c",
        *(*flags, "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"),
    )
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    probed(program, "libraries", 5, plugin, CAIRN_PROBE_STACKS="exact")
    names = [[frame.function for frame in stack.frames] for stack in found(probed)]
    assert any(stack[-1] == "plugin_allocates" and "main" in stack for stack in names)


def test_unwind_tables_of_the_third_version_are_read(probed: Probed, compiled: Compiled) -> None:
    """Without them, the function could only be passed by a frame pointer, which it does not have."""
    flags = ("-O2", "-fno-builtin", "-shared", "-fPIC", "-fno-optimize-sibling-calls")
    plugin = compiled(
        "stacks_plugin.c", *(*flags, "-fomit-frame-pointer", "-Wa,--gdwarf-cie-version=3")
    )
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    probed(program, "libraries", 5, plugin, CAIRN_PROBE_STACKS="exact")
    names = [[frame.function for frame in stack.frames] for stack in found(probed)]
    assert any(stack[-1] == "plugin_allocates" and "main" in stack for stack in names)


def test_rules_that_compilers_seldom_write_are_read(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("rare_unwind_rules.c", "-O2", "-fno-builtin"), CAIRN_PROBE_STACKS="exact")
    ends = [[frame.function for frame in stack.frames][-3:] for stack in found(probed)]
    rules = ("expression", "value_expression", "value_offset", "signed_value_offset")
    for rule in (*rules, "size_of_arguments"):
        assert ["main", f"with_{rule}", "allocates"] in ends


@pytest.mark.parametrize("size", [1, 3, 8, 20, 32, 33, 64])
def test_functions_are_named_whatever_the_length_of_the_build_id(
    probed: Probed, compiled: Compiled, size: int
) -> None:
    """Once, none was named if the ID had less than 8 bytes, or more than 32."""
    build_id = bytes(range(1, size + 1)).hex()
    program = compiled("known_stacks.c", *FLAGS, f"-Wl,--build-id=0x{build_id}")
    probed(program, 4, CAIRN_PROBE_STACKS="exact")
    assert {f"known_{number}" for number in range(known_stacks.FUNCTIONS)} <= set(sums_of(probed))
    (file,) = probed.profile.stacks
    assert file.build_ids[file.paths.index("")] == (build_id if size <= 32 else "")
    files = FilesByBuildId(at_ns=time.time_ns())
    assert not files.is_other(str(program), file.build_ids[file.paths.index("")])


# --- what is missing ------------------------------------------------------------------------------


def test_a_process_with_all_stacks_is_not_named_as_one_without(
    probed: Probed, compiled: Compiled
) -> None:
    program = compiled("stacks_storm.c", *FLAGS, "-D_GNU_SOURCE", "-ldl")
    plugin = compiled("stacks_plugin.c", "-O2", "-fno-builtin", "-shared", "-fPIC")
    for way in ("exact", "sampled"):
        for what, count in (("fork", 8), ("threads", 80), ("signals", 400)):
            probed(program, what, count, plugin, CAIRN_PROBE_STACKS=way)
            assert unrecorded_note(probed.profile.processes, probed.profile.stacks) == ""
    probed(compiled("known_stacks.c", *FLAGS), 4000, CAIRN_PROBE_STACKS="exact")
    (process,), (file,) = probed.profile.processes, probed.profile.stacks
    assert process.asked_bytes is not None
    recorded = float(file.sites["allocated"]["bytes"].sum())
    assert abs(process.asked_bytes - recorded) < 0.01 * recorded


def test_processes_without_stacks_are_named(probed: Probed, compiled: Compiled) -> None:
    """Once, they were missing without a word."""
    probed(compiled("known_stacks.c", *FLAGS), 400, CAIRN_PROBE_STACKS="sampled")
    (process,), files = probed.profile.processes, probed.profile.stacks
    others = [
        replace(process, pid=number, program="/bin/worker", asked_bytes=1) for number in range(5)
    ]
    told = unrecorded_note([process, others[3]], files)
    assert told.startswith(
        "▲ The stacks of 1 process were not recorded, or only a part of them: worker (3). "
    )
    told = unrecorded_note([process, *others], files)
    assert "5 processes" in told and "worker (0), worker (1), worker (2) and 2 more. " in told
    assert unrecorded_note([process, replace(others[0], asked_bytes=0)], files) == ""
    # Without --stacks, there are no files.
    assert unrecorded_note([process, *others], ()) == ""
    assert process.asked_bytes is not None
    more = replace(process, asked_bytes=2 * process.asked_bytes)
    assert f"known_stacks-O2-pthread-fno-builtin ({process.pid})" in unrecorded_note([more], files)


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_a_process_that_filters_its_system_calls_is_named(
    probed: Probed, compiled: Compiled, way: str
) -> None:
    probed(compiled("probe_rights.c"), "prctl", 1, CAIRN_PROBE_STACKS=way)
    profile = probed.profile
    (child,) = [one for one in profile.processes if one.pid != profile.processes[0].pid]
    told = unrecorded_note(profile.processes, profile.stacks)
    assert (
        f"1 process were not recorded, or only a part of them: probe_rights ({child.pid})" in told
    )


def test_notes_say_why_stacks_are_missing(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("known_stacks.c", *FLAGS), 4, CAIRN_PROBE_STACKS="exact")
    (file,) = probed.profile.stacks
    assert not any(note.startswith("▲") for note in callers_notes([file], found(probed)))
    full = replace(file, paths=("/lib/some.so",) * 1024, without_room=3)
    room, objects = (one for one in callers_notes([full], found(probed)) if one.startswith("▲"))
    assert "3 allocations are in the row (no room)" in room
    assert "changed its user or its root folder" in room
    assert "1,024 files or more" in objects and "(generated code)" in objects


# --- damaged files --------------------------------------------------------------------------------


def test_a_damaged_file_is_an_error_of_one_sentence(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("known_stacks.c", *FLAGS), 4, CAIRN_PROBE_STACKS="exact")
    (file,) = probed.profile.stacks
    process = probed.profile.processes[0]
    known = {(process.pid, process.begin_ns): process.program}
    (path,) = probed.out.glob("*.stacks")
    content = path.read_bytes()
    lots = random.Random(5)
    refused = 0
    for _ in range(150):
        broken = bytearray(content[: lots.choice([len(content), lots.randrange(len(content))])])
        for _ in range(lots.randrange(1, 4)):
            if broken:
                end = lots.choice([200, len(broken)])
                broken[lots.randrange(min(end, len(broken)))] ^= 1 << lots.randrange(8)
        path.write_bytes(broken)
        try:
            for one in stacks_of(probed.out, known):
                stacks([one], lambda *_: "f")
        except CairnError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 30
    path.write_bytes(content)
    (again,) = stacks_of(probed.out, known)
    assert again.samples == file.samples


def test_strange_but_whole_numbers_of_a_file_are_refused_or_shown(
    probed: Probed, compiled: Compiled
) -> None:
    """A forged file may have an endless stack, a path with a zero byte, or any other numbers."""
    probed(compiled("known_stacks.c", *FLAGS), 4, CAIRN_PROBE_STACKS="sampled")
    process = probed.profile.processes[0]
    known = {(process.pid, process.begin_ns): process.program}
    (path,) = probed.out.glob("*.stacks")
    content = path.read_bytes()
    head = np.frombuffer(content, head_type("<"), 1)[0]
    nodes, sites, objects = table_types("<")

    def forged(table: int, kind: np.dtype[np.void], field: str, value: object) -> None:
        broken = bytearray(content)
        place = list(head["chunk_table"][: head["chunk_count"]]).index(table)
        many = (32 << 10) // kind.itemsize
        np.frombuffer(broken, kind, many, 4096 + place * (32 << 10))[field] = value
        if table == 0:
            np.frombuffer(broken, head_type("<"), 1)["node_count"] = many
        path.write_bytes(broken)

    forged(0, nodes, "parent", np.arange((32 << 10) // nodes.itemsize) - 1)
    with pytest.raises(CairnError, match="tables are damaged"):
        stacks_of(probed.out, known)
    forged(2, objects, "path", b"/bin/\0ls")
    assert stacks(stacks_of(probed.out, known), NAMES.function_at)
    for number in (1e-200, 1e300, -1e300, float("nan")):
        for field in ("freed_elsewhere", "allocated"):
            forged(1, sites, field, number if field != "allocated" else (number,) * 4)
            try:
                shown = stacks(stacks_of(probed.out, known), NAMES.function_at)
            except CairnError as error:
                assert "sums are damaged" in str(error)
            else:
                assert number == 1e-200
                json.dumps(stack_forms.stacks_document((), shown), allow_nan=False)
                assert [one.sums.allocated.bytes_interval for one in shown]


# --- sums and names -------------------------------------------------------------------------------


def test_an_interval_is_that_of_a_poisson_number() -> None:
    # Table 1 of Garwood (1936) has 4.80 and 18.39 for the number 10, and 0.025 and 5.57 for 1.
    low, high = interval(10, 10, 1)
    assert low == pytest.approx(4.80, abs=0.02)
    assert high == pytest.approx(18.39, abs=0.02)
    low, high = interval(1, 1, 1)
    assert low < 0.05
    assert high == pytest.approx(5.57, abs=0.1)
    assert interval(10, 0, 0) == (10, 10)
    assert interval(0, 0, 0) == (0, 0)
    # Garwood's upper end for the number 0 is 3.69. Here each sample has the weight 10.
    assert interval(0, 0, 10) == (0, pytest.approx(36.9, abs=0.1))
    # If all samples have the same weight, the ends are those of their number, times the weight.
    ends = interval(40960, 10 * 4096**2, 4096)
    assert ends == pytest.approx([one * 4096 for one in interval(10, 10, 1)])
    # The upper end allows for one more sample of the largest weight, 100, which was not drawn.
    assert interval(10, 10, 100)[1] > 300


@pytest.mark.parametrize(
    ("symbol", "full", "short", "shortest"),
    [
        ("main", "main", "main", "main"),
        ("is_const", "is_const", "is_const", "is_const"),
        ("_Znwm", "operator new(unsigned long)", "operator new", "operator new"),
        ("_Z4growILi16EEvv", "void grow<16>()", "grow<16>", "grow<…>"),
        ("_ZN6Parser4nodeEi", "Parser::node(int)", "Parser::node", "Parser::node"),
        (
            "_ZN12_GLOBAL__N_15tableEv",
            *("(anonymous namespace)::table()", "(anonymous namespace)::table"),
            "(anonymous namespace)::table",
        ),
        ("_ZNK1AltERKS_", "A::operator<(A const&) const", "A::operator<", "A::operator<"),
        (
            "_ZN4core3fmt5write17h0123456789abcdefE",
            *("core::fmt::write", "core::fmt::write", "core::fmt::write"),
        ),
    ],
)
def test_names_are_those_of_the_source(symbol: str, full: str, short: str, shortest: str) -> None:
    name = demangled(symbol)
    if name is None:
        pytest.skip("there is no libstdc++ here")
    assert (name, plain(name), without_arguments(plain(name))) == (full, short, shortest)


# --- forms ----------------------------------------------------------------------------------------


def some_stacks() -> tuple[Stack, ...]:
    def stack(size: float, *names: str) -> Stack:
        sums = Sums(samples=3, allocated=Sum(size / 8, size, size / 80, size * size / 50, 4096))
        sums.live = Sum(1, size / 2, 0.1, size)
        return Stack(tuple(Frame(name, f"/lib/{name[:1]}.so") for name in names), sums)

    return (
        stack(
            9_000_000, "main", "parse", "ns::SortedTable<std::pair<int, long>>::_M_grow(unsigned)"
        ),
        stack(4_000_000, "main", "parse", "node"),
        stack(2_000_000, "main", "read\nline", "operator new(unsigned long)"),
        stack(1_000, "main"),
    )


def test_collapsed_stacks_have_a_line_each() -> None:
    lines = stack_forms.collapsed(some_stacks()).splitlines()
    assert lines[1] == "main;parse;node 4000000"
    assert lines[2] == "main;read?line;operator new(unsigned long) 2000000"
    assert len(lines) == 4


def test_csv_has_freed_blocks_as_json_has_them(probed: Probed, compiled: Compiled) -> None:
    probed(compiled("known_stacks.c", *FLAGS), 40, CAIRN_PROBE_STACKS="exact")
    rows = list(stack_forms.stack_rows(found(probed)))
    document = stack_forms.stacks_document(probed.profile.stacks, found(probed))
    assert document is not None
    for one in document["functions"]:
        name = f"{one['function']} in {one['library']}"
        values = {row["group"]: row["value"] for row in rows
                  if row["name"] == name and row["unit"] == "blocks"}  # fmt: skip
        assert values["freed"] == one["freed_blocks"]
        assert values["freed elsewhere"] == one["freed_elsewhere_blocks"]
    assert sum(one["freed_blocks"] for one in document["functions"]) > 0


def test_speedscope_gets_a_profile_for_each_kind_of_number() -> None:
    content = json.loads(stack_forms.speedscope(some_stacks(), "prog"))
    names = [frame["name"] for frame in content["shared"]["frames"]]
    allocated = content["profiles"][0]
    assert allocated["unit"] == "bytes"
    assert sum(allocated["weights"]) == allocated["endValue"] == 15_001_000
    assert [names[place] for place in allocated["samples"][1]] == ["main", "parse", "node"]
    assert [one["name"] for one in content["profiles"]] == [
        "bytes allocated",
        "blocks allocated",
        "bytes live at the peak",
        "bytes live at the end",
        "temporary blocks",
    ]
    assert sum(content["profiles"][3]["weights"]) == 7_500_500


def test_pprof_gets_samples_with_five_values() -> None:
    message = fields(stack_forms.pprof(some_stacks()))
    texts = [value for field, value in message if field == 6]
    assert texts[0] == b""
    samples = [value for field, value in message if field == 2]
    assert len(samples) == 4
    functions = {
        dict(fields(bytes(value)))[1]: texts[int(dict(fields(bytes(value)))[2])]
        for field, value in message
        if field == 5 and isinstance(value, bytes)
    }
    assert {b"main", b"parse", b"node", b"read?line"} <= set(functions.values())
    types = [texts[int(dict(fields(bytes(v)))[1])] for f, v in message if f == 1]
    assert types[:2] == [b"alloc_objects", b"alloc_space"]


@pytest.mark.long  # newer versions of go first build pprof, which takes minutes
def test_go_opens_the_pprof_file(tmp_path: Path) -> None:
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        pytest.skip("go is not installed")
    file = tmp_path / "stacks.pb"
    file.write_bytes(stack_forms.pprof(some_stacks()))
    done = subprocess.run(
        [go, "tool", "pprof", "-top", "-unit=B", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PPROF_TMPDIR": str(tmp_path)},
    )
    if "no such tool" in done.stderr:
        pytest.skip("this go has no pprof")
    assert done.returncode == 0, done.stderr
    assert "alloc_space" in done.stdout
    assert any("4000000B" in line and "node" in line for line in done.stdout.splitlines())


def test_a_flame_graph_is_one_file_with_a_box_for_each_function_and_caller() -> None:
    picture = flame_graph(some_stacks(), "prog <x>")
    root = ElementTree.fromstring(picture)
    boxes = root.findall("{http://www.w3.org/2000/svg}g")
    by_name = {box.attrib["data-n"]: box for box in boxes}
    assert len(boxes) == len(by_name) == 6
    assert float(by_name["main"].attrib["data-w"]) == 1
    assert float(by_name["parse"].attrib["data-w"]) == pytest.approx(13 / 15.001, abs=1e-6)
    node = by_name["node"]
    assert float(node.attrib["data-x"]) == pytest.approx(9 / 15.001, abs=1e-6)
    assert int(node.attrib["data-d"]) == 2
    title = node[0].text or ""
    assert title.startswith("node\n26.66 %, 3.81 MiB in 500,000 blocks")
    # Nothing is loaded from elsewhere.
    assert not re.search(r"(href|src)=|url\(|https?://(?!www\.w3\.org)", picture)


def test_each_box_of_a_flame_graph_has_a_color() -> None:
    sums = Sums(samples=3, allocated=Sum(10, 1000, 10, 10, 100))
    stacks = [Stack((Frame(f"f{number}", "/lib/a.so"),), sums) for number in range(100)]
    root = ElementTree.fromstring(flame_graph(stacks, "prog"))
    svg = "{http://www.w3.org/2000/svg}"
    fills = {box.find(f"{svg}rect").attrib["fill"] for box in root.findall(f"{svg}g")}  # type: ignore[union-attr]
    assert len(fills) == 6
    assert all(re.fullmatch("#[0-9a-f]{6}", fill) for fill in fills), fills


def test_too_few_samples_give_an_upper_end_only() -> None:
    few = Sums(samples=1, allocated=Sum(1, 100, 1, 10_000, 100))
    many = Sums(samples=99, allocated=Sum(99, 9900, 99, 990_000, 100), live=Sum(heaviest=100))
    table = callers_table(
        [Stack((Frame("f", "/lib/a.so"),), few), Stack((Frame("f", "/lib/b.so"),), many)]
    )
    first, second = ([cell.text.strip() for cell in row] for row in table.rows)
    assert first[:4] == ["f in b.so", "99.0 %", "9.67 KiB ±20 %", "99 ±20 %"]
    assert first[4:] == ["0 B", "≤ 369 B", "0"]
    assert second[:4] == ["f in a.so", "1.0 %", "≤ 556 B", "≤ 6"]


@pytest.mark.long
def test_a_browser_zooms_into_a_flame_graph_and_searches_in_it(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium here")
    script = """
    const box = name => boxes.find(one => one.dataset.n === name);
    const width = name => Math.round(+box(name).querySelector('rect').getAttribute('width'));
    const shown = name => box(name).style.display !== 'none';
    const told = [width('parse')];
    box('parse').dispatchEvent(new MouseEvent('click'));
    told.push(width('parse'), width('main'), shown('read\\\\nline'));
    svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));
    told.push(width('parse'), shown('read\\\\nline'));
    box('node').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
    told.push(width('node'));
    search('NODE');
    told.push(document.getElementById('found').textContent);
    svg.setAttribute('data-told', JSON.stringify(told));
    """
    page = tmp_path / "graph.svg"
    page.write_text(
        flame_graph(some_stacks(), "prog").replace("]]></script>", f"{script}]]></script>")
    )
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/data")
    done = subprocess.run(
        [browser, *options, "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found_here = re.search(r'data-told="([^"]*)"', done.stdout)
    assert found_here, done.stdout[:300] + done.stderr[-500:]
    told = json.loads(found_here[1].replace("&quot;", '"'))
    assert told == [1039, 1200, 1200, False, 1039, True, 1200, "26.7 % of the bytes"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_and_the_tree_fit_the_screen(width: int) -> None:
    fitted = fit(callers_table(some_stacks()), width)
    heads = [head for _, part in fitted.parts for head in part.heads]
    assert "bytes" in heads
    lines = callers_tree(some_stacks(), width)
    assert all(len(line) <= width for line in lines)
    # An only callee stands below its caller without indent.
    assert [line.split("  ")[-1] for line in lines][:2] == ["main", "parse"]
    names = [row[0].text.strip() for _, part in fitted.parts for row in part.rows]
    assert names[0] == "ns::SortedTable<…>::_M_grow"
    assert "read\\nline" in names


def test_a_stack_that_is_deeper_than_the_limit_of_recursion_is_shown() -> None:
    """A stack with many inlined functions once ended the report with a RecursionError."""
    deep = a_stack(1 << 20, *(f"f{number}" for number in range(3 * sys.getrecursionlimit())))
    lines = callers_tree([deep], 80)
    assert lines[0].endswith("f0") and lines[-1].endswith("--collapsed has all stacks")
    rows = branches_table([deep]).rows
    assert [row[1].text for row in rows[:3]] == ["1", "2", "3"]
