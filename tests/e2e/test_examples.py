"""Tests of the scripts and settings in examples/ for servers, CI and Docker.

The programs that they start are replaced by small scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.compilers import ROOT

EXAMPLES = ROOT / "examples"


def script(path: Path, text: str) -> Path:
    """Writes a shell script that can be executed."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- servers ---


@pytest.mark.parametrize(
    ("allowed", "server", "load"),
    [
        ("0-3", "--cpus 0", "taskset -c 1-3"),
        ("0-1", "--cpus 0", "taskset -c 1-1"),
        ("4-7,9", "--cpus 4", "taskset -c 5-7,9"),
        ("2,5-6", "--cpus 2", "taskset -c 5-6"),
        ("10", "", ""),
    ],
)
def test_a_server_has_the_first_cpu_that_is_allowed_and_its_load_has_the_others(
    tmp_path: Path, allowed: str, server: str, load: str
) -> None:
    """The examples once asked for CPU 0, also where it was not allowed."""
    script(tmp_path / "sed", f"echo {allowed}")
    assert chosen(PATH=f"{tmp_path}:{os.environ['PATH']}") == [server, load]


def test_the_cpus_of_the_examples_are_those_that_the_kernel_allows() -> None:
    cpu = max(os.sched_getaffinity(0))
    assert chosen("taskset", "-c", str(cpu)) == ["", ""]
    server, load = chosen()
    if len(os.sched_getaffinity(0)) > 1:
        assert server == f"--cpus {min(os.sched_getaffinity(0))}"
        assert subprocess.run([*load.split(), "true"], check=False).returncode == 0


def chosen(*under: str, **environment: str) -> list[str]:
    """Returns the option that pins the server, and the command that pins the load."""
    show = f'source {EXAMPLES / "servers.bash"}; echo "${{pinned[*]}}"; echo "$apart"'
    return subprocess.run(
        [*under, "bash", "-euc", show],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def test_nginx_writes_only_below_its_folder_and_its_workers_can_read_the_page(
    tmp_path: Path,
) -> None:
    """Without rights, nginx once could not make a folder for the answers of other servers.

    With a strict umask, its workers could not read the page.
    """
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("nginx", "wrk"):
        script(programs / name, "exit 1")
    script(
        programs / "cairn",
        """for last; do :; done
        folder=$(dirname "$last")
        echo "$folder"
        stat -c %a "$folder" "$folder/page.txt"
        cat "$folder/template"
        """,
    )
    done = subprocess.run(
        [tmp_path / "examples" / "nginx"],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        umask=0o077,
        capture_output=True,
        text=True,
        check=True,
    )
    _, folder, *modes = done.stdout.splitlines()[:4]
    assert modes == ["755", "644"]
    paths = dict(re.findall(r"^ *(\w+)_temp_path (.*);$", done.stdout, re.MULTILINE))
    assert paths == {
        name: f"{folder}/{name.removeprefix('client_')}"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    }


# --- CI ---


def test_a_runner_that_keeps_its_clone_can_check_again(tmp_path: Path) -> None:
    """GitLab's runners delete `old` between two jobs, and git once refused to make it again."""
    lines = (EXAMPLES / "ci" / "gitlab.yml").read_text().splitlines()
    (command,) = (line.partition("- ")[2] for line in lines if "- git worktree" in line)
    (tmp_path / "file").touch()
    for line in (
        "git init -q && git add file",
        "git -c user.name=x -c user.email=x@localhost commit -qm first",
        *(command, "git clean -qffdx", command),
    ):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert (tmp_path / "old" / "file").exists()


# --- Docker ---


def test_docker_gets_only_the_files_that_the_dockerfile_copies() -> None:
    """Docker once got the whole tree, with .venv, build and the history."""
    dockerfile = (EXAMPLES / "docker" / "Dockerfile").read_text()
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.*)", dockerfile, re.MULTILINE)
        for name in line.split()[:-1]
    }
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    everything, *kept = (line for line in lines if not line.startswith("#"))
    assert everything == "*"
    assert sorted(kept) == sorted(f"!{name}" for name in copied)
