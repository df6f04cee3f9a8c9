"""The program that 'make demo' runs: three times, it parses JSON, builds a table, and frees both.

With PYTHONMALLOC=malloc, CPython takes every object from malloc. By default, most objects come from
its own allocator.
"""

import json

text = json.dumps(
    [
        {"id": i, "name": f"item {i}", "tags": [str(j) for j in range(i % 7)], "price": i * 0.37}
        for i in range(30_000)
    ]
)
for _ in range(3):
    by_name = {record["name"]: record for record in json.loads(text)}
print(len(by_name))
