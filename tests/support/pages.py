"""Makes pages of invented runs, and reads pages as trees of elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from msgspec.structs import replace
from support.comparisons import EVIL, a_run, a_sample
from support.gaps import MIB, looked_at, trials, why_run
from support.plans import a_plan_run, noisy
from support.suites import ALLOCATORS, WORKLOADS, a_suite, lively

from cairn.memory import Memory
from cairn.model import Contender, Sample, Workload
from cairn.page import run as pages
from cairn.report.run import Measured, comparisons

VOID = {"meta", "link", "br", "input", "img", "hr"}


@dataclass
class Element:
    """An element of a page."""

    name: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def all(self, name: str = "", **attributes: str) -> Iterator[Element]:
        """Yields the elements below this one that have this name and these attributes.

        The attribute data-of is written as data_of.
        """
        for child in self.children:
            if isinstance(child, str):
                continue
            if name in ("", child.name) and all(
                child.attributes.get(key.replace("_", "-")) == text
                for key, text in attributes.items()
            ):
                yield child
            yield from child.all(name, **attributes)

    def first(self, name: str = "", **attributes: str) -> Element:
        return next(self.all(name, **attributes))


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {key: text or "" for key, text in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {key: text or "" for key, text in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open[-1].name == tag, f"</{tag}> ends <{self.open[-1].name}>"
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(page: str) -> Element:
    """Returns the page as a tree. Every element must be closed where it was opened."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    assert builder.open == [builder.root]
    return builder.root


def compared_run(rounds: int = 12) -> Measured:
    """Returns a comparison of five contenders.

    Compared with `system`, `quick` is faster and takes more memory, `fast` is faster except in one
    slow round, `lean` takes less memory, and `broken` failed.
    """
    names = ("system", "quick", "fast", "lean", "broken")
    run = a_run(*(Contender(name, "custom", f"{name} 1.0", spec=name) for name in names))
    workloads = (Workload("prog -n 5", ("prog", "-n", "5")),)
    run = replace(run, settings=replace(run.settings, workloads=workloads))
    of = []
    for round_ in range(1, rounds + 1):
        lean = Memory("cgroup v1", (60 << 20) + round_, (60 << 20) + round_, 0)
        more = Memory("cgroup v1", (140 << 20) + 999 * round_, (140 << 20) + 999 * round_, 0)
        of.append(a_sample(round_, "system", 100 + round_ % 3))
        of.append(a_sample(round_, "quick", 70 + round_ % 3, memory=more))
        of.append(a_sample(round_, "fast", 800 if round_ == 5 else 80 + round_ % 4))
        of.append(a_sample(round_, "lean", 100 + round_ % 2, memory=lean))
    failure = "was killed by signal 11 (SIGSEGV)"
    of.append(a_sample(1, "broken", 1, failure=failure, exit_code=None, signal=11))
    return Measured(run, tuple(of), ("12 rounds",), "last")


def long_names_run() -> Measured:
    """Returns the comparison of compared_run() with long names of contenders.

    The contender that failed is left out, so that each contender has an interval.
    """
    names = {name: f"{name}-{'long-' * 40}{'x' * 150}" for name in ("quick", "fast", "lean")}
    known = compared_run()
    contenders = tuple(
        replace(one, name=names.get(one.name, one.name), title=f"{one.title} {'y' * 90}")
        for one in known.run.contenders
    )
    samples = tuple(
        replace(one, trial=replace(one.trial, contender=names.get(one.trial.contender, "system")))
        for one in known.samples
        if one.trial.contender != "broken"
    )
    return replace(known, run=replace(known.run, contenders=contenders), samples=samples)


def explained_run() -> Measured:
    """Returns a comparison with --why."""
    samples = [*trials("system"), *trials("fast", 60.0, 10.0, live_bytes=32 * MIB)]
    looked = looked_at(samples[: len(samples) // 2]) + looked_at(
        samples[len(samples) // 2 :], own=30, program=80
    )
    return Measured(why_run("fast"), tuple(looked), ("8 rounds",), "last")


def suite_run(workloads: int = 5, contenders: int = 4) -> Measured:
    """Returns a run of built-in workloads."""
    run = a_suite(WORKLOADS[:workloads], ALLOCATORS[:contenders])
    return Measured(run, tuple(lively(run)), ("6 rounds",), "last", "standings", bench="suite")


def plan_run(programs: int = 4, contenders: int = 5, rounds: int = 6) -> Measured:
    """Returns a run of a plan, with a failed cell."""
    kinds = {f"program {n}": ("program", "kernel", "workload")[n % 3] for n in range(programs)}
    run = a_plan_run(kinds, ALLOCATORS[:contenders], rounds=rounds)
    truth = {
        (workload, name): (0.8 + 0.04 * place + 0.01 * workload, 0.7 + 0.1 * place)
        for workload in range(programs)
        for place, name in enumerate(ALLOCATORS[1:contenders])
    }
    samples = noisy(run, truth, seed=4)
    for at, sample in enumerate(samples):
        if (sample.trial.workload, sample.trial.contender) == (1, ALLOCATORS[contenders - 1]):
            samples[at] = replace(sample, failure="was killed by signal 11 (SIGSEGV)")
    return Measured(run, tuple(samples), (f"{rounds} rounds",), "last", "matrix")


def page_of(measured: Measured) -> str:
    return pages.of_run(measured, comparisons(measured))


HOSTILE = (
    "<script>window.broken=1</script>", "</script><script>window.broken=1</script>",
    "</style><script>window.broken=1</script>", "<img src=x onerror=window.broken=1>",
    "<svg onload=window.broken=1>", "\" onmouseover=\"window.broken=1", "' onfocus='window.broken=1",
    "<!--", "-->", "]]>", "<![CDATA[", "</title>", "</svg>", "</table>", "</details>", "&lt;b&gt;",
    "&amp;", "&#x3c;b&#x3e;", "&", "<", ">", "\"", "'", "`", "{{ 7 * 7 }}", "{% raw %}", "{# no #}",
    "${7 * 7}", "javascript:window.broken=1", "data:text/html,<b>", "\u202eevil", "\u2066isolate",
    "\u200bzero\u200dwidth", "\ufeffmark", "\x00null", "\x1b[31mred", "\x07bell", "\x9bcontrol",
    "line\nbreak", "tab\tstop", "carriage\rreturn", "\u2028line", "\udcff\udcfebytes", "=1+1",
    "+cmd|' /C calc'!A0", "@SUM(1)", "\u05e9\u05dc\u05d5\u05dd", "🦀🦀", "e\u0301\u0301\u0301", EVIL,
    "a" * 400, "many words " * 40,
)  # fmt: skip
"""Names that a page must show as text."""


def hostile_run(names: Sequence[str] = HOSTILE) -> Measured:
    """Returns a run in which contenders, versions, programs, notes and failures are these names."""
    everybody = [
        Contender(
            name or "empty", "custom", f"{name} 1", origin=name, spec=name, build_id=name,
            knobs=((name, name),), caveats=(name,),
        )
        for name in names
    ]  # fmt: skip
    run = a_run(Contender("system", "system", "glibc"), *everybody)
    workloads = (Workload(" ".join(names), tuple(names), load=names[0]),)
    run = replace(
        run,
        settings=replace(run.settings, workloads=workloads, prepare=names[1], setup=names[2]),
        notes=tuple(names),
    )
    of: list[Sample] = []
    for round_ in (1, 2):
        for one in run.contenders:
            sample = a_sample(round_, one.name, 100 + round_)
            of.append(replace(sample, proof=replace(sample.proof, owner=one.title)))
    first = everybody[0].name
    of.append(replace(a_sample(1, first, 1), failure=" ".join(names), exit_code=3))
    return Measured(run, tuple(of), (names[0],), "last")


def write(page: str, to: Path) -> str:
    """Writes a page into a file. Returns its address."""
    to.write_text(page, encoding="utf-8")
    return to.as_uri()
