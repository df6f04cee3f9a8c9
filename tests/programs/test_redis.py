"""Tests of a redis server with clients: many small blocks, children that save data, a shutdown."""

from __future__ import annotations

from collections.abc import Callable

from support.launching import wait_until

from .conftest import INPUTS, Stage, image_of, listens, path_of

FILL = """
for i = 1, 20000 do
    local n = i * 7919 % 20011
    redis.call('set', 'string' .. i, string.rep('x', n % 300))
    redis.call('hset', 'hash' .. i % 500, 'field' .. i, n)
    redis.call('zadd', 'order', n, 'member' .. i)
    redis.call('rpush', 'list' .. i % 50, n)
    if i % 3 == 0 then redis.call('del', 'string' .. i - 1) end
end
return redis.sha1hex(table.concat(redis.call('zrange', 'order', 0, -1), ','))
"""


def test_a_server_is_filled_saved_emptied_and_ends(both: Callable[..., str]) -> None:
    server, client, benchmark = (
        path_of(name) for name in ("redis-server", "redis-cli", "redis-benchmark")
    )

    def session(stage: Stage) -> str:
        socket = stage.folder / "socket"

        def ask(*words: str) -> str:
            return stage.run(client, "-e", "-s", socket, *words)

        def resident() -> int:
            return int(ask("info", "memory").split("used_memory_rss:")[1].split()[0])

        def saved() -> bool:
            return "rdb_bgsave_in_progress:0" in ask("info", "persistence")

        answers = []
        load = ["-q", "-n", "4000", "-c", "20", "-P", "8", "-d", "200", "-t", "set,lpush,hset"]
        with stage.serving(server, INPUTS / "redis.conf", ready=lambda: listens(socket)):
            answers += [ask("eval", FILL, "0"), ask("dbsize"), ask("bgsave")]
            stage.run(benchmark, "-s", socket, *load)
            assert wait_until(saved, 30) and "rdb_last_bgsave_status:ok" in ask(
                "info", "persistence"
            )
            filled = resident()
            for _ in range(3):
                answers += [ask("flushall"), ask("eval", FILL, "0"), ask("dbsize")]
            assert resident() <= 1.5 * filled, (
                "the server uses the freed memory when it is filled again"
            )
            answers.append(ask("shutdown", "save"))
        assert (stage.folder / "dump.rdb").stat().st_size > 0
        assert "BUG REPORT" not in (stage.folder / "log").read_text()
        return "".join(answers)

    both(session, image_of("redis-server"), image_of("redis-cli"), image_of("redis-benchmark"))
