"""What the README promises to a stranger, on a Debian that has nothing but what the README names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("fresh_debian")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fresh") / "root"


def on_fresh_debian(root: Path, command: str, minutes: int) -> str:
    done = subprocess.run(
        [str(SCRIPT), str(root), "bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60 * minutes,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout


def test_the_demo_runs_twice(root: Path) -> None:
    shown = on_fresh_debian(root, "make demo && make demo", minutes=15)
    assert shown.count("loaded in 1 of 1 processes") == 2
    assert "jemalloc" in shown and "mimalloc" in shown and "tcmalloc" in shown
    assert "Next: " in shown


def test_all_tests_pass_twice(root: Path) -> None:
    shown = on_fresh_debian(root, "make test && make test", minutes=45)
    assert shown.count(" passed") >= 2


def test_the_installed_command_needs_no_tree(root: Path) -> None:
    """Under ~/.local, by a user without rights, with all dependencies."""
    compare = "cairn compare -a system,cairn -r 6 -- python3 -c 'print(len([str(i) for i in range(100000)]))'"
    command = f'make install && cd / && rm -rf "$HOME/a clone" && PATH=$HOME/.local/bin:$PATH && cairn -V && {compare}'
    shown = on_fresh_debian(root, command, minutes=15)
    assert "loaded in 1 of 1 processes" in shown


def test_what_is_missing_is_one_sentence(root: Path) -> None:
    shown = on_fresh_debian(
        root, "mkdir bin && ln -s /usr/bin/* bin/ && rm bin/g++ && ! PATH=$PWD/bin make demo 2>&1", minutes=2
    )
    assert shown.strip().splitlines()[0] == (
        "cairn needs g++, which is not here; on Debian: apt-get install gcc g++ make git python3-venv"
    )
