"""The report of a plan as a board: who needs least time and memory, and every ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from cairn import units
from cairn.compare import matrix, same_program
from cairn.compare.matrix import GeometricMean, Measure, PairedRatio, PlanResult
from cairn.errors import UsageError
from cairn.model import (
    INTERRUPTED,
    NOT_MEASURED,
    TIME_BUDGET,
    UNSUITED,
    Contender,
    Run,
    Sample,
    Workload,
)
from cairn.report import formatting
from cairn.report.standings import FAILED, UNKNOWN, Board
from cairn.report.tables import Cell, Table, name_of

NOUNS: Mapping[Measure, str] = {"time": "time", "memory": "peak memory"}
_LEAST: Mapping[Measure, tuple[str, str]] = {
    "time": ("Fastest", "faster"),
    "memory": ("Leanest", "to take less peak memory"),
}
_GROUPS: Mapping[str, str] = {
    "size-segregated": "a page holds blocks of one size",
    "sequential": "blocks lie in the order of their allocation",
    "hardened": "made to catch misuse of memory",
}
"""By the name of a group of allocators: its meaning."""
_OURS = "cairn"
"""Cairn's own allocators have this name, or a name that begins with it and a dash."""
_SIGNS = {"less": "▼", "more": "▲", "same": "≈", "open": ""}


class MatrixReport(Struct, frozen=True):
    """The result of a plan with everything that its report needs."""

    result: PlanResult
    real: PlanResult | None
    """The result over the real programs alone; None if all are real, or none is."""
    titles: Mapping[str, str]
    """By contender: name and version."""
    kinds: Mapping[str, str]
    """By program: "program", "kernel" or "workload"."""
    run: Run
    """The newest of the runs."""
    unsuited: tuple[str, ...] = ()
    """Programs that were not measured in rounds, because no run of them can be compared."""
    cut: str | None = None
    """Why there are fewer rounds than planned, as a sentence without a full stop; else None."""
    notes: tuple[str, ...] = field(default=())

    def title(self, contender: str) -> str:
        """The printed name of a contender."""
        return name_of(self.titles[contender], contender)

    def label(self, program: str) -> str:
        """The printed name of a program; a kernel is never shown as the application."""
        text = formatting.printable(program)
        return f"{text} (kernel)" if self.kinds.get(program) == "kernel" else text


def of_runs(
    runs: Sequence[tuple[Run, Sequence[Sample], Sequence[str]]],
    *,
    between: tuple[str, str] | None = None,
    programs: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    notes: Sequence[str] = (),
) -> MatrixReport:
    """Makes the report of one or more runs, given with their samples and why they ended.

    between: two contenders, of which the second is divided by the first; None divides all by the
    baseline. notes: further sentences for the reader, which come first.

    Raises UsageError if the runs cannot be merged or have no such contender.
    """
    programs = _of_tables([run for run, _, _ in runs], programs)
    titles = refuse_unlike([run for run, _, _ in runs], programs)
    kinds = {w.name: w.group for run, _, _ in runs for w in run.settings.workloads}
    bases = {run.baseline for run, _, _ in runs}
    for name in between or ():
        if name not in titles:
            raise UsageError(f"there is no contender {name}; there are {', '.join(titles)}")
    if between is not None and between[0] == between[1]:
        raise UsageError(f"{between[0]} cannot be compared with itself")
    if between is None and len(bases) > 1:
        raise UsageError(
            f"the runs have different baselines: {', '.join(sorted(bases))}; choose two "
            "contenders with --between"
        )
    for name in programs or ():
        if name not in kinds:
            raise UsageError(f"there is no program {name}; there are {', '.join(kinds)}")
    baseline = between[0] if between else runs[0][0].baseline
    contenders = (between[1],) if between else None
    data = [(run, samples) for run, samples, _ in runs]
    wanted = [name for name in kinds if programs is None or name in programs]
    real = [name for name in wanted if kinds[name] == "program"]

    def result(names: Sequence[str]) -> PlanResult:
        return matrix.result(
            data, baseline=baseline, contenders=contenders, programs=names,
            groups=None if between else groups,
        )  # fmt: skip

    whole = result(wanted)
    return MatrixReport(
        result=whole,
        real=result(real) if 0 < len(real) < len(wanted) else None,
        titles=titles,
        kinds=kinds,
        run=runs[-1][0],
        unsuited=tuple(
            dict.fromkeys(
                workload.name
                for run, _, stopped in runs
                for workload, why in zip(run.settings.workloads, stopped, strict=False)
                if why == UNSUITED and not whole.rounds.get(workload.name)
            )
        ),
        cut=_cut(runs, whole),
        notes=(
            *notes,
            *_left_out([run for run, _, _ in runs], whole),
            *dict.fromkeys(note for run, _, _ in runs for note in run.notes),
        ),
    )


def _of_tables(runs: Sequence[Run], names: Sequence[str] | None) -> Sequence[str] | None:
    """The names of programs, each name of a table of the plan replaced by its programs.

    A table with several numbers of threads has the programs NAME/1, NAME/2 and so on.
    """
    if names is None:
        return None
    known = list(dict.fromkeys(one.name for run in runs for one in run.settings.workloads))
    found: list[str] = []
    for name in names:
        of_table = [one for one in known if one.rpartition("/")[0] == name]
        found += of_table if name not in known and of_table else [name]
    return list(dict.fromkeys(found))


def refuse_unlike(runs: Sequence[Run], programs: Sequence[str] | None = None) -> dict[str, str]:
    """Raises UsageError if a name stands for different things in two of the runs.

    programs: the programs that are compared; None for all. Returns the titles of all contenders by
    their names.
    """
    titles: dict[str, str] = {}
    known: dict[tuple[str, str], str] = {}
    for run in runs:
        for one in run.competing:
            titles.setdefault(one.name, one.title)
            for key, text in _identity(one, run).items():
                there = known.setdefault((one.name, key), text)
                if there != text:
                    raise UsageError(
                        f"the runs have different contenders with the name {one.name}: {there} "
                        f"and {text}; merge runs in which it is the same"
                    )
    seen: dict[str, tuple[Run, Workload]] = {}
    for run in runs:
        for workload in run.settings.workloads:
            if programs is not None and workload.name not in programs:
                continue
            before, first = seen.setdefault(workload.name, (run, workload))
            part = same_program.difference(first, workload)
            if part is not None:
                raise UsageError(
                    f"{formatting.printable(workload.name)} is another program in {run.id} than in "
                    f"{before.id}: its {part} differs; merge runs of the same programs, or choose "
                    "others with --only"
                )
    return titles


def _identity(contender: Contender, run: Run) -> Mapping[str, str]:
    """Returns the texts that must be equal if a contender is the same in two runs.

    The text with the key "" has the version and the settings. A library without a version, and
    Cairn's own, can change without a new version. They also have a text with their build, whose key
    is the architecture: the builds for two architectures always differ.
    """
    settings = "".join(f" {name}={value}" for name, value in sorted(contender.knobs))
    text = contender.title + (f" with{settings}" if settings else "")
    rebuilt = contender.version is None or contender.allocator.partition("-")[0] == _OURS
    if contender.build_id is None or not rebuilt:
        return {"": text}
    return {"": text, run.host.architecture: f"{text}, build {contender.build_id}"}


def fitting(
    runs: Sequence[tuple[Run, Sequence[Sample]]], programs: Sequence[str] | None = None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Finds the runs of the nodes of one fleet that can be merged.

    The nodes may have different C libraries or numbers of CPUs, and an allocator may be upgraded
    between two rounds. One such node does not make the rounds of all others worthless.

    programs: the programs that are compared; None for all. Returns the indexes of the group of runs
    that fit together and have the most rounds, and a sentence for each other run.
    """
    programs = _of_tables([run for run, _ in runs], programs)
    rounds = [len({one.trial.round for one in samples if one.trial.round}) for _, samples in runs]
    groups: list[list[int]] = []
    for at in sorted(range(len(runs)), key=lambda at: -rounds[at]):
        run = runs[at][0]
        for group in groups:
            if all(_unlike(runs[other][0], run, programs) is None for other in group):
                group.append(at)
                break
        else:
            groups.append([at])
    best = max(groups, key=lambda group: sum(rounds[at] for at in group))
    others = sorted(set(range(len(runs))) - set(best))
    return tuple(sorted(best)), tuple(
        f"{runs[at][0].id} with {units.counted(rounds[at], 'round')} is left out, because "
        + next(filter(None, (_unlike(runs[one][0], runs[at][0], programs) for one in best)), "")
        for at in others
    )


def _unlike(one: Run, other: Run, programs: Sequence[str] | None) -> str | None:
    """Why the run `other` cannot be merged with `one`, as a phrase; None if it can."""
    identities = {contender.name: _identity(contender, one) for contender in one.competing}
    for contender in other.competing:
        there = identities.get(contender.name, {})
        for key, text in _identity(contender, other).items():
            if there.get(key, text) != text:
                return f"its {contender.name} is {text}, and that of {one.id} is {there[key]}"
    known = {workload.name: workload for workload in one.settings.workloads}
    for workload in other.settings.workloads:
        if workload.name not in known or (programs is not None and workload.name not in programs):
            continue
        part = same_program.difference(known[workload.name], workload)
        if part is not None:
            return f"the {part} of its {workload.name} differs from that of {one.id}"
    return None


def _left_out(runs: Sequence[Run], found: PlanResult) -> Iterator[str]:
    """Yields sentences on what a merged table lacks of each run."""
    if len(runs) < 2:
        return
    shown = (found.baseline, *found.contenders)
    having = {
        name: [run.id for run in runs if name in {one.name for one in run.competing}]
        for name in shown
    }
    for run in runs:
        if run.id not in having[found.baseline]:
            yield f"{run.id} is left out, because it has no {found.baseline}"
            continue
        few = [name for number, name in found.left_out if runs[number].id == run.id]
        if few:
            verb = "is" if len(few) == 1 else "are"
            yield (
                f"{', '.join(few)} of {run.id} {verb} left out, because this run has "
                f"fewer than {matrix.ROUNDS_LEAST} complete rounds"
            )
    for name in found.contenders:
        if len(having[name]) < len(runs):
            yield f"{name} was measured in {', '.join(having[name])} alone"
    measured = [name for name in found.contenders if not _failed(found, name)]
    for program in found.programs:
        if program in found.over["time"] or found.cells[program, found.baseline].failure:
            continue
        absent = [name for name in measured if found.cells[program, name].time is None]
        if absent:
            names = ", ".join(absent)
            yield f"no mean contains {program}, because it was not measured under {names}"
        elif found.over["time"]:
            yield (
                f"no mean contains {program}, because no run has {matrix.ROUNDS_LEAST} complete "
                "rounds of it"
            )


def _cut(
    runs: Sequence[tuple[Run, Sequence[Sample], Sequence[str]]], found: PlanResult
) -> str | None:
    planned = sum(run.rule.max_rounds for run, _, _ in runs)
    rounds = f"{found.whole_rounds} of {units.counted(planned, 'round')}"
    if any(TIME_BUDGET in stopped for _, _, stopped in runs):
        return f"{TIME_BUDGET}: {rounds} fitted into it"
    unfinished = [run for run, _, stopped in runs if not stopped or INTERRUPTED in stopped]
    if unfinished:
        name = unfinished[0].id.partition("@")[0]  # the node of a fleet stands behind
        return f"not finished: {rounds} complete; 'cairn matrix run --resume {name}' continues"
    given_up = [why for _, _, stopped in runs for why in stopped if NOT_MEASURED in why]
    return f"{rounds} complete: {given_up[0].rstrip('.')}" if given_up else None


def board(report: MatrixReport, *, full: bool = False) -> Board:
    """Returns the board; `full` adds a table of intervals for each measure."""
    found = report.result
    tables = [_means(report, found, "")]
    if report.real is not None:
        tables.append(_means(report, report.real, "real "))
    tables.append(_groups(found))
    for measure in matrix.MEASURES:
        tables.append(_ratios(report, measure))
        if full:
            tables.append(_intervals(report, measure))
    programs = units.counted(len(found.programs), "program")
    contenders = units.counted(len(found.contenders) + 1, "contender")
    return Board(
        title=f"{contenders} on {programs}",
        says=tuple(_says(report)),
        tables=tuple(table for table in tables if table.rows),
        footer=tuple(_footer(report)),
        failures=tuple(_failures(report)),
    )


def _says(report: MatrixReport) -> Iterator[str]:
    found = report.result
    base = formatting.printable(found.baseline)
    if report.cut is not None and not found.whole_rounds:
        why = formatting.printable(report.cut)
        yield f"There is no complete round yet, so there is no mean ({why})."
    least_rounds = matrix.ROUNDS_FOR_INTERVALS
    if 0 < found.whole_rounds < least_rounds:
        few = "1 round is" if found.whole_rounds == 1 else f"{found.whole_rounds} rounds are"
        # Rounds in which a program was not measured do not count, so a repetition may lack some.
        lost = max(0, report.run.rule.max_rounds - found.whole_rounds) if report.cut is None else 0
        needed = least_rounds + (lost if found.runs == 1 else 0)
        yield (
            f"No verdict yet: {few} too few for an interval. Run at least {needed} (-r {needed})."
        )
        return
    if found.means and all(mean.interval is None for mean in found.means.values()):
        yield (
            "No verdict yet: each run has one round, and an interval needs at least two rounds of "
            "one run (-r 2)."
        )
        return
    for measure in matrix.MEASURES:
        least, less = _LEAST[measure]
        means = [name for name in found.contenders if (measure, name) in found.means]
        if not means:
            continue
        over = units.counted(len(found.over[measure]), "program")
        first, *others = found.rivals[measure]
        mean = found.means[measure, first]
        proven = [name for name in means if good_mean(found, measure, name)]
        if first not in proven:
            if not proven:
                yield f"Over {over}, no contender is proven {less} than {base}."
                continue
            best = min(proven, key=lambda name: found.means[measure, name].estimate)
            yield (
                f"Over {over}, {formatting.printable(best)} takes "
                f"{_mean(found.means[measure, best])} times the {NOUNS[measure]} of {base}. "
                f"{formatting.printable(first)} has a lower mean, but is not proven {less} than "
                f"{base}."
            )
            continue
        yield (
            f"{least} over {over}: {formatting.printable(first)}, {_mean(mean)} times the "
            f"{NOUNS[measure]} of {base}."
        )
        if others:
            names = formatting.printable(", ".join(others))
            behind = "slower" if measure == "time" else "to take more"
            yield f"Not proven {behind} than {formatting.printable(first)}: {names}."
    without = [name for name in found.contenders if _failed(found, name)]
    if without:
        names = formatting.printable(", ".join(without))
        yield f"These have no mean, because a program failed under them: {names}."


def _failed(found: PlanResult, name: str) -> bool:
    return any(
        found.cells[program, name].failure is not None
        and found.cells[program, found.baseline].failure is None
        for program in found.programs
    )


def _mean(mean: GeometricMean | None) -> str:
    if mean is None:
        return UNKNOWN
    return f"{formatting.times(mean.estimate)} {formatting.times_interval(mean.interval)}"


def ordered(found: PlanResult) -> list[str]:
    """The contenders by their mean time, the least first; those without a mean come last."""

    def key(name: str) -> tuple[bool, float]:
        mean = found.means.get(("time", name))
        return mean is None, mean.estimate if mean is not None else 0.0

    return sorted(found.contenders, key=key)


def _means(report: MatrixReport, found: PlanResult, kind: str) -> Table:
    """The means and scores of all contenders. `kind` is "real " or empty; "programs" follows it."""
    base = formatting.printable(found.baseline)
    level = f"[{100 * found.level:g} %]"
    rows = []
    for name in ordered(found):
        cells = [Cell(report.title(name))]
        for measure in matrix.MEASURES:
            if not found.over[measure]:
                continue
            mean, score = found.means.get((measure, name)), found.score(measure, name)
            text = "failed" if _failed(found, name) else _mean(mean)
            cells.append(Cell(text, good_mean(found, measure, name)))
            text = f"{score.wins}/{score.ties}/{score.losses}/{score.open}"
            cells.append(Cell(UNKNOWN if _failed(found, name) else text))
        rows.append(tuple(cells))
    numbers = {len(found.over[measure]) for measure in matrix.MEASURES if found.over[measure]}
    if not numbers:
        return Table("", (), ())
    one = numbers.pop() if len(numbers) == 1 else None
    prefix = "" if kind else "mean of "
    heads = [prefix + (_over(one, kind) if one is not None else f"{kind}programs")]
    parts = []
    for measure in matrix.MEASURES:
        if found.over[measure]:
            over = "" if one is not None else f", {_over(len(found.over[measure]), kind)}"
            heads += [f"{NOUNS[measure]} ÷ {base} {level}{over}", "▼/≈/▲/open"]
            parts.append(2)
    return Table("", tuple(heads), tuple(rows), parts=tuple(parts))


def _over(number: int, kind: str) -> str:
    return units.counted(number, f"{kind}program")


def good_mean(found: PlanResult, measure: Measure, name: str) -> bool | None:
    """Whether the mean is proven good news, bad news, or neither, among all contenders."""
    if (measure, name) not in found.proven:
        return None
    return found.means[measure, name].estimate < 1


def _groups(found: PlanResult) -> Table:
    names = dict.fromkeys(group for _, group in found.groups)
    if len(names) < 2:
        return Table("", (), ())
    rows = tuple(
        (
            Cell(formatting.printable(name)),
            *(Cell(_mean(found.groups.get((measure, name)))) for measure in matrix.MEASURES),
        )
        for name in names
    )
    base = formatting.printable(found.baseline)
    return Table("", ("mean of a group", f"time ÷ {base}", f"peak memory ÷ {base}"), rows)


def _ratios(report: MatrixReport, measure: Measure) -> Table:
    """Returns programs × contenders. The second column has the baseline's own numbers."""
    found = report.result
    base = formatting.printable(found.baseline)
    names = ordered(found)
    written = units.time if measure == "time" else units.size
    rows = []
    for program in found.programs:
        own = found.cells[program, found.baseline]
        number = own.time_ns if measure == "time" else own.memory_bytes
        first = Cell(FAILED, good=False) if own.failure else Cell(UNKNOWN)
        if number is not None and own.failure is None:
            first = Cell(written(number))
        cells = [_cell(found, program, name, measure) for name in names]
        rows.append((Cell(report.label(program)), first, *cells))
    heads = (f"{NOUNS[measure]} ÷ {base}", base, *map(formatting.printable, names))
    if not any(found.cells[p, n].of(measure) for p in found.programs for n in names):
        return Table("", (), ())
    return Table("", heads, tuple(rows), tight=True)


def _cell(found: PlanResult, program: str, name: str, measure: Measure) -> Cell:
    cell = found.cells[program, name]
    if cell.failure is not None:
        return Cell(FAILED, good=False)
    ratio = cell.of(measure)
    if ratio is None:
        return Cell(UNKNOWN)
    return Cell(_SIGNS[ratio.outcome] + formatting.times(ratio.estimate), good_ratio(ratio))


def good_ratio(ratio: PairedRatio) -> bool | None:
    """Whether the ratio is proven good news, bad news, or neither."""
    return {"less": True, "more": False}.get(ratio.outcome)


def _intervals(report: MatrixReport, measure: Measure) -> Table:
    found = report.result
    names = ordered(found)
    rows = tuple(
        (
            Cell(report.label(program)),
            *(
                Cell(formatting.times_interval(ratio.interval) if ratio else UNKNOWN)
                for name in names
                for ratio in [found.cells[program, name].of(measure)]
            ),
        )
        for program in found.programs
    )
    heads = (f"{NOUNS[measure]}, intervals", *map(formatting.printable, names))
    return Table("", heads, rows, tight=True)


def _footer(report: MatrixReport) -> Iterator[str]:
    found = report.result
    if report.cut is not None:
        yield formatting.printable(report.cut)
    rounds = sorted(set(found.rounds.values()))
    ran = units.counted(rounds[-1], "round") if rounds else "0 rounds"
    if rounds and rounds[0] != rounds[-1]:
        ran = f"{rounds[0]} to {rounds[-1]} rounds"
    merged = f" of {found.runs} runs, compared within each" if found.runs > 1 else ""
    method = f" · peak: anonymous + shared, {found.method}" if found.method else ""
    yield f"{ran} of each program in random order{merged}{formatting.printable(method)}"
    yield (
        f"▼ proven less · ▲ proven more (Holm over the contenders of a program, beyond ±"
        f"{units.percent(report.run.rule.margin, signed=False)}) · ≈ equal within that margin · "
        f"no sign (open): not proven · {FAILED} failed · {UNKNOWN} not measured · ▼/≈/▲/open: the "
        "number of programs of each kind"
    )
    yield (
        f"ratios: paired Hodges–Lehmann · means: geometric, {100 * found.level:g} % bootstrap "
        "intervals (programs fixed, rounds resampled), each by itself; proven: Holm over all "
        "contenders · a contender that failed on a program has no mean"
    )
    if _groups(found).rows:
        names = dict.fromkeys(label.partition(":")[0] for _, label in found.groups)
        known = [f"{name}: {_GROUPS[name]}" for name in names if name in _GROUPS]
        if known:
            yield " · ".join(known)


def _failures(report: MatrixReport) -> Iterator[str]:
    found = report.result
    for program in report.unsuited:
        yield formatting.printable(
            f"no mean contains {program}: it goes on in the background after its command ended"
        )
    for program in found.programs:
        own = found.cells[program, found.baseline].failure
        if own is not None:
            yield formatting.printable(
                f"no mean contains {program}: under {found.baseline} it {own}"
            )
            continue
        for name in found.contenders:
            failure = found.cells[program, name].failure
            if failure is not None:
                yield formatting.printable(f"{program}: {name} {failure}")
