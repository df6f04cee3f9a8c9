"""Tests of the probe with very many kills, forks, threads and programs in sequence."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.preloadable_path import carried

from cairn import native
from cairn.profile.reader import gather, names, read_begun
from cairn.profile.tally import FUNCTIONS

pytestmark = pytest.mark.long

Compiled = Callable[..., Path]
MIB = 1 << 20


@pytest.fixture(scope="module")
def known(compiled: Compiled) -> Path:
    return compiled("probe_known.c", "-pthread")


@pytest.fixture(scope="module")
def many(compiled: Compiled) -> Path:
    return compiled("probe_many.c", "-pthread")


def started(folder: Path, *command: object) -> subprocess.Popen[str]:
    """Starts the command with the probe, in a process group of its own."""
    return subprocess.Popen(
        [str(word) for word in command],
        env={**os.environ, "CAIRN_PROBE": str(folder), "LD_PRELOAD": carried(native.probe())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


@pytest.mark.parametrize("whom", ["process", "group"])
def test_the_file_of_a_process_that_was_killed_at_any_moment_is_readable(
    tmp_path: Path, known: Path, whom: str
) -> None:
    """The test kills each of 500 programs at a random moment.

    At that moment, the program is in the loader, works in threads, forks, or ends.
    """
    lot = random.Random(20261122)
    kept = 0
    for i in range(500):
        folder = tmp_path / str(i)
        folder.mkdir()
        what = ("counts", 3000) if lot.random() < 0.5 else ("forks", 20)
        process = started(folder, known, *what)
        time.sleep(lot.random() * 0.06)
        (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        for name in names(folder):
            found = read_begun(folder / name)
            if found is not None:
                kept += 1
                assert found.process.state in ("running", "ended")
                assert found.process.threads_lost == 0
    assert kept > 500


def test_two_thousand_forks_have_a_file_each(tmp_path: Path, known: Path) -> None:
    process = started(tmp_path, known, "forks", 2000)
    assert process.communicate(timeout=300) == ("", "")
    found = gather(tmp_path)
    assert len(found.processes) == 2000
    assert {one.state for one in found.processes} == {"ended"}
    assert int(found.tally.calls[FUNCTIONS.index("calloc")].sum()) == 2000 * 1000


def test_ten_thousand_threads_at_once_are_all_counted_in_little_memory(
    tmp_path: Path, many: Path
) -> None:
    def peak(*environment: tuple[str, str]) -> int:
        done = subprocess.run(
            [many, "10000", "50"],
            env=os.environ | dict(environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 75:
            pytest.skip("this machine cannot have 10,000 threads at once")
        assert done.returncode == 0, done.stderr
        return int(json.loads(done.stdout)["peak_kib"]) * 1024

    plain = peak()
    probed = peak(("CAIRN_PROBE", str(tmp_path)), ("LD_PRELOAD", carried(native.probe())))
    found = gather(tmp_path)
    (process,) = found.processes
    assert process.threads_most == 10_001
    assert process.threads_lost == 0
    assert int(found.tally.calls[0].sum()) >= 10_000 * 50
    assert probed - plain <= 64 * MIB


def test_a_chain_of_programs_has_a_file_for_each(tmp_path: Path) -> None:
    script = 'n=$1; [ "$n" -eq 0 ] && exit 0; exec /bin/sh "$0" $((n - 1))'
    (tmp_path / "chain").write_text(script)
    folder = tmp_path / "files"
    folder.mkdir()
    process = started(folder, "/bin/sh", tmp_path / "chain", 300)
    assert process.communicate(timeout=120) == ("", "")
    found = gather(folder)
    assert len(found.processes) == 301
    assert len({one.pid for one in found.processes}) == 1
    assert found.processes[-1].state == "ended"
