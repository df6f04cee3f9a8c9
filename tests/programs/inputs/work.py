"""Work of a Python program: objects of all sizes, threads, and every way to start a process."""

import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def build(seed):
    """Makes, changes and drops objects of many sizes. Returns a digest of the remaining objects."""
    words = [f"word{(i * 7919 + seed) % 5003}" * (1 + i % 9) for i in range(4000)]
    index = {}
    for place, word in enumerate(words):
        index.setdefault(word[:12], []).append(place)
    text = json.dumps({"words": words, "index": index})
    back = json.loads(text)
    for name in list(back["index"])[::3]:
        del back["index"][name]
    found = re.findall(r"word(\d+)word", text)
    rows = sorted(back["index"].items(), key=lambda row: (len(row[1]), row[0]))
    buffer = bytearray()
    for name, places in rows:
        buffer += name.encode() * (len(places) + 1)
    big = hex(3**20_000 + seed)
    return hashlib.sha256(
        repr((rows[:500], len(found), bytes(buffer[:5000]), big)).encode()
    ).hexdigest()[:16]


def forked(count):
    """Forks children that allocate, while threads of the parent allocate, too."""
    sums = []
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(build, seed) for seed in range(4)]
        for seed in range(count):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                os.write(writer, build(seed).encode())
                os._exit(0)
            os.close(writer)
            sums.append(os.read(reader, 100).decode())
            os.close(reader)
            assert os.waitpid(child, 0)[1] == 0
        sums += [future.result() for future in busy]
    return sums


def pooled(method, count):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(build, range(count))


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        print(build(77))
        sys.exit()
    print("alone", build(1))
    with ThreadPoolExecutor(8) as threads:
        print("threads", list(threads.map(build, range(16))))
    print("fork", forked(6))
    print("pool of forks", pooled("fork", 4))
    print("pool of new processes", pooled("spawn", 4))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, __file__, "child"], capture_output=True, text=True, check=True
        )
        print("subprocess", done.stdout.strip())
