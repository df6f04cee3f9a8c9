"""Tests of the numbers that are read from the outputs of load generators.

The files in `loads` are outputs of redis-benchmark 7.0.15, wrk 4.1.0 and ab 2.3. memtier.txt follows
the layout of memtier_benchmark 2.0, which Debian does not have.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from cairn.compare import load_output
from cairn.model import Direction

LOADS = Path(__file__).parent / "loads"
MS, US = 1e6, 1e3


def read(name: str) -> dict[str, float]:
    return load_output.read((LOADS / name).read_bytes().decode())


def test_redis_benchmark_quiet_gives_rate_and_median_of_each_test() -> None:
    found = read("redis-quiet.txt")
    assert found["SET: requests/s"] == 44444.44
    assert found["SET: p50"] == pytest.approx(0.583 * MS)
    assert found["LRANGE_100 (first 100 elements): requests/s"] == 33898.30
    rates = [44444.44, 43478.26, 27777.78, 33898.30]
    assert found["requests/s"] == pytest.approx(statistics.geometric_mean(rates))
    assert "requests" not in found, "the tool does not print them"


def test_redis_benchmark_quiet_reads_a_command_of_the_user() -> None:
    found = read("redis-custom.txt")
    assert found == {"requests/s": 499999.97, "p50": pytest.approx(0.767 * MS)}


def test_redis_benchmark_gives_latencies_and_the_number_of_requests() -> None:
    found = read("redis.txt")
    assert found["SET: requests/s"] == 34482.76
    assert found["SET: requests"] == 2000
    assert found["SET: mean latency"] == pytest.approx(0.787 * MS)
    assert found["SET: p50"] == pytest.approx(0.599 * MS)
    assert found["SET: p95"] == pytest.approx(2.207 * MS)
    assert found["SET: p99"] == pytest.approx(5.719 * MS)
    assert found["SET: max latency"] == pytest.approx(6.023 * MS)
    assert found["requests"] == 4000
    assert found["p99"] == pytest.approx(
        statistics.geometric_mean([found["SET: p99"], found["GET: p99"]])
    )


def test_redis_benchmark_csv_gives_the_same_numbers() -> None:
    found = read("redis.csv")
    assert found["GET: requests/s"] == 44444.44
    assert found["MSET (10 keys): p99"] == pytest.approx(1.191 * MS)
    assert found["SET: max latency"] == pytest.approx(36.639 * MS)
    assert found["requests/s"] == pytest.approx(
        statistics.geometric_mean([15748.03, 44444.44, 41666.67])
    )


def test_a_single_test_of_redis_benchmark_has_no_subject() -> None:
    text = "PING_INLINE: 100000.00 requests per second, p50=0.247 msec\n"
    assert load_output.read(text) == {"requests/s": 100000.0, "p50": pytest.approx(0.247 * MS)}


def test_an_old_redis_benchmark_is_read() -> None:
    text = (
        "====== PING_INLINE ======\n  100000 requests completed in 1.50 seconds\n"
        "  50 parallel clients\n\n99.99% <= 1 milliseconds\n66666.66 requests per second\n"
    )
    assert load_output.read(text) == {"requests/s": 66666.66, "requests": 100000}


def test_memtier_gives_totals_and_each_kind_of_request() -> None:
    found = read("memtier.txt")
    assert found["requests/s"] == 72533.00
    assert found["mean latency"] == pytest.approx(1.31168 * MS)
    assert found["p99.9"] == pytest.approx(12.671 * MS)
    assert found["transfer"] == pytest.approx(3076.46 * 1024)
    assert found["Sets: p99"] == pytest.approx(3.759 * MS)
    assert found["Gets: requests/s"] == 65939.09
    assert found["requests"] == 220000
    assert not any(name.startswith(("Waits", "SET")) for name in found)


def test_memtier_with_moved_columns_and_an_old_title_is_read() -> None:
    text = (
        "Type         Ops/sec     Hits/sec   Misses/sec    MOVED/sec    Latency       KB/sec\n"
        "-----------------------------------------------------------------------------------\n"
        "Sets          100.00          ---          ---         0.00       1.00       507.80\n"
        "Totals       1100.00        12.00       988.00         0.00       2.50      3076.46\n"
    )
    found = load_output.read(text)
    assert found["requests/s"] == 1100
    assert found["mean latency"] == pytest.approx(2.5 * MS)


def test_the_average_of_several_runs_of_memtier_is_taken() -> None:
    one = "Type  Ops/sec  p50 Latency\n-----\nTotals  {}  1.0\n\n"
    text = "".join(
        f"{title}\n{one.format(rate)}"
        for title, rate in (
            ("BEST RUN RESULTS", 300),
            ("WORST RUN RESULTS", 100),
            ("AGGREGATED AVERAGE RESULTS (3 runs)", 200),
        )
    )
    assert load_output.read(text)["requests/s"] == 200


def test_wrk_gives_rate_latencies_and_transfer() -> None:
    found = read("wrk.txt")
    assert found["requests/s"] == 13003.97
    assert found["requests"] == 13210
    assert found["mean latency"] == pytest.approx(0.91 * MS)
    assert found["max latency"] == pytest.approx(12.81 * MS)
    assert found["p50"] == pytest.approx(138 * US)
    assert found["p99"] == pytest.approx(7.85 * MS)
    assert found["transfer"] == pytest.approx(21.57 * 2**20)
    assert found["errors"] == 0


def test_wrk2_gives_its_corrected_latencies_and_errors() -> None:
    text = (
        "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
        "    Latency     1.21ms  550.00us  10.02ms   67.00%\n"
        "  Latency Distribution (HdrHistogram - Recorded Latency)\n"
        " 50.000%    1.16ms\n 99.000%    2.51ms\n 99.900%    3.17ms\n 99.990%    9.00ms\n"
        "100.000%   10.02ms\n"
        "  60018 requests in 30.00s, 19.81MB read\n"
        "  Socket errors: connect 1, read 2, write 3, timeout 4\n"
        "Requests/sec:   2000.15\nTransfer/sec:    676.18KB\n"
    )
    found = load_output.read(text)
    assert found["p50"] == pytest.approx(1.16 * MS)
    assert found["p99.9"] == pytest.approx(3.17 * MS)
    assert found["errors"] == 10
    assert found["transfer"] == pytest.approx(676.18 * 1024)


def test_ab_gives_rate_mean_latency_and_transfer() -> None:
    found = read("ab.txt")
    assert found["requests/s"] == 41858.52
    assert found["requests"] == 2000
    assert found["mean latency"] == pytest.approx(0.191 * MS)
    assert found["transfer"] == pytest.approx(71085.90 * 1024)
    assert found["max latency"] == 1 * MS
    assert "p50" not in found, "0 ms is below the resolution of ab"


def test_answers_with_errors_are_counted_against_all_requests() -> None:
    for name in ("wrk-refused.txt", "ab-refused.txt"):
        assert load_output.failed_share(read(name)) == 1, name
    for name in ("wrk.txt", "ab.txt", "redis.txt"):
        assert load_output.failed_share(read(name)) == 0, name


def test_pages_of_different_lengths_are_no_errors_of_ab() -> None:
    text = (LOADS / "ab.txt").read_text()
    changed = text.replace(
        "Failed requests:        0\n",
        "Failed requests:        21\n   (Connect: 1, Receive: 2, Length: 15, Exceptions: 3)\n",
    )
    assert changed != text
    assert load_output.read(changed)["errors"] == 6


@pytest.mark.parametrize("text", ["", "hello\n", "Ops/sec\n", "42 requests per second\n", "\0\xff"])
def test_an_unknown_output_gives_no_numbers(text: str) -> None:
    assert load_output.read(text) == {}


def test_every_number_has_a_unit_and_a_direction() -> None:
    names = {name for file in sorted(LOADS.iterdir()) for name in read(file.name)}
    assert len(names) > 30
    for metric in load_output.metrics(names):
        quantity = metric.key.rpartition(": ")[2].removeprefix("load:")
        assert metric.unit, metric
        wanted = {
            "requests/s": Direction.MORE,
            "transfer": Direction.MORE,
            "requests": Direction.NEITHER,
        }.get(quantity, Direction.LESS)
        assert metric.direction is wanted, metric


def test_the_numbers_of_the_whole_load_come_first() -> None:
    found = [metric.title for metric in load_output.metrics(read("redis.txt"))]
    assert found[:4] == ["requests/s", "mean latency", "p50", "p95"]
    assert found.index("requests") < found.index("GET: requests/s")
    assert [name for name in found if load_output.is_main(f"load:{name}")] == [
        "requests/s",
        "p50",
        "p99",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x: . requests per second\n",
        "====== SET ======\n. requests per second\n",
        "====== SET ======\n1 requests per second\nlatency summary (msec):\n avg\n word\n",
        "Requests/sec: ..\n  12 requests in 1s\n",
        "Requests/sec: 1\n  12 requests in 1s\n  Latency  .ms 1ms 1ms\n",
        "Requests per second: . [#/sec]\nComplete requests: 1\n",
        "Type  Ops/sec\nTotals  .\n",
    ],
)
def test_a_text_without_numbers_is_that_of_no_tool(text: str) -> None:
    """Such an output of a load once ended the run with a traceback."""
    assert load_output.read(text) == {}
