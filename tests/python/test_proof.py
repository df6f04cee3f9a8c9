"""Tests of the proof that an allocator was loaded, which comes from the witness's records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.allocators.catalog import load_catalog
from cairn.model import Contender, Unreached
from cairn.run.proof import judge, lost_preload, not_behind

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
LIB = "/opt/liballoc.so"
SYSTEM = Contender(name="system", allocator="system", title="glibc 2.36")
OTHER = Contender(
    name="other", allocator="custom", title="liballoc.so", preload=(LIB,), owners=(LIB,)
)


def start(pid: int, owner: str = LIB, exe: str = "/bin/prog", **more: Any) -> dict[str, Any]:
    return {
        "v": 1,
        "event": "start",
        "pid": pid,
        "ppid": 1,
        "exe": exe,
        "malloc": {"path": owner, "build_id": None},
        **more,
    }


def executed(
    pid: int, kind: str = "dynamic", path: str = "/bin/child", event: str = "exec"
) -> dict[str, Any]:
    return {"v": 1, "event": event, "pid": pid, "path": path, "kind": kind}


def proof(*records: dict[str, Any], contender: Contender = OTHER, raw: bytes = b"") -> Any:
    content = b"".join(json.dumps(record).encode() + b"\n" for record in records) + raw
    return judge(content, contender, main_pid=10, resolve=lambda path: path)


def test_a_command_whose_malloc_is_the_library_is_proved() -> None:
    result = proof(start(10))
    assert (result.problem, result.loaded, result.processes, result.owner) == (None, 1, 1, LIB)


def test_a_process_that_was_killed_before_its_program_began_needs_no_proof() -> None:
    for signal, proved in ((9, True), (15, True), (11, False), (6, False)):
        waited = {"v": 1, "event": "wait", "pid": 11, "by": 10, "status": signal}
        result = proof(start(10), executed(11), waited)
        assert (result.problem is None) == proved, signal
        assert proof(start(10), executed(11), start(11), waited).problem is None
    exited = {"v": 1, "event": "wait", "pid": 11, "by": 10, "status": 127 << 8}
    assert proof(start(10), executed(11), exited).problem is not None


def test_libc_is_the_owner_of_the_baseline() -> None:
    assert proof(start(10, LIBC), contender=SYSTEM).problem is None
    assert proof(start(10, "/lib/ld-musl-x86_64.so.1"), contender=SYSTEM).problem is None
    assert (
        "malloc belongs to /opt/liballoc.so, not to glibc 2.36"
        in proof(start(10), contender=SYSTEM).problem
    )


def test_nothing_written_is_no_proof() -> None:
    assert "the command gave no proof" in proof().problem


def test_a_library_that_was_ignored_is_no_proof() -> None:
    assert "malloc belongs to" in proof(start(10, LIBC)).problem


def test_a_program_with_its_own_malloc_is_refused() -> None:
    for contender in (SYSTEM, OTHER):
        problem = proof(start(10, "/bin/prog"), contender=contender).problem
        assert problem == "/bin/prog has its own malloc, which a preloaded allocator cannot replace"


def test_a_child_with_its_own_malloc_is_named_and_is_no_problem() -> None:
    result = proof(start(10), executed(11), start(11, "/bin/own", exe="/bin/own"))
    assert result.problem is None
    assert result.unreached == (Unreached("own allocator", "/bin/own"),)
    assert (result.loaded, result.processes) == (1, 2)


def test_a_library_that_replaces_only_some_functions_is_refused() -> None:
    problem = proof(start(10, split={"free": LIBC})).problem
    assert problem == f"in /bin/prog free belongs to {LIBC} while malloc belongs to liballoc.so"


def test_an_executed_dynamic_program_without_a_start_is_no_proof() -> None:
    assert "/bin/child gave no proof" in proof(start(10), executed(11)).problem
    assert proof(start(10), executed(11), start(11)).problem is None


def test_a_spawned_child_may_write_its_record_before_its_parent_does() -> None:
    assert proof(start(10), start(11), executed(11, event="spawn")).problem is None


def test_a_failed_exec_needs_no_start_record() -> None:
    failed = {"v": 1, "event": "exec-failed", "pid": 10, "kind": "dynamic"}
    assert proof(start(10), executed(10), failed).problem is None


def test_a_failed_exec_cancels_only_the_record_of_its_own_process() -> None:
    failed = {"v": 1, "event": "exec-failed", "pid": 10, "kind": "static"}
    result = proof(
        start(10), executed(11, "static", "/bin/a"), executed(10, "static", "/bin/b"), failed
    )
    assert result.unreached == (Unreached("static", "/bin/a"),)


def test_static_and_setuid_children_are_counted_and_named() -> None:
    result = proof(
        start(10),
        executed(11, "static", "/bin/busybox"),
        executed(12, "setuid", "/bin/su", event="spawn"),
    )
    assert result.problem is None
    assert result.unreached == (Unreached("static", "/bin/busybox"), Unreached("setuid", "/bin/su"))
    assert (result.loaded, result.processes) == (1, 3)


def test_a_missing_start_record_names_a_cleaned_environment_as_the_cause() -> None:
    records = (start(10), executed(10, "environment", "/bin/true"))
    result = proof(*records)
    assert "cleaned environment" in result.problem
    assert result.problem == lost_preload(b"".join(json.dumps(r).encode() + b"\n" for r in records))


def test_a_torn_line_proves_nothing() -> None:
    assert "damaged" in proof(start(10), raw=b'{"v":1,"event":"sta').problem


def test_paths_are_read_byte_by_byte() -> None:
    path = "/opt/é\udcff".encode("utf-8", "surrogateescape")
    record = start(10, path.decode("latin-1"))
    contender = Contender(name="o", allocator="custom", title="o", owners=("/opt/é\udcff",))
    assert proof(record, contender=contender).problem is None


def test_only_knobs_that_the_contender_does_not_set_itself_are_reported() -> None:
    contender = Contender(
        name="o", allocator="custom", title="o", owners=(LIB,), knobs=(("MALLOC_CONF", "x:1"),)
    )
    knobs = {
        "MALLOC_CONF": "x:1",
        "MALLOC_ARENA_MAX": "2",
        "LD_PRELOAD": "/x",
        "CAIRN_WITNESS": "/y",
    }
    assert proof(start(10, knobs=knobs), contender=contender).knobs == {"MALLOC_ARENA_MAX": "2"}


def test_variables_of_our_allocator_are_knobs_and_those_of_the_command_are_not() -> None:
    read = load_catalog().find("cairn")
    assert read is not None
    knobs = dict.fromkeys(read.knobs, "1")
    commands = dict.fromkeys(("CAIRN_RESULTS", "CAIRN_WITNESS", "CAIRN_WITNESS_KNOBS"), "x")
    assert proof(start(10, knobs=knobs | commands)).knobs == knobs


@given(st.binary(max_size=300))
def test_no_content_of_the_file_is_a_proof_by_accident(content: bytes) -> None:
    assert judge(content, OTHER, main_pid=10, resolve=lambda path: path).problem is not None


@pytest.mark.parametrize("missing", ["malloc", "exe"])
def test_an_incomplete_start_record_proves_nothing(missing: str) -> None:
    record = start(10)
    del record[missing]
    result = proof(record)
    assert result.problem is not None or missing == "exe"


def test_a_library_that_was_built_anew_is_another_contender() -> None:
    contender = Contender(
        name="o", allocator="custom", title="liballoc.so", owners=(LIB,), build_id="ab" * 20
    )
    record = start(10)
    for build_id, fine in (("ab" * 20, True), ("cd" * 20, False), (None, True)):
        record["malloc"]["build_id"] = build_id
        assert proof(record).problem is None, (
            "without an expected build id, every build of the library is accepted"
        )
        assert (proof(record, contender=contender).problem is None) == fine


@pytest.mark.parametrize(
    ("contender", "owner", "problem"),
    [
        (OTHER, LIB, None),
        (
            OTHER,
            LIBC,
            f"in /bin/prog the probe calls the malloc of {LIBC}, not that of liballoc.so",
        ),
        (SYSTEM, LIBC, None),
        (
            SYSTEM,
            LIB,
            f"in /bin/prog the probe calls the malloc of {LIB}, not that of glibc 2.36",
        ),
        (
            OTHER,
            "",
            "in /bin/prog the probe calls the malloc of an unknown object, not that of liballoc.so",
        ),
        (
            SYSTEM,
            "",
            "in /bin/prog the probe calls the malloc of an unknown object, not that of glibc 2.36",
        ),
    ],
)
def test_behind_the_probe_malloc_must_be_the_contenders(
    contender: Contender, owner: str, problem: str | None
) -> None:
    assert not_behind(contender, "/bin/prog", owner, lambda path: path or LIBC) == problem


def test_behind_the_probe_a_link_is_followed() -> None:
    assert (
        not_behind(OTHER, "/bin/prog", "/usr/lib/link.so", {"/usr/lib/link.so": LIB}.__getitem__)
        is None
    )


def test_a_child_whose_malloc_is_in_another_library_is_a_problem() -> None:
    """It would be no problem if the allocator were inside the child's own file."""
    result = proof(
        start(10), executed(11, path="/bin/own"), start(11, "/opt/libthird.so", exe="/bin/own")
    )
    assert result.problem == "in /bin/own malloc belongs to /opt/libthird.so, not to liballoc.so"
    assert (result.loaded, result.unreached) == (1, ())


def test_a_cleaned_environment_does_not_count_if_the_exec_failed() -> None:
    failed = executed(11, "environment", event="exec-failed")
    assert lost_preload(json.dumps(failed).encode()) is None
    lost = lost_preload(
        b"\n".join(
            json.dumps(one).encode() for one in (failed, executed(12, "environment", "/bin/b"))
        )
    )
    assert lost is not None
    assert lost.startswith("/bin/b is started with a cleaned environment")


def test_a_process_that_executes_several_programs_is_counted_once_for_each() -> None:
    result = proof(start(10), executed(10), start(10), executed(10), start(10))
    assert (result.problem, result.loaded, result.processes) == (None, 3, 3)


def test_one_of_several_programs_without_a_start_is_no_proof() -> None:
    result = proof(start(10), executed(10), start(10), executed(10))
    assert result.problem == "/bin/child gave no proof of what it loaded (1 of 3 processes)"
    assert (result.loaded, result.processes) == (2, 3)


def test_one_of_two_execs_that_failed_cancels_only_one_missing_start() -> None:
    failed = {"v": 1, "event": "exec-failed", "pid": 11, "kind": "dynamic"}
    assert (
        "/bin/child gave no proof" in proof(start(10), executed(11), executed(11), failed).problem
    )


def test_the_owner_and_the_knobs_are_those_of_the_program_that_the_command_executed_last() -> None:
    both = Contender(name="o", allocator="custom", title="o", owners=(LIB, "/opt/libnext.so"))
    first = start(10, knobs={"MALLOC_ARENA_MAX": "2"})
    last = start(10, "/opt/libnext.so", knobs={"MALLOC_ARENA_MAX": "7"})
    result = proof(first, executed(10), last, executed(11), start(11), contender=both)
    assert (result.problem, result.owner, result.knobs) == (
        None,
        "/opt/libnext.so",
        {"MALLOC_ARENA_MAX": "7"},
    )


def test_a_failed_exec_cancels_only_the_last_record_of_its_process() -> None:
    failed = {"v": 1, "event": "exec-failed", "pid": 10, "kind": "static"}
    between = (
        executed(10, "static", "/bin/a"),
        executed(10, "static", "/bin/b"),
        executed(11, "static", "/bin/c"),
    )
    assert proof(start(10), *between, failed).unreached == (
        Unreached("static", "/bin/a"),
        Unreached("static", "/bin/c"),
    )
    assert proof(start(10), failed).unreached == ()


def test_fifty_unreached_programs_are_named_and_all_are_counted() -> None:
    result = proof(start(10), *(executed(100 + k, "static", f"/bin/{k}") for k in range(60)))
    assert [one.path for one in result.unreached] == [f"/bin/{k}" for k in range(50)]
    assert result.processes == 61


def test_symbolic_links_to_the_library_of_a_split_function_are_followed() -> None:
    link = start(10, split={"free": "/usr/lib/link.so"})
    content = json.dumps(link).encode()
    for target, fine in ((LIB, True), (LIBC, False)):
        resolve = {LIB: LIB, "/bin/prog": "/bin/prog", "/usr/lib/link.so": target}.__getitem__
        assert (judge(content, OTHER, main_pid=10, resolve=resolve).problem is None) == fine


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1,"event":"start","pid":10,"exe":"\xff"}',
        json.dumps(start(10, "/opt/\u4e00.so")).encode(),
    ],
)
def test_bytes_that_the_witness_never_writes_are_no_proof(raw: bytes) -> None:
    assert proof(raw=raw).problem is not None
