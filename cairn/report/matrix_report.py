"""The report of a plan in every form."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.report.matrix_board import MatrixReport, board
from cairn.report.standings import with_notes
from cairn.report.view import View


def rendered(report: MatrixReport, view: View) -> str:
    """Returns the report in the form of `view`."""
    from cairn.report import markdown, matrix_export, terminal

    match view.form:
        case "csv":
            return matrix_export.as_csv(report)
        case "json":
            return matrix_export.as_json(report)
        case "tex":
            return matrix_export.as_latex(report)
    made = board(report, full=view.full)
    run = replace(report.run, notes=report.notes)
    if view.form == "md" and report.result.runs > 1:
        origin = f"{report.result.runs} runs, the last one {run.id}"
        return markdown.plain_board(with_notes(made, report.notes), origin)
    if view.form == "md":
        return markdown.board(run, made)
    return terminal.drawn(with_notes(made, report.notes), view, answer_first=True)
