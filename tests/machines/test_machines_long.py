"""Tests of libcairn under the emulator qemu-user, on aarch64 and RISC-V.

On aarch64, the OS pages have 4, 16 or 64 KiB.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Machine

pytestmark = pytest.mark.long

KIB = 1 << 10
PAGES = [4 * KIB, 16 * KIB, 64 * KIB]
PASSED = r"(?s).*passed, 0 failed\n"
RANDOM = r"seed \d+\n\d+ operations, \d+ children, \d+ refusals, ended with [0-9a-f]+\n"
PROGRAMS: list[tuple[str, tuple[object, ...], str]] = [
    ("corners.c", (), PASSED),
    ("alignment.c", (), PASSED),
    ("random_calls.c", (60, 200_000, 1), RANDOM),
    ("random_calls.c", (61, 200_000, 4), RANDOM),
    ("random_calls.c", (62, 200_000, 1, "fork"), RANDOM),
    ("threads.c", (1000,), r"\d+ \d+\n"),
    ("fork.c", (40, 1), r"0 children failed\n"),
    ("fork.c", (40, 4), r"0 children failed\n"),
    ("early.c", (), r"ended\n"),
    ("small_stack.c", (), r""),
    ("mallopt.c", (), r"(?s).*"),
    ("purge_while_busy.c", (), r"\d+ \d+\n"),
]
"""The programs of tests/conformance that an emulator can run, their arguments and their output.

qemu-user does not limit the address space and confines no process by a filter. It starts programs
of another processor only with the help of the kernel. The child of a process with several threads
cannot create threads (qemu 7.2 ends it with "assertion failed"). Programs that need one of these
features are left out.
"""


@pytest.mark.parametrize("mode", ["preloaded", "archive"])
@pytest.mark.parametrize("page_bytes", PAGES, ids=lambda bytes_: f"pages of {bytes_ // KIB} KiB")
@pytest.mark.parametrize(("source", "arguments", "expected"), PROGRAMS)
def test_the_allocator_holds_on_aarch64(
    machine: Callable[[str], Machine],
    source: str,
    arguments: tuple[object, ...],
    expected: str,
    page_bytes: int,
    mode: str,
) -> None:
    said = machine("aarch64").run(mode, page_bytes, source, *arguments)
    assert re.fullmatch(expected, said), said


@pytest.mark.parametrize("page_bytes", PAGES)
def test_the_emulator_really_has_pages_of_this_size(
    machine: Callable[[str], Machine], page_bytes: int, tmp_path: Path
) -> None:
    source = tmp_path / "page.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        'int main(void) { return printf("%ld\\n", sysconf(_SC_PAGESIZE)) < 0; }\n'
    )
    here = machine("aarch64")
    command = [*here.under(page_bytes), str(here.compiled(source))]
    assert int(subprocess.run(command, capture_output=True, check=True).stdout) == page_bytes


@pytest.mark.parametrize("mode", ["preloaded", "archive"])
@pytest.mark.parametrize(("source", "arguments", "expected"), PROGRAMS[:5])
def test_the_allocator_holds_on_risc_v(
    machine: Callable[[str], Machine],
    source: str,
    arguments: tuple[object, ...],
    expected: str,
    mode: str,
) -> None:
    said = machine("riscv64").run(mode, None, source, *arguments)
    assert re.fullmatch(expected, said), said


@pytest.mark.parametrize("page_bytes", PAGES)
def test_the_launcher_reports_the_end_of_a_program_on_aarch64(
    machine: Callable[[str], Machine], page_bytes: int, tmp_path: Path
) -> None:
    """The emulated launcher can start only programs of the host, so the test names the emulator.

    The command for the launcher is the emulator, with the program as its argument.
    """
    here = machine("aarch64")
    preload = str(here.libraries / "libcairn.so.0")
    said = launched(here, page_bytes, tmp_path, LD_PRELOAD=preload)
    report = json.loads(said)
    assert report["exit_code"] == 0 and report["signal"] is None and report["left_behind"] == 0
    assert (tmp_path / "out").read_text() == "ended\n"


def test_the_witness_sees_libcairn_on_aarch64(
    machine: Callable[[str], Machine], tmp_path: Path
) -> None:
    """The test uses pages of 4 KiB only.

    With larger pages, qemu-user 7.2 does not map the end of the loader's last page, in which the
    loader allocates memory. So a program starts only with few libraries. With the witness, it has
    too many.
    """
    here = machine("aarch64")
    record = tmp_path / "record"
    record.touch()
    preload = f"{here.witness}:{here.libraries / 'libcairn.so.0'}"
    launched(here, 4 * KIB, tmp_path, LD_PRELOAD=preload, CAIRN_WITNESS=str(record))
    start, end = map(json.loads, record.read_text().splitlines())
    assert start["malloc"]["path"].endswith("/libcairn.so.0")
    assert (end["event"], end["status"]) == ("end", 0)


def launched(here: Machine, page_bytes: int, folder: Path, **environment: str) -> str:
    """Runs early.c with the launcher, both in the emulator. Returns the launcher's report."""
    options = ["--report-fd", "1", "--memory", "none", "--stdout", str(folder / "out")]
    emulator, *words = here.under(page_bytes, **environment)
    inner = [shutil.which(emulator) or "", *words, str(here.compiled("early.c", "-rdynamic"))]
    command = [*here.under(page_bytes), str(here.launcher), *options, "--", *inner]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
