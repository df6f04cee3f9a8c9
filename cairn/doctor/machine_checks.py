"""What makes measurements on this machine noisy, and what can be measured on it.

Facts come from `machine` and `abilities`; every `judge_…` is a pure function from facts to checks.
"""

from __future__ import annotations

from collections.abc import Mapping

from cairn.doctor.abilities import Abilities
from cairn.doctor.machine import Conditions
from cairn.model import Check, Host

NOISY = 0.028
"""With more spread than this, 60 rounds (the default ceiling) no longer give ±1 %: 1.96 × √2 × 2.8 % ÷ √60."""
STEAL = 0.01
"""As much as the precision that a comparison stops at by default."""


_SWAP_BYTES = 1 << 20


_HARDWARE = (
    *("cycles", "instructions", "branches", "branch-misses", "cache-references", "cache-misses"),
    "dTLB-load-misses",
)


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
        step = "Measure at a quieter hour or on a machine of your own; rounds bear it, and more of them are needed."
        return [Check("stolen time", "warning", says, step)]
    return [Check("stolen time", "fine", says)]


def _spread(now: Conditions) -> list[Check]:
    if now.spread is None:
        return []
    says = f"the same 10 ms of work differ by {100 * now.spread:.1f} % (σ, robust)"
    if now.spread > NOISY:
        return [Check(
            "noise", "warning", f"{says}: 60 rounds will not give ±1 %",
            "Quiet the machine, or ask for less: --precision 2%, --max-rounds 200.",
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
        True: ", turbo on: rounds bear a clock that follows the temperature",
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
                "randomized: each run has another layout, and rounds average over them",
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
