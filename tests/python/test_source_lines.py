"""Tests of source lines and inlined functions, with programs whose lines follow by a formula."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import known_lines, known_stacks
from support.isolation import users_environment, users_tool
from support.places import PROGRAMS
from support.probing import Probed
from support.protobuf import fields, numbers

from cairn.binary.build_ids import FilesByBuildId, build_id_of
from cairn.cli.stack_outputs import StackOutputs, names_of
from cairn.profile import source_lines
from cairn.profile.callers import Frame, Stack, Sum, Sums, by_function, functions, stacks
from cairn.profile.frame_names import FrameNames
from cairn.profile.library_code import is_library_code
from cairn.report import stack_forms
from cairn.report.callers_table import callers_table, callers_tree, name
from cairn.report.fit import fit
from cairn.report.flame_graph import flame_graph
from cairn.report.naming_table import NO_LINES

Compiled = Callable[..., Path]
FLAGS = ("-g", "-O2", "-fno-builtin")
ROUNDS = 5
CHANGED = "▲ prog has changed since the profile"


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


def found(probed: Probed, *debug_path: object) -> tuple[Stack, ...]:
    """The stacks with their lines."""
    profile = probed.profile
    return stacks(profile.stacks, names_of(profile, None, tuple(map(str, debug_path))).at)


def lines_of(stacks: tuple[Stack, ...], source: str) -> dict[int, Sums]:
    """The sums of the lines of a source file."""
    return {
        frame.line: sums
        for frame, sums in functions(stacks)
        if os.path.basename(frame.file) == source
    }


def check_lines(stacks: tuple[Stack, ...]) -> None:
    """Asserts that each line of known_lines.c has the sums of the formula, and no other has any."""
    by_line = lines_of(stacks, "known_lines.c")
    got = {
        line: (sums.allocated.blocks, sums.allocated.bytes, sums.live.bytes)
        for line, sums in by_line.items()
    }
    assert got == known_lines.truth(ROUNDS)


# --- known truth ----------------------------------------------------------------------------------


def test_the_bytes_of_each_line_are_those_of_the_formula(
    probed: Probed, compiled: Compiled
) -> None:
    probed(compiled("known_lines.c", *FLAGS), ROUNDS, CAIRN_PROBE_STACKS="exact")
    stacks_here = found(probed)
    check_lines(stacks_here)
    # By function, the lines of a function are added up.
    by_name = {frame.function: sums for frame, sums in functions(by_function(stacks_here))}
    assert by_name["several"].allocated.blocks == ROUNDS * (1 + 2 + 3)
    # The stack has the inlined functions, each with the line of its call.
    three = known_lines.line_of("known_lines.c", "/* line 3 */")
    paths = [
        [(frame.function, frame.line, frame.is_inlined) for frame in stack.frames[-4:]]
        for stack in stacks_here
        if stack.frames[-1].line == three
    ]
    line = known_lines.line_of
    assert sorted(path[1:] for path in paths) == [
        [
            (caller, line("known_lines.c", f"/* {caller} */"), False),
            ("four_of_three", line("known_lines.c", "/* calls line 3 */"), True),
            ("three", three, True),
        ]
        for caller in ("first", "second")
    ]
    assert {path[0][0] for path in paths} == {"main"}


@pytest.mark.parametrize(
    "flags",
    [
        ("-gdwarf-4", "-no-pie"),
        pytest.param(("-gdwarf-5", "-gz"), marks=pytest.mark.long),
        pytest.param(("-gdwarf-5", "-O0"), marks=pytest.mark.long),
        pytest.param(("-g", "-flto"), marks=pytest.mark.long),
        pytest.param(
            ("-g", "-O2", "-Wl,-Ttext-segment=0x10000000", "-no-pie"), marks=pytest.mark.long
        ),
    ],
)
def test_lines_are_known_in_all_forms_of_debug_information(
    flags: tuple[str, ...], probed: Probed, compiled: Compiled
) -> None:
    program = compiled("known_lines.c", "-O2", "-fno-builtin", *flags)
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    check_lines(found(probed))


def test_an_inlined_function_of_cxx_has_its_own_sums(probed: Probed, compiled: Compiled) -> None:
    program = compiled("known_stacks.cpp", *FLAGS, "-Wl,--no-as-needed", "-lstdc++")
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    found_here = found(probed)
    by_name = {frame.function: sums for frame, sums in functions(by_function(found_here))}
    truth = dict(known_stacks.truth_of_cxx(ROUNDS))
    # make() is inlined into node() and allocates for it, so the sums belong to make(). Library code
    # is inlined into table() and text(), but their sums stay with table() and text().
    truth["Parser::make()"] = truth.pop("Parser::node(int)")
    for function, (blocks, size) in truth.items():
        sums = by_name[function].allocated
        assert (sums.blocks, sums.bytes) == (blocks, size), function
    line = known_lines.line_of("known_stacks.cpp", "return new Node<64>")
    assert lines_of(found_here, "known_stacks.cpp")[line].allocated.blocks == 3 * ROUNDS
    (path,) = {
        tuple(frame.function for frame in stack.frames[-3:])
        for stack in found_here
        if stack.function.line == line
    }
    assert path[-2:] == ("Parser::node(int)", "Parser::make()")


@pytest.mark.long  # rustc takes seconds
@pytest.mark.parametrize("mangling", ["", "-Csymbol-mangling-version=v0"])
def test_functions_and_lines_of_rust_are_named(mangling: str, probed: Probed) -> None:
    rustc = users_tool("rustc")
    program = probed.folder / "known_stacks"
    options = ["-O", "-g", *([mangling] if mangling else [])]
    subprocess.run(
        [rustc, *options, PROGRAMS / "known_stacks.rs", "-o", program],
        env=users_environment(),
        check=True,
    )
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    by_line = lines_of(found(probed), "known_stacks.rs")
    for text, blocks, size in (
        ("Box::new(", 3, 144),
        ("vec![7u8;", 1, 100),
        ("String::with_capacity(", 1, 40),
    ):
        sums = by_line[known_lines.line_of("known_stacks.rs", text)].allocated
        assert (sums.blocks, sums.bytes) == (blocks * ROUNDS, size * ROUNDS), text
    names = {frame.function.partition("<")[0] for stack in found(probed) for frame in stack.frames}
    assert {"known_stacks::main", "known_stacks::numbers", "known_stacks::inner::make"} <= names


# --- files by build ID ----------------------------------------------------------------------------


def separated(program: Path, folder: Path) -> Path:
    """Moves the debug information of a program into a folder of debug files. Returns its file."""
    build_id = build_id_of(str(program))
    assert build_id
    file = folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    file.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, file], check=True)
    subprocess.run(["strip", program], check=True)
    assert build_id_of(str(file)) == build_id
    return file


def copied(program: Path, folder: Path) -> Path:
    target = folder / "prog"
    shutil.copy(program, target)
    return target


def test_a_stripped_program_has_the_lines_of_its_debug_file(
    probed: Probed, compiled: Compiled, tmp_path: Path
) -> None:
    program = copied(compiled("known_lines.c", *FLAGS), tmp_path)
    file = separated(program, tmp_path / "debug")
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    check_lines(found(probed, tmp_path / "debug"))
    names = {frame.function for stack in found(probed) for frame in stack.frames}
    assert "several" not in names
    # A debug file is found by its build ID wherever it lies, and even without the program.
    (tmp_path / "else").mkdir()
    file.rename(tmp_path / "else" / "anything")
    program.unlink()
    check_lines(found(probed, tmp_path / "else"))


def test_a_program_that_was_built_again_gives_no_names(
    probed: Probed, compiled: Compiled, tmp_path: Path
) -> None:
    program = copied(compiled("known_lines.c", *FLAGS), tmp_path)
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    program.unlink()
    shutil.copy(compiled("known_lines.c", *FLAGS, "-O1"), program)
    names = {frame.function for stack in found(probed) for frame in stack.frames}
    assert not names & {"several", "first", "main", "three"}
    assert any(one.startswith("prog+0x") for one in names)
    outputs = StackOutputs(False, None, None, None, None, by_line=False)
    told = outputs.stacks(probed.profile, None)
    assert [one.partition(",")[0] for one in told.notes] == [CHANGED]
    # The build that was profiled is found where it lies now.
    check_lines(found(probed, compiled("known_lines.c", *FLAGS)))


def test_a_program_without_build_id_is_trusted_until_it_changes(
    probed: Probed, compiled: Compiled, tmp_path: Path
) -> None:
    bare = compiled("known_lines.c", *FLAGS, "-Wl,--build-id=none")
    program = copied(bare, tmp_path)
    assert build_id_of(str(program)) == ""
    probed(program, ROUNDS, CAIRN_PROBE_STACKS="exact")
    check_lines(found(probed))
    shutil.copy(bare, program)
    names = {frame.function for stack in found(probed) for frame in stack.frames}
    assert "several" not in names
    told = StackOutputs(False, None, None, None, None).stacks(probed.profile, None)
    assert [one.partition(",")[0] for one in told.notes] == [CHANGED]
    program.unlink()
    told = StackOutputs(False, None, None, None, None).stacks(probed.profile, None)
    assert not told.notes, "a file that is gone has not changed"


# --- without the package `symbolic`, without lines, and with damaged files ------------------------


def test_without_the_package_there_are_function_names_and_one_sentence(
    probed: Probed, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed(compiled("known_lines.c", *FLAGS), ROUNDS, CAIRN_PROBE_STACKS="exact")
    monkeypatch.setattr(source_lines, "PACKAGE", "a_package_that_is_not_installed")
    outputs = StackOutputs(False, None, None, None, None, by_line=True)
    told = outputs.stacks(probed.profile, None)
    (note,) = told.notes
    assert note.startswith("▲ Source lines and inlined functions are left out")
    assert note.endswith(f"{shlex.quote(sys.executable)} -m pip install symbolic")
    assert not any(frame.line for stack in told.shown for frame in stack.frames)
    by_name = {frame.function: sums for frame, sums in functions(told.shown)}
    assert by_name["first"].allocated.blocks == 4 * ROUNDS
    assert by_name["several"].allocated.blocks == 6 * ROUNDS


def test_without_debug_information_a_sentence_says_so(
    probed: Probed, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed(compiled("known_lines.c", "-O2", "-fno-builtin"), ROUNDS, CAIRN_PROBE_STACKS="exact")
    monkeypatch.setattr(source_lines, "_SECTIONS", ())
    for by_line, notes in ((True, (NO_LINES,)), (False, ())):
        outputs = StackOutputs(False, None, None, None, None, by_line=by_line)
        assert outputs.stacks(probed.profile, None).notes == notes


def test_the_package_leaves_the_environment_as_it_was(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(compiled("known_lines.c", *FLAGS))
    code = (
        "import os, sys; os.environ.pop('RUST_BACKTRACE', None)\n"
        "from cairn.profile.source_lines import SourceLines\n"
        "from cairn.binary.build_ids import build_id_of\n"
        "SourceLines().at(sys.argv[1], 0x1000, build_id_of(sys.argv[1]))\n"
        "assert 'symbolic' in sys.modules and 'RUST_BACKTRACE' not in os.environ\n"
    )
    subprocess.run(["python3", "-c", code, program], check=True)


@pytest.mark.parametrize("tries", [30, pytest.param(300, marks=pytest.mark.long)])
def test_damaged_debug_information_gives_lines_or_none(
    tries: int, compiled: Compiled, tmp_path: Path
) -> None:
    program = compiled("known_lines.c", *FLAGS)
    content = program.read_bytes()
    build_id = build_id_of(str(program)) or ""
    table = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    addresses = [int(line.split()[0], 16) for line in table.splitlines() if " T " in line]
    lots = random.Random(8)
    broken = tmp_path / "broken"
    for _ in range(tries):
        damaged = bytearray(content[: lots.choice([len(content), lots.randrange(len(content))])])
        for _ in range(lots.randrange(1, 30)):
            if damaged:
                damaged[lots.randrange(len(damaged))] = lots.randrange(256)
        broken.write_bytes(damaged)
        names = FrameNames(FilesByBuildId())
        for address in addresses:
            for id_here in (build_id, ""):
                frames = names.at(str(broken), address, id_here)
                assert frames and all(0 <= frame.line < 1 << 31 for frame in frames)


# --- allocations in code of a library belong to the caller ----------------------------------------


@pytest.mark.parametrize(
    ("function", "is_library"),
    [
        ("operator new(unsigned long)", True),
        ("operator new[](unsigned long)", True),
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", True),
        ("void std::vector<int>::_M_realloc_insert<int>(__normal_iterator, int&&)", True),
        ("std::__cxx11::basic_string<char>::_M_create(unsigned long&, unsigned long)", True),
        ("std::_Rb_tree<int, int>::_M_insert_(int)", True),
        ("std::shared_ptr<Foo> std::make_shared<Foo>()", True),
        ("std::thread::_State_impl<main::{lambda()#1}>::_M_run()", False),
        ("std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke()", False),
        ("Parser::node(std::vector<int>)", False),
        ("mystd::vector::grow()", False),
        ("main", False),
        ("alloc::raw_vec::RawVec<T,A>::grow_one", True),
        ("<alloc::alloc::Global as core::alloc::Allocator>::allocate", True),
        ("<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", True),
        ("__rustc::__rust_alloc", True),
        ("hashbrown::raw::RawTable<T>::reserve_rehash", True),
        # These two are functions of C++ programs that have namespaces with these names.
        ("alloc::Pool::get(unsigned long)", False),
        ("void hashbrown::grow<int>(int) const", False),
        ("<prog::Node as core::clone::Clone>::clone", False),
        ("prog::alloc::grow", False),
        ("allocate::grow", False),
        ("calloc", True),
        ("xmalloc", False),
        ("malloc_node(int)", False),
    ],
)
def test_containers_are_passed_over(function: str, is_library: bool) -> None:
    assert is_library_code(function) == is_library


# --- forms ----------------------------------------------------------------------------------------


def with_lines() -> tuple[Stack, ...]:
    """Returns stacks in which main calls parse from two lines, and node is inlined into parse."""

    def stack(size: float, line: int) -> Stack:
        frames = (
            Frame("main", "/bin/prog", "/src/main.c", line),
            Frame("parse(int)", "/bin/prog", "/src/lib/a file.c", 20),
            Frame("Ns::node<int>()", "/bin/prog", "/src/lib/node.h", 5, True),
        )
        return Stack(frames, Sums(samples=9, allocated=Sum(size / 8, size)))

    bare = Stack((Frame("start", "/lib/c.so"),), Sums(samples=1, allocated=Sum(1, 100)))
    return (stack(3000, 7), stack(1000, 9), bare)


def test_lines_of_a_function_are_added_up_by_function() -> None:
    merged = by_function(with_lines())
    assert [one.sums.allocated.bytes for one in merged] == [4000, 100]
    assert merged[0].frames == tuple(
        Frame(name, "/bin/prog") for name in ("main", "parse(int)", "Ns::node<int>()")
    )


def test_collapsed_stacks_and_speedscope_have_the_lines() -> None:
    lines = stack_forms.collapsed(with_lines()).splitlines()
    assert lines[0] == "main (main.c:7);parse(int) (a file.c:20);Ns::node<int>() (node.h:5) 3000"
    assert lines[2] == "start 100"
    frames = json.loads(stack_forms.speedscope(with_lines(), "prog"))["shared"]["frames"]
    assert {"name": "main", "file": "/src/main.c", "line": 7} in frames
    assert {"name": "main", "file": "/src/main.c", "line": 9} in frames
    assert {"name": "start", "file": "/lib/c.so"} in frames


def test_json_and_csv_have_functions_and_lines() -> None:
    class _File:
        way, every_first, every = "exact", 1, 1
        samples = without_room = unread = unwatched = 0
        problem, sparse = "", None

    document = stack_forms.stacks_document((_File(),), with_lines())  # type: ignore[arg-type]
    assert document is not None
    assert document["by"] == "line"
    (node, _) = document["functions"]
    assert (node["function"], node["allocated"]["bytes"]) == ("Ns::node<int>()", 4000)
    first = document["lines"][0]
    assert (first["file"], first["line"], first["allocated"]["bytes"]) == (
        *("/src/lib/node.h", 5, 4000),
    )
    assert document["stacks"][0]["places"][0] == "/src/main.c:7"
    assert document["stacks"][2]["places"] == [None]
    plain = stack_forms.stacks_document((_File(),), by_function(with_lines()))  # type: ignore[arg-type]
    assert plain is not None
    assert (plain["by"], plain["lines"]) == ("function", [])
    assert "places" not in plain["stacks"][0]
    rows = list(stack_forms.stack_rows(with_lines()))
    assert {row["table"] for row in rows} == {"who allocates", "which line allocates"}
    assert {row["group"] for row in rows} >= {"freed", "freed elsewhere"}
    names = {row["name"] for row in rows if row["table"] == "which line allocates"}
    assert "Ns::node<int>() at /src/lib/node.h:5 in /bin/prog" in names


def test_pprof_has_inlined_functions_in_one_location() -> None:
    message = fields(stack_forms.pprof(with_lines()))
    texts = [value for field, value in message if field == 6]

    def of(number: int) -> list[dict[int, int | bytes]]:
        return [dict(fields(bytes(v))) for f, v in message if f == number and isinstance(v, bytes)]

    named = {one[1]: (texts[int(one[2])], texts[int(one[4])]) for one in of(5)}
    locations = {}
    for field, value in message:
        if field == 4 and isinstance(value, bytes):
            parts = fields(value)
            lines = [dict(fields(bytes(one))) for key, one in parts if key == 4]  # type: ignore[arg-type]
            locations[dict(parts)[1]] = [(*named[one[1]], one.get(2)) for one in lines]
    first = [locations[number] for number in numbers(of(2)[0][1])]
    # The innermost function is first, in a location and in a stack.
    assert first == [
        [
            (b"Ns::node<int>()", b"/src/lib/node.h", 5),
            (b"parse(int)", b"/src/lib/a file.c", 20),
        ],
        [(b"main", b"/src/main.c", 7)],
    ]
    assert [(b"start", b"c.so", None)] in locations.values()
    # Both lines of main are lines of one function.
    assert len(named) == 4
    assert len(locations) == 4
    assert {10, 9, 8, 7} <= set(of(3)[0])


@pytest.mark.long  # newer versions of go first build pprof, which takes minutes
def test_go_lists_the_lines(tmp_path: Path) -> None:
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        pytest.skip("go is not installed")
    file = tmp_path / "stacks.pb"
    file.write_bytes(stack_forms.pprof(with_lines()))
    done = subprocess.run(
        [go, "tool", "pprof", "-top", "-lines", "-unit=B", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PPROF_TMPDIR": str(tmp_path)},
    )
    if "no such tool" in done.stderr:
        pytest.skip("this go has no pprof")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any("4000B" in one and "Ns::node" in one and "node.h:5" in one for one in lines)
    assert any("3000B" in one and "main.c:7" in one for one in lines)


def test_a_flame_graph_tells_the_lines() -> None:
    def boxes(by_line: bool) -> dict[str, str]:
        root = ElementTree.fromstring(flame_graph(with_lines(), "prog", by_line=by_line))
        return {
            box.attrib["data-n"]: box[0].text or ""
            for box in root.findall("{http://www.w3.org/2000/svg}g")
        }

    by_name = boxes(False)
    assert set(by_name) == {"main", "parse", "Ns::node<…>", "start"}
    assert by_name["main"].startswith("main\nat main.c:7, main.c:9\n97.56 %")
    assert "\nat " not in by_name["start"]
    assert set(boxes(True)) == {
        *("main (main.c:7)", "main (main.c:9)", "parse (a file.c:20)"),
        *("Ns::node<…> (node.h:5)", "start"),
    }


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_and_the_tree_of_lines_fit_the_screen(width: int) -> None:
    long = Frame("a::" * 30 + "grow<int>(int)", "/bin/p", "/src/" + "long" * 12 + ".cpp", 123456)
    sums = Sums(samples=9, allocated=Sum(10, 9000))
    both = (*with_lines(), Stack((Frame("main", "/bin/p"), long), sums))
    fitted = fit(callers_table(both), width)
    assert all(len(line) <= width for line in callers_tree(both, width))
    names = [row[0].text.strip() for _, part in fitted.parts for row in part.rows]
    assert "Ns::node<int> (node.h:5)" in names
    assert names[0].endswith("longlong.cpp:123456)")
    assert "grow" in names[0]
    assert len(name(long, 40)) == 40
