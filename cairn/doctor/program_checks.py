"""What stands in the way of replacing a program's allocator.

`ProgramFacts` are facts about the program's files and environment; `judge_program` is a pure function from facts to checks.
A check that is not fine names a next step. An obstacle keeps every preloaded allocator from the program's allocations. A
warning lets a comparison begin whose numbers mean less than they seem to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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


"""Stripped programs whose allocator nothing in the file names."""


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """All that the judgement of a program rests on."""

    program: Program
    inside: Inside = NOTHING
    command: tuple[str, ...] = ()
    """As it is executed, behind env."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables as the program will see them."""
    flags: tuple[str, ...] = ()
    """What a script's first line gives to its interpreter."""
    linked: str | None = None
    """A library among those it is linked with that owns malloc instead of the C library."""
    libc: str | None = None
    """The C library that it is linked with."""
    libc_version: str | None = None

    @property
    def name(self) -> str:
        """How sentences call it."""
        return self.program.command

    @property
    def base(self) -> str:
        """The file name of what runs."""
        return os.path.basename(self.program.file)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a comparison must know of its program."""

    checks: tuple[Check, ...]
    program: Program | None = None
    """None when not even that could be told."""
    knob: tuple[str, str] | None = None
    """A variable that brings the program's small blocks to malloc; None when they go there anyway."""
    linked: str | None = None
    """The allocator it is linked with, which is then its baseline."""
    libc: str | None = None
    carries: ProgramFacts | None = None
    """The facts of a program that carries an allocator which it may or may not call; only a run tells."""

    @property
    def obstacle(self) -> Check | None:
        """The first reason why no preloaded allocator can work."""
        return next((check for check in self.checks if check.state == "obstacle"), None)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """What to say before measuring."""
        return tuple(check for check in self.checks if check.state in ("warning", "unknown"))


def diagnose(command: Sequence[str], environment: Mapping[str, str]) -> Diagnosis:
    """Looks at the program that this command line starts. Raises ProgramMissing or ProgramNotExecutable."""
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
    """Whether its allocator can be swapped, and whether swapping it would mean anything."""
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
        tuple(checks), facts.program, knob=knob, linked=facts.linked, libc=facts.libc, carries=carries
    )  # fmt: skip


def _refused(subject: str, refusal: ContenderFailed) -> Check:
    """The sentence of a refusal and its next step, which is always its last sentence."""
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
                "preload", "obstacle", f"{facts.name} is a statically linked Go program: its heap is Go's own",
                "Nothing to swap here: Go has no other allocator, and with cgo only C code would see one.",
            )  # fmt: skip
        if facts.base in _PREFIX_CLEANERS:
            return Check(check.subject, "obstacle", check.says, _before_cairn(facts))
        return _exported(facts) if _only_own_malloc(program) else check
    return None


def _only_own_malloc(program: Program) -> bool:
    """Whether nothing but its own malloc keeps a preloaded one out."""
    try:
        refuse_program(replace(program, own_malloc=False))
    except ContenderFailed:
        return False
    return program.own_malloc


def _exported(facts: ProgramFacts) -> Check:
    name, how = _KNOWN.get(facts.base, (facts.inside.allocator, None))
    if name is None or name == "malloc":
        name, how = "malloc", "Rebuild it without its own."
    return Check(
        "allocator", "obstacle",
        f"{facts.name} brings its own {name} and exports it, so a preloaded allocator is never called",
        how or f"Rebuild it without {name}.",
    )  # fmt: skip


def _linking(facts: ProgramFacts) -> Check:
    program = facts.program
    if program.kind == "unknown":
        return Check(
            "preload", "unknown", f"{program.file} cannot be read as an ELF file",
            "Make it readable for you; until then only the proof of load in each run can tell.",
        )  # fmt: skip
    libc = "musl" if program.musl else (facts.libc_version or "glibc")
    what = f"dynamic, {libc}, {program.machine}"
    if program.interpreter is not None:
        return Check("preload", "fine", f"a script run by {program.interpreter}: {what}")
    return Check("preload", "fine", f"{program.path}: {what}")


def _allocator(facts: ProgramFacts) -> Check:
    inside, name = facts.inside, facts.name
    if inside.allocator == "malloc":
        return Check(
            "allocator", "obstacle",
            f"{name} defines malloc for itself without exporting it, so a preloaded allocator is never called",
            "Rebuild it without its own malloc, or with it exported.",
        )  # fmt: skip
    if inside.allocator is not None and not _serves_python_alone(inside):
        if _bypasses(facts):
            return Check(
                "allocator", "obstacle",
                f"{name} has {inside.allocator} linked in and calls it by its own name ({inside.mark}), past any "
                "preloaded allocator",
                _without_own(facts),
            )  # fmt: skip
        return Check(
            "allocator", "unknown",
            f"{name} carries {_carried(inside)}; before a run it is not known whether its blocks come from there, past "
            "any preloaded allocator",
            "'cairn compare' finds out in a run behind the probe; 'cairn profile' counts the calls that reach malloc.",
        )  # fmt: skip
    if facts.linked is not None:
        library = os.path.basename(facts.linked)
        return Check(
            "allocator", "warning",
            f"{name} is linked with {library}: that is its allocator, not glibc's; a preloaded one comes before it",
            f"Make it the baseline: -a linked={facts.linked}"
            + (f" -a glibc={facts.libc}" if facts.libc else "")
            + " --baseline linked ('cairn compare' does so without -a).",
        )  # fmt: skip
    if inside.rust_allocator:
        return Check(
            "allocator", "warning",
            f"{name} is a Rust program with a global allocator of its own (__rg_alloc)",
            "If that one only wraps the system's, all is well; else rebuild it without its #[global_allocator].",
        )  # fmt: skip
    if inside.go:
        return Check("allocator", "fine", "C's malloc is the C library's")
    return Check("allocator", "fine", "no allocator of its own")


def _serves_python_alone(inside: Inside) -> bool:
    """CPython 3.13 and newer carry a mimalloc for their own objects, which only PYTHONMALLOC=mimalloc makes them use.

    A free-threaded build always uses it; `_cpython` judges both.
    """
    return inside.python and inside.allocator == "mimalloc"


def _bypasses(facts: ProgramFacts) -> bool:
    """Whether the file alone proves that the program's blocks come from the allocator inside it.

    A symbol proves that the allocator is there, and not that the program calls it. Its callers are known only where
    Rust's global allocator or redis's build chose it, where it is Chromium's shim around malloc, and where the program
    could get no block from the C library.
    """
    inside = facts.inside
    if inside.allocator is None or inside.evidence != "symbol":
        return False
    chosen = inside.rust_allocator or facts.base.startswith(("redis-", "valkey-"))
    return chosen or inside.allocator == "PartitionAlloc" or not inside.asks_libc


def _carried(inside: Inside) -> str:
    if inside.evidence == "text":
        return f"{inside.allocator}, by the texts {inside.mark}"
    return f"{inside.allocator}, by the symbol {inside.mark}"


def _without_own(facts: ProgramFacts) -> str:
    """How to build the program so that its blocks come from malloc."""
    if facts.base.startswith(("redis-", "valkey-")):
        return "Rebuild it with make MALLOC=libc."
    return (
        "Rebuild it without its #[global_allocator]."
        if facts.inside.rust
        else "Rebuild it with libc's malloc."
    )


OTHERWISE_BYTES = 8 << 20
"""Memory that need not come from any allocator: stacks, static data, and what an allocator sets apart at its start."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What the probe saw of a whole run. None: it could not see it."""

    operations: int
    """Allocations and frees that reached malloc."""
    live_bytes: int | None
    """At most, of blocks that came from malloc."""
    resident_bytes: int | None
    """At most, of the process; without pages of files."""


def with_a_run(diagnosis: Diagnosis, reached: Reached) -> Diagnosis:
    """The diagnosis of a program that carries an allocator, after a run has shown how much reached malloc.

    The probe does not see the allocator inside. It sees the blocks of malloc, and how much memory the process has. A
    fragmented heap may take twice its blocks; more memory than that, and by a clear margin, came from elsewhere.
    """
    facts = diagnosis.carries
    assert facts is not None
    live, resident = reached.live_bytes or 0, reached.resident_bytes
    seen = (
        f"in a run behind the probe, {reached.operations:,} allocations and frees reached malloc, and "
        f"{size(live)} of at most {size(resident) if resident is not None else 'an unknown amount'} in memory"
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
            f"{carries}; only little memory comes from malloc: {seen}",
            _without_own(facts),
        )
    elif resident <= 2 * live:
        check = Check("allocator", "fine", f"{carries}, which is not its malloc: {seen}")
    else:
        check = Check(
            "allocator", "unknown", f"{carries}; {seen}, too little to tell whether other blocks came from there",
            f"If no contender differs, {facts.name} may use its own. {_without_own(facts)}",
        )  # fmt: skip
    checks = tuple(check if old.subject == "allocator" else old for old in diagnosis.checks)
    return replace(diagnosis, checks=checks, carries=None)


def _runtime(facts: ProgramFacts) -> list[Check]:
    inside, base = facts.inside, facts.base
    if _is_cpython(facts):
        return [_cpython(facts)]
    if base in ("java", "javac", "jshell", "jar") or any(
        need.startswith("libjli.so") for need in facts.program.needs
    ):
        return [Check(
            "runtime", "warning",
            "a Java virtual machine: its heap comes from mmap; only native memory goes through malloc",
            "Expect little difference unless native code (compression, off-heap caches, JIT) allocates a lot.",
        )]  # fmt: skip
    if inside.go:
        return [Check(
            "runtime", "warning",
            "a Go program: its heap is Go's own; only C code called through cgo goes through malloc",
            "Compare only if its C part allocates a lot.",
        )]  # fmt: skip
    if inside.node or base in ("node", "nodejs"):
        return [Check(
            "runtime", "warning",
            "Node.js: JavaScript's heap comes from mmap; buffers and native modules go through malloc",
            "Expect a difference only where buffers or native modules allocate a lot.",
        )]  # fmt: skip
    if _is_php(base):
        return [_php(facts)]
    if inside.rust and inside.allocator is None and not inside.rust_allocator:
        return [Check("runtime", "fine", "Rust with its default allocator, the system's malloc")]
    return []


def _is_cpython(facts: ProgramFacts) -> bool:
    return facts.inside.python or any(need.startswith("libpython3") for need in facts.program.needs)


def _python_version(facts: ProgramFacts) -> tuple[str, bool]:
    """("CPython 3.12", whether it is a free-threaded build), from the names of its files."""
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
            "runtime", "warning", f"{who}, free-threaded: its objects lie in a mimalloc of its own, never in malloc",
            "Use a build with the global lock and PYTHONMALLOC=malloc to compare allocators.",
        )  # fmt: skip
    chosen = facts.environment.get("PYTHONMALLOC")
    if _ignores_environment(facts):
        return Check(
            "runtime", "warning",
            f"{who} with pymalloc, started with -E or -I: it ignores PYTHONMALLOC, and 99 % of allocations never reach "
            "malloc",
            "Start it without -E and -I, with contenders such as -a jemalloc:PYTHONMALLOC=malloc.",
        )  # fmt: skip
    if chosen in ("mimalloc", "mimalloc_debug"):
        return Check(
            "runtime", "warning",
            f"{who} with PYTHONMALLOC={chosen}: its objects lie in a mimalloc of its own, never in malloc",
            "Compare with PYTHONMALLOC=malloc.",
        )  # fmt: skip
    if chosen in ("malloc", "malloc_debug"):
        return Check(
            "runtime", "fine", f"{who} with PYTHONMALLOC={chosen}: every allocation reaches malloc"
        )
    return Check(
        "runtime", "warning", f"{who} with pymalloc: 99 % of allocations never reach malloc",
        "Compare with PYTHONMALLOC=malloc as well: -a system -a jemalloc:PYTHONMALLOC=malloc ('cairn compare' does so "
        "without -a).",
    )  # fmt: skip


def _ignores_environment(facts: ProgramFacts) -> bool:
    """Whether -E or -I stands among the interpreter's own options, before the script, -c or -m."""
    words = iter([*facts.flags, *(facts.command[1:] if facts.program.interpreter is None else ())])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return False
        if word.startswith("--"):
            continue
        before, stop, after = re.match(r"-([^cmWX]*)([cmWX]?)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
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
        "runtime", "warning",
        "PHP: a request's memory is Zend's own heap, from mmap; little of it reaches malloc",
        "Compare with USE_ZEND_ALLOC=0 as well: -a system -a jemalloc:USE_ZEND_ALLOC=0.",
    )  # fmt: skip


def _plugins(facts: ProgramFacts) -> list[Check]:
    """The flag is a number in code, which no scan can tell from others: so known programs are named."""
    base = facts.base
    if not _is_php(base) and base not in ("apache2", "httpd"):
        return []
    what = "it loads" if _is_php(base) else "mod_php, if there, loads"
    return [Check(
        "plugins", "warning",
        f"{what} extensions with RTLD_DEEPBIND: they call glibc's free on memory of the preloaded allocator, and "
        "crash; cairn's own takes that flag away",
        "Run it without shared extensions: php -n, or extensions built into it.",
    )]  # fmt: skip


def _starts_others(facts: ProgramFacts) -> list[Check]:
    program = facts.program
    if facts.base in _PREFIX_CLEANERS:
        return [Check(
            "start", "warning", f"{facts.name} cleans the environment, which drops the preloaded allocator",
            _before_cairn(facts),
        )]  # fmt: skip
    if program.interpreter is None or facts.base not in _SHELLS:
        return []
    if "/shims/" in program.path:
        return [Check(
            "start", "warning",
            f"{facts.name} is a shim, {program.path}, that looks for the real program each time it is run",
            f"Give the program itself, which 'pyenv which {facts.name}' or the like tells.",
        )]  # fmt: skip
    return [
        Check(
            "start",
            "fine",
            "a shell script: every program that it starts proves its allocator in the run",
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
    return [Check(
        "rights", "warning", f"{program.file} is {what}, which changes nothing for this user but does for others",
        "Expect a refusal when someone else runs this; a copy of the file has no such rights.",
    )]  # fmt: skip


# --- the machine ---
