"""What 'make demo' runs: JSON in, a table by name, and all of it away again, three times over.

With PYTHONMALLOC=malloc every object of CPython comes from malloc; by default most come from its own allocator.
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
