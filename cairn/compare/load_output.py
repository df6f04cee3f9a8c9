"""Reads the numbers that a load generator printed: throughput, latencies and errors.

It knows the outputs of redis-benchmark (normal, -q and --csv), memtier_benchmark, wrk, wrk2 and ab.
Each number has a name. A name is a quantity of `QUANTITIES`, such as "p99", for the whole load, or
"SUBJECT: p99" for one part of it, such as one test of redis-benchmark. Times are in nanoseconds,
transfers in bytes per second. Pure.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from cairn.model import LARGEST_NUMBER, Direction, Metric

RATE, REQUESTS, ERRORS = "requests/s", "requests", "errors"

QUANTITIES: Mapping[str, tuple[str, Direction]] = {
    RATE: ("rate", Direction.MORE),
    "mean latency": ("ns", Direction.LESS),
    "p50": ("ns", Direction.LESS),
    "p75": ("ns", Direction.LESS),
    "p90": ("ns", Direction.LESS),
    "p95": ("ns", Direction.LESS),
    "p99": ("ns", Direction.LESS),
    "p99.9": ("ns", Direction.LESS),
    "max latency": ("ns", Direction.LESS),
    "transfer": ("bytes per second", Direction.MORE),
    ERRORS: ("count", Direction.LESS),
    REQUESTS: ("count", Direction.NEITHER),
}
"""The quantities in the order in which reports show them, with their units and good directions.

"p99" is the latency that 99 % of the requests do not exceed.
"""

MAIN = (RATE, "p50", "p99")
"""The quantities that a report shows without --full."""

REQUEST_TIME = Metric("request_time", "time per request", "ns")
"""The time of a load divided by its requests: the reciprocal of the throughput, not a latency."""
REQUEST_CPU_TIME = Metric("request_cpu_time", "CPU time per request", "ns")

_PERCENTILES = {
    float(name[1:]): name for name in QUANTITIES if re.fullmatch(r"p\d+(?:\.\d+)?", name)
}
_OF = ": "
"""Stands between the subject and the quantity in a name."""

Numbers = dict[str, float]


def read(output: str) -> Numbers:
    """Returns the numbers in the output of a load by name; empty if no known tool printed them.

    A latency of 0 is left out, since it is below the resolution of the tool. A text that looks like
    the output of a tool, but has words or lone points in the place of numbers, is that of no tool.
    """
    text = output.replace("\r", "\n")
    for parse in _PARSERS:
        try:
            found = parse(text)
        except ValueError:
            continue
        if RATE in found:
            return {
                name: number
                for name, number in found.items()
                if 0 <= number < LARGEST_NUMBER and (number or quantity_of(name) == ERRORS)
            }
    return {}


def quantity_of(name: str) -> str:
    """Returns the quantity of a name: "p99" of "SET: p99"."""
    return name.rpartition(_OF)[2]


def metric(name: str) -> Metric:
    """Returns the metric of a name that `read` returned."""
    unit, direction = QUANTITIES.get(quantity_of(name), ("", Direction.UNKNOWN))
    return Metric(f"load:{name}", name, unit, direction)


def metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    """Returns the metrics of all names, first those of the whole load, then those of each part."""
    order = list(QUANTITIES)

    def place(name: str) -> tuple[str, int]:
        subject, _, quantity = name.rpartition(_OF)
        return subject, order.index(quantity) if quantity in order else len(order)

    return tuple(metric(name) for name in sorted(set(names), key=place))


def is_main(key: str) -> bool:
    """Returns whether a report that does not show everything shows the metric with this key."""
    return key.removeprefix("load:") in MAIN


def failed_share(numbers: Mapping[str, float]) -> float:
    """Returns the share of the requests that the tool counted as errors; 0 if it counted none."""
    errors = numbers.get(ERRORS, 0.0)
    return errors / max(errors, numbers.get(REQUESTS, 0.0)) if errors else 0.0


def _whole(parts: Sequence[tuple[str, Mapping[str, float]]]) -> Numbers:
    """Returns the numbers of each part, and the numbers of the whole load, made from the parts.

    In the whole, requests are added up. Each other number is the geometric mean over the parts, so
    that each part has the same weight. A quantity that one part lacks is left out of the whole. A
    single part is the whole load, so its numbers are returned without a subject.
    """
    if len(parts) == 1:
        return dict(parts[0][1])
    whole: Numbers = {}
    for quantity in QUANTITIES:
        values = [numbers[quantity] for _, numbers in parts if numbers.get(quantity)]
        if not values or len(values) < len(parts):
            continue
        whole[quantity] = sum(values) if quantity == REQUESTS else statistics.geometric_mean(values)
    for subject, numbers in parts:
        whole |= {f"{subject}{_OF}{quantity}": value for quantity, value in numbers.items()}
    return whole


_REDIS_QUIET = re.compile(
    r"^(?P<test>\S.*?): (?P<rate>[\d.]+) requests per second(?:, p50=(?P<p50>[\d.]+) msec)?\s*$",
    re.MULTILINE,
)
_REDIS_TEST = re.compile(r"^=+ (?P<test>.+?) =+$", re.MULTILINE)
_REDIS_COLUMNS = {
    "avg": "mean latency", "p50": "p50", "p95": "p95", "p99": "p99", "max": "max latency",
}  # fmt: skip


def _redis_quiet(text: str) -> Numbers:
    """Reads the output of redis-benchmark -q, which has a line for each test."""
    parts = []
    for found in _REDIS_QUIET.finditer(text):
        numbers = {RATE: float(found["rate"])}
        if found["p50"]:
            numbers["p50"] = float(found["p50"]) * 1e6
        parts.append((found["test"], numbers))
    return _whole(parts)


def _redis(text: str) -> Numbers:
    """Reads the output of redis-benchmark without -q, which has a section for each test."""
    heads = list(_REDIS_TEST.finditer(text))
    parts = []
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        section = text[head.end() : end]
        rate = re.search(
            r"^\s*(?:throughput summary: )?([\d.]+) requests per second", section, re.M
        )
        if rate is None:
            continue
        numbers = {RATE: float(rate[1])}
        if done := re.search(r"^\s*(\d+) requests completed in", section, re.M):
            numbers[REQUESTS] = float(done[1])
        table = re.search(r"latency summary \(msec\):\s*\n([^\n]+)\n([^\n]+)", section)
        if table is not None:
            for title, number in zip(table[1].split(), table[2].split(), strict=False):
                if title in _REDIS_COLUMNS:
                    numbers[_REDIS_COLUMNS[title]] = float(number) * 1e6
        parts.append((head["test"], numbers))
    return _whole(parts)


def _redis_csv(text: str) -> Numbers:
    """Reads the output of redis-benchmark --csv, which has a row for each test."""
    lines = text.splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith('"test","rps"')]
    if not starts:
        return {}
    parts = []
    for row in csv.DictReader(line for line in lines[starts[0] :] if line.startswith('"')):
        if row["test"] == "test":  # the column titles of a further run
            continue
        try:
            numbers = {RATE: float(row["rps"])}
            for title, quantity in _REDIS_COLUMNS.items():
                if row.get(f"{title}_latency_ms"):
                    numbers[quantity] = float(row[f"{title}_latency_ms"]) * 1e6
        except (TypeError, ValueError):
            continue
        parts.append((row["test"], numbers))
    return _whole(parts)


_MEMTIER_COLUMNS = {
    "Ops/sec": (RATE, 1.0),
    "Avg. Latency": ("mean latency", 1e6),
    "Latency": ("mean latency", 1e6),
    "KB/sec": ("transfer", 1024.0),
    **{f"{name} Latency": (name, 1e6) for name in _PERCENTILES.values()},
}
"""By the title of a column: its quantity, and the factor from the column's unit to the
quantity's."""


def _memtier(text: str) -> Numbers:
    """Reads the last table of memtier_benchmark, which has the averages if it made several runs."""
    tables = list(re.finditer(r"^Type +.*Ops/sec.*$", text, re.M))
    if not tables:
        return {}
    titles = re.split(r" {2,}", tables[-1][0].strip())
    found: Numbers = {}
    for line in text[tables[-1].end() :].splitlines():
        kind, *cells = line.split() or [""]
        if len(cells) != len(titles) - 1:
            continue
        numbers = {}
        for title, cell in zip(titles[1:], cells, strict=True):
            if title in _MEMTIER_COLUMNS and re.fullmatch(r"[\d.]+", cell):
                quantity, factor = _MEMTIER_COLUMNS[title]
                numbers[quantity] = float(cell) * factor
        if not numbers.get(RATE):  # a kind of request that this load does not make
            continue
        subject = "" if kind == "Totals" else f"{kind}{_OF}"
        found |= {f"{subject}{quantity}": number for quantity, number in numbers.items()}
        if kind == "Totals":
            break
    if done := re.findall(r" (\d+) ops,", text):
        found[REQUESTS] = float(done[-1])
    return found


_WRK_TIMES = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_WRK_SIZES = {"": 1.0, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "T": 1024.0**4}
_WRK_TIME = r"([\d.]+)(us|ms|s|m|h)"


def _wrk(text: str) -> Numbers:
    """Reads the output of wrk and wrk2, which has percentiles only with their option --latency."""
    rate = re.search(r"^Requests/sec: +([\d.]+)", text, re.M)
    done = re.search(r"^ +(\d+) requests in ", text, re.M)
    if rate is None or done is None:
        return {}
    found = {RATE: float(rate[1]), REQUESTS: float(done[1]), ERRORS: 0.0}
    if mean := re.search(rf"^ +Latency +{_WRK_TIME} +[\d.]+\w+ +{_WRK_TIME}", text, re.M):
        found["mean latency"] = float(mean[1]) * _WRK_TIMES[mean[2]]
        found["max latency"] = float(mean[3]) * _WRK_TIMES[mean[4]]
    for line in re.finditer(rf"^ +([\d.]+)% +{_WRK_TIME}\s*$", text, re.M):
        name = _PERCENTILES.get(float(line[1]))
        if name is not None:
            found.setdefault(name, float(line[2]) * _WRK_TIMES[line[3]])
    if transfer := re.search(r"^Transfer/sec: +([\d.]+)([KMGT]?)B", text, re.M):
        found["transfer"] = float(transfer[1]) * _WRK_SIZES[transfer[2]]
    if refused := re.search(r"Non-2xx or 3xx responses: (\d+)", text):
        found[ERRORS] += float(refused[1])
    if broken := re.search(r"Socket errors: (.*)", text):
        found[ERRORS] += sum(float(number) for number in re.findall(r"\d+", broken[1]))
    return found


def _ab(text: str) -> Numbers:
    """Reads the output of ab, whose percentiles are whole milliseconds."""
    rate = re.search(r"^Requests per second: +([\d.]+)", text, re.M)
    done = re.search(r"^Complete requests: +(\d+)", text, re.M)
    if rate is None or done is None:
        return {}
    found = {RATE: float(rate[1]), REQUESTS: float(done[1]), ERRORS: 0.0}
    if mean := re.search(r"^Time per request: +([\d.]+) \[ms\] \(mean\)", text, re.M):
        found["mean latency"] = float(mean[1]) * 1e6
    for line in re.finditer(r"^ +(\d+)% +(\d+)\s*$", text, re.M):
        name = _PERCENTILES.get(float(line[1]))
        if name is not None:
            found[name] = float(line[2]) * 1e6
    if longest := re.search(r"^ +100% +(\d+) \(longest request\)", text, re.M):
        found["max latency"] = float(longest[1]) * 1e6
    if transfer := re.search(r"^Transfer rate: +([\d.]+) \[Kbytes/sec\]", text, re.M):
        found["transfer"] = float(transfer[1]) * 1024
    # The errors that ab calls "Length" are not added: pages that a program writes differ in length.
    for pattern in (r"^Non-2xx responses: +(\d+)", r"Connect: (\d+)", r"Receive: (\d+)",
                    r"Exceptions: (\d+)"):  # fmt: skip
        if failed := re.search(pattern, text, re.M):
            found[ERRORS] += float(failed[1])
    return found


_PARSERS: tuple[Callable[[str], Numbers], ...] = (
    _redis_csv,
    _redis,
    _redis_quiet,
    _memtier,
    _wrk,
    _ab,
)
