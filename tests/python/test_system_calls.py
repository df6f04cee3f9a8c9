"""Tests of the names of system calls."""

from __future__ import annotations

import re
import subprocess

import pytest

from cairn.profile.system_calls import call_name


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_the_numbers_are_those_of_the_headers(machine: str, header: str) -> None:
    """Each name of the header that libc also has must be the name of its number."""
    told = subprocess.run(
        ["gcc", "-E", "-dM", "-x", "c", "-"],
        input=f"#include <{header}>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode:
        pytest.skip(f"this machine has no {header}")
    numbers = re.findall(r"#define __NR_(\w+) (\d+)$", told.stdout, re.MULTILINE)
    known = [
        (name, call_name(int(number), machine)) for name, number in numbers if name != "syscalls"
    ]
    known = [(name, ours) for name, ours in known if not ours.startswith("syscall ")]
    assert len(known) > 250
    assert [ours for _, ours in known] == [name for name, _ in known]


@pytest.mark.parametrize(
    ("number", "machine", "name"),
    [
        (110, "x86_64", "getppid"),
        (462, "x86_64", "syscall 462"),
        (172, "aarch64", "getpid"),
        (172, "riscv64", "getpid"),
        (9, "s390x", "syscall 9"),
    ],
)
def test_a_number_without_a_name_stays_a_number(number: int, machine: str, name: str) -> None:
    assert call_name(number, machine) == name
