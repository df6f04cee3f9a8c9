"""Tests of the probe in programs with unusual signals, forks, allocators and plugins."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.probing import Probed

from cairn.profile.reader import layouts, read
from cairn.profile.tally import ALLOCATING, CALLS, FUNCTIONS

Compiled = Callable[..., Path]


@pytest.fixture
def probed(tmp_path: Path) -> Probed:
    return Probed(tmp_path)


@pytest.fixture(scope="module")
def signals(compiled: Compiled) -> Path:
    return compiled("probe_signals.c", "-pthread", "-Wno-deprecated-declarations")


@pytest.fixture(scope="module")
def paths(compiled: Compiled) -> Path:
    return compiled("probe_scripted_malloc.c", "-shared", "-pthread")


@pytest.mark.parametrize(
    "what", ["handlers", "early", "jump", "waits", "young", "ends", "fork", "lost", "worker"]
)
def test_a_program_runs_as_without_the_probe(
    probed: Probed, signals: Path, paths: Path, what: str
) -> None:
    """With the probe, each of these programs once crashed or hung."""
    assert probed(signals, what, allocator=paths) == "went on\n"
    first = min(probed.profile.processes, key=lambda process: process.begin_ns)
    assert first.state == "ended"
    if first.seen != "dispatch":
        pytest.skip("system calls are not dispatched here, so the probe uses no signal")


@pytest.mark.parametrize("what", ["aio", "few", "list", "names", "queue", "timer"])
def test_libc_may_make_a_thread_with_every_signal_blocked(
    probed: Probed, compiled: Compiled, what: str
) -> None:
    """These functions of libc block all signals by no public function, and then allocate.

    The allocator's system call was once dispatched there, and SIGSYS killed the process.
    """
    allocator = compiled("calling_malloc.c", "-shared", "-pthread")
    assert probed(compiled("probe_helpers.c"), what, allocator=allocator) == "went on\n"


@pytest.mark.parametrize("what", ["runs", "allocates", "twice", "refused"])
def test_a_filter_of_system_calls_may_forbid_to_return_from_a_signal(
    probed: Probed, compiled: Compiled, what: str
) -> None:
    """The probe's own signals once killed the process: those of its timer and of dispatched calls.

    If the kernel refuses the filter, system calls are seen as before.
    """
    assert probed(compiled("probe_filters.c"), what) == "went on\n"
    mapped = int(probed.only.tally.kernel.count[CALLS.index("mmap")])
    if probed.only.process.seen == "dispatch":
        assert (mapped > 0) == (what == "refused")


def test_a_program_may_ask_whether_the_kernel_has_filters(
    probed: Probed, compiled: Compiled
) -> None:
    """The question was once taken for strict mode, and nothing was counted from then on."""
    assert probed(compiled("probe_asks_seccomp.c")) == "went on\n"
    tally = probed.only.tally
    assert int(tally.calls.sum()) > 1000
    assert int(tally.late_calls.sum()) == 0


@pytest.mark.parametrize("way", ["sampled", "exact"])
def test_a_layout_is_recorded_behind_a_filter_of_system_calls(
    probed: Probed, compiled: Compiled, way: str
) -> None:
    """The layout once read the clock by a system call, which killed the process."""
    program = compiled("probe_filters.c")
    said = probed(program, "keeps", CAIRN_PROBE_LAYOUT=way, CAIRN_PROBE_GAP="1")
    assert said == "went on\n"


@pytest.mark.parametrize("gap", ["1", "1000000"])
def test_another_thread_may_install_a_filter_during_an_operation(
    probed: Probed, compiled: Compiled, paths: Path, gap: str
) -> None:
    """After a wait, the probe read the CPU clock or the page faults, which killed the process."""
    program = compiled("probe_shared_filter.c", "-pthread")
    for _ in range(3):  # a thread must wait when the filter is installed
        said = probed(program, 128, allocator=paths, CAIRN_PROBE_GAP=gap)
        assert said == "went on\n"


@pytest.mark.parametrize(
    "what", ["mallinfo", "mallinfo2", "info", "stats", "inspects", "pairs", "reads"]
)
def test_a_request_to_trim_neither_hangs_the_program_nor_ends_a_wait(
    probed: Probed, compiled: Compiled, what: str
) -> None:
    """The thread may hold a lock of the allocator outside of any operation.

    The trim in the signal handler once waited for that lock forever: in glibc's functions that
    inspect the heap, in other functions of the allocator, and in malloc_usable_size(), which the
    probe calls. A read() once failed with EINTR.
    """
    allocator = (
        compiled("calling_malloc.c", "-shared", "-pthread")
        if what in ("inspects", "pairs")
        else None
    )
    program = compiled("probe_requests.c", "-Wno-deprecated-declarations")
    process = probed.start(
        program, what, allocator=allocator, CAIRN_PROBE_TRIM="on", CAIRN_PROBE_LIVE="exact"
    )
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "went on\n")
    (parent,) = (one for one in map(read, probed.files) if one.process.pid == process.pid)
    trims = int(parent.tally.released[FUNCTIONS.index("malloc_trim") - len(ALLOCATING)].sum())
    assert trims > 0 or what != "reads"


def test_the_exit_code_is_that_of_the_program(probed: Probed, signals: Path, paths: Path) -> None:
    for code in (0, 3):
        process = probed.start(signals, "exit", code, allocator=paths)
        assert process.wait(60) == code
        (file,) = probed.files
        assert int(np.frombuffer(file.read_bytes(), layouts("<").head, 1)["exit_code"][0]) == code


@pytest.mark.parametrize("end", ["quick", "daemon", "refused"])
def test_a_process_that_libc_ends_has_a_complete_file(
    probed: Probed, compiled: Compiled, end: str
) -> None:
    """quick_exit() and daemon() end the process by an internal function.

    The file was once that of a killed process, without the last moment.
    """
    process = probed.start(compiled("probe_ends.c"), end)
    code = process.wait(60)
    assert code == {"quick": 3, "daemon": 0, "refused": -signal.SIGKILL}[end]
    (file,) = (one for one in probed.files if read(one).process.pid == process.pid)
    parent = read(file)
    assert parent.process.state == ("running" if end == "refused" else "ended")
    if end != "refused":
        head = np.frombuffer(file.read_bytes(), layouts("<").head, 1)
        assert int(head["exit_code"][0]) == code
        assert max(moment.resident_bytes or 0 for moment in parent.moments) >= 8 << 20


def test_a_child_of_vfork_in_a_sandbox_does_not_end_the_file_of_its_parent(
    probed: Probed, compiled: Compiled
) -> None:
    assert probed.start(compiled("probe_ends.c"), "vfork").wait(60) == -signal.SIGKILL
    assert probed.only.process.state == "running"


def test_a_thread_that_begins_in_its_destructors_ends(probed: Probed, compiled: Compiled) -> None:
    """Such threads once counted as alive until the end of the process, with a timer each."""
    assert probed(compiled("probe_c11_threads.c", "-pthread"), 20) == ""
    assert probed.only.process.threads_most == 2


def test_only_the_allocator_of_a_block_is_asked_for_its_size(
    probed: Probed, signals: Path, compiled: Compiled
) -> None:
    """The probe once called malloc_usable_size of libc for a block of this allocator.

    libc reads the bytes before the block, which are not libc's.
    """
    allocator = compiled("headerless_malloc.c", "-shared")
    assert probed(signals, "jump", allocator=allocator, CAIRN_PROBE_GAP="1") == "went on\n"
    tally = probed.only.tally
    assert int(tally.timed.count.sum()) > 100
    assert (tally.watched_bytes, tally.usable_bytes) == (0, 0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_a_plugin_may_have_a_cxx_runtime_of_its_own(probed: Probed, tmp_path: Path) -> None:
    """The plugin of a C program contains its own operators new and delete, and its own exceptions.

    The plugin calls the operators of the probe, which come first in the search order. The probe
    once found no other operators to forward these calls to.
    """
    (tmp_path / "plugin.cpp").write_text(
        '#include <stdexcept>\n#include <string>\nextern "C" int work() {\n'
        "    try { throw std::runtime_error(std::string(100, 'x')); }\n"
        "    catch (const std::exception &error) { int *p = new int[25]; delete[] p; return "
        "std::string(error.what()).size(); }\n"
        "}\n"
    )
    (tmp_path / "host.c").write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n"
        "    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;\n"
        '    int (*work)(void) = plugin != NULL ? (int (*)(void))dlsym(plugin, "work") : NULL;\n'
        '    return work == NULL || printf("%d\\n", work()) < 0;\n}\n'
    )
    plugin, host = tmp_path / "plugin.so", tmp_path / "host"
    flags = ["-shared", "-fPIC", "-static-libstdc++", "-static-libgcc"]
    subprocess.run(["g++", *flags, tmp_path / "plugin.cpp", "-o", plugin], check=True)
    subprocess.run(["gcc", tmp_path / "host.c", "-o", host], check=True)
    assert probed(host, plugin) == "100\n"


def test_a_cxx_runtime_that_was_unloaded_is_not_called(probed: Probed, tmp_path: Path) -> None:
    """A plugin needs a runtime, is closed, and is opened again at another address.

    The runtime was unloaded with the plugin, but the probe remembered its operators.
    """
    runtime, plugin, host = (tmp_path / name for name in ("libc++.so.1", "plugin.so", "host"))
    (tmp_path / "runtime.c").write_text(
        "#include <stdlib.h>\nvoid *_Znwm(size_t bytes) { return malloc(bytes); }\n"
        "void _ZdlPv(void *block) { free(block); }\n"
    )
    (tmp_path / "plugin.c").write_text(
        "#include <stddef.h>\nvoid *_Znwm(size_t bytes);\nvoid _ZdlPv(void *block);\n"
        "int work(void) { _ZdlPv(_Znwm(10)); return 1; }\n"
    )
    (tmp_path / "host.c").write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/mman.h>\n"
        "static int once(const char *path) {\n"
        "    void *plugin = dlopen(path, RTLD_NOW);\n"
        '    int (*work)(void) = plugin != NULL ? (int (*)(void))dlsym(plugin, "work") : NULL;\n'
        "    return work != NULL && work() && dlclose(plugin) == 0;\n}\n"
        "int main(int argc, char **argv) {\n"
        "    if (argc < 2 || !once(argv[1])) return 2;\n"
        "    for (int i = 0; i < 64; i++) /* takes the addresses of the unloaded libraries */\n"
        "        mmap(NULL, 4096 << i % 8, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        '    return !once(argv[1]) || puts("went on") < 0;\n}\n'
    )
    shared = ["gcc", "-shared", "-fPIC"]
    named = [f"-Wl,-soname,{runtime.name}", "-o", runtime]
    subprocess.run([*shared, tmp_path / "runtime.c", *named], check=True)
    linked = [runtime, f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*shared, tmp_path / "plugin.c", *linked, "-o", plugin], check=True)
    subprocess.run(["gcc", tmp_path / "host.c", "-o", host], check=True)
    assert probed(host, plugin) == "went on\n"
