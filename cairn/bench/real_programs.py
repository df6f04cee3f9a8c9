"""Programs of other people, on which predictions are tried beside the built-in workloads.

Each of them computes for about a second, and needs no input but what is written here. The programs
that are not installed are left out. The files that some of them need are in the cache folder.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from msgspec import Struct

from cairn.allocators.discover import cache_folder
from cairn.allocators.tool_runner import Progress, find_tool
from cairn.errors import CairnError
from cairn.model import Workload


class RealProgram(Struct, frozen=True):
    """One program. `{file}` in its arguments stands for a file with the text `text`."""

    name: str
    tool: str
    arguments: tuple[str, ...]
    text: str = ""
    ending: str = ""
    """The ending of the file's name."""


SECONDS = 1.0
"""About the duration of one program under glibc."""
_PYTHON = """
import json
data = [{"id": i, "name": f"record {i}", "tags": [str(j) for j in range(i % 9)]}
        for i in range(90000)]
for _ in range(3):
    data = json.loads(json.dumps(data))
by_tag = {}
for one in data:
    for tag in one["tags"]:
        by_tag.setdefault(tag, []).append(one["name"].upper())
"""
_PERL = """
my %count; my @lines;
for my $i (1 .. 1200000) {
    my $word = "w" . ($i * 7919 % 60007);
    $count{$word} .= chr(65 + $i % 26);
    push @lines, join(",", $i, $word, length $count{$word});
}
my @sorted = sort { $a cmp $b } @lines;
my $sum = 0; $sum += length for @sorted;
"""
_AWK = """BEGIN {
    for (i = 0; i < 800000; i++) {
        key = "k" (i * 7919 % 60007)
        seen[key] = seen[key] substr("abcdefgh", 1 + i % 8, 1)
        total += length(seen[key])
    }
}"""
_SQL = """
create table t(id integer primary key, name text, score real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 450000)
insert into t select i, printf('name %d', i * 7919 % 60007), i * 0.5 from n;
create index by_name on t(name);
select count(*) from (select name, sum(score), group_concat(id) from t group by name);
select count(*) from t a join t b on a.id = b.id + 1 where a.name < b.name;
"""
_TCL = """
for {set i 0} {$i < 250000} {incr i} {
    set word "w[expr {$i * 7919 % 60007}]"
    lappend found($word) [string repeat x [expr {$i % 20}]]
    set parts [split "$word,$i,[llength $found($word)]" ,]
    lappend all [join $parts -]
}
set all [lsort $all]
"""
_CMAKE = """
foreach(i RANGE 1 110000)
  math(EXPR n "${i} * 7919 % 6007")
  string(APPEND word_${n} "x${i},")
  string(REPLACE "," "-" parts "${word_${n}}")
  string(TOUPPER "${parts}" parts)
endforeach()
"""
_BC = """
a = 1
for (i = 1; i <= 3200; i++) { a = a * i; b = b + a % 7919 }
scale = 1500
c = a / 3; sqrt(2); l(2)
"""
_CPLUSPLUS = """
#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::vector<std::function<int(int)>>> all;
    all["a"].push_back([](int i) { return i + 1; });
    std::sort(all["a"].begin(), all["a"].end(), [](auto &a, auto &b) { return a(1) < b(1); });
    return std::regex_match(std::string("abc"), std::regex("a.*c"));
}
"""
_NODE = """
const found = new Map();
for (let i = 0; i < 1200000; i++) {
    const word = 'w' + (i * 7919 % 60007);
    found.set(word, (found.get(word) || '') + String.fromCharCode(65 + i % 26));
}
const buffers = [];
for (let i = 0; i < 60000; i++) buffers[i % 500] = Buffer.alloc(100 + i % 9000, 'x');
JSON.parse(JSON.stringify([...found]));
"""
_JQ = "[range(220000) | {id: ., name: tostring}] | group_by(.id % 601) | map(length) | add"

PROGRAMS = (
    RealProgram("python", sys.executable, ("-S", "-c", _PYTHON)),
    RealProgram("perl", "perl", ("-e", _PERL)),
    RealProgram("awk", "awk", (_AWK,)),
    RealProgram("jq", "jq", ("-n", _JQ)),
    RealProgram("sqlite", "sqlite3", (":memory:", _SQL)),
    RealProgram("tcl", "tclsh", ("{file}",), _TCL, ".tcl"),
    RealProgram("cmake", "cmake", ("-P", "{file}"), _CMAKE, ".cmake"),
    RealProgram("bc", "bc", ("-l", "-q", "{file}"), _BC + "quit\n", ".bc"),
    RealProgram("g++", "g++", ("-fsyntax-only", "{file}"), _CPLUSPLUS, ".cpp"),
    RealProgram("clang", "clang", ("-fsyntax-only", "{file}"), _CPLUSPLUS, ".cpp"),
    RealProgram("node", "node", ("-e", _NODE)),
)


def installed(say: Progress) -> dict[RealProgram, str]:
    """The programs that are installed here, with their paths. Writes no file."""
    tools = {one: find_tool(one.tool) for one in PROGRAMS}
    missing = [one.tool for one, tool in tools.items() if tool is None]
    if missing:
        say(f"programs that are not installed here are left out: {', '.join(missing)}.")
    return {one: tool for one, tool in tools.items() if tool is not None}


def workloads(say: Progress) -> tuple[Workload, ...]:
    """The programs that are installed here. Raises CairnError if their files cannot be written."""
    found = []
    for one, tool in installed(say).items():
        file = str(_file(one)) if one.text else ""
        words = (word.replace("{file}", file) if one.text else word for word in one.arguments)
        found.append(Workload(one.name, (tool, *words), "programs"))
    return tuple(found)


def _file(program: RealProgram) -> Path:
    """The file of a program, by the digest of its text."""
    digest = hashlib.sha256(program.text.encode()).hexdigest()[:16]
    path = cache_folder().parent / "experiments" / f"{program.name}-{digest}{program.ending}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program.text, encoding="utf-8")
    except OSError as error:
        raise CairnError(
            f"cannot write {path}: {error.strerror or error}; free some space, or set "
            "XDG_CACHE_HOME."
        ) from error
    return path
