"""The list of experiments and workloads that `cairn bench` without a name prints."""

from __future__ import annotations

from cairn import units
from cairn.bench import misuse, run_settings
from cairn.report.terminal import Screen
from cairn.report.view import View
from cairn.run import workloads
from cairn.why.ill_allocators import ILL


def render(here: int, view: View) -> str:
    """Returns all experiments and workloads by group, with the time that a run of each takes.

    `here` is the number of allocators on this machine that an experiment takes by default.
    """
    entries = workloads.load()
    names = (
        *(e.name for e in run_settings.EXPERIMENTS),
        misuse.NAME,
        *(entry.name for entry in entries),
    )
    width = max(len(name) for name in names)
    screen = Screen(view)
    screen.line(
        f"experiments, and about how long each takes with the {here} allocators here"
        " (in brackets: with --quick)"
    )
    for experiment in run_settings.EXPERIMENTS:
        full, quick = (_duration(experiment.name, here, is_quick) for is_quick in (False, True))
        took = f"{full} ({quick})"
        screen.entry(((f"  {experiment.name}", width + 3, ""), (took, 17, "")), experiment.title)
    took = f"{units.time(misuse.SECONDS * 1e9)} each"
    screen.entry(((f"  {misuse.NAME}", width + 3, ""), (took, 17, "")), misuse.TITLE)
    for group in workloads.GROUPS:
        screen.line(f"\nworkloads: {workloads.GROUP_TITLES[group]}")
        for entry in (entry for entry in entries if entry.group == group):
            took = f"{units.time(entry.seconds * 1e9)} a run"
            screen.entry(((f"  {entry.name}", width + 3, ""), (took, 17, "")), entry.title)
    return screen.text()


def _duration(name: str, here: int, quick: bool) -> str:
    """Returns about how long an experiment takes, in whole minutes."""
    (choice,) = run_settings.chosen([name], quick)
    count = (len(choice.size.contenders) or here) + len(choice.size.beside)
    count += len(ILL) if choice.experiment.ill else 0
    rule = run_settings.rule(choice, None, count)
    seconds = choice.expected_s(count, rule) if rule.budget_s is None else rule.budget_s
    return units.duration(60 * max(1, round(seconds / 60)))
