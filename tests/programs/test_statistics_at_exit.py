"""Tests that libcairn's statistics at the exit of a program count the program's blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Injected, path_of

# php is not among these commands, because it closes stderr before it ends.
COMMANDS = {
    "python3": ["-c", "kept = [str(i) * 9 for i in range(5000)]"],
    "gcc": ["-O1", "-c", "small.c"],
    "git": ["hash-object", "small.c"],
    "node": ["-e", "Buffer.alloc(1e6)"],
    "sqlite3": [":memory:", "SELECT count(*) FROM sqlite_schema;"],
    "redis-server": ["--version"],
}


@pytest.mark.parametrize("program", COMMANDS)
def test_every_process_reports_its_blocks(injected: Injected, tmp_path: Path, program: str) -> None:
    if injected.probe is not None:
        pytest.skip("these are libcairn's own figures; the probe has its own tests")
    path = os.path.realpath(sys.executable) if program == "python3" else path_of(program)
    (tmp_path / "small.c").write_text("int main(void) { return 0; }\n")
    own = {
        "CAIRN_STATS": "json",
        "LD_PRELOAD": str(injected.library),
        "PYTHONMALLOC": "malloc",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [path, *COMMANDS[program]],
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert len(told) >= (3 if program == "gcc" else 1), done.stderr
    for figures in told:
        assert (
            figures["live_count"] > 0
            and figures["refills"] > 0
            and figures["used_most_bytes"] > 16384
        ), figures
