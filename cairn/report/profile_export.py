"""A profile for programs: one JSON document, and CSV with a row for each line of the tables."""

from __future__ import annotations

import csv
import errno
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.findings import find
from cairn.model import SCHEMA
from cairn.profile.block_samples import freed, freed_number, has_enough, sampled, usable_per_asked
from cairn.profile.callers import Stack
from cairn.profile.cpu_share import cpu_share
from cairn.profile.early_ends import cpu_total_ns
from cairn.profile.estimates import (
    Line,
    busy_ns,
    clock,
    cpu_ns,
    details,
    lines,
    octaves,
    remote_share,
)
from cairn.profile.hot_functions import hot_functions
from cairn.profile.lock_table import lock_table
from cairn.profile.missing import process_counts
from cairn.profile.system_calls import call_name
from cairn.profile.tables import (
    KernelLine,
    LockLine,
    event_lines,
    events_refused,
    faults_inside,
    kernel_lines,
    lock_lines,
    new_share,
)
from cairn.profile.tally import (
    ALLOCATING,
    FUNCTIONS,
    GROUPS,
    LIFE_BUCKETS,
    PHASES,
    SIZE_BUCKETS,
    Profile,
    Tally,
    cut_short,
    lasting,
)
from cairn.report.formatting import printable
from cairn.report.layout_table import TITLE
from cairn.report.layout_table import rows as layout_rows
from cairn.report.pinned_table import pinned_rows
from cairn.report.profile import allocator_of, program_of
from cairn.report.profile_answer import peaks
from cairn.report.profile_gaps import gaps
from cairn.report.profile_notes import notes
from cairn.report.run_csv import inert
from cairn.report.stack_forms import stack_rows, stacks_document
from cairn.why.prediction import Prediction

if TYPE_CHECKING:
    from cairn.profile.tally import Floats

_QUANTILES = ("median_ns", "p95_ns", "p99_ns", "p999_ns")


def document(
    profile: Profile,
    *,
    allocator: str | None,
    cairn: str,
    others: Sequence[Prediction] = (),
    stacks: Sequence[Stack] = (),
) -> str:
    """Returns the whole profile as JSON. `stacks` are the call stacks that allocated.

    null means not measured, or measured in too small a sample. A time below `clock.resolution_ns`
    means only that the operation took less than the resolution.
    """
    tally, ticking = profile.tally, clock(profile.tally)
    usable = usable_per_asked(profile)
    parts: dict[str, Any] = {
        "schema": SCHEMA,
        "cairn": cairn,
        "allocator": allocator_of(profile, allocator),
        "program": program_of(profile),
        "tree": profile.tree,
        "wall_ns": profile.wall_ns,
        "window": profile.window,
        "cpu_ns": cpu_ns(profile),
        **_cpu_limits(profile),
        "cpu_without_probe_ns": busy_ns(profile),
        "cpu_share": _cpu_share(profile),
        "hot_functions": list(hot_functions(profile)),
        "clock": None
        if ticking is None
        else {"ns_per_tick": ticking.ns_per_tick, "resolution_ns": ticking.resolution_ns},
        "counts": _counts(profile),
        "operations": profile.operations,
        "functions": list(_functions(profile)),
        "lines": [_line(one) for one in lines(profile)],
        "paths": [
            {"kind": path.kind, "group": path.group, "phase": path.phase, **_line(one, name=False)}
            for path, one in details(profile)
        ],
        "kernel_calls": list(kernel_lines(profile)),
        "locks": list(lock_lines(profile)),
        "lock_table": lock_table(profile),
        "contended_locks": tally.contended_locks,
        "other_calls": {
            call_name(number, profile.machine): count for number, count in tally.other_calls.items()
        },
        "new_share": new_share(tally),
        "remote_share": remote_share(profile),
        "faults_inside": faults_inside(profile),
        "counted": [
            {
                "name": one.name,
                "operations": one.operations,
                "looked_at": one.looked_at,
                "events": {
                    event: {"each": one.per_operation(event), "total": one.totals[event]}
                    for event in one.totals
                },
            }
            for one in event_lines(profile)
        ],
        "counters_refused": {
            event: [errno.errorcode.get(error, str(error)) for error in errors]
            for event, errors in events_refused(profile).items()
        },
        "usable_bytes_per_asked": usable.value if usable is not None else None,
        "usable_bytes_per_asked_interval": usable.interval if usable is not None else None,
        "sampled_blocks": sampled(tally),
        "sizes": _histogram(
            tally.sizes, [float(edge) for edge in octaves(SIZE_BUCKETS, 4)[1:]], "below_bytes"
        )
        if has_enough(tally)
        else None,
        "blocks": [_blocks(tally, place) for place in range(len(GROUPS))],
        "memory": peaks(profile),
        "moments": profile.moments,
        "layout": profile.layout,
        "stacks": stacks_document(profile.stacks, stacks),
        "findings": list(find(profile)),
        "predictions": [msgspec.to_builtins(one) for one in others],
        "cut_short": [process.pid for process in cut_short(profile.processes, profile.missing)],
        "empty": profile.empty,
        "missing": list(profile.missing),
        "processes": profile.processes,
        "not_known": list(gaps(profile)),
        "notes": list(notes(profile)),
    }
    return json.dumps(msgspec.to_builtins(parts), ensure_ascii=True, indent=1) + "\n"


def _blocks(tally: Tally, place: int) -> dict[str, Any]:
    """Returns the numbers of the freed blocks in a size group, which come from a sample."""
    ticking, number = clock(tally), freed_number(tally, place)
    is_enough = number is not None
    return {
        "group": GROUPS[place],
        "sampled": freed(tally, place),
        "freed": number,
        "freed_elsewhere": float(tally.freed_elsewhere[place]) if is_enough else None,
        "lives": _histogram(
            tally.lives[place],
            [2.0 ** (k + 1) * ticking.ns_per_tick for k in range(LIFE_BUCKETS)],
            "below_ns",
        )
        if is_enough and ticking is not None
        else None,
    }


def _counts(profile: Profile) -> dict[str, Any]:
    """Returns the numbers of processes, threads, and programs.

    A process counts as several programs if it executed further programs.
    """
    recorded, number = lasting(profile.processes), process_counts(profile)
    return {
        "processes": number.recorded,
        "processes_missing": number.missing,
        "processes_with_missing": number.together,
        "threads": sum(process.threads for process in recorded),
        "threads_lost": sum(process.threads_lost for process in profile.processes),
        "cut_short": len(cut_short(profile.processes, profile.missing)),
        "programs": len(profile.processes),
        "programs_by_seen": Counter(process.seen for process in profile.processes),
    }


def _cpu_limits(profile: Profile) -> dict[str, int | None]:
    """Returns the limits of the CPU time, which differ if a process did not end normally."""
    high, low = cpu_ns(profile), cpu_total_ns(profile).low
    return {
        "cpu_low_ns": (low if high is None else min(low, high)) or None,
        "cpu_high_ns": high,
    }


def _cpu_share(profile: Profile) -> dict[str, Any]:
    """Returns the allocator's share of CPU time. All shares leave out the probe's own time."""
    found = cpu_share(profile)
    known = found.share is not None
    return {
        "value": found.share.value if found.share is not None else None,
        "interval": found.share.interval if found.share is not None else None,
        "why_not": found.why_not or None,
        "clock": found.scope,
        "clock_refused": (profile.clock.why_not if profile.clock else None) or None,
        "samples": found.samples,
        "runs": found.runs,
        "probed": found.probed if found.runs else None,
        "own": found.own if known else None,
        "system_calls": found.calls if known else None,
        "page_faults": found.faults if known else None,
        "interrupts": found.interrupts if known else None,
        "interrupts_unseen": found.interrupts_unseen or None,
        "unknown": found.unknown if known else None,
        "sampling_error": found.sampling if known else None,
        "overlap_error": found.overlap if known else None,
        "probe": found.probe if found.runs else None,
        "contradicted_by": found.contradicted,
    }


def _functions(profile: Profile) -> Iterator[dict[str, Any]]:
    tally = profile.tally
    for place, name in enumerate(FUNCTIONS):
        found: dict[str, Any] = {"name": name, "late_calls": int(tally.late_calls[place])}
        if place < len(ALLOCATING):
            found |= {
                "failed": int(tally.failed[place]),
                "late_bytes": int(tally.late_asked[place]),
            }
            found["by"] = [
                {
                    "phase": phase,
                    "group": group,
                    "calls": int(tally.calls[place, p, g]),
                    "bytes": int(tally.asked[place, p, g]),
                }
                for p, phase in enumerate(PHASES)
                for g, group in enumerate(GROUPS)
            ]
        else:
            released = tally.released[place - len(ALLOCATING)]
            found["by"] = [
                {"phase": phase, "calls": int(released[p])} for p, phase in enumerate(PHASES)
            ]
        yield found


def _line(line: Line, *, name: bool = True) -> dict[str, Any]:
    return {
        **({"name": line.name} if name else {}),
        "operations": line.operations if line.is_known else None,
        "operations_low": line.within.low,
        "operations_high": line.within.high,
        "timed": line.timed,
        "untimed": line.untimed,
        "switched": line.switched,
        **dict(zip(_QUANTILES, line.quantiles, strict=True)),
        "mean_ns": line.mean_ns,
        "alone_ns": line.alone_ns,
        "max_ns": line.max_ns,
    }


def _histogram(weights: Floats, ends: Sequence[float], what: str) -> list[dict[str, float]]:
    """Returns the buckets that are not empty.

    `what` is the key of a bucket's upper end. A bucket begins at the end of the bucket before.
    """
    return [
        {what: end, "weight": float(weight)}
        for end, weight in zip(ends, weights, strict=True)
        if weight
    ]


_COLUMNS = (
    *(
        "table",
        "name",
        "group",
        "phase",
        "operations",
        "failed",
        "bytes",
        "timed",
        *_QUANTILES,
        "mean_ns",
        "alone_ns",
    ),
    *(
        "max_ns",
        "total_ns",
        "share",
        "share_low",
        "share_high",
        "contended",
        "section_ns",
        "max_section_ns",
        *("held_ns", "held_low_ns", "held_high_ns"),
    ),
    *("event", "events", "events_low", "events_high"),
    *("unit", "value", "value_low", "value_high"),
    *("operations_low", "operations_high"),
)


def rows(profile: Profile, stacks: Sequence[Stack] = ()) -> str:
    """Returns the profile's tables as CSV. `stacks` are the call stacks that allocated.

    An empty field was not measured. The tables, with the columns that need an explanation, are:

    - `cpu time` and `functions`: `timed` is the number of clock samples.
    - `counted`, `timed`, `paths` and `kernel`: all columns have their usual meaning. Only `timed`
      and `paths` have `operations_low` and `operations_high`, which are the ends of the interval of
      `operations`.
    - `locks`: `operations` counts taken locks, `failed` counts refused trylocks, `timed` counts
      timed critical sections, and times are waiting times. The row `different locks` has the number
      of different locks for which a thread waited.
    - `single locks`: `group` is the kind of the lock, `total_ns` is the waiting time, and `share`
      is this time divided by the life times of all threads.
    - `counters`: `timed` counts the operations whose events were read.
    - `where blocks lie`, `who allocates`, `which line allocates` and `who keeps memory`: only these
      have `unit`, `value` and the ends of the value's interval. The values of `who keeps memory`
      are exact. In the two tables about allocation, `timed` is the number of recorded stacks.
    """
    file = StringIO()
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in chain(_rows(profile), stack_rows(stacks), pinned_rows(profile.stacks, stacks)):
        writer.writerow(
            {name: inert(printable(v) if isinstance(v, str) else v) for name, v in row.items()}
        )
    return file.getvalue()


def _rows(profile: Profile) -> Iterator[dict[str, Any]]:
    share = _cpu_share(profile)
    ends = share["interval"]
    yield {
        "table": "cpu time",
        "name": "allocator",
        "timed": share["samples"],
        "share": share["value"],
        "share_low": ends.low if ends else None,
        "share_high": ends.high if ends else None,
    }
    for part in ("own", "system_calls", "page_faults", "interrupts", "unknown", "probe"):
        yield {"table": "cpu time", "name": part.replace("_", " "), "share": share[part]}
    for hot in hot_functions(profile):
        yield {
            "table": "functions",
            "name": f"{hot.name} in {hot.library}",
            "timed": hot.samples,
            "share": hot.share.value,
            "share_low": hot.share.interval.low,
            "share_high": hot.share.interval.high,
        }
    for function in _functions(profile):
        for one in function["by"]:
            if one["calls"]:
                where = {"group": one.get("group"), "phase": one["phase"]}
                counts = {"operations": one["calls"], "bytes": one.get("bytes")}
                yield {"table": "counted", "name": function["name"], **where, **counts}
        if function["late_calls"]:
            yield {
                "table": "counted",
                "name": function["name"],
                "operations": function["late_calls"],
            }
    for line in lines(profile):
        yield {"table": "timed", "name": line.name, **_times(line)}
    for path, line in details(profile):
        yield {
            "table": "paths",
            "name": path.kind,
            "group": path.group,
            "phase": path.phase,
            **_times(line),
        }
    for call in kernel_lines(profile):
        yield {"table": "kernel", "name": call.name, **_call(call)}
    locks = lock_lines(profile)
    for lock in locks:
        yield {"table": "locks", "name": lock.name, **_lock(lock)}
    if locks:
        yield {
            "table": "locks",
            "name": "different locks",
            "contended": profile.tally.contended_locks,
        }
    single = lock_table(profile)
    for use in single.uses if single is not None else ():
        yield {
            "table": "single locks",
            "name": f"{use.name} in {use.library}" if use.library else use.name,
            "group": use.kind,
            "operations": use.taken,
            "failed": use.refused,
            "contended": use.waits,
            "total_ns": use.wait_ns,
            "share": use.share,
            "held_ns": use.held_ns.value if use.held_ns is not None else None,
            "held_low_ns": use.held_ns.interval.low if use.held_ns is not None else None,
            "held_high_ns": use.held_ns.interval.high if use.held_ns is not None else None,
        }
    for counted in event_lines(profile):
        for event, events in counted.totals.items():
            within = {"events_low": events.interval.low, "events_high": events.interval.high}
            about = {"operations": counted.operations, "timed": counted.looked_at, "event": event}
            yield {
                "table": "counters",
                "name": counted.name,
                **about,
                "events": events.value,
                **within,
            }
    for row in layout_rows(profile.layout) if profile.layout is not None else ():
        yield {
            "table": TITLE,
            "name": row.key,
            "group": row.group,
            "unit": row.unit,
            "value": row.figure.value,
            "value_low": row.figure.low,
            "value_high": row.figure.high,
        }


def _times(line: Line) -> dict[str, Any]:
    return {name: value for name, value in _line(line, name=False).items() if name in _COLUMNS}


def _call(one: KernelLine) -> dict[str, Any]:
    return {
        "operations": one.count,
        "failed": one.failed,
        "bytes": one.bytes,
        "mean_ns": one.mean_ns,
        "max_ns": one.max_ns,
        "total_ns": one.total_ns,
    }


def _lock(one: LockLine) -> dict[str, Any]:
    return {
        "operations": one.taken,
        "failed": one.refused,
        "timed": one.sections,
        "mean_ns": one.wait_ns / one.contended
        if one.wait_ns is not None and one.contended
        else None,
        "max_ns": one.max_wait_ns if one.contended else None,
        "total_ns": one.wait_ns,
        "contended": one.contended,
        "section_ns": one.section_ns,
        "max_section_ns": one.max_section_ns,
    }
