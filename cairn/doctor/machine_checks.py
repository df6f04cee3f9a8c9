"""Judges how noisy this machine is, and what can be measured on it.

The facts come from `machine` and `abilities`. Every `judge_…` is a pure function from facts to
checks. A check states a fact. A check whose state is not "fine" also says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from cairn import units
from cairn.clock_samples import NO_ROOM
from cairn.doctor.abilities import Abilities
from cairn.doctor.machine import Conditions
from cairn.model import Check, Host

NOISY = 0.05
"""A spread above this is a warning: then 200 rounds, the default limit, do not reach ±1 %.

A 95 % interval of the difference of two means has the half width 1.96 × √2 × spread ÷ √rounds. For
a spread of 5 % and 200 rounds, this is 1 %.
"""
STEAL = 0.01
"""A share of stolen time above this limit is a warning, because it is as large as the default of
--precision, 1 %."""


_SWAP_BYTES = 1 << 20


_HARDWARE = (
    *("cycles", "instructions", "branches", "branch-misses", "cache-references", "cache-misses"),
    "dTLB-load-misses",
)


def judge_machine(now: Conditions) -> tuple[Check, ...]:
    """Returns the checks of all properties of the machine that make runs differ."""
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
    """The warnings that a comparison prints about its machine, as phrases for one line."""
    phrases = []
    if now.others:
        phrases.append("another cairn is measuring here")
    if now.load is not None and now.load > now.cpus:
        phrases.append(f"load {now.load:.1f} on {units.counted(now.cpus, 'CPU')}")
    if now.governor == "powersave":
        phrases.append("governor powersave")
    return tuple(phrases)


def _others(now: Conditions) -> Check:
    if now.others is None:
        return Check(
            "other runs",
            "unknown",
            "the other processes of this machine cannot be seen",
            "Make sure that no other cairn runs.",
        )
    if now.others:
        count = "another cairn is" if now.others == 1 else f"{now.others} other cairns are"
        return Check(
            "other runs",
            "warning",
            f"{count} measuring here",
            "Wait until no other cairn measures: runs disturb each other.",
        )
    return Check("other runs", "fine", "no other cairn is measuring")


def _load(now: Conditions) -> Check:
    if now.load is None:
        return Check(
            "load", "unknown", "the load cannot be read", "Make sure that nothing else is running."
        )
    says = f"{now.load:.2f} on {units.counted(now.cpus, 'CPU')}"
    if now.load > now.cpus:
        return Check(
            "load",
            "warning",
            f"{says}: the program will wait for a CPU",
            "Stop the other programs.",
        )
    return Check("load", "fine", says)


def _steal(now: Conditions) -> list[Check]:
    if now.steal is None:
        return []
    says = f"{100 * now.steal:.1f} % of CPU time went to other guests of the host"
    if now.steal > STEAL:
        step = (
            "Measure at a quieter time or on a machine of your own. The random order in each round "
            "keeps the comparison fair, but more rounds are needed."
        )
        return [Check("stolen time", "warning", says, step)]
    return [Check("stolen time", "fine", says)]


def _spread(now: Conditions) -> list[Check]:
    if now.spread is None:
        return []
    percent = 100 * now.spread
    says = f"the time of the same 10 ms of work has a robust standard deviation of {percent:.1f} %"
    if now.spread > NOISY:
        return [
            Check(
                "noise",
                "warning",
                f"{says}: 200 rounds will not reach ±1 %",
                "Stop other programs, ask for less precision (--precision 2%), or permit more "
                "rounds (--max-rounds 1000).",
            )
        ]
    return [Check("noise", "fine", says)]


def _quota(now: Conditions) -> list[Check]:
    if now.quota is None:
        return [Check("CPU quota", "fine", "none")]
    says = f"{now.quota:g} CPUs' worth of time on {units.counted(now.cpus, 'CPU')}"
    if now.quota >= now.cpus:
        return [Check("CPU quota", "fine", says)]
    arenas = 8 * now.cpus
    return [
        Check(
            "CPU quota",
            "warning",
            f"{says}: the kernel stops threads when the quota is used up, and glibc makes up to "
            f"{arenas} arenas, because it counts CPUs and not the quota",
            "Lift the quota, use fewer CPUs (--cpus), or also compare -a "
            f"system:MALLOC_ARENA_MAX={max(1, round(8 * now.quota))}.",
        )
    ]


def _clock(now: Conditions) -> list[Check]:
    turbo = {
        True: ", turbo on: the frequency follows the temperature, and rounds average over that",
        False: ", turbo off",
        None: "",
    }
    if now.governor is None:
        if now.virtual:
            return [
                Check(
                    "CPU frequency",
                    "fine",
                    "a virtual machine sees no governor: the host controls the frequency",
                )
            ]
        return [
            Check(
                "CPU frequency",
                "unknown",
                "no frequency governor can be read" + turbo[now.turbo],
                "Look in the firmware settings for an option that keeps the frequency constant.",
            )
        ]
    if now.governor == "powersave":
        return [
            Check(
                "CPU frequency",
                "warning",
                f"governor powersave{turbo[now.turbo]}",
                "As root: cpupower frequency-set -g performance.",
            )
        ]
    return [Check("CPU frequency", "fine", f"governor {now.governor}{turbo[now.turbo]}")]


def _cores(now: Conditions) -> list[Check]:
    if now.threads_share_cores is None:
        return []
    if now.threads_share_cores:
        says = (
            "two hardware threads share a core and slow each other down; --cpus can select one of "
            "each core"
        )
        return [Check("cores", "fine", says)]
    return [Check("cores", "fine", "no two CPUs share a core, as far as this machine shows")]


def _memory(now: Conditions) -> list[Check]:
    checks = []
    if now.virtual is not False:
        perhaps = "" if now.virtual else "this may be a virtual machine: "
        says = (
            f"{perhaps}in a virtual machine, the first use of memory that the host has not "
            "provided yet costs up to 30 times as much; for programs from 256 MiB, 'cairn compare' "
            "touches memory before each round (--warm-memory)"
        )
        checks.append(Check("cold memory", "fine", says))
    if now.huge_pages is None:
        checks.append(
            Check(
                "huge pages",
                "unknown",
                "the kernel's switch for transparent huge pages cannot be read",
                "Expect other peaks than on machines with another setting.",
            )
        )
    else:
        effect = {
            "always": "always: peaks grow by up to 2 MiB per mapping",
            "madvise": "madvise: only for allocators that request them",
            "never": "never: a request for them has no effect",
        }
        checks.append(Check("huge pages", "fine", effect.get(now.huge_pages, now.huge_pages)))
    if now.swap_used_bytes is not None:
        used = f"{now.swap_used_bytes / 2**20:,.0f} MiB in use"
        if now.swap_used_bytes >= _SWAP_BYTES:
            step = (
                "Free memory, then as root: swapoff -a && swapon -a. Until then, a page in swap "
                "must be read from the disk when it is used."
            )
            checks.append(Check("swap", "warning", used, step))
        else:
            checks.append(Check("swap", "fine", "not in use"))
    if now.page_bytes > 4096:
        checks.append(
            Check(
                "page size",
                "warning",
                f"{now.page_bytes // 1024} KiB: a jemalloc or hardened_malloc built for 4 KiB "
                "aborts at start",
                "Use builds for this page size; 'cairn allocators' says which are affected.",
            )
        )
    return checks


def _addresses(now: Conditions) -> list[Check]:
    if now.address_randomization is None:
        return []
    if now.address_randomization == 2:
        return [
            Check(
                "addresses",
                "fine",
                "randomized: each run has another memory layout, and rounds average over them",
            )
        ]
    return [
        Check(
            "addresses",
            "warning",
            "not fully randomized: every run has the same layout, and a lucky one looks like a "
            "better allocator",
            "As root: sysctl kernel.randomize_va_space=2. Do not use setarch -R.",
        )
    ]


# --- what can be measured ---


def judge_abilities(can: Abilities, here: Host) -> tuple[Check, ...]:
    """Returns the checks that say what a run on this machine can measure."""
    checks = []
    if can.launcher_problem is not None:
        checks.append(
            Check(
                "launcher",
                "warning",
                f"cairn-launch could not run 'true': {can.launcher_problem}",
                "Install cairn again with 'make install'. If that does not help, nothing can be "
                "measured here.",
            )
        )
    else:
        checks += [_peak(can), *_counters(can, here), _kernels_clock(can)]
    return (*checks, _dispatch(can, here), *_rseq(can), *_reserved(can), *_own_allocator(can))


def _peak(can: Abilities) -> Check:
    if can.memory_method in ("cgroup v1", "cgroup v2"):
        return Check(
            "peak memory",
            "fine",
            f"of the whole process tree, from a {can.memory_method} of its own",
        )
    why = f" ({can.memory_reason})" if can.memory_reason else ""
    if can.memory_method == "sampled":
        return Check(
            "peak memory",
            "warning",
            f"sampled from /proc{why}: short peaks of several processes can be missed",
            "Run in a cgroup of your own (systemd-run --user --scope cairn compare -- PROG), or as "
            "root.",
        )
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
        return Check(
            subject,
            "warning",
            f"{says}: kernel.perf_event_paranoid is {can.paranoid}",
            "As root: sysctl kernel.perf_event_paranoid=2.",
        )
    if there and can.paranoid == 2:
        return Check(
            subject,
            "warning",
            f"{says}: they count in the kernel, but kernel.perf_event_paranoid is 2",
            "As root: sysctl kernel.perf_event_paranoid=1.",
        )
    if subject == "hardware counters" and here.virtual:
        return Check(
            subject,
            "warning",
            f"{says}: this virtual machine has no PMU",
            "Use the software counters, or a machine whose host passes a PMU on.",
        )
    return Check(
        subject,
        "warning",
        f"{says}: the kernel refuses them",
        "Check whether a container or seccomp blocks perf_event_open. Until it is allowed, "
        "'cairn compare --counters' does not show these counters.",
    )


def _kernels_clock(can: Abilities) -> Check:
    subject = "clock samples"
    if can.clock_problem is None:
        return Check(
            subject,
            "fine",
            "available: 'cairn compare --why' splits the CPU time of runs without the probe",
        )
    says = f"{can.clock_problem}; --why splits the CPU time of runs with the probe instead"
    if any(os.strerror(error) in can.clock_problem for error in NO_ROOM):
        step = "Free space there, or set TMPDIR to another folder."
        return Check(subject, "warning", says, step)
    # These letters are in "Operation not permitted" (EPERM) and in "Permission denied" (EACCES).
    if "ermi" in can.clock_problem:
        return Check(
            subject,
            "warning",
            says,
            "As root: sysctl kernel.perf_event_paranoid=0. In a container, allow perf_event_open "
            "(CAP_PERFMON, seccomp).",
        )
    return Check(
        subject,
        "warning",
        says,
        "They need x86-64 and a kernel with perf events. Everything else works without them.",
    )


def _dispatch(can: Abilities, here: Host) -> Check:
    subject = "system calls"
    if can.dispatch is None:
        return Check(
            subject,
            "unknown",
            "syscall user dispatch could not be tried",
            "Free some memory and try again.",
        )
    if can.dispatch:
        return Check(
            subject,
            "fine",
            "syscall user dispatch works, so the probe sees every system call of an allocator",
        )
    return Check(
        subject,
        "warning",
        f"no syscall user dispatch (kernel {here.kernel}): the probe sees only an allocator's "
        "calls of libc's mmap, munmap, madvise, mprotect and sbrk",
        "Syscall user dispatch needs Linux 5.11 or newer on x86-64, and no sandbox that forbids "
        "prctl.",
    )


def _rseq(can: Abilities) -> list[Check]:
    subject = "rseq"
    if can.rseq_registered is None:
        return [Check(subject, "fine", "glibc before 2.35 leaves rseq to the allocator")]
    if can.rseq_registered:
        return [
            Check(
                subject,
                "fine",
                "glibc registers rseq, so the probe recognizes interrupted operations; Google's "
                "tcmalloc can use rseq only as the contender google-tcmalloc-rseq",
            )
        ]
    return [
        Check(
            subject,
            "warning",
            "not registered by glibc: GLIBC_TUNABLES switched it off, or the kernel refused it",
            "Unset GLIBC_TUNABLES. Without rseq, per-CPU caches and the detection of interruptions "
            "do not work.",
        )
    ]


def _reserved(can: Abilities) -> list[Check]:
    if can.reserved_huge_pages is None:
        return []
    if can.reserved_huge_pages:
        return [Check("reserved huge pages", "fine", f"{can.reserved_huge_pages:,}")]
    return [
        Check("reserved huge pages", "fine", "none: allocators that want them get ordinary pages")
    ]


def _own_allocator(can: Abilities) -> list[Check]:
    if can.allocator_problem is None:
        return []
    says, _, step = can.allocator_problem.rpartition("; ")
    return [
        Check(
            "own allocator",
            "warning",
            f"{says}; comparisons leave it out",
            f"{step.capitalize()}.",
        )
    ]
