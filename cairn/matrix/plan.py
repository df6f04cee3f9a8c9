"""Reads a plan (PLAN.toml): programs, contenders, rounds and inputs; and lists all its mistakes.

A plan with mistakes is never run. The error lists all mistakes, each with its line and its reason,
so that the user can repair the plan in one go. docs/matrix.md describes the keys.
"""

from __future__ import annotations

import difflib
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from cairn import units
from cairn.allocators.contenders import parse_contender
from cairn.errors import CairnError, UsageError
from cairn.matrix import recipes
from cairn.matrix.toml_lines import KeyPath, line_of, lines_of
from cairn.model import BENCH_ROUNDS_MOST
from cairn.run import server, shell_line, workloads

Kind = Literal["program", "kernel", "workload"]
"""A real program; a small program of ours that stands for one; a workload of the catalog."""
KINDS: tuple[Kind, ...] = ("program", "kernel", "workload")

ROUNDS = 10
WARMUP_MOST = 10
TIMEOUT_S = 120.0
_SECONDS_MOST = 1_000_000
"""The longest expected time of a run: about 12 days."""
PLACES = ("threads", "data", "work", "port")
"""The names that stand in braces in the lines of a program."""
CATALOGS = ("suite", "quick")
"""The values of `workloads`: the whole catalog of workloads, or its quick part."""

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"(?<!\$)\{([a-z_]+)\}")
_OPERATOR = re.compile(r"[;|&<>]+")
_OURS = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "CAIRN_WITNESS", "CAIRN_PROBE")
"""Variables that Cairn sets for its own work."""


class Mistake(Struct, frozen=True):
    """A mistake in a plan."""

    line: int
    says: str
    """A sentence without a full stop."""


class PlannedProgram(Struct, frozen=True):
    """A program of a plan, with one number of threads."""

    name: str
    """Unique within the plan; "pbzip2/2" is pbzip2 with two threads."""
    table: str
    """The name of its table in the plan, which `--only` also accepts."""
    command: str = ""
    """The line as written; empty for a workload of the catalog."""
    workload: str = ""
    arguments: str | None = None
    """The arguments of `workload`; None for those that the suite uses."""
    threads: int | None = None
    shell: bool = False
    kind: Kind = "program"
    original: str = ""
    """The program of a published table for which this program stands."""
    note: str = ""
    seconds: float | None = None
    """The expected duration of a run under the baseline."""
    packages: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Further programs or files that must be on the machine."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The recipe of each input, by the name of its file."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The text of each further file, by the name of the file."""
    unchecked: str = ""
    """Why the output is not compared; empty if the output is compared."""
    written: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    ok_exit: tuple[int, ...] = (0,)
    stdin: str = ""
    prepare: str = ""
    conclude: str = ""
    load: str = ""
    ready: str = ""
    timeout_s: float = TIMEOUT_S

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines in which names in braces are replaced."""
        return (
            self.command, self.stdin, self.prepare, self.conclude, self.load, self.ready,
            *self.written, *(value for _, value in self.environment), *self.needs,
        )  # fmt: skip


class MeasurementPlan(Struct, frozen=True):
    """A plan without mistakes."""

    title: str
    baseline: str
    contenders: tuple[str, ...]
    """Each contender is written like an argument of -a."""
    programs: tuple[PlannedProgram, ...]
    rounds: int = ROUNDS
    warmup: int = 1
    """The number of runs of each program under each contender before the first round. They do not
    count."""
    budget_s: float | None = None
    seed: int | None = None
    notes: tuple[str, ...] = ()
    """Sentences for the reader of a report."""

    def only(self, names: Sequence[str]) -> tuple[PlannedProgram, ...]:
        """The programs with these names or tables, in the order of the plan; all for no name.

        Raises UsageError for a name that is neither.
        """
        known = dict.fromkeys(one for p in self.programs for one in (p.table, p.name))
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise UsageError(f"the plan has no program {name}{hint}")
        return tuple(p for p in self.programs if not names or {p.name, p.table} & set(names))


class BrokenPlan(UsageError):
    """A plan with mistakes."""

    def __init__(self, name: str, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda one: one.line))
        lines = [f"{name}:{one.line}: {one.says}" for one in self.mistakes]
        count = units.counted(len(lines), "mistake")
        self.lines = (*lines, f"the plan has {count}, and nothing was run")
        super().__init__("\n".join(self.lines))


def read(text: str, name: str) -> MeasurementPlan:
    """Reads the text of a plan. Raises BrokenPlan, which lists all mistakes.

    name: the name of the plan's file in messages.
    """
    try:
        document = tomllib.loads(text)
        reader = _Reader(lines_of(text))
        plan = reader.plan(document)
    except (ValueError, RecursionError) as error:
        raise BrokenPlan(name, [_unreadable(text, error)]) from None
    if reader.mistakes or plan is None:
        raise BrokenPlan(name, reader.mistakes)
    return plan


def _unreadable(text: str, error: ValueError | RecursionError) -> Mistake:
    """The mistake that keeps tomllib from reading the text."""
    if isinstance(error, RecursionError):
        return Mistake(1, "its lists and tables are nested too deeply")
    if not isinstance(error, tomllib.TOMLDecodeError):
        digits = re.search(r"[\d_]{1000}", text)  # Python refuses numbers of thousands of digits
        line = text.count("\n", 0, digits.start()) + 1 if digits else 1
        return Mistake(line, "a number has too many digits")
    place = re.search(r"line (\d+)", str(error))
    reason = re.sub(r" \(at .*\)$", "", str(error))
    line = int(place[1]) if place else text.rstrip("\n").count("\n") + 1
    return Mistake(line, f"this is not TOML: {reason}")


_PLAN_KEYS = {
    "title": str, "baseline": str, "contenders": list, "rounds": int, "budget": str, "seed": int,
    "workloads": str, "notes": list, "warmup": int,
}  # fmt: skip
_PROGRAM_KEYS = {
    "command": str, "workload": str, "arguments": str, "threads": list, "shell": bool, "kind": str,
    "original": str, "note": str, "seconds": float, "packages": list, "needs": list, "input": dict,
    "file": dict, "output": str, "unchecked": str, "writes": list, "environment": dict,
    "ok_exit": list, "stdin": str, "prepare": str, "conclude": str, "load": str, "ready": str,
    "timeout": str,
}  # fmt: skip
_TYPES = {
    str: "a text in quotes", list: "a list", int: "a whole number", bool: "true or false",
    float: "a number", dict: "a table { name = \"…\" }",
}  # fmt: skip
_ONLY_COMMANDS = (
    "shell",
    "packages",
    "writes",
    "stdin",
    "prepare",
    "conclude",
    "load",
    "ready",
    "output",
    "unchecked",
    "ok_exit",
)
"""Keys that a workload of the catalog cannot have."""


_SHELL_LINES = ("prepare", "conclude", "load", "ready")
"""Keys whose value is a line for /bin/sh."""


class _Reader:
    """Reads the tables of a document and collects mistakes."""

    def __init__(self, lines: Mapping[KeyPath, int]) -> None:
        self._lines = lines
        self.mistakes: list[Mistake] = []

    def _wrong(self, path: KeyPath, says: str) -> None:
        self.mistakes.append(Mistake(line_of(self._lines, path), says))

    def plan(self, document: Mapping[str, Any]) -> MeasurementPlan | None:
        for key in document:
            if key not in ("plan", "program"):
                self._wrong((key,), f"there is no table [{key}]{_close(key, ('plan', 'program'))}")
        self._check_characters((), document)
        head = document.get("plan")
        if not isinstance(head, dict):
            self._wrong((), "the table [plan] is missing")
            head = {}
        values = self._typed(("plan",), head, _PLAN_KEYS)
        contenders = self._contenders(values)
        baseline = self._baseline(values, contenders)
        rounds = values.get("rounds", ROUNDS)
        if not 1 <= rounds <= BENCH_ROUNDS_MOST:
            self._wrong(("plan", "rounds"), f"rounds must lie between 1 and {BENCH_ROUNDS_MOST}")
        warmup = values.get("warmup", 1)
        if not 0 <= warmup <= WARMUP_MOST:
            self._wrong(("plan", "warmup"), f"warmup must lie between 0 and {WARMUP_MOST}")
        seed = values.get("seed")
        if seed is not None and not 0 <= seed < 1 << 32:
            self._wrong(("plan", "seed"), "the seed must lie between 0 and 4294967295")
        programs = self._programs(document, values)
        return MeasurementPlan(
            title=values.get("title", ""),
            baseline=baseline,
            contenders=contenders,
            programs=programs,
            rounds=rounds,
            warmup=warmup,
            budget_s=self._duration(("plan", "budget"), values.get("budget")),
            seed=seed,
            notes=tuple(self._texts(("plan", "notes"), values.get("notes", []))),
        )

    def _check_characters(self, path: KeyPath, value: Any) -> None:
        """Notes each text that no program can receive. The content of a file may be any text."""
        if isinstance(value, dict):
            for key, inner in value.items():
                if path[:1] + path[2:] != ("program", "file"):
                    self._check_characters((*path, key), inner)
        elif isinstance(value, list):
            for inner in value:
                self._check_characters(path, inner)
        elif isinstance(value, str) and "\0" in value:
            self._wrong(
                path, f"'{path[-1]}' has the character U+0000, which cannot be passed to a program"
            )

    def _typed(
        self, path: KeyPath, table: Mapping[str, Any], keys: Mapping[str, type]
    ) -> dict[str, Any]:
        """The values of known keys with the right type."""
        values = {}
        for key, value in table.items():
            kind = keys.get(key)
            if kind is None:
                self._wrong((*path, key), f"there is no key '{key}' here{_close(key, keys)}")
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = number if kind is float else isinstance(value, kind)
            if kind is int:
                fits = number and isinstance(value, int)
            if not fits:
                self._wrong((*path, key), f"'{key}' must be {_TYPES[kind]}")
                continue
            values[key] = value
        return values

    def _texts(self, path: KeyPath, values: Sequence[Any]) -> list[str]:
        if not all(isinstance(value, str) and value.strip() for value in values):
            self._wrong(path, f"'{path[-1]}' must be a list of texts in quotes")
            return []
        return list(values)

    def _duration(self, path: KeyPath, text: str | None) -> float | None:
        if text is None:
            return None
        try:
            seconds = units.parse_duration(text)
        except ValueError as error:
            self._wrong(path, str(error))
            return None
        if seconds <= 0:
            self._wrong(path, f"'{path[-1]}' must be longer than 0 s")
        return seconds

    def _contenders(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        path = ("plan", "contenders")
        if "contenders" not in values:
            if ("plan",) in self._lines and path not in self._lines:
                self._wrong(("plan",), '\'contenders\' is missing, such as ["system", "jemalloc"]')
            return ()
        if not values["contenders"]:
            self._wrong(path, "'contenders' is empty; name two or more, such as \"system\"")
        specs = self._texts(path, values["contenders"])
        names: dict[str, str] = {}
        for spec in specs:
            try:
                name = parse_contender(spec).name
            except CairnError as error:
                self._wrong(path, str(error).rstrip("."))
                continue
            if name in names:
                self._wrong(path, f"two contenders have the name {name}")
            names[name] = spec
        if specs and len(names) < 2 and len(specs) < 2:
            self._wrong(path, "one contender alone has nothing to be compared with")
        return tuple(names.values())

    def _baseline(self, values: Mapping[str, Any], contenders: Sequence[str]) -> str:
        names = [parse_contender(spec).name for spec in contenders]
        wanted = values.get("baseline")
        if wanted is None:
            return "system" if "system" in names else names[0] if names else ""
        if names and wanted not in names:
            self._wrong(
                ("plan", "baseline"),
                f"the baseline {wanted} is none of the contenders: {', '.join(names)}",
            )
        return str(wanted)

    def _programs(
        self, document: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[PlannedProgram, ...]:
        found: list[PlannedProgram] = []
        catalog = values.get("workloads")
        if catalog is not None and catalog not in CATALOGS:
            self._wrong(("plan", "workloads"), f"'workloads' must be {' or '.join(CATALOGS)}")
        elif catalog is not None:
            found += [
                PlannedProgram(
                    entry.name, entry.name, workload=entry.name, kind="workload",
                    seconds=entry.seconds, note=entry.title,
                )
                for entry in workloads.load()
                if entry.quick or catalog == "suite"
            ]  # fmt: skip
        tables = document.get("program", {})
        if not isinstance(tables, dict):
            self._wrong(("program",), "write each program as a table [program.NAME]")
            tables = {}
        for name, table in tables.items():
            path = ("program", name)
            if not isinstance(table, dict):
                self._wrong(path, f"write the program as a table [program.{name}]")
                continue
            if not _NAME.fullmatch(name):
                self._wrong(
                    path,
                    f"'{name}' is not a name for a program: use letters, digits and . _ + -, "
                    "40 at most",
                )
            if any(one.table == name for one in found):
                self._wrong(path, f"'workloads' already has a program {name}")
            found += self._program(path, name, table)
        if not tables and catalog is None:
            self._wrong((), "the plan has no program: write a table [program.NAME]")
        return tuple(found)

    def _program(
        self, path: KeyPath, name: str, table: Mapping[str, Any]
    ) -> Sequence[PlannedProgram]:
        values = self._typed(path, table, _PROGRAM_KEYS)
        command, workload = values.get("command", ""), values.get("workload", "")
        self._check_what_runs(path, table, values)
        lists = {
            key: tuple(self._texts((*path, key), values.get(key, [])))
            for key in ("packages", "needs", "writes")
        }
        kind = values.get("kind", "workload" if workload else "program")
        if kind not in KINDS:
            self._wrong((*path, "kind"), f"'kind' must be {', '.join(KINDS[:-1])} or {KINDS[-1]}")
        if kind == "kernel" and not values.get("note"):
            self._wrong(path, "a kernel needs a 'note' that says what its pattern is taken from")
        if not 0 < values.get("seconds", 1) <= _SECONDS_MOST:
            self._wrong(
                (*path, "seconds"), f"'seconds' must lie above 0 and be at most {_SECONDS_MOST:,}"
            )
        made = PlannedProgram(
            name=name, table=name, command=command, workload=workload,
            arguments=values.get("arguments"), shell=values.get("shell", False), kind=kind,
            original=values.get("original", ""), note=values.get("note", ""),
            seconds=values.get("seconds"), packages=lists["packages"], needs=lists["needs"],
            inputs=self._inputs(path, values), files=self._files(path, values),
            unchecked=self._unchecked(path, values), written=lists["writes"],
            environment=self._environment(path, values), ok_exit=self._exits(path, values),
            stdin=values.get("stdin", ""), prepare=values.get("prepare", ""),
            conclude=values.get("conclude", ""), load=values.get("load", ""),
            ready=values.get("ready", ""),
            timeout_s=self._duration((*path, "timeout"), values.get("timeout")) or TIMEOUT_S,
        )  # fmt: skip
        self._check_places(path, made, table)
        return self._with_threads(path, made, values)

    def _check_what_runs(
        self, path: KeyPath, table: Mapping[str, Any], values: Mapping[str, Any]
    ) -> None:
        command, workload = values.get("command"), values.get("workload")
        if "command" not in table and "workload" not in table:
            self._wrong(path, "this program has no 'command'")
        if command is not None and workload is not None:
            self._wrong(
                (*path, "workload"), "'command' and 'workload' exclude each other; leave out one"
            )
        if command is not None:
            self._check_line((*path, "command"), command, shell=values.get("shell", False))
        if workload is not None:
            if workloads.named(workload) is None:
                names = [entry.name for entry in workloads.load()]
                self._wrong(
                    (*path, "workload"),
                    f"there is no workload {workload}{_close(workload, names)}",
                )
            for key in _ONLY_COMMANDS:
                if key in values:
                    self._wrong((*path, key), f"a workload of the catalog has no '{key}'")
            self._split((*path, "arguments"), values.get("arguments", ""), "the arguments")
        elif "arguments" in values:
            self._wrong(
                (*path, "arguments"), "'arguments' belong to a 'workload'; write them in 'command'"
            )
        for key in _SHELL_LINES:
            if key in values:
                self._check_shell((*path, key), values[key])
        if "ready" in values and "load" not in values:
            self._wrong((*path, "ready"), "'ready' belongs to a server, which has a 'load'")

    def _check_line(self, path: KeyPath, line: str, *, shell: bool) -> None:
        if not line.strip():
            self._wrong(path, "the command is empty")
            return
        if shell:
            self._check_shell(path, line)
            return
        words = self._split(path, line, "the command")
        if words is None:
            return
        if not words[0]:
            self._wrong(path, "the name of the program is empty")
            return
        plain = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", line, flags=re.DOTALL)
        found = _OPERATOR.search(plain)
        if found is not None:
            self._wrong(path, f"{found[0]} belongs to a shell: add 'shell = true', or quote it")

    def _check_shell(self, path: KeyPath, line: str) -> None:
        reason = shell_line.mistake_in(line)
        if reason is not None:
            self._wrong(path, f"/bin/sh cannot read this line: {reason}")

    def _split(self, path: KeyPath, line: str, what: str) -> list[str] | None:
        try:
            return shlex.split(line)
        except ValueError as error:
            self._wrong(path, f"{what} cannot be split into words: {error}")
            return None

    def _inputs(self, path: KeyPath, values: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        for name, recipe in values.get("input", {}).items():
            where = (*path, "input", name)
            if not self._is_file_name(where, name):
                continue
            if not isinstance(recipe, str):
                self._wrong(where, f"the recipe of {name} must be a text in quotes")
                continue
            try:
                recipes.parse(recipe)
            except ValueError as error:
                self._wrong(where, f"the input {name}: {error}")
                continue
            found[name] = recipe
        return found

    def _files(self, path: KeyPath, values: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        for name, text in values.get("file", {}).items():
            where = (*path, "file", name)
            if not isinstance(text, str):
                self._wrong(where, f"the file {name} must be a text in quotes")
            elif name in values.get("input", {}):
                self._wrong(where, f"{name} is an input and a file; give one another name")
            elif self._is_file_name(where, name):
                found[name] = text
        return found

    def _is_file_name(self, path: KeyPath, name: str) -> bool:
        good = _NAME.fullmatch(name) is not None
        if not good:
            self._wrong(path, f"'{name}' is not a file name: use letters, digits and . _ + -")
        return good

    def _unchecked(self, path: KeyPath, values: Mapping[str, Any]) -> str:
        output = values.get("output", "checksum")
        if output != "checksum":
            self._wrong(
                (*path, "output"),
                "'output' can only be \"checksum\"; if the output differs from run to run, write "
                "'unchecked' with the reason instead",
            )
        reason = values.get("unchecked")
        if reason is not None and not reason.strip():
            self._wrong((*path, "unchecked"), "'unchecked' must say why the output differs")
        if reason and "output" in values:
            self._wrong((*path, "unchecked"), "'output' and 'unchecked' exclude each other")
        return reason or ""

    def _environment(self, path: KeyPath, values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        found = []
        for name, value in values.get("environment", {}).items():
            where = (*path, "environment", name)
            if not isinstance(value, str):
                self._wrong(where, f"the variable {name} must be a text in quotes")
            elif not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
                self._wrong(where, f"a program cannot have the variable {name}")
            else:
                found.append((name, value))
        return tuple(found)

    def _exits(self, path: KeyPath, values: Mapping[str, Any]) -> tuple[int, ...]:
        codes = values.get("ok_exit", [0])
        good = all(type(code) is int and 0 <= code <= 255 for code in codes)
        if not codes or not good:
            self._wrong((*path, "ok_exit"), "'ok_exit' must be a list of exit codes from 0 to 255")
            return (0,)
        return tuple(codes)

    def _check_places(self, path: KeyPath, made: PlannedProgram, table: Mapping[str, Any]) -> None:
        threaded, fed = "threads" in table, "input" in table or "file" in table
        used = {name for line in made.lines for name in _PLACE.findall(line)}
        in_arguments = set(_PLACE.findall(made.arguments or "" if made.workload else ""))
        if "threads" in used and not threaded:
            self._wrong(path, "{threads} needs a list, such as threads = [1, 2]")
        if threaded and "threads" not in used | in_arguments:
            self._wrong((*path, "threads"), "'threads' has no effect: no line has {threads}")
        if "data" in used and not fed:
            self._wrong(path, "{data} needs an 'input' or a 'file'")
        if fed and "data" not in used:
            self._wrong(path, "its inputs have no effect: no line has {data}")
        if "port" in used and "load" not in table:
            self._wrong(path, "{port} belongs to a server, which has a 'load'")
        self._check_port(path, made, table)
        for name in sorted(in_arguments & set(PLACES) - {"threads"}):
            says = f"{{{name}}} has no meaning in the arguments of a workload; only {{threads}} has"
            self._wrong((*path, "arguments"), says)
        for name in sorted((used | in_arguments) - set(PLACES)):
            close = difflib.get_close_matches(name, PLACES, n=1, cutoff=0.75)
            if close:
                self._wrong(path, f"there is no {{{name}}}; did you mean {{{close[0]}}}?")

    def _check_port(self, path: KeyPath, made: PlannedProgram, table: Mapping[str, Any]) -> None:
        """Notes a server whose port is missing, or stands where it is not replaced."""
        if not isinstance(table.get("load"), str):
            return
        values = tuple(value for _, value in made.environment)
        if not server.uses_port(made.load):
            self._wrong((*path, "load"), "the load must name the server's port as {port}")
        elif not made.ready and not server.uses_port(made.command, made.prepare, *values):
            self._wrong(
                path,
                "nothing says when the server is ready: write {port} where its port belongs, or "
                "add 'ready'",
            )
        for key, lines in (("stdin", (made.stdin,)), ("writes", made.written)):
            if server.uses_port(*lines):
                self._wrong((*path, key), f"{{port}} has no meaning in '{key}'")
        without_shell = {"environment": values, "command": () if made.shell else (made.command,)}
        for key, lines in without_shell.items():
            # Beside a plain {port}, ${port} may be a variable of an inner shell.
            if any("${port}" in line and not server.uses_port(line) for line in lines):
                self._wrong((*path, key), "${port} belongs to a shell; write {port}")

    def _with_threads(
        self, path: KeyPath, made: PlannedProgram, values: Mapping[str, Any]
    ) -> Sequence[PlannedProgram]:
        from msgspec.structs import replace

        if "threads" not in values:
            return (made,)
        numbers = values["threads"]
        good = all(type(number) is int and 1 <= number <= 1024 for number in numbers)
        if not numbers or not good or len(set(numbers)) < len(numbers):
            self._wrong(
                (*path, "threads"), "'threads' must be a list of different numbers from 1 to 1024"
            )
            return (made,)
        return tuple(
            replace(made, name=f"{made.name}/{number}", threads=number) for number in numbers
        )


def _close(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
