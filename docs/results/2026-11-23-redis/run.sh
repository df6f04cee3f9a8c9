#!/bin/sh
# A server of its own, filled and asked by the benchmark that comes with it.
cd "${REDIS:?the folder of redis-server}" || exit 1
sock=$(mktemp -u /tmp/redis.XXXXXX)
./redis-server --port 0 --unixsocket "$sock" --save '' --appendonly no >/dev/null &
pid=$!
until ./redis-cli -s "$sock" ping >/dev/null 2>&1; do sleep 0.02; done
./redis-benchmark -s "$sock" -t set,get,lpush,hset,zadd -n 60000 -r 60000 -d 300 -P 16 -q >/dev/null || exit 1
./redis-cli -s "$sock" shutdown nosave >/dev/null 2>&1
wait $pid
