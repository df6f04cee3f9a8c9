"""Takes the builds of a run's files after --setup, and watches the files while they are used."""

from __future__ import annotations

from msgspec.structs import replace

from cairn.model import Run
from cairn.run import builds
from cairn.run.store import Folder


def taken(run: Run, folder: Folder, *, has_trials: bool) -> tuple[Run, builds.Watch]:
    """Returns the run with the builds of its files, and the watch that notices another build.

    It is called after --setup, which may build the programs. A run without trials keeps the builds
    of now. For a run with trials, this raises UsageError, ProgramFailed or ContenderFailed if the
    run began with other builds. It raises ProgramMissing if a program is gone.
    """
    now = builds.of_run(run.settings, run.contenders)
    if has_trials:
        own = [one for one in run.contenders if one.name == run.baseline]
        builds.refuse_other(run.builds, now, [path for one in own for path in one.preload])
    else:
        run = replace(run, builds=now)
        folder.update(run)
    others = builds.of_others_alone(run.settings, run.contenders, run.baseline)
    return run, builds.Watch(now, others)
