"""Tests of the reader of programs and libraries, which decides if a preloaded allocator can work.

The files may be hostile.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.binary import program as programs
from cairn.binary.library import inspect_library, refuse_library
from cairn.binary.program import (
    Program,
    inspect_program,
    interpreter_flags,
    refuse_program,
    refuse_wrapper,
)
from cairn.errors import CairnError, ContenderFailed, ProgramMissing, ProgramNotExecutable

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="needs gcc to build programs and libraries"
)

MAIN = "int main(void) { return 0; }\n"
MALLOC = """
#include <stddef.h>
static char area[4096]; static size_t used;
void *malloc(size_t size) { used += size; return area + used - size; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void *realloc(void *block, size_t size) { return block == 0 ? malloc(size) : block; }
"""
ELSEWHERE = "int elsewhere(void) { return 1; }\n"

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Returns build(name, source, *flags), which builds a file with gcc and returns its path.

    build() skips the test if this gcc lacks a feature that the flags need.
    """
    folder = tmp_path_factory.mktemp("built")

    def make(name: str, source: str, *flags: str) -> Path:
        target = folder / name
        if not target.exists():
            done = subprocess.run(
                ["gcc", "-fno-builtin", "-x", "c", "-", "-x", "none", "-o", str(target), *flags],
                input=source,
                text=True,
                capture_output=True,
                check=False,
                cwd=folder,
            )
            if done.returncode != 0:
                pytest.skip(f"gcc cannot build {name}: {done.stderr.strip().splitlines()[-1]}")
        return target

    return make


@pytest.fixture
def program(build: Build) -> Path:
    return build("program", MAIN)


@pytest.fixture
def library(build: Build) -> Path:
    return build(
        "libown.so", MALLOC, "-shared", "-fPIC", "-Wl,-soname,libown.so.1", "-Wl,--build-id=sha1"
    )


def refusal(path: object, program: Program | None = None, *folders: str) -> str:
    """Returns the sentence that refuses a library given by path."""
    with pytest.raises(ContenderFailed) as caught:
        refuse_library(inspect_library(str(path)), program, folders, given_by_path=True)
    return is_sentence(str(caught.value))


def program_refusal(command: object) -> str:
    with pytest.raises(ContenderFailed) as caught:
        refuse_program(inspect_program(str(command)))
    return is_sentence(str(caught.value))


def is_sentence(text: str) -> str:
    assert "\n" not in text
    assert text.endswith("."), text
    return text


# --- programs ---


def test_a_dynamic_program_is_recognized(program: Path) -> None:
    known = inspect_program(str(program))
    assert (known.kind, known.interpreter, known.sanitizer) == ("dynamic", None, None)
    assert known.path == os.path.realpath(program)
    assert known.elf_class == struct.calcsize("P") * 8
    assert any(name.startswith("libc") for name in known.needs)
    assert known.loader is not None
    assert not (known.own_malloc or known.setuid or known.setgid or known.gains_rights)
    refuse_program(known)


def test_a_shared_library_is_no_program(build: Build) -> None:
    """It was once called "statically linked", since it names no loader."""
    library = build("library.so", "#include <stdlib.h>\nvoid f(void) { abort(); }\n", "-shared")
    with pytest.raises(ProgramNotExecutable, match="is a shared library, not a program"):
        inspect_program(str(library))


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_program_is_refused(build: Build, flag: str) -> None:
    static = build("program" + flag, MAIN, flag)
    assert inspect_program(str(static)).kind == "static"
    assert program_refusal(static) == (
        f"{static} is statically linked: a preloaded allocator cannot reach it. "
        "Relink it dynamically, or link the allocator in."
    )


def test_a_program_with_address_sanitizer_is_refused(build: Build) -> None:
    assert "AddressSanitizer" in program_refusal(build("asan", MAIN, "-fsanitize=address"))


def test_a_program_that_exports_its_own_malloc_is_refused(build: Build) -> None:
    own = build("own", MALLOC + MAIN, "-rdynamic")
    assert inspect_program(str(own)).own_malloc
    assert "defines malloc itself" in program_refusal(own)


def test_a_program_that_only_calls_malloc_has_none_of_its_own(build: Build) -> None:
    # A program at a fixed address that takes the address of malloc has an undefined symbol "malloc"
    # with a value. Such a symbol is no definition.
    source = (
        "#include <stdlib.h>\nvoid *(*volatile f)(size_t) = malloc;\nint main(void) { return f(1) "
        "== 0; }\n"
    )
    assert not inspect_program(str(build("caller", source, "-no-pie"))).own_malloc


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
@pytest.mark.parametrize(("bits", "word"), [(stat.S_ISUID, "setuid"), (stat.S_ISGID, "setgid")])
def test_a_program_that_changes_ids_is_refused(
    program: Path, tmp_path: Path, bits: int, word: str
) -> None:
    copy = tmp_path / "changes"
    shutil.copy(program, copy)
    os.chown(copy, 1234, 1234)
    os.chmod(copy, 0o755 | bits)
    if os.statvfs(copy).f_flag & os.ST_NOSUID:
        pytest.skip("the temporary folder ignores setuid")
    assert f"is {word}" in program_refusal(copy)


def test_a_setuid_program_of_the_user_who_runs_it_is_accepted(
    program: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "mine"
    shutil.copy(program, copy)
    os.chmod(copy, 0o4755)
    known = inspect_program(str(copy))
    assert known.setuid
    assert not known.gains_rights
    refuse_program(known)


def test_file_capabilities_are_an_obstacle_except_for_root(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "capable"
    shutil.copy(program, copy)
    net_raw = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
    try:
        os.setxattr(copy, "security.capability", net_raw)
    except OSError:
        pytest.skip("file capabilities cannot be set here")
    assert inspect_program(str(copy)).capabilities
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if not (os.statvfs(copy).f_flag & os.ST_NOSUID):
        assert "has file capabilities" in program_refusal(copy)


def test_a_script_is_followed_to_the_binary_that_runs_it(program: Path, tmp_path: Path) -> None:
    inner = script(tmp_path / "inner", f"#!{program}\n")
    outer = script(tmp_path / "outer", f"#! {inner} -x\nanything")
    known = inspect_program(str(outer))
    assert known.kind == "script"
    assert known.path == os.path.realpath(outer)
    assert known.interpreter == os.path.realpath(program)
    refuse_program(known)


@pytest.mark.parametrize(
    "line", ["#!/usr/bin/env {}", "#!/usr/bin/env -S A=1 {} -x", "#!/usr/bin/env -vS -u X {}"]
)
def test_env_in_a_script_is_followed_along_the_search_path(
    program: Path, tmp_path: Path, line: str
) -> None:
    file = script(tmp_path / "s", line.format(program.name) + "\n")
    assert inspect_program(str(file), f"/nowhere:{program.parent}").interpreter == os.path.realpath(
        program
    )


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("#!{}", ()),
        ("#! {} ", ()),
        ("#!{} -e", ("-e",)),
        ("#!{}  -e -x  --name=a b ", ("-e -x  --name=a b",)),
        ("#!/usr/bin/env -S {} -x", ()),
    ],
)
def test_all_text_after_the_interpreter_is_one_argument(
    program: Path, tmp_path: Path, line: str, flags: tuple[str, ...]
) -> None:
    file = script(tmp_path / "s", line.format(program) + "\n")
    assert interpreter_flags(inspect_program(str(file))) == flags


def test_a_binary_has_no_flags_of_an_interpreter(program: Path) -> None:
    assert interpreter_flags(inspect_program(str(program))) == ()


def test_a_script_of_a_static_interpreter_is_refused(build: Build, tmp_path: Path) -> None:
    static = build("program-static", MAIN, "-static")
    file = script(tmp_path / "s", f"#!{static}\n")
    assert str(static) in program_refusal(file)
    assert "statically linked" in program_refusal(file)


def test_text_without_an_interpreter_line_is_run_by_the_shell(tmp_path: Path) -> None:
    file = script(tmp_path / "s", "echo hello\n")
    assert inspect_program(str(file)).interpreter == os.path.realpath("/bin/sh")


def test_a_script_without_its_interpreter_is_missing(tmp_path: Path) -> None:
    file = script(tmp_path / "s", "#!/no/such/thing\n")
    with pytest.raises(ProgramMissing, match="/no/such/thing, which is not installed"):
        inspect_program(str(file))


def test_scripts_that_run_each_other_end_in_a_sentence(tmp_path: Path) -> None:
    file = script(tmp_path / "s", f"#!{tmp_path / 's'}\n")
    with pytest.raises(ProgramNotExecutable, match="too many"):
        inspect_program(str(file))


@pytest.mark.parametrize(
    "words",
    [
        ["-i", "x"], ["-", "x"], ["--ignore-environment", "x"], ["-vi", "x"], ["-S", "-i x"],
        ["-S-i x"], ["-u", "LD_PRELOAD", "x"], ["-uLD_PRELOAD", "x"], ["--unset=LD_PRELOAD", "x"],
        ["LD_PRELOAD=", "x"],
    ],
)  # fmt: skip
def test_env_that_drops_the_allocator_is_refused(words: list[str]) -> None:
    with pytest.raises(ContenderFailed, match="drops the preloaded allocator"):
        refuse_wrapper(["/usr/bin/env", *words])


@pytest.mark.parametrize(
    "command",
    [
        ["env", "A=1", "x", "-i"],
        ["env", "-u", "HOME", "x"],
        ["env"],
        ["x", "-i"],
        [],
        ["env", "-C", "in", "x"],
    ],
)
def test_other_uses_of_env_are_let_through(command: list[str]) -> None:
    refuse_wrapper(command)


@pytest.mark.parametrize(
    "command", ["no-such-command", "./no-such-file", "", "a\0b", "/dev/null/x", "x" * 5000]
)
def test_a_program_that_does_not_exist_is_missing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ProgramMissing, ProgramNotExecutable)) as caught:
        inspect_program(command)
    is_sentence(str(caught.value))


def test_a_file_without_execute_permission_is_not_reported_as_missing(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text(MAIN)
    plain.chmod(0o644)
    os.mkfifo(tmp_path / "fifo")
    for command in (plain, tmp_path, tmp_path / "fifo", "/dev/zero"):
        with pytest.raises(ProgramNotExecutable) as caught:
            inspect_program(str(command))
        is_sentence(str(caught.value))


def test_the_search_goes_on_after_a_file_that_may_not_be_executed(
    program: Path, tmp_path: Path
) -> None:
    (tmp_path / program.name).write_text("")
    known = inspect_program(program.name, f"{tmp_path}:{program.parent}")
    assert known.path == os.path.realpath(program)


def test_a_program_of_another_class_is_refused(program: Path, tmp_path: Path) -> None:
    other = altered(program, tmp_path / "other", 18, struct.pack("<H", 22))
    assert "s390x program" in program_refusal(other)


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def altered(original: Path, copy: Path, at: int, new: bytes) -> Path:
    content = bytearray(original.read_bytes())
    content[at : at + len(new)] = new
    copy.write_bytes(content)
    copy.chmod(0o755)
    return copy


# --- libraries ---


def test_the_facts_of_a_library_are_read(library: Path) -> None:
    known = inspect_library(str(library))
    assert (known.kind, known.soname, known.truncated) == ("library", "libown.so.1", False)
    assert known.defines_malloc
    assert known.missing == ()
    assert known.build_id is not None
    assert len(known.build_id) == 40
    refuse_library(known, inspect_program("/bin/sh"), given_by_path=True)


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_malloc_is_found_through_every_kind_of_hash_table(build: Build, style: str) -> None:
    flags = ("-shared", "-fPIC", f"-Wl,--hash-style={style}")
    assert inspect_library(str(build(f"lib{style}.so", MALLOC, *flags))).defines_malloc
    assert not inspect_library(str(build(f"libno{style}.so", ELSEWHERE, *flags))).defines_malloc


def test_a_general_elf_library_reads_the_same(library: Path) -> None:
    elffile = pytest.importorskip("elftools.elf.elffile")
    paths = [library, *sorted(Path("/usr/lib/x86_64-linux-gnu").glob("lib[a-d]*.so.[0-9]"))[:40]]
    for path in paths:
        known = inspect_library(str(path))
        with path.open("rb") as file:
            elf = elffile.ELFFile(file)
            tags = list(elf.get_section_by_name(".dynamic").iter_tags())
            names = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
            symbols = elf.get_section_by_name(".dynsym").get_symbol_by_name("malloc") or []
            defined = any(symbol["st_shndx"] != "SHN_UNDEF" for symbol in symbols)
            note = elf.get_section_by_name(".note.gnu.build-id")
            build_id = next(iter(note.iter_notes()))["n_desc"] if note else None
        assert list(known.needs) == names, path
        assert known.defines_malloc == defined, path
        assert known.build_id == build_id, path


def test_a_library_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (
        tmp_path / "none.so",
        loop,
        "/dev/null/x.so",
        "a\0b/c.so",
        "\ud800/x",
        "x/" * 5000,
    ):
        is_sentence(refusal(path))
    assert "no such file" in refusal(tmp_path / "none.so")


def test_a_library_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.so")
    started = time.monotonic()
    assert "is a folder" in refusal(tmp_path)
    for path in (tmp_path / "fifo.so", "/dev/zero", "/dev/stdin", "/dev/tty"):
        refusal(path)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"hello", "is not an ELF file"),
        (b"!<arch>\n", "is a static archive"),
        (b"/* GNU ld script", "is a linker script"),
        (b"#!/bin/sh\n", "is a script"),
        (b"\x7fELF", "is damaged or truncated"),
        (b"\x7fELF" + bytes(60), "is damaged or truncated"),
        (b"\x7fELF\x02\x01\x01" + b"\xff" * 60, "is damaged or truncated"),
    ],
)
def test_a_file_that_is_no_library_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(content)
    assert says in refusal(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_library_without_read_permission_is_refused(library: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(library, tmp_path / "x.so"))
    copy.chmod(0)
    assert "cannot be read" in refusal(copy)


def test_an_executable_is_no_library(build: Build, program: Path) -> None:
    assert "is an executable" in refusal(program)
    assert "is an executable" in refusal(build("nopie", MAIN, "-no-pie"))
    assert "is an object file" in refusal(build("x.o", ELSEWHERE, "-c"))


def test_a_truncated_library_is_refused_wherever_it_is_cut(library: Path, tmp_path: Path) -> None:
    whole = library.read_bytes()
    cut = tmp_path / "cut.so"
    for size in sorted({1, 4, 16, 63, 64, 100, *range(200, len(whole), 997), len(whole) - 1}):
        cut.write_bytes(whole[:size])
        assert any(word in refusal(cut) for word in ("truncated", "not an ELF")), size


def test_a_library_of_another_machine_or_class_is_refused(
    library: Path, program: Path, tmp_path: Path
) -> None:
    known = inspect_program(str(program))
    other = altered(library, tmp_path / "other.so", 18, struct.pack("<H", 22))
    assert f"64-bit s390x library, and {program} is" in refusal(other, known)
    assert "programs here are" in refusal(other)


def test_a_32_bit_library_is_refused(build: Build, program: Path) -> None:
    small = build("lib32.so", MALLOC, "-shared", "-fPIC", "-m32", "-nostdlib")
    assert "32-bit i386 library" in refusal(small, inspect_program(str(program)))


def test_a_library_without_malloc_is_refused(build: Build) -> None:
    assert "defines no malloc" in refusal(build("libelse.so", ELSEWHERE, "-shared", "-fPIC"))


@pytest.mark.parametrize(
    "gone", [("free",), ("calloc",), ("realloc",), ("calloc", "realloc"), ("free", "calloc")]
)
def test_a_library_that_lacks_a_function_is_refused(build: Build, gone: tuple[str, ...]) -> None:
    """The C library's function would take or give blocks of another allocator."""
    half = MALLOC
    for name in gone:
        half = half.replace(f" {name}(", f" own_{name}(").replace(f"*{name}(", f"*own_{name}(")
    library = build(f"lib{'-'.join(gone)}.so", half, "-shared", "-fPIC")
    assert inspect_library(str(library)).missing == gone
    assert f"defines malloc but no {' and no '.join(gone)}: programs would" in refusal(library)


@pytest.mark.parametrize(
    "name", ["with space.so", "with:colon.so", "with;semicolon.so", "with$ORIGIN.so"]
)
def test_a_name_that_ld_preload_cannot_carry_is_refused_only_where_the_user_gave_it(
    library: Path, tmp_path: Path, name: str
) -> None:
    path = Path(shutil.copy(library, tmp_path / name))
    assert "LD_PRELOAD cannot carry" in refusal(path)
    refuse_library(inspect_library(str(path)))
    link = tmp_path / "plain.so"
    link.symlink_to(path)
    known = inspect_library(str(link))
    assert known.path == str(link)
    refuse_library(known, given_by_path=True)


def test_missing_needs_are_named(build: Build, tmp_path: Path) -> None:
    needed = build("libneeded.so", ELSEWHERE, "-shared", "-fPIC")
    user = build("libuser.so", MALLOC, "-shared", "-fPIC", "-Wl,--no-as-needed", "-L.", "-lneeded")
    assert "needs libneeded.so, which the loader does not find" in refusal(user)
    with_colon = tmp_path / "a:b c"
    with_colon.mkdir()
    shutil.copy(needed, with_colon)
    refuse_library(inspect_library(str(user)), None, (str(with_colon),))


def test_a_library_for_a_newer_glibc_is_refused(build: Build, tmp_path: Path) -> None:
    source = MALLOC + "#include <string.h>\nsize_t (*volatile f)(const char *) = strlen;\n"
    content = build("libold.so", source, "-shared", "-fPIC", "-s").read_bytes()
    old = next((v for v in (b"GLIBC_2.2.5\0", b"GLIBC_2.17\0") if content.count(v) == 1), None)
    if old is None:
        pytest.skip("this machine's glibc has another first version")
    new = (b"GLIBC_2.99" + b"9" * 9)[: len(old) - 1] + b"\0"

    def elf_hash(name: bytes) -> int:
        value = 0
        for byte in name:
            value = (value << 4) + byte
            value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
        return value

    content = content.replace(old, new).replace(
        struct.pack("<I", elf_hash(old[:-1])), struct.pack("<I", elf_hash(new[:-1]))
    )
    path = tmp_path / "libnew.so"
    path.write_bytes(content)
    assert "is built against a newer glibc" in refusal(path)
    assert new[:-1].decode() in refusal(path)


def test_the_file_is_never_executed(build: Build, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    source = MALLOC + (
        "#include <fcntl.h>\n"
        f'__attribute__((constructor)) static void start(void) {{ open("{mark}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    refuse_library(inspect_library(str(build("libeager.so", source, "-shared", "-fPIC"))))
    assert not mark.exists()


def test_a_noexec_file_system_is_refused(library: Path) -> None:
    known = inspect_library(str(library))
    assert not known.noexec
    on_noexec = next(
        (
            line.split()[1]
            for line in Path("/proc/mounts").read_text().splitlines()
            if may_try(line)
        ),
        None,
    )
    if on_noexec is None:
        pytest.skip("no writable file system is mounted noexec here")
    copy = Path(shutil.copy(library, os.path.join(on_noexec, f"cairn-test-{os.getpid()}.so")))
    try:
        assert "mounted noexec" in refusal(copy)
    finally:
        copy.unlink()


def may_try(line: str) -> bool:
    _, folder, kind, options = line.split()[:4]
    return (
        "noexec" in options.split(",") and kind in ("tmpfs", "ext4") and os.access(folder, os.W_OK)
    )


# --- hostile files ---


def judge(path: Path, note: str = "") -> None:
    """Reads the file, and checks that the reader gives facts or one sentence within two seconds."""
    started = time.monotonic()
    try:
        refuse_library(inspect_library(str(path)), given_by_path=True)
    except ContenderFailed as refused:
        is_sentence(str(refused))
    except Exception as error:
        raise AssertionError(f"{note}: reading {path} as a library failed") from error
    try:
        refuse_program(inspect_program(str(path)))
    except CairnError as refused:
        is_sentence(str(refused))
    except Exception as error:
        raise AssertionError(f"{note}: reading {path} as a program failed") from error
    assert time.monotonic() - started < 2, note


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("scratch") / "x.so"


@given(content=st.binary(max_size=300), magic=st.booleans())
@settings(max_examples=300, deadline=None)
def test_random_bytes_yield_a_sentence(scratch: Path, content: bytes, magic: bool) -> None:
    scratch.write_bytes(b"\x7fELF" * magic + content)
    scratch.chmod(0o755)
    judge(scratch)


@pytest.mark.parametrize("part", ["header", "segments", "dynamic", "anywhere"])
def test_mutated_libraries_yield_a_sentence(library: Path, tmp_path: Path, part: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    whole = library.read_bytes()
    dynamic = next(
        struct.unpack_from("<Q", whole, 64 + 56 * index + 8)[0]
        for index in range(struct.unpack_from("<H", whole, 56)[0])
        if struct.unpack_from("<I", whole, 64 + 56 * index)[0] == 2
    )
    first, last = {
        "header": (4, 64),
        "segments": (64, 64 + 56 * 11),
        "dynamic": (dynamic, dynamic + 400),
        "anywhere": (4, len(whole)),
    }[part]
    extremes = [0, 1, 0x7F, 0x80, 0xFF]
    path = tmp_path / "x.so"
    for _ in range(250):
        content = bytearray(whole)
        for _ in range(choose.choice([1, 1, 2, 8])):
            at = choose.randrange(first, last)
            run = choose.choice([1, 1, 4, 8])
            byte = choose.choice([*extremes, choose.randrange(256)])
            content[at : at + run] = bytes([byte]) * len(content[at : at + run])
        path.write_bytes(content)
        path.chmod(0o755)
        judge(path, f"seed {seed}")


def test_a_huge_sparse_file_is_judged_at_once(library: Path, tmp_path: Path) -> None:
    huge = Path(shutil.copy(library, tmp_path / "huge.so"))
    os.truncate(huge, 1 << 40)
    judge(huge)
    zeros = tmp_path / "zeros"
    zeros.touch(0o755)
    os.truncate(zeros, 1 << 40)
    judge(zeros)


def test_tables_without_end_are_judged_at_once(library: Path, tmp_path: Path) -> None:
    """A sparse file can claim a table of 2^39 bytes, although it takes little space on the disk.

    One file claims this size for its dynamic entries, and another file for its notes.
    """
    whole = library.read_bytes()
    count = struct.unpack_from("<H", whole, 56)[0]
    for kind in (2, 4):  # PT_DYNAMIC, PT_NOTE
        content = bytearray(whole)
        for index in range(count):
            at = 64 + 56 * index
            if struct.unpack_from("<I", whole, at)[0] == kind:
                struct.pack_into("<QQQQ", content, at + 8, 0, 0, 0, 1 << 39)
        path = tmp_path / f"endless{kind}.so"
        path.write_bytes(content)
        path.chmod(0o755)
        os.truncate(path, 1 << 40)
        judge(path)


def executable(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        random.Random(1).randbytes(4096),
        b"\0\1",
        b"text\n\0",
        bytes(one for one in random.Random(2).randbytes(4096) if one not in b"\0\n"),
    ],
)
def test_a_file_of_random_bytes_is_no_program(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell would execute the last one, and find no command in it."""
    file = executable(tmp_path / "random", content)
    monkeypatch.setattr(programs, "_OTHER_FORMATS", str(tmp_path / "none"))
    with pytest.raises(ProgramNotExecutable, match="is neither a program nor a script"):
        inspect_program(file)
    # The kernel may know this format, if it knows any besides ELF and scripts.
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "status").touch()
    with pytest.raises(ProgramNotExecutable):
        inspect_program(file)
    (tmp_path / "none" / "wine").touch()
    assert inspect_program(file).kind == "unknown"


@pytest.mark.parametrize("text", ["echo 1\n", "", "echo 'é'\n", "printf '\x1b[1m'\t\f\r\n"])
def test_a_text_without_a_first_line_for_the_kernel_is_a_script(tmp_path: Path, text: str) -> None:
    for encoding in ("utf-8", "latin-1"):
        found = inspect_program(executable(tmp_path / "text", text.encode(encoding)))
        assert found.interpreter == os.path.realpath("/bin/sh")


def test_a_link_that_leads_back_to_itself_is_named_as_such(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(loop)
    with pytest.raises(ProgramNotExecutable, match="The link leads back to itself"):
        inspect_program(str(loop))
