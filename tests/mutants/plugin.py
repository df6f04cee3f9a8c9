"""A plugin of pytest: runs chosen tests in order, and reports their times and lines.

--plan FILE    runs only the tests that are keys of this JSON object, in its order; the values
               are limits in seconds
--told FILE    writes {"seconds": {test: seconds}, "failed": [test …],
               "lines": {file: {line: [test …]}}}
--recorded     fills "lines", from this process and from those that the tests start
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import coverage
import pytest
from mutants import follow

ROOT = Path(__file__).resolve().parents[2]
SHARED = "fixture "
"""The prefix of the name under which the lines of a shared fixture are recorded."""


class Watch:
    """The hooks of one session."""

    def __init__(self, plan: dict[str, float] | None, told: Path, recorded: bool) -> None:
        self.plan, self.told = plan, told
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: dict[str, None] = {}
        self.sharing: dict[str, list[str]] = defaultdict(list)
        self.test = ""
        self.counting = follow.started() if recorded else None

    def _name(self, context: str) -> None:
        if self.counting is not None:
            follow.NAME.write_text(context)
            self.counting.switch_context(context)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Selects the tests of the plan, in its order."""
        if self.plan is not None:
            known = {item.nodeid: item for item in items}
            config.hook.pytest_deselected(
                items=[item for item in items if item.nodeid not in self.plan]
            )
            items[:] = [known[name] for name in self.plan if name in known]
            for item in items:
                item.add_marker(pytest.mark.timeout(self.plan[item.nodeid]))
        for item in items:
            for fixture in getattr(item, "fixturenames", ()):
                self.sharing[SHARED + fixture].append(item.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Records lines under the name of this test from here on."""
        self.test = nodeid
        self._name(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up the times of set-up, test and tear-down."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Reports a file that cannot be imported as failed."""
        if report.failed:
            self.failed[report.nodeid] = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Records the lines of a shared fixture for all its tests, not only for the first one."""
        shared = fixturedef.scope != "function"
        if shared:
            self._name(SHARED + fixturedef.argname)
        try:
            return (yield)
        finally:
            if shared:
                self._name(self.test)

    def pytest_sessionfinish(self) -> None:
        """Writes the results."""
        told: dict[str, Any] = {"seconds": self.seconds, "failed": list(self.failed), "lines": {}}
        if self.counting is not None:
            self.counting.stop()
            self.counting.save()
            follow.NAME.unlink(missing_ok=True)
            told["lines"] = lines(self.sharing)
        self.told.write_text(json.dumps(told))


def lines(sharing: Mapping[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """Returns the tests that ran each line, by file and line."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for part in follow.FOLDER.glob("lines.*"):
        data = coverage.CoverageData(basename=str(part))
        data.read()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in filter(None, contexts):
                    found[os.path.relpath(file, ROOT)][str(line)].update(
                        sharing.get(context, [context])
                    )
        data.close()
        part.unlink()
    return {file: {line: sorted(tests) for line, tests in by.items()} for file, by in found.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Defines the options that the docstring of this module describes."""
    parser.addoption("--plan", type=Path)
    parser.addoption("--told", type=Path)
    parser.addoption("--recorded", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the hooks before the package is imported."""
    told, plan = config.getoption("--told"), config.getoption("--plan")
    if told is None:
        return
    recorded = bool(config.getoption("--recorded"))
    if recorded:
        follow.FOLDER.mkdir(exist_ok=True)
        for left in follow.FOLDER.iterdir():
            left.unlink()
    config.pluginmanager.register(
        Watch(json.loads(plan.read_text()) if plan else None, told, recorded)
    )
