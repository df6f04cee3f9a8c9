"""Runs programs under the witness and reads the witness's records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.places import PROGRAMS

ENDINGS = ("fork", "end", "wait")
"""The events that belong to the end of processes."""


@dataclass(frozen=True)
class Seen:
    """The output of a program, and the records of the witness in its processes."""

    code: int
    out: str
    err: str
    records: list[dict] = field(default_factory=list)
    content: bytes = b""
    """The file of the records."""

    def events(self, event: str) -> list[dict]:
        return [record for record in self.records if record["event"] == event]

    def of(self, pid: int) -> list[tuple[str, str]]:
        """Returns the event and the path of each start or execution in a process.

        The order is that of the file: the record "spawn" of the parent may come after the record
        "start" of the child.
        """
        own = [
            record
            for record in self.records
            if record["pid"] == pid and record["event"] not in ENDINGS
        ]
        return [
            (record["event"], text(record.get("path") or record.get("exe") or "")) for record in own
        ]

    def tries(self) -> list[tuple[str, str]]:
        """Returns the event and the kind of every record of an execution."""
        return [
            (record["event"], record["kind"])
            for record in self.records
            if record["event"] not in ("start", *ENDINGS)
        ]

    def kinds(self) -> list[str]:
        return [record["kind"] for record in self.records if record["event"] in ("exec", "spawn")]

    def unproven(self) -> dict[int, int]:
        """Returns the processes with too few records "start", by the rule of record.h.

        Each dynamic program that a process executes must write "start". If no record announces the
        first program of a process (the command itself, a shell of system()), the process has one
        "start" more than it needs.
        """
        balance: Counter[int] = Counter()
        for record in self.records:
            if record["event"] == "start":
                balance[record["pid"]] += 1
            elif record.get("kind") == "dynamic":
                balance[record["pid"]] += 1 if record["event"] == "exec-failed" else -1
        return {pid: count for pid, count in balance.items() if count < 0}


def text(escaped: str) -> str:
    """Returns the path in a record as a str. Each escape in the record stands for one byte."""
    return os.fsdecode(escaped.encode("latin-1"))


@dataclass(frozen=True)
class Bench:
    """A folder that every user may use. Tests build programs there and run them under the witness.

    `witness` is the library to preload.
    """

    folder: Path
    witness: Path

    def build(self, name: str, source: str, *flags: str) -> Path:
        path = self.folder / name
        (self.folder / f"{name}.c").write_text(source)
        compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
        command = [compiler, "-O1", "-fno-builtin", "-w", "-o", path, f"{path}.c", *flags]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
        if built.returncode != 0 and "-static" in " ".join(flags):
            pytest.skip("no static libc here to link with")
        assert built.returncode == 0, built.stderr
        path.chmod(0o755)
        return path

    def helper(self, file: str, *flags: str) -> Path:
        return self.build(Path(file).stem, (PROGRAMS / file).read_text(), *flags)

    def library(self, name: str, source: str, *flags: str) -> Path:
        return self.build(name, source, "-shared", "-fPIC", *flags)

    @property
    def file(self) -> Path:
        return self.folder / "witness.jsonl"

    def run(
        self,
        *command: object,
        preload: tuple[Path, ...] = (),
        environment: Mapping[str, str | None] | None = None,
        file: Path | None = None,
        user: int | None = None,
        without: bool = False,
        **options: object,
    ) -> Seen:
        """Runs a command under the witness, or `without` it.

        Returns the exit code, the output, and the records of the witness.
        """
        if file is None:
            self.file.write_bytes(b"")
            self.file.chmod(0o666)
        libraries = [] if without else [self.witness]
        variables: dict[str, str | None] = {
            "PATH": "/usr/bin:/bin",
            "LD_PRELOAD": ":".join(str(library) for library in [*libraries, *preload]),
            "CAIRN_WITNESS": str(file or self.file),
        }
        variables.update(environment or {})
        done = subprocess.run(
            [os.fspath(part) if isinstance(part, Path) else part for part in command],
            env={key: value for key, value in variables.items() if value is not None},
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            timeout=120,
            cwd=self.folder,
            **({} if user is None else {"user": user, "group": user, "extra_groups": []}),
            **options,
        )
        written = (file or self.file).read_bytes() if (file or self.file).is_file() else b""
        records = [json.loads(line) for line in written.splitlines()]
        assert written == b"" or written.endswith(b"\n")
        assert written.isascii()
        return Seen(
            done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), records, written
        )


FORWARDING_MALLOC = """
#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
#ifndef ONLY_MALLOC
void free(void *p) { __libc_free(p); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
#endif
"""
"""A malloc, or all four functions, that pass each call on to glibc."""


def only_start(seen: Seen) -> dict:
    assert seen.code == 0, seen.err
    (record,) = seen.events("start")
    return record
