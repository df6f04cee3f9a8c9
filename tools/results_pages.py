"""Writes the pages of all runs in a folder, and an index page: results_pages.py FOLDER TO."""

from __future__ import annotations

import sys
from pathlib import Path

from cairn.cli.measurement import measured
from cairn.errors import CairnError
from cairn.page import results, run
from cairn.page.results import ListedPage
from cairn.report.run import comparisons
from cairn.report.run_list import listed
from cairn.run.run_archive import ENDING, RunArchive


def main(folder: Path, to: Path) -> None:
    """Writes a page for each run file of `folder` into `to`, and index.html."""
    to.mkdir(parents=True, exist_ok=True)
    entries: list[tuple[float, ListedPage]] = []
    for path in sorted(folder.glob(f"*{ENDING}")):
        name = path.name.removesuffix(ENDING)
        try:
            found = measured(RunArchive(path), predicts=False)
            text = run.of_run(found, comparisons(found))
            verdict = listed(found, str(path), runs_now=False).verdict
        except CairnError as error:
            entries.append((0.0, ListedPage(name, "date unknown", str(error), None)))
            continue
        (to / f"{name}.html").write_text(text, encoding="utf-8")
        began = found.run.created_at
        entries.append((began, ListedPage(name, run.date(began), verdict, f"{name}.html")))
        print(f"{name}.html: {len(text) / 1024:,.0f} KiB")
    entries.sort(key=lambda entry: -entry[0])
    index = to / "index.html"
    index.write_text(results.page([one for _, one in entries]), encoding="utf-8")
    print(f"{len(entries)} runs: {index}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
