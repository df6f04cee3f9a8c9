"""What stands in the way of an honest comparison: of this program, on this machine, with the instruments at hand.

Facts come from `program`, `inside`, `library`, `machine` and `abilities`; every `judge_…` here is a pure function from
facts to checks. A check that is not fine names a next step. An obstacle keeps every preloaded allocator from the
program's allocations; a warning lets a comparison begin whose numbers mean less than they seem to.
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
from cairn.doctor.abilities import Abilities
from cairn.doctor.machine import Conditions
from cairn.errors import ContenderFailed
from cairn.model import Check, Examined, Host
from cairn.units import size

PYMALLOC = ("PYTHONMALLOC", "malloc")


NOISY = 0.028
"""With more spread than this, 60 blocks (the default ceiling) no longer give ±1 %: 1.96 × √2 × 2.8 % ÷ √60."""


STEAL = 0.01
"""As much as the precision that a comparison stops at by default."""


_SWAP_BYTES = 1 << 20


_PREFIX_CLEANERS = ("sudo", "doas", "pkexec", "su", "runuser")


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "busybox", "fish")


_KNOWN = {
    "chromium": ("PartitionAlloc", "Rebuild it with use_partition_alloc_as_malloc=false."),
    "chrome": ("PartitionAlloc", "Rebuild it with use_partition_alloc_as_malloc=false."),
    "firefox": ("mozjemalloc", "Rebuild it with --disable-jemalloc."),
    "firefox-esr": ("mozjemalloc", "Rebuild it with --disable-jemalloc."),
}
"""Stripped programs whose allocator nothing in the file names."""


_HARDWARE = (
    *("cycles", "instructions", "branches", "branch-misses", "cache-references", "cache-misses"),
    "dTLB-load-misses",
)


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


def judge_machine(now: Conditions) -> tuple[Check, ...]:
    """How much the machine itself will make runs differ."""
    return (
        _others(now),
        _load(now),
        *_steal(now),
        *_spread(now),
        *_quota(now),
        *_clock(now),
        *_cores(now),
        *_memory(now),
        *_addresses(now),
    )


def quick_warnings(now: Conditions) -> tuple[str, ...]:
    """What a comparison tells of its machine on one line, each a phrase."""
    phrases = []
    if now.others:
        phrases.append("another cairn is measuring here")
    if now.load is not None and now.load > now.cpus:
        phrases.append(f"load {now.load:.1f} on {now.cpus} CPUs")
    if now.governor == "powersave":
        phrases.append("governor powersave")
    return tuple(phrases)


def _others(now: Conditions) -> Check:
    if now.others is None:
        return Check(
            "other runs",
            "unknown",
            "cannot see other processes",
            "Make sure that no other cairn runs.",
        )
    if now.others:
        count = "another cairn is" if now.others == 1 else f"{now.others} other cairns are"
        return Check(
            "other runs",
            "warning",
            f"{count} measuring here",
            "Wait for its end: both disturb each other.",
        )
    return Check("other runs", "fine", "no other cairn is measuring")


def _load(now: Conditions) -> Check:
    if now.load is None:
        return Check(
            "load", "unknown", "the load cannot be read", "Make sure that nothing else is running."
        )
    says = f"{now.load:.2f} on {now.cpus} CPUs"
    if now.load > now.cpus:
        return Check(
            "load",
            "warning",
            f"{says}: the program will wait for a CPU",
            "Stop what else is running.",
        )
    return Check("load", "fine", says)


def _steal(now: Conditions) -> list[Check]:
    if now.steal is None:
        return []
    says = f"{100 * now.steal:.1f} % of CPU time went to other guests of the host"
    if now.steal > STEAL:
        step = "Measure at a quieter hour or on a machine of your own; blocks bear it, and more of them are needed."
        return [Check("stolen time", "warning", says, step)]
    return [Check("stolen time", "fine", says)]


def _spread(now: Conditions) -> list[Check]:
    if now.spread is None:
        return []
    says = f"the same 10 ms of work differ by {100 * now.spread:.1f} % (σ, robust)"
    if now.spread > NOISY:
        return [Check(
            "noise", "warning", f"{says}: 60 blocks will not give ±1 %",
            "Quiet the machine, or ask for less: --precision 2%, --max-blocks 200.",
        )]  # fmt: skip
    return [Check("noise", "fine", says)]


def _quota(now: Conditions) -> list[Check]:
    if now.quota is None:
        return [Check("CPU quota", "fine", "none")]
    says = f"{now.quota:g} CPUs' worth of time on {now.cpus} CPUs"
    if now.quota >= now.cpus:
        return [Check("CPU quota", "fine", says)]
    arenas = 8 * now.cpus
    return [Check(
        "CPU quota", "warning",
        f"{says}: threads are stopped when it is used up, and glibc makes up to {arenas} arenas, by the CPUs",
        f"Lift the quota, use fewer CPUs (--cpus), or compare -a system:MALLOC_ARENA_MAX={max(1, round(8 * now.quota))}"
        " as well.",
    )]  # fmt: skip


def _clock(now: Conditions) -> list[Check]:
    turbo = {
        True: ", turbo on: blocks bear a clock that follows the temperature",
        False: ", turbo off",
        None: "",
    }
    if now.governor is None:
        if now.virtual:
            return [Check("clock", "fine", "the host's affair: a virtual machine sees no governor")]
        return [Check(
            "clock", "unknown", "no frequency governor can be read" + turbo[now.turbo],
            "Look into the firmware's settings for one that keeps the clock steady.",
        )]  # fmt: skip
    if now.governor == "powersave":
        return [Check(
            "clock", "warning", f"governor powersave{turbo[now.turbo]}",
            "As root: cpupower frequency-set -g performance.",
        )]  # fmt: skip
    return [Check("clock", "fine", f"governor {now.governor}{turbo[now.turbo]}")]


def _cores(now: Conditions) -> list[Check]:
    if now.threads_share_cores is None:
        return []
    if now.threads_share_cores:
        says = "two hardware threads share a core: what runs on one slows the other; --cpus can keep to one of each"
        return [Check("cores", "fine", says)]
    return [Check("cores", "fine", "no two CPUs share a core, as far as this machine shows")]


def _memory(now: Conditions) -> list[Check]:
    checks = []
    if now.virtual:
        says = "virtual machine: cold memory costs up to 30 times more, so compare touches it first (--warm-memory)"
        checks.append(Check("cold memory", "fine", says))
    if now.huge_pages is None:
        checks.append(Check(
            "huge pages", "unknown", "the kernel's switch for transparent huge pages cannot be read",
            "Expect peaks to differ from machines with another setting.",
        ))  # fmt: skip
    else:
        effect = {
            "always": "always: peaks grow by up to 2 MiB per mapping",
            "madvise": "madvise: for allocators that ask for them",
            "never": "never: asking for them has no effect",
        }
        checks.append(Check("huge pages", "fine", effect.get(now.huge_pages, now.huge_pages)))
    if now.swap_used_bytes is not None:
        used = f"{now.swap_used_bytes / 2**20:,.0f} MiB in use"
        if now.swap_used_bytes >= _SWAP_BYTES:
            step = "Free memory, then as root swapoff -a && swapon -a: a page that comes back costs a read."
            checks.append(Check("swap", "warning", used, step))
        else:
            checks.append(Check("swap", "fine", "not in use"))
    if now.page_bytes > 4096:
        checks.append(Check(
            "page size", "warning",
            f"{now.page_bytes // 1024} KiB: a jemalloc or hardened_malloc built for 4 KiB stops at start",
            "Use builds for this page size; 'cairn allocators' says which are affected.",
        ))  # fmt: skip
    return checks


def _addresses(now: Conditions) -> list[Check]:
    if now.address_randomization is None:
        return []
    if now.address_randomization == 2:
        return [
            Check(
                "addresses",
                "fine",
                "randomized: each run has another layout, and blocks average over them",
            )
        ]
    return [Check(
        "addresses", "warning",
        "not fully randomized: every run has the same layout, and a lucky one is taken for a better allocator",
        "As root: sysctl kernel.randomize_va_space=2; and no setarch -R.",
    )]  # fmt: skip


# --- what can be measured ---


def judge_abilities(can: Abilities, here: Host) -> tuple[Check, ...]:
    """Which columns and which profile a run on this machine can have."""
    checks = []
    if can.launcher_problem is not None:
        checks.append(Check(
            "launcher", "warning", f"cairn-launch could not run 'true': {can.launcher_problem}",
            "Install cairn again with 'make install'; if that does not help, nothing can be measured here.",
        ))  # fmt: skip
    else:
        checks += [_peak(can), *_counters(can, here), _kernels_clock(can)]
    return (*checks, _dispatch(can, here), *_rseq(can), *_reserved(can), *_own_allocator(can))


def _peak(can: Abilities) -> Check:
    if can.memory_method in ("cgroup v1", "cgroup v2"):
        return Check(
            "peak memory", "fine", f"of the whole tree, from a {can.memory_method} of its own"
        )
    why = f" ({can.memory_reason})" if can.memory_reason else ""
    if can.memory_method == "sampled":
        return Check(
            "peak memory", "warning", f"sampled from /proc{why}: short peaks of several processes can be missed",
            "Give it a cgroup: systemd-run --user --scope cairn compare -- PROG, or run as root.",
        )  # fmt: skip
    return Check(
        "peak memory", "unknown", f"not measured{why}", "Run as root, or where /proc can be read."
    )


def _counters(can: Abilities, here: Host) -> list[Check]:
    software = [name for name in can.counters if name not in _HARDWARE]
    checks = [
        _counter_check(
            "software counters", {name: can.counters[name] for name in software}, can, here
        )
    ]
    hardware = {name: counts for name, counts in can.counters.items() if name in _HARDWARE}
    return [*checks, _counter_check("hardware counters", hardware, can, here)]


def _counter_check(subject: str, counters: Mapping[str, bool], can: Abilities, here: Host) -> Check:
    there = [name for name, counts in counters.items() if counts]
    missing = [name for name, counts in counters.items() if not counts]
    if there and not missing:
        return Check(subject, "fine", ", ".join(there))
    says = f"no {', '.join(missing)}" if missing else "none"
    if can.paranoid is not None and can.paranoid > 2:
        return Check(subject, "warning", f"{says}: kernel.perf_event_paranoid is {can.paranoid}",
                     "As root: sysctl kernel.perf_event_paranoid=2.")  # fmt: skip
    if there and can.paranoid == 2:
        return Check(subject, "warning", f"{says}: they count in the kernel, and kernel.perf_event_paranoid is 2",
                     "As root: sysctl kernel.perf_event_paranoid=1.")  # fmt: skip
    if subject == "hardware counters" and here.virtual:
        return Check(subject, "warning", f"{says}: this virtual machine has no PMU",
                     "Use the software counters, or a machine whose host passes a PMU on.")  # fmt: skip
    return Check(subject, "warning", f"{says}: the kernel refuses them",
                 "Look whether a container or seccomp keeps perf_event_open away; the columns stay empty.")  # fmt: skip


def _kernels_clock(can: Abilities) -> Check:
    subject = "kernel's clock"
    if can.clock_problem is None:
        return Check(subject, "fine", "looks at plain runs: the parts that --why tells are theirs")
    says = f"{can.clock_problem}; the parts that --why tells are those of runs behind the probe"
    if "ermi" in can.clock_problem:  # EPERM, EACCES
        return Check(subject, "warning", says,
                     "As root: sysctl kernel.perf_event_paranoid=0; in a container allow perf_event_open (CAP_PERFMON, "
                     "seccomp).")  # fmt: skip
    return Check(
        subject,
        "warning",
        says,
        "It takes an x86-64 and a kernel with perf events; all else works without.",
    )


def _dispatch(can: Abilities, here: Host) -> Check:
    subject = "kernel calls"
    if can.dispatch is None:
        return Check(
            subject,
            "unknown",
            "syscall user dispatch could not be tried",
            "Free some memory and try again.",
        )
    if can.dispatch:
        return Check(
            subject, "fine", "syscall user dispatch: each call of an allocator can be seen"
        )
    return Check(
        subject, "warning", f"no syscall user dispatch (kernel {here.kernel}): calls made inside libc stay unseen",
        "Use Linux 5.11 or newer, outside a sandbox that forbids prctl.",
    )  # fmt: skip


def _rseq(can: Abilities) -> list[Check]:
    subject = "rseq"
    if can.rseq_registered is None:
        return [Check(subject, "fine", "glibc older than 2.35 leaves it to the allocator")]
    if can.rseq_registered:
        return [Check(
            subject, "fine",
            "glibc registers it: interrupted operations can be told apart; Google's tcmalloc gets it as the contender "
            "google-tcmalloc-rseq only",
        )]  # fmt: skip
    return [Check(
        subject, "warning", "not registered by glibc: switched off by GLIBC_TUNABLES, or refused by the kernel",
        "Unset GLIBC_TUNABLES; without it, per-CPU caches and the detection of interruptions do not work.",
    )]  # fmt: skip


def _reserved(can: Abilities) -> list[Check]:
    if can.reserved_huge_pages is None:
        return []
    if can.reserved_huge_pages:
        return [Check("reserved huge pages", "fine", f"{can.reserved_huge_pages:,}")]
    return [
        Check("reserved huge pages", "fine", "none: allocators that want them take ordinary pages")
    ]


def _own_allocator(can: Abilities) -> list[Check]:
    if can.allocator_problem is None:
        return []
    says, _, step = can.allocator_problem.rpartition("; ")
    return [
        Check(
            "own allocator",
            "warning",
            f"{says}: comparisons go without it",
            f"{step.capitalize()}.",
        )
    ]


def examined(
    diagnosis: Diagnosis | None, now: Conditions, can: Abilities, here: Host
) -> tuple[Examined, ...]:
    """All groups in the order in which they are read."""
    groups = [
        Examined("machine", "How noisy is this machine?", judge_machine(now)),
        Examined("instruments", "What can be measured here?", judge_abilities(can, here)),
    ]
    if diagnosis is not None:
        name = (
            f"the allocator of {diagnosis.program.command}"
            if diagnosis.program
            else "its allocator"
        )
        groups.insert(0, Examined("program", f"Can {name} be swapped?", diagnosis.checks))
    return tuple(groups)
