"""The result of a plan for other programs and for papers: tidy CSV, JSON, LaTeX."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from cairn.compare import matrix
from cairn.compare.matrix import GeometricMean, Measure, PairedRatio
from cairn.model import SCHEMA, Interval
from cairn.report import formatting
from cairn.report.formatting import printable
from cairn.report.matrix_board import NOUNS, MatrixReport, ordered
from cairn.report.run_csv import inert

COLUMNS = (
    "measure", "program", "kind", "contender", "title", "baseline", "estimate", "low", "high",
    "rounds", "outcome", "median", "unit", "failure",
)  # fmt: skip
MEAN = "geometric mean"
"""The value of the column `program` in the rows of means."""
_UNITS = {"time": "ns", "memory": "bytes"}
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "÷": r"$\div$", "±": r"$\pm$", "–": "--", "≥": r"$\ge$", "≤": r"$\le$", "×": r"$\times$",
    "−": "$-$", "▼": "", "▲": "", "≈": "",
}  # fmt: skip


def as_csv(report: MatrixReport) -> str:
    """Returns one line for each cell and measure, and one for each mean."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(report):
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return file.getvalue()


def _cell(value: object) -> object:
    """The value with escaped control characters, and quoted if a spreadsheet would run it."""
    return inert(printable(value) if isinstance(value, str) else "" if value is None else value)


def as_json(report: MatrixReport) -> str:
    """Returns one document: the same rows as the CSV, and how they were measured."""
    found, run = report.result, report.run
    document = {
        "schema": SCHEMA,
        "plan": (run.experiment or "").partition(" ")[2],
        "baseline": found.baseline,
        "contenders": [{"name": n, "title": report.titles[n]} for n in found.contenders],
        "programs": [{"name": n, "kind": report.kinds.get(n, "")} for n in found.programs],
        "runs": found.runs,
        "whole_rounds": found.whole_rounds,
        "level": found.level,
        "memory_method": found.method,
        "cut": report.cut,
        "notes": list(report.notes),
        "scores": [
            {
                "measure": measure, "contender": name, "wins": score.wins, "ties": score.ties,
                "losses": score.losses, "open": score.open,
            }
            for measure in matrix.MEASURES
            for name in found.contenders
            for score in [found.score(measure, name)]
        ],
        "groups": [
            {"measure": measure, "group": group, **_ratio(mean)}
            for (measure, group), mean in found.groups.items()
        ],
        "rows": list(_rows(report)),
    }  # fmt: skip
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _ratio(ratio: PairedRatio | GeometricMean | None) -> dict[str, float | None]:
    interval: Interval | None = ratio.interval if ratio is not None else None
    return {
        "estimate": ratio.estimate if ratio is not None else None,
        "low": interval.low if interval is not None else None,
        "high": interval.high if interval is not None else None,
    }


def _rows(report: MatrixReport) -> Iterator[dict[str, Any]]:
    found = report.result
    everyone = (found.baseline, *found.contenders)
    for measure in matrix.MEASURES:
        for program in found.programs:
            for name in everyone:
                cell = found.cells[program, name]
                ratio = cell.of(measure)
                median = cell.time_ns if measure == "time" else cell.memory_bytes
                yield {
                    "measure": measure,
                    "program": program,
                    "kind": report.kinds.get(program, ""),
                    "contender": name,
                    "title": report.titles[name],
                    "baseline": found.baseline,
                    **_ratio(ratio),
                    "rounds": ratio.rounds if ratio is not None else found.rounds[program],
                    "outcome": ratio.outcome if ratio is not None else None,
                    "median": median,
                    "unit": _UNITS[measure],
                    "failure": cell.failure,
                }
        for name in found.contenders:
            mean = found.means.get((measure, name))
            if mean is not None:
                yield {
                    "measure": measure,
                    "program": MEAN,
                    "kind": "",
                    "contender": name,
                    "title": report.titles[name],
                    "baseline": found.baseline,
                    **_ratio(mean),
                    "rounds": found.whole_rounds,
                    "outcome": None,
                    "median": None,
                    "unit": _UNITS[measure],
                    "failure": None,
                }


def as_latex(report: MatrixReport) -> str:
    """Returns two tables for the package booktabs: time and memory."""
    lines = [
        "% Two tables for \\usepackage{booktabs}, made by 'cairn matrix report'.",
        f"% Run {report.run.id}, cairn {report.run.cairn}."
        if report.result.runs == 1
        else f"% {report.result.runs} runs, the last one {report.run.id}.",
    ]
    for measure in matrix.MEASURES:
        if report.result.has(measure):
            lines += ["", *_table(report, measure)]
    return "\n".join(lines) + "\n"


def _table(report: MatrixReport, measure: Measure) -> Iterator[str]:
    found = report.result
    names = ordered(found)
    base = latex(found.baseline)
    host = report.run.host
    machine = latex(", ".join(filter(None, (host.cpu_model, f"{host.cpus} CPUs", host.libc))))
    if found.runs > 1:
        machine = f"{found.runs} runs, each compared with itself"
    lost = [report.label(one) for one in found.programs if found.cells[one, found.baseline].failure]
    if lost:
        machine += f". Failed under {base}: {latex(', '.join(lost))}"
    yield r"\begin{table}"
    yield r"\centering"
    yield (
        rf"\caption{{{NOUNS[measure].capitalize()} divided by that of {base}: paired "
        f"Hodges--Lehmann estimates of {found.whole_rounds} rounds. Bold: proven less; italic: "
        f"proven more. The last lines are the geometric mean and its "
        f"{100 * found.level:g}\\,\\% bootstrap interval. {machine}.}}"
    )
    yield rf"\label{{tab:{measure}}}"
    yield rf"\begin{{tabular}}{{l{'r' * len(names)}}}"
    yield r"\toprule"
    yield " & ".join(["program", *map(latex, names)]) + r" \\"
    yield r"\midrule"
    for program in found.programs:
        cells = [_latex_cell(report, program, name, measure) for name in names]
        yield " & ".join([latex(report.label(program)), *cells]) + r" \\"
    yield r"\midrule"
    means = [found.means.get((measure, name)) for name in names]
    estimates = [formatting.times(mean.estimate) if mean else "--" for mean in means]
    yield " & ".join([MEAN, *estimates]) + r" \\"
    ends = [
        rf"{{\scriptsize {formatting.times_interval(mean.interval)}}}"
        if mean and mean.interval
        else ""
        for mean in means
    ]
    yield " & ".join(["", *ends]) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield r"\end{table}"


def _latex_cell(report: MatrixReport, program: str, name: str, measure: Measure) -> str:
    cell = report.result.cells[program, name]
    ratio = cell.of(measure)
    if cell.failure is not None:
        return "failed"
    if ratio is None:
        return "--"
    text = formatting.times(ratio.estimate)
    style = {"less": r"\textbf", "more": r"\textit"}.get(ratio.outcome)
    return f"{style}{{{text}}}" if style else text


_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def latex(text: str) -> str:
    """Returns the text with all characters escaped that LaTeX would interpret."""
    return _SPECIAL.sub(lambda found: _LATEX[found[0]], formatting.printable(text))
