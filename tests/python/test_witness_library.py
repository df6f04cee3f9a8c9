"""Tests of libcairn-witness.so.

In every process, the witness records which library owns malloc. It names each program that it
cannot reach, and it changes no program: the tests compare the same program with and without it.
The tests need a C compiler, binutils, and the library ($CAIRN_WITNESS_LIB, or the installed one).
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.witnessing import FORWARDING_MALLOC, Bench, only_start, text

from cairn import native

NOBODY = 65534
SOMEBODY = 1234
EXPORTED = {
    *("execl", "execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fexecve"),
    *("posix_spawn", "posix_spawnp"),
    *("wait", "wait3", "wait4", "waitid", "waitpid", "system", "pclose"),
    *("fork", "_exit", "_Exit", "quick_exit", "prctl", "syscall"),
}

CHILD = "int main(void) { return 0; }"


@pytest.fixture(scope="session")
def witness() -> Path:
    path = Path(os.environ.get("CAIRN_WITNESS_LIB") or native.witness())
    if not path.is_file():
        pytest.fail(f"{path} is missing; run 'make', or name the library in CAIRN_WITNESS_LIB")
    return path.resolve()


@pytest.fixture(scope="module")
def bench(witness: Path) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="cairn-witness-") as folder:
        os.chmod(folder, 0o777)
        copy = Path(folder).resolve() / "libcairn-witness.so"
        shutil.copy(witness, copy)
        copy.chmod(0o755)
        yield Bench(Path(folder).resolve(), copy)


@pytest.fixture(scope="module")
def child(bench: Bench) -> Path:
    return bench.build("child", CHILD)


@pytest.fixture(scope="module")
def forms(bench: Bench) -> Path:
    return bench.helper("witness_forms.c")


def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to make files of other users")


def told_by(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def build_id(path: Path) -> str:
    notes = told_by("readelf", "-n", path)
    return re.search(r"Build ID: (\w+)", notes).group(1)


# The owner of malloc


def test_plain_libc_owns_malloc(bench: Bench, child: Path) -> None:
    record = only_start(bench.run(child))
    owner = Path(record["malloc"]["path"])
    assert owner.name.startswith("libc.so")
    assert record["malloc"]["build_id"] == build_id(owner)
    assert record["exe"] == str(child)
    assert record["ppid"] == os.getpid()
    assert record["v"] == 1
    assert "split" not in record


def test_a_preloaded_library_owns_malloc(bench: Bench, child: Path) -> None:
    library = bench.library("libforward.so", FORWARDING_MALLOC, "-Wl,--build-id")
    record = only_start(bench.run(child, preload=(library,)))
    assert record["malloc"] == {"path": str(library), "build_id": build_id(library)}
    assert "split" not in record


def test_a_real_allocator_owns_malloc(bench: Bench, child: Path) -> None:
    found = sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    if not found:
        pytest.skip("libjemalloc2 is not installed")
    record = only_start(bench.run(child, preload=(found[0],)))
    assert record["malloc"]["path"] == str(found[0])
    assert "split" not in record


def test_a_process_without_standard_input_is_recorded(bench: Bench, child: Path) -> None:
    """Descriptor 0 is free in such a process, so that the witness's file becomes descriptor 0."""
    record = only_start(bench.run(child, preexec_fn=partial(os.close, 0)))
    assert record["exe"] == str(child)


def test_a_build_id_behind_another_note_is_found(bench: Bench, child: Path) -> None:
    notes = (
        '__asm__(".pushsection .note.own, \\"a\\", @note; .balign 4;'
        ' .long 4, 4, 1; .asciz \\"XYZ\\"; .long 7;'
        ' .long 4, 8, 3; .asciz \\"GNU\\"; .byte 1, 2, 3, 4, 5, 6, 7, 8; .popsection");\n'
    )
    library = bench.library("libnotes.so", notes + FORWARDING_MALLOC, "-Wl,--build-id=none")
    record = only_start(bench.run(child, preload=(library,)))
    assert record["malloc"] == {"path": str(library), "build_id": "0102030405060708"}


def test_an_object_without_build_id_is_recorded_by_its_path(bench: Bench, child: Path) -> None:
    library = bench.library("libanonymous.so", FORWARDING_MALLOC, "-Wl,--build-id=none")
    record = only_start(bench.run(child, preload=(library,)))
    assert record["malloc"] == {"path": str(library), "build_id": None}


def test_a_program_with_its_own_allocator_owns_malloc(bench: Bench) -> None:
    program = bench.build("own-malloc", FORWARDING_MALLOC + CHILD)
    library = bench.library("libforward.so", FORWARDING_MALLOC)
    record = only_start(bench.run(program, preload=(library,)))
    assert record["malloc"]["path"] == record["exe"] == str(program)
    assert "split" not in record


def test_a_library_that_replaces_only_malloc_is_seen_to_be_split(bench: Bench, child: Path) -> None:
    library = bench.library("libhalf.so", FORWARDING_MALLOC, "-DONLY_MALLOC")
    record = only_start(bench.run(child, preload=(library,)))
    libc = only_start(bench.run(child))["malloc"]["path"]
    assert record["malloc"]["path"] == str(library)
    assert record["split"] == {"free": libc, "calloc": libc, "realloc": libc}


def test_the_witness_never_calls_malloc(bench: Bench, forms: Path, child: Path) -> None:
    """Every call of malloc ends this program.

    The program itself makes no such call, and it does not use the buffered output of libc, which
    would allocate.
    """
    deadly = bench.library(
        "libdeadly.so",
        """
        void *malloc(long n) { __builtin_trap(); }
        void *calloc(long n, long m) { __builtin_trap(); }
        void *realloc(void *p, long n) { __builtin_trap(); }
        void free(void *p) { __builtin_trap(); }""",
    )
    source = """
        #define _GNU_SOURCE
        #include <unistd.h>
        #include <sys/wait.h>
        int main(int argc, char **argv) {
            char *args[] = {argv[1], 0}, *none[] = {0};
            int status;
            if (vfork() == 0) {
                execve("/nowhere", args, none);
                execvpe("nothing-there", args, none);
                _exit(9);
            }
            wait(&status);
            if (WEXITSTATUS(status) != 9) return 1;
            execv(argv[1], args);
        }"""
    seen = bench.run(bench.build("quiet", source), child, preload=(deadly,))
    assert seen.code == 0, seen.err
    assert [record["event"] for record in seen.records] == [
        *("start", "end", "wait", "exec", "start", "end"),
    ]


# Knobs


def test_knobs_are_recorded_and_nothing_else(bench: Bench, child: Path) -> None:
    knobs = {
        "MALLOC_CONF": "background_thread:true",
        "GLIBC_TUNABLES": "glibc.malloc.arena_max=2",
        "MIMALLOC_SHOW_STATS": "1",
        "SCUDO_OPTIONS": "a=b",
        "CAIRN_THING": "",
        "LD_LIBRARY_PATH": "/nowhere",
        "PYTHONHASHSEED": "1",
    }
    others = {"SECRET": "x", "LD_PRELOAD_X": "x", "PYTHONHASHSEEDS": "x"}
    environment = {**knobs, **others, "CAIRN_WITNESS_KNOBS": "NOTHING:PYTHONHASHSEED"}
    record = only_start(bench.run(child, environment=environment))
    own = {"LD_PRELOAD", "CAIRN_WITNESS", "CAIRN_WITNESS_KNOBS"}
    assert {key: value for key, value in record["knobs"].items() if key not in own} == knobs
    assert record["knobs"]["LD_PRELOAD"] == str(bench.witness)


def test_long_and_strange_knobs_never_cost_the_record(bench: Bench, child: Path) -> None:
    environment = {
        "MALLOC_LONG": "x" * 100_000,
        "MALLOC_STRANGE": 'a"\\\n\t' + os.fsdecode(b"\xff\xfe\x80"),
        "MALLOC_" + "NAME" * 100: "too long a name",
    }
    record = only_start(bench.run(child, environment=environment))
    assert record["knobs"]["MALLOC_LONG"] == "x" * 400 + "[cut]"
    assert text(record["knobs"]["MALLOC_STRANGE"]) == environment["MALLOC_STRANGE"]
    assert record["knobs_cut"] is True


def test_a_record_of_very_many_knobs_is_bounded_and_says_so(bench: Bench, child: Path) -> None:
    name = "MALLOC_" + os.fsdecode(b"\xc8" * 40)
    environment = {f"{name}{i}": os.fsdecode(b"\xff" * 500) for i in range(300)}
    record = only_start(bench.run(child, environment=environment))
    assert record["knobs_cut"] is True
    assert len(record["knobs"]) >= 3
    assert bench.file.stat().st_size <= 8192


def test_a_path_that_is_not_text_is_kept_byte_by_byte(bench: Bench, child: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(bench.folder) + b'/odd \xff\xfe"\\ {}\n'))
    folder.mkdir()
    program = folder / "child"
    shutil.copy(child, program)
    assert text(only_start(bench.run(program))["exe"]) == str(program)


# Programs that are executed

OPEN = ["execveat-open", "fexecve"]
DIRECT = ["execve", "execv", "execl", "execle", "execveat", *OPEN, "vfork", "posix_spawn"]
SEARCHED = ["execvp", "execvpe", "execlp", "vfork-search", "posix_spawnp"]


@pytest.mark.parametrize("form", [*DIRECT, *SEARCHED, "overwritten-environment"])
def test_every_way_to_execute_is_recorded_once(
    bench: Bench, forms: Path, child: Path, form: str
) -> None:
    seen = bench.run(forms, form, child, environment={"TELL_CHILD": "1"})
    pid, error, _, status = (int(word) for word in seen.out.split())
    assert (seen.code, error, status) == (0, 0, 0)
    announced = "spawn" if "spawn" in form else "exec"
    assert sorted(seen.of(pid)) == [(announced, str(child)), ("start", str(child))]
    assert seen.kinds() == ["dynamic"]
    assert seen.unproven() == {}


@pytest.mark.parametrize("form", SEARCHED)
def test_a_searched_program_is_recorded_where_it_was_found(
    bench: Bench, forms: Path, form: str
) -> None:
    search = [
        bench.folder / f"{form}-{name}" for name in ("missing", "plain", "folder", "right", "later")
    ]
    for folder in search[1:]:
        folder.mkdir()
    (search[1] / "tool").write_text("not executable")
    (search[2] / "tool").mkdir()
    shutil.copy("/bin/true", search[3] / "tool")
    shutil.copy("/bin/true", search[4] / "tool")
    path = ":".join(str(folder) for folder in search)
    seen = bench.run(forms, form, "tool", environment={"TELL_CHILD": "1", "PATH": path})
    pid = int(seen.out.split()[0])
    tool = str(search[3] / "tool")
    assert sorted(path for _, path in seen.of(pid)) == [tool, tool]


def test_arguments_and_environment_arrive_unchanged(bench: Bench, forms: Path) -> None:
    program = bench.build(
        "show",
        """
        #include <stdio.h>
        int main(int argc, char **argv) {
            while (*++argv) puts(*argv);
            FILE *file = fopen("/proc/self/environ", "r");
            for (int c; (c = getc(file)) != EOF;) putchar(c == 0 ? 10 : c);
        }""",
    )
    for form in [*DIRECT, *SEARCHED]:
        seen = bench.run(forms, form, program, environment={"MARK": "here"})
        assert seen.out.startswith("one\ntwo\n"), form
        assert "\nMARK=here\n" in seen.out, form


@pytest.mark.parametrize("form", ["execve", "execvp", "execlp", "vfork", "fexecve"])
def test_a_failed_exec_is_recorded_as_failed(bench: Bench, forms: Path, form: str) -> None:
    """The file is a dynamic program, but its interpreter does not exist, so that exec fails."""
    shutil.copy("/bin/true", broken := bench.folder / "broken")
    content = broken.read_bytes()
    loader = re.search(rb"/lib[\w/.-]*/ld-linux[\w.-]*", content).group(0)
    broken.write_bytes(content.replace(loader, b"/nowhere".ljust(len(loader), b"x"), 1))
    seen = bench.run(forms, form, broken)
    assert seen.tries() == [("exec", "dynamic"), ("exec-failed", "dynamic")]
    assert seen.unproven() == {}
    assert seen.out == bench.run(forms, form, broken, without=True).out


def test_a_failed_spawn_leaves_no_record(bench: Bench, forms: Path) -> None:
    for target in ("/nowhere/at/all", bench.folder / "broken"):
        assert bench.run(forms, "posix_spawn", target).kinds() == []


@pytest.mark.parametrize("form", [*DIRECT, *SEARCHED])
def test_a_file_that_cannot_be_executed_fails_as_without_the_witness(
    bench: Bench, forms: Path, form: str
) -> None:
    pipe = bench.folder / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
        pipe.chmod(0o777)
    targets = ["/nowhere/at/all", "", bench.folder, "x" * 300, "/" + "x" * 5000]
    for target in targets if form in OPEN else [*targets, pipe]:
        seen = bench.run(forms, form, target)
        assert seen.kinds() == [] or form == "execveat-open", target
        assert seen.out == bench.run(forms, form, target, without=True).out, target


def test_a_spawn_that_does_not_ask_for_the_process_id_is_recorded(
    bench: Bench, forms: Path, child: Path
) -> None:
    seen = bench.run(forms, "posix_spawn-anonymous", child)
    assert seen.kinds() == ["dynamic"]
    assert seen.unproven() == {}


def test_a_static_program_is_named(bench: Bench, forms: Path) -> None:
    for name, flags in (("static", ("-static",)), ("static-pie", ("-static-pie",))):
        program = bench.build(name, CHILD, *flags)
        for form in ("execve", "posix_spawn"):
            seen = bench.run(forms, form, program)
            assert seen.kinds() == ["static"]
            assert len(seen.events("start")) == 1


def test_a_program_of_another_class_is_named(bench: Bench, forms: Path, child: Path) -> None:
    """The file claims to be for 64-bit PowerPC.

    Linux refuses a program by the number of its machine, and not by its word size.
    """
    program = bench.folder / "other-machine"
    content = bytearray(child.read_bytes())
    content[18:20] = (21).to_bytes(2, "little")
    program.write_bytes(content)
    program.chmod(0o755)
    seen = bench.run(forms, "execve", program)
    assert seen.tries() == [("exec", "other class"), ("exec-failed", "other class")]


def test_a_script_is_recorded_like_its_interpreter(bench: Bench, forms: Path, child: Path) -> None:
    script = bench.folder / "script"
    for interpreter in (str(child), f"/usr/bin/env {child.name}"):
        script.write_text(f"#!{interpreter}\n")
        script.chmod(0o755)
        seen = bench.run(
            forms, "execve", script, environment={"PATH": f"{bench.folder}:/usr/bin:/bin"}
        )
        assert seen.code == 0
        assert set(seen.kinds()) == {"dynamic"}
        assert seen.events("exec")[0]["path"] == str(script)
        assert seen.unproven() == {}


def test_a_text_without_a_first_line_is_run_by_the_shell_if_searched(
    bench: Bench, forms: Path
) -> None:
    script = bench.folder / "headless"
    script.write_text("exit 0\n")
    script.chmod(0o755)
    searched = bench.run(forms, "execvp", script)
    assert (searched.kinds(), searched.unproven()) == (["dynamic"], {})
    assert len(searched.events("start")) == 2
    direct = bench.run(forms, "execv", script)
    assert direct.tries() == [("exec", "unknown"), ("exec-failed", "unknown")]
    assert bench.run(forms, "posix_spawnp", script).kinds() == []


def test_an_environment_without_the_witness_is_recorded(
    bench: Bench, forms: Path, child: Path
) -> None:
    for command in (
        ("env", "-i", child),
        ("env", "-u", "LD_PRELOAD", child),
        ("env", "LD_PRELOAD=", child),
        ("env", "-u", "CAIRN_WITNESS", child),
        ("env", "CAIRN_WITNESS=/elsewhere", child),
        (forms, "no-environment", child),
    ):
        seen = bench.run(*command)
        assert seen.code == 0
        assert seen.kinds() == ["environment"], command
        assert seen.events("exec")[0]["path"] == str(child)


def test_an_environment_may_preload_other_libraries_besides_the_witness(
    bench: Bench, child: Path
) -> None:
    library = bench.library("libforward.so", FORWARDING_MALLOC)
    other_spelling = f"{bench.folder}/./libcairn-witness.so"
    for preload in (f"{library} {bench.witness}", f"{bench.witness}:{library}", other_spelling):
        seen = bench.run("env", f"LD_PRELOAD={preload}", child)
        assert (seen.kinds(), seen.unproven()) == (["dynamic"], {})


def test_the_loader_as_a_command_runs_a_program_or_only_lists(
    bench: Bench, forms: Path, child: Path
) -> None:
    headers = told_by("readelf", "-l", child)
    loader = re.search(r"interpreter: (\S+)\]", headers).group(1)
    seen = bench.run("env", loader, child)
    assert (seen.code, seen.kinds(), seen.unproven()) == (0, ["dynamic"], {})
    for command in (
        ("env", loader, "--list", child),
        ("env", loader, "--verify", child),
        ("ldd", child),
    ):
        seen = bench.run(*command)
        assert seen.code == 0
        assert seen.unproven() == {}, command
        assert not [record for record in seen.events("exec") if "ld-linux" in record["path"]]


# Privileges


def privileged(bench: Bench, name: str, child: Path, owner: int, mode: int) -> Path:
    as_root()
    if os.statvfs(bench.folder).f_flag & os.ST_NOSUID:
        pytest.skip("set-id bits do not count on this mount")
    program = bench.folder / name
    shutil.copy(child, program)
    os.chown(program, owner, owner)
    program.chmod(mode)
    return program


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755], ids=oct)
def test_a_set_id_program_is_named(bench: Bench, forms: Path, child: Path, mode: int) -> None:
    program = privileged(bench, f"set-id-{mode:o}", child, SOMEBODY, mode)
    for form in ("execve", "posix_spawn"):
        seen = bench.run(forms, form, program, user=NOBODY)
        assert seen.code == 0
        assert seen.kinds() == ["setuid"]
        assert len(seen.events("start")) == 1


def test_a_set_id_program_that_cannot_be_read_is_named(
    bench: Bench, forms: Path, child: Path
) -> None:
    program = privileged(bench, "set-id-unreadable", child, SOMEBODY, 0o4711)
    assert bench.run(forms, "execve", program, user=NOBODY).kinds() == ["setuid"]


def test_a_program_that_cannot_be_read_may_be_anything(
    bench: Bench, forms: Path, child: Path
) -> None:
    program = privileged(bench, "unreadable", child, SOMEBODY, 0o711)
    seen = bench.run(forms, "execve", program, user=NOBODY)
    assert (seen.kinds(), len(seen.events("start"))) == (["unknown"], 2)


def test_a_set_id_program_of_the_same_user_is_no_obstacle(
    bench: Bench, forms: Path, child: Path
) -> None:
    program = privileged(bench, "set-id-own", child, NOBODY, 0o6755)
    seen = bench.run(forms, "execve", program, user=NOBODY)
    assert (seen.kinds(), seen.unproven()) == (["dynamic"], {})


def test_a_set_id_program_under_no_new_privileges_is_no_obstacle(
    bench: Bench, forms: Path, child: Path
) -> None:
    program = privileged(bench, "set-id-barred", child, SOMEBODY, 0o4755)
    seen = bench.run(forms, "no-new-privileges", program, user=NOBODY)
    assert (seen.kinds(), seen.unproven()) == (["dynamic"], {})


def test_differing_ids_are_an_obstacle_for_every_program(
    bench: Bench, forms: Path, child: Path
) -> None:
    as_root()
    seen = bench.run(forms, "other-user", child)
    assert seen.kinds() == ["setuid"]
    assert len(seen.events("start")) == 1


@pytest.mark.parametrize("user", [NOBODY, 0], ids=["user", "root"])
def test_file_capabilities_count_except_for_root(
    bench: Bench, forms: Path, child: Path, user: int
) -> None:
    program = privileged(bench, f"capable-{user}", child, 0, 0o755)
    net_raw = struct.pack("<5I", 0x0200_0001, 1 << 13, 0, 0, 0)
    try:
        os.setxattr(program, "security.capability", net_raw)
    except OSError as error:
        pytest.skip(f"no file capabilities here: {error}")
    seen = bench.run(forms, "execve", program, user=user)
    assert seen.kinds() == ["setuid" if user else "dynamic"]
    assert len(seen.events("start")) == (1 if user else 2)


def test_a_process_with_gained_privileges_writes_nothing(bench: Bench, forms: Path) -> None:
    """The loader preloads no library into such a process, but this program links the witness."""
    flags = ("-Wl,--no-as-needed", str(bench.witness), f"-Wl,-rpath,{bench.folder}")
    linked = bench.build("linked", CHILD, *flags)
    program = privileged(bench, "linked-set-id", linked, SOMEBODY, 0o4755)
    assert len(bench.run(linked, environment={"LD_PRELOAD": None}).events("start")) == 1
    seen = bench.run(forms, "execve", program, user=NOBODY)
    assert seen.kinds() == ["setuid"]
    assert len(seen.events("start")) == 1


# Programs run as they do without the witness


def test_errno_is_as_without_the_witness(bench: Bench, forms: Path, child: Path) -> None:
    for form in [*DIRECT, *SEARCHED]:
        for target in (child, "/nowhere"):
            assert (
                bench.run(forms, form, target).out
                == bench.run(forms, form, target, without=True).out
            )


def test_descriptors_signals_and_pending_errors_are_as_without_the_witness(
    bench: Bench, child: Path
) -> None:
    program = bench.helper("witness_state.c")
    refused = bench.folder / "refused"
    refused.write_text("no header\n")
    refused.chmod(0o755)
    seen = bench.run(program, child, refused)
    assert len(seen.events("spawn")) == len(seen.events("exec-failed")) == 50
    assert seen.out == bench.run(program, child, refused, without=True).out


def test_a_cancelled_thread_is_not_cancelled_inside_the_witness(bench: Bench) -> None:
    program = bench.helper("witness_cancelled.c", "-pthread")
    refused = bench.folder / "refused"
    refused.write_text("no header\n")
    refused.chmod(0o755)
    seen = bench.run(program, refused)
    assert seen.out == "returned\n"
    assert len(seen.events("exec-failed")) == 1


def test_a_signal_handler_on_a_small_stack_can_execute(bench: Bench, child: Path) -> None:
    program = bench.helper("witness_handler.c")
    seen = bench.run(program, "child", environment={"PATH": f"/usr/bin:{bench.folder}"})
    assert (seen.code, seen.kinds(), seen.unproven()) == (0, ["dynamic"], {})


@pytest.mark.parametrize(
    "way", ["posix_spawn", "execve", "execvpe", "execl", "execveat", "fexecve"]
)
def test_a_constructor_that_runs_before_that_of_the_witness_can_execute(
    bench: Bench, child: Path, way: str
) -> None:
    early = bench.helper("witness_early.c", "-shared", "-fPIC")
    seen = bench.run(child, preload=(early,), environment={"EARLY": str(child), "EARLY_WAY": way})
    assert (seen.code, seen.kinds(), seen.unproven()) == (0, ["dynamic"], {})
    assert len(seen.events("start")) == 2


def test_a_program_with_its_own_open_write_and_close_keeps_them(bench: Bench) -> None:
    program = bench.build(
        "own-names",
        """
        #include <stdlib.h>
        int open() { abort(); } int write() { abort(); } int close() { abort(); } int read() { abort(); }
        int fstat() { abort(); } int getpid() { abort(); } int readlink() { abort(); }
        int main(void) { return 0; }""",
        "-rdynamic",
    )
    only_start(bench.run(program))


def test_nothing_is_written_without_the_variable(bench: Bench, forms: Path, child: Path) -> None:
    bench.run(child)  # the first run makes the file that later runs empty
    before = sorted(bench.folder.iterdir())
    for value in (None, "", "witness.jsonl", "./witness.jsonl"):
        seen = bench.run(forms, "execve", child, environment={"CAIRN_WITNESS": value})
        assert (seen.code, seen.records, seen.err) == (0, [], "")
    assert sorted(bench.folder.iterdir()) == before


def test_only_an_existing_regular_file_is_written(bench: Bench, forms: Path, child: Path) -> None:
    (bench.folder / "real").write_bytes(b"")
    link, absent, pipe = (bench.folder / name for name in ("a-link", "absent", "a-pipe"))
    link.symlink_to("real")
    os.mkfifo(pipe)
    for file in (link, absent, pipe, bench.folder, Path("/dev/null"), Path("/" + "x" * 5000)):
        seen = bench.run(forms, "posix_spawn", child, environment={"CAIRN_WITNESS": str(file)})
        assert (seen.code, seen.out, seen.err) == (0, "0 77 0\n", "")
    assert (bench.folder / "real").read_bytes() == b""
    assert not absent.exists()


def test_a_pipe_with_a_reader_is_not_written_either(bench: Bench, child: Path) -> None:
    pipe = bench.folder / "read-pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert bench.run(child, environment={"CAIRN_WITNESS": str(pipe)}).code == 0
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_file_that_may_not_be_written_does_no_harm(
    bench: Bench, forms: Path, child: Path
) -> None:
    as_root()
    file = bench.folder / "read-only"
    file.write_bytes(b"")
    file.chmod(0o644)
    seen = bench.run(forms, "execve", child, file=file, user=NOBODY)
    assert (seen.code, seen.records, seen.err) == (0, [], "")


@pytest.mark.parametrize("limit", [0, 10, 60_000])
def test_a_limit_on_file_sizes_does_not_kill(
    bench: Bench, forms: Path, child: Path, limit: int
) -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    seen = bench.run(child, preexec_fn=lower)
    assert (seen.code, seen.records) == (0, [])


def test_a_process_without_a_free_descriptor_runs_normally(bench: Bench, child: Path) -> None:
    """The program opens /dev/null until no descriptor is free, and then executes another one."""
    program = bench.helper("witness_no_descriptors.c")
    seen = bench.run(program, child)
    assert seen.code == 0
    assert len(seen.events("start")) == 2


def test_processes_at_once_do_not_tear_lines(bench: Bench, child: Path) -> None:
    seen = bench.run("bash", "-c", f"for i in $(seq 200); do {child} & done; wait")
    children = [record for record in seen.events("start") if record["exe"] == str(child)]
    assert len(children) == 200
    assert seen.unproven() == {}


@pytest.mark.parametrize(
    "command",
    [
        "ls | wc -l; (echo a; true) | cat; x=$(date); exec true",
        '{python} -c \'import subprocess as s; s.run(["true"], check=True); s.run("true", shell=True)\'',
        '{python} -c \'import os; os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)\'',
        '{python} -c \'import os; os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)\'',
        '{python} -c \'import os; os.popen("true").read(); os.system("true"); os.execlp("true", "x")\'',
        "echo 'int main(void) {{ return 0; }}' | gcc -x c - -o compiled && ./compiled",
        "printf 'all: a b\\na b:\\n\\ttrue $@ | cat\\n' | make -j4 -f -",
        'perl -e \'system("true"); `true`; exec("true")\'',
        "find . -maxdepth 1 -name child -exec true {{}} \\; && echo x | xargs true && timeout 5 "
        "nice true",
    ],
)
def test_real_programs_run_as_without_the_witness(bench: Bench, child: Path, command: str) -> None:
    line = command.format(
        python="/usr/bin/python3" if Path("/usr/bin/python3").exists() else "python3"
    )
    if (tool := line.split()[0]) in ("perl", "find") and shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    seen = bench.run("bash", "-c", line, environment={"TMPDIR": str(bench.folder)})
    plain = bench.run("bash", "-c", line, without=True, environment={"TMPDIR": str(bench.folder)})
    assert (seen.code, seen.out, seen.err) == (plain.code, plain.out, plain.err)
    assert seen.code == 0
    assert seen.unproven() == {}
    assert len(seen.events("start")) >= 2


# The library itself


def test_the_witness_needs_only_libc(witness: Path) -> None:
    section = told_by("readelf", "-dW", witness)
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", section) == ["libc.so.6"]
    assert "TEXTREL" not in section
    assert not re.search(r"R(UN)?PATH", section)


def test_the_witness_exports_its_hooks_and_nothing_else(witness: Path) -> None:
    symbols = told_by("nm", "-D", "--defined-only", witness)
    assert {line.split()[-1] for line in symbols.splitlines()} == EXPORTED


def test_the_witness_calls_no_allocator_function(witness: Path) -> None:
    symbols = told_by("nm", "-D", "--undefined-only", witness)
    used = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    assert not used & {
        "malloc",
        "calloc",
        "realloc",
        "free",
        "strdup",
        "fopen",
        "printf",
        "__tls_get_addr",
    }


@pytest.mark.long
def test_the_witness_costs_less_than_three_percent_of_fifty_milliseconds(bench: Bench) -> None:
    """The cost is the median of paired differences.

    The test also prints the cost of an empty library, which every preloaded library has at least.
    """
    empty = bench.library("libempty.so", "int empty;")
    program = bench.helper("witness_spin.c")
    bench.file.write_bytes(b"")

    def wall_us(duration_us: int, preload: Path | None) -> float:
        environment = {
            "CAIRN_WITNESS": str(bench.file),
            **({"LD_PRELOAD": str(preload)} if preload else {}),
        }
        begin = time.perf_counter_ns()
        pid = os.posix_spawn(program, [str(program), str(duration_us)], environment)
        os.waitpid(pid, 0)
        return (time.perf_counter_ns() - begin) / 1000

    for duration_us, rounds in ((1_500, 200), (49_500, 20)):
        ours, loading = [], []
        for turn in range(rounds):
            contenders = [None, empty, bench.witness]
            order = contenders[turn % 3 :] + contenders[: turn % 3]
            wall = {preload: wall_us(duration_us, preload) for preload in order}
            ours.append(wall[bench.witness] - wall[None])
            loading.append(wall[empty] - wall[None])
        cost = statistics.median(ours)
        part = statistics.median(loading)
        print(f"{duration_us} us: witness +{cost:.0f} us, empty library +{part:.0f} us")
        assert cost < 0.03 * 50_000
