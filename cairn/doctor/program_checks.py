"""Judges whether the allocator of a program can be replaced.

`ProgramFacts` are facts about the program's files and environment; `judge_program` is a pure
function from facts to checks. A check that is not fine has a next step. An obstacle means that no
preloaded allocator can serve the program. After a warning, a comparison can begin, but its numbers
mean less than they seem to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cairn.binary.embedded import NOTHING, Inside, look_inside, owner_of_malloc
from cairn.binary.library import loaded_with
from cairn.binary.program import (
    Program,
    behind_env,
    inspect_program,
    interpreter_flags,
    refuse_program,
    refuse_wrapper,
)
from cairn.errors import ContenderFailed
from cairn.model import Check
from cairn.units import size

PYMALLOC = ("PYTHONMALLOC", "malloc")


_PREFIX_CLEANERS = ("sudo", "doas", "pkexec", "su", "runuser")


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox", "fish")


_KNOWN = {
    "chromium": ("PartitionAlloc", "Rebuild it with use_partition_alloc_as_malloc=false."),
    "chrome": ("PartitionAlloc", "Rebuild it with use_partition_alloc_as_malloc=false."),
    "firefox": ("mozjemalloc", "Rebuild it with --disable-jemalloc."),
    "firefox-esr": ("mozjemalloc", "Rebuild it with --disable-jemalloc."),
}
"""The allocator of a program, and how to build the program without it, by the name of the program's
file. These programs are stripped, and nothing in their files names the allocator."""


class ProgramFacts(Struct, frozen=True):
    """Everything that the judgement of a program depends on."""

    program: Program
    inside: Inside = NOTHING
    command: tuple[str, ...] = ()
    """The command line, without a leading env(1)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables as the program will see them."""
    flags: tuple[str, ...] = ()
    """Options for the interpreter in a script's first line."""
    linked: str | None = None
    """A linked library that provides malloc instead of the C library; None without one."""
    libc: str | None = None
    """The C library that the program is linked with, if it is glibc."""
    libc_version: str | None = None

    @property
    def name(self) -> str:
        """The program's name in messages."""
        return self.program.command

    @property
    def base(self) -> str:
        """The name of the file that is executed."""
        return os.path.basename(self.program.file)


class Diagnosis(Struct, frozen=True):
    """Everything that a comparison must know about its program."""

    checks: tuple[Check, ...]
    program: Program | None = None
    """The program; None if the command drops the preload before its program starts, as env -i
    does."""
    knob: tuple[str, str] | None = None
    """A variable that makes the program allocate small blocks with malloc; None if it needs
    none."""
    linked: str | None = None
    """The allocator library that the program is linked with: the baseline of a comparison."""
    libc: str | None = None
    carries: ProgramFacts | None = None
    """The facts of a program with a built-in allocator, if only a run can show whether the program
    uses that allocator; else None."""

    @property
    def obstacle(self) -> Check | None:
        """The first check that says that no preloaded allocator can work; None without one."""
        return next((check for check in self.checks if check.state == "obstacle"), None)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The checks to print before a measurement."""
        return tuple(check for check in self.checks if check.state in ("warning", "unknown"))


def diagnose(command: Sequence[str], environment: Mapping[str, str]) -> Diagnosis:
    """Examines the program of a command line.

    Raises ProgramMissing or ProgramNotExecutable.
    """
    sets, behind = behind_env(command)
    try:
        refuse_wrapper(command)
        program = inspect_program(behind[0])
    except ContenderFailed as refusal:
        return Diagnosis((_refused("start", refusal),))
    loaded = loaded_with(program) if program.kind in ("dynamic", "script") else ()
    libc = next((path for path in loaded if os.path.basename(path) == "libc.so.6"), None)
    facts = ProgramFacts(
        program=program,
        inside=look_inside(program.file),
        command=behind,
        environment={**environment, **sets},
        flags=interpreter_flags(program),
        linked=owner_of_malloc(loaded),
        libc=libc,
        libc_version=_libc_version() if libc else None,
    )
    return judge_program(facts)


def _libc_version() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


# --- the program ---


def judge_program(facts: ProgramFacts) -> Diagnosis:
    """Checks whether the allocator can be replaced, and whether a replacement has an effect."""
    refusal = _refusal(facts)
    if refusal is not None:
        return Diagnosis((refusal,), facts.program)
    own = _allocator(facts)
    checks = [
        _linking(facts),
        own,
        *_runtime(facts),
        *_plugins(facts),
        *_starts_others(facts),
        *_rights(facts),
    ]
    knob = PYMALLOC if _has_pymalloc(facts) and "PYTHONMALLOC" not in facts.environment else None
    if knob is not None and _ignores_environment(facts):
        knob = None
    carries = facts if own.state == "unknown" else None
    return Diagnosis(
        tuple(checks),
        facts.program,
        knob=knob,
        linked=facts.linked,
        libc=facts.libc,
        carries=carries,
    )


def _refused(subject: str, refusal: ContenderFailed) -> Check:
    """Makes an obstacle of a refusal. The last sentence of a refusal is always the next step."""
    says, _, step = str(refusal).rpartition(". ")
    return Check(subject, "obstacle", says, step)


def _refusal(facts: ProgramFacts) -> Check | None:
    program, inside = facts.program, facts.inside
    try:
        refuse_program(program)
    except ContenderFailed as refusal:
        check = _refused("preload", refusal)
        if inside.go and program.kind == "static":
            return Check(
                "preload",
                "obstacle",
                f"{facts.name} is a statically linked Go program, and Go manages its own heap",
                "There is nothing to compare: Go has no other allocator, and with cgo only the C "
                "code could use another.",
            )
        if facts.base in _PREFIX_CLEANERS:
            return Check(check.subject, "obstacle", check.says, _before_cairn(facts))
        return _exported(facts) if _only_own_malloc(program) else check
    return None


def _only_own_malloc(program: Program) -> bool:
    """Whether the program's own malloc is the only reason why no preload can work in it."""
    try:
        refuse_program(replace(program, own_malloc=False))
    except ContenderFailed:
        return False
    return program.own_malloc


def _exported(facts: ProgramFacts) -> Check:
    name, how = _KNOWN.get(facts.base, (facts.inside.allocator, None))
    if name is None or name == "malloc":
        name, how = "malloc", "Rebuild it without its own malloc."
    return Check(
        "allocator",
        "obstacle",
        f"{facts.name} brings its own {name} and exports it, so a preloaded allocator is never "
        "called",
        how or f"Rebuild it without {name}.",
    )


def _linking(facts: ProgramFacts) -> Check:
    program = facts.program
    if program.kind == "unknown":
        return Check(
            "preload",
            "unknown",
            f"{program.file} cannot be read as an ELF file",
            "Make the file readable for your user. Until then, only the proof of load in each run "
            "shows which allocator the program uses.",
        )
    libc = "musl" if program.musl else (facts.libc_version or "glibc")
    what = f"dynamic, {libc}, {program.machine}"
    if program.interpreter is not None:
        return Check("preload", "fine", f"a script run by {program.interpreter}: {what}")
    return Check("preload", "fine", f"{program.path}: {what}")


def _allocator(facts: ProgramFacts) -> Check:
    inside, name = facts.inside, facts.name
    if inside.allocator == "malloc":
        return Check(
            "allocator",
            "obstacle",
            f"{name} has its own malloc without exporting it, so a preloaded allocator is never "
            "called",
            "Rebuild it without its own malloc, or with it exported.",
        )
    if inside.allocator is not None and not _serves_python_alone(inside):
        if _bypasses(facts):
            return Check(
                "allocator",
                "obstacle",
                f"{name} has {inside.allocator} linked in and calls it by its own name "
                f"({inside.mark}), so a preloaded allocator is never called",
                _without_own(facts),
            )
        return Check(
            "allocator",
            "unknown",
            f"{name} carries {_carried(inside)}; only a run can show whether the program uses this "
            "allocator or malloc",
            "'cairn compare' finds out in a run with the probe. 'cairn profile' counts the calls "
            "that reach malloc.",
        )
    if facts.linked is not None:
        library = os.path.basename(facts.linked)
        return Check(
            "allocator",
            "warning",
            f"{name} is linked with {library} and does not use glibc's malloc; a preloaded "
            "allocator comes before both",
            f"Make it the baseline: -a linked={facts.linked}"
            + (f" -a glibc={facts.libc}" if facts.libc else "")
            + " --baseline linked ('cairn compare' without -a does this by itself).",
        )
    if inside.rust_allocator:
        return Check(
            "allocator",
            "warning",
            f"{name} is a Rust program with a global allocator of its own (__rg_alloc)",
            "If that only wraps malloc, all is well. Otherwise rebuild the program without its "
            "#[global_allocator].",
        )
    if inside.go:
        return Check("allocator", "fine", "its C code uses the C library's malloc")
    return Check("allocator", "fine", "no allocator of its own")


def _serves_python_alone(inside: Inside) -> bool:
    """Whether the built-in allocator is the mimalloc of CPython 3.13 and newer.

    CPython uses this mimalloc for its own objects only, and does so only with PYTHONMALLOC=mimalloc
    or in a free-threaded build. `_cpython` judges these two cases.
    """
    return inside.python and inside.allocator == "mimalloc"


def _bypasses(facts: ProgramFacts) -> bool:
    """Whether the file alone proves that the program uses the allocator inside it.

    A symbol proves that the allocator is in the file, but not that the program calls it. The
    program certainly calls it in four cases: a Rust program chose its global allocator; the program
    is redis or valkey; the allocator is behind Chromium's shim around malloc; or the program
    imports no malloc from the C library.
    """
    inside = facts.inside
    if inside.allocator is None or inside.evidence != "symbol":
        return False
    chosen = inside.rust_allocator or facts.base.startswith(("redis-", "valkey-"))
    return chosen or inside.allocator == "PartitionAlloc" or not inside.asks_libc


def _carried(inside: Inside) -> str:
    if inside.evidence == "text":
        return f"{inside.allocator} (recognized by the texts {inside.mark})"
    return f"{inside.allocator} (recognized by the symbol {inside.mark})"


def _without_own(facts: ProgramFacts) -> str:
    """How to build the program so that it allocates with malloc."""
    if facts.base.startswith(("redis-", "valkey-")):
        return "Rebuild it with make MALLOC=libc."
    return (
        "Rebuild it without its #[global_allocator]."
        if facts.inside.rust
        else "Rebuild it with libc's malloc."
    )


OTHERWISE_BYTES = 8 << 20
"""Memory that a process may have without allocating: stacks, static data, an allocator's first
pages."""


class Reached(Struct, frozen=True):
    """The probe's counts of a whole run. None means not known."""

    operations: int
    """Allocations and frees that reached malloc."""
    live_bytes: int | None
    """The largest number of live bytes in blocks from malloc."""
    resident_bytes: int | None
    """The largest resident set of the process, without pages of files."""


def with_a_run(diagnosis: Diagnosis, reached: Reached) -> Diagnosis:
    """The diagnosis of a program with a built-in allocator, after a run with the probe.

    The probe does not see the built-in allocator. It sees the blocks of malloc and the memory of
    the process. A fragmented heap of malloc may take twice the bytes of its live blocks. If the
    process takes more than twice these bytes plus OTHERWISE_BYTES, some memory came from elsewhere.
    """
    facts = diagnosis.carries
    assert facts is not None
    live, resident = reached.live_bytes or 0, reached.resident_bytes
    whole = size(resident) if resident is not None else "an unknown number of bytes"
    seen = (
        f"in a run with the probe, {reached.operations:,} allocations and frees reached malloc, "
        f"and {size(live)} of at most {whole} in memory came from it"
    )
    carries = f"{facts.name} carries {_carried(facts.inside)}"
    if resident is None:
        check = Check(
            "allocator", "unknown", f"{carries}; {seen}", "Make /proc readable, and compare again."
        )
    elif resident > 2 * live + OTHERWISE_BYTES:
        check = Check(
            "allocator",
            "warning",
            f"{carries}; only a small part of its memory comes from malloc: {seen}",
            _without_own(facts),
        )
    elif resident <= 2 * live:
        check = Check("allocator", "fine", f"{carries}, but allocates with malloc: {seen}")
    else:
        check = Check(
            "allocator",
            "unknown",
            f"{carries}; {seen}; that is too little to decide whether other blocks came from the "
            "carried allocator",
            f"If no contender differs, {facts.name} may use its own allocator. "
            f"{_without_own(facts)}",
        )
    checks = tuple(check if old.subject == "allocator" else old for old in diagnosis.checks)
    return replace(diagnosis, checks=checks, carries=None)


def _runtime(facts: ProgramFacts) -> list[Check]:
    inside, base = facts.inside, facts.base
    if _is_cpython(facts):
        return [_cpython(facts)]
    if base in ("java", "javac", "jshell", "jar") or any(
        need.startswith("libjli.so") for need in facts.program.needs
    ):
        return [
            Check(
                "runtime",
                "warning",
                "a Java virtual machine: its heap comes from mmap, and only native memory from "
                "malloc",
                "Expect little difference unless native code (compression, off-heap caches, JIT) "
                "allocates a lot.",
            )
        ]
    if inside.go:
        return [
            Check(
                "runtime",
                "warning",
                "a Go program: Go manages its own heap, and only C code called through cgo uses "
                "malloc",
                "Compare only if its C code allocates a lot.",
            )
        ]
    if inside.node or base in ("node", "nodejs"):
        return [
            Check(
                "runtime",
                "fine",
                "Node.js: JavaScript objects come from mmap; buffers and native code use malloc, "
                "and another allocator may save much of their time",
            )
        ]
    if _is_php(base):
        return [_php(facts)]
    if inside.rust and inside.allocator is None and not inside.rust_allocator:
        return [
            Check("runtime", "fine", "a Rust program with the default allocator, which is malloc")
        ]
    return []


def _is_cpython(facts: ProgramFacts) -> bool:
    return facts.inside.python or any(need.startswith("libpython3") for need in facts.program.needs)


def _python_version(facts: ProgramFacts) -> tuple[str, bool]:
    """Name and version, and whether it is a free-threaded build, by the program's file names."""
    for name in (*facts.program.needs, facts.base):
        if found := re.match(r"(?:lib)?python(3\.\d+)(t?)", name):
            return f"CPython {found[1]}", bool(found[2])
    return "CPython", False


def _has_pymalloc(facts: ProgramFacts) -> bool:
    return _is_cpython(facts) and not _python_version(facts)[1]


def _cpython(facts: ProgramFacts) -> Check:
    version, free_threaded = _python_version(facts)
    who = version if facts.base.startswith("python") else f"{facts.name} embeds {version}"
    if free_threaded:
        return Check(
            "runtime",
            "warning",
            f"{who}, free-threaded: its objects come from a mimalloc of its own and never from "
            "malloc",
            "To compare allocators, use a build with the global interpreter lock, and "
            "PYTHONMALLOC=malloc.",
        )
    chosen = facts.environment.get("PYTHONMALLOC")
    if _ignores_environment(facts):
        return Check(
            "runtime",
            "warning",
            f"{who} with pymalloc, started with -E or -I: it ignores PYTHONMALLOC, and 99 % of "
            "allocations never reach malloc",
            "Start it without -E and -I, with contenders such as -a jemalloc:PYTHONMALLOC=malloc.",
        )
    if chosen in ("mimalloc", "mimalloc_debug"):
        return Check(
            "runtime",
            "warning",
            f"{who} with PYTHONMALLOC={chosen}: its objects come from a mimalloc of its own and "
            "never from malloc",
            "Compare with PYTHONMALLOC=malloc.",
        )
    if chosen in ("malloc", "malloc_debug"):
        return Check(
            "runtime", "fine", f"{who} with PYTHONMALLOC={chosen}: every allocation reaches malloc"
        )
    return Check(
        "runtime",
        "warning",
        f"{who} with pymalloc: 99 % of allocations never reach malloc",
        "Compare with PYTHONMALLOC=malloc as well: -a system -a jemalloc:PYTHONMALLOC=malloc "
        "('cairn compare' without -a does this by itself).",
    )


def _ignores_environment(facts: ProgramFacts) -> bool:
    """Whether -E or -I is among the interpreter's own options: before the script, -c or -m."""
    words = iter([*facts.flags, *(facts.command[1:] if facts.program.interpreter is None else ())])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return False
        if word.startswith("--"):
            continue
        matched = re.match(r"-([^cmWX]*)([cmWX]?)(.*)", word, re.DOTALL)
        assert matched is not None  # it matches every word that begins with "-"
        before, stop, after = matched.groups()
        if "E" in before or "I" in before:
            return True
        if stop in ("c", "m"):
            return False
        if stop and not after:
            next(words, None)
    return False


def _is_php(base: str) -> bool:
    return re.fullmatch(r"php(-fpm|-cgi)?[\d.]*", base) is not None


def _php(facts: ProgramFacts) -> Check:
    if facts.environment.get("USE_ZEND_ALLOC") == "0":
        return Check("runtime", "fine", "PHP with USE_ZEND_ALLOC=0: its allocations reach malloc")
    return Check(
        "runtime",
        "warning",
        "PHP: the memory of a request is Zend's own heap from mmap, and little of it comes from "
        "malloc",
        "Compare with USE_ZEND_ALLOC=0 as well: -a system -a jemalloc:USE_ZEND_ALLOC=0.",
    )


def _plugins(facts: ProgramFacts) -> list[Check]:
    """Warns of RTLD_DEEPBIND in known programs.

    The flag is a number in code, and a scan cannot distinguish it from other numbers.
    """
    base = facts.base
    if not _is_php(base) and base not in ("apache2", "httpd"):
        return []
    what = "it loads" if _is_php(base) else "mod_php, if present, loads"
    return [
        Check(
            "plugins",
            "warning",
            f"{what} extensions with RTLD_DEEPBIND: they call glibc's free on memory of the "
            "preloaded allocator, and crash; only the allocator cairn removes that flag",
            "Run it without shared extensions (php -n), or with extensions that are built in.",
        )
    ]


def _starts_others(facts: ProgramFacts) -> list[Check]:
    program = facts.program
    if facts.base in _PREFIX_CLEANERS:
        return [
            Check(
                "start",
                "warning",
                f"{facts.name} cleans the environment, and with it the preloaded allocator",
                _before_cairn(facts),
            )
        ]
    if program.interpreter is None or facts.base not in _SHELLS:
        return []
    if "/shims/" in program.path:
        return [
            Check(
                "start",
                "warning",
                f"{program.path} is a shim: it looks for the real {facts.name} each time it runs",
                f"Give the path of the real program; 'pyenv which {facts.name}' or a similar "
                "command prints it.",
            )
        ]
    return [
        Check(
            "start",
            "fine",
            "a shell script: each run proves which allocator the programs that it starts use",
        )
    ]


def _before_cairn(facts: ProgramFacts) -> str:
    return f"Put it before cairn: {facts.name} cairn compare -- PROG."


def _rights(facts: ProgramFacts) -> list[Check]:
    program = facts.program
    if not (program.setuid or program.setgid or program.capabilities):
        return []
    what = (
        "setuid" if program.setuid else "setgid" if program.setgid else "a file with capabilities"
    )
    return [
        Check(
            "rights",
            "warning",
            f"{program.file} is {what}, which matters for other users and not for this one",
            "Expect a refusal when another user runs this. A copy of the file has no such rights.",
        )
    ]
