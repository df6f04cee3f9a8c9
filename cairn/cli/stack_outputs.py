"""The forms of call stacks that 'cairn profile' writes beside its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cairn.cli.console import check_out, emit, refuse_one_file
from cairn.errors import CairnError, UsageError
from cairn.extras import install_line
from cairn.profile.source_lines import PACKAGE

if TYPE_CHECKING:
    from cairn.profile.callers import Stack
    from cairn.profile.frame_names import FrameNames
    from cairn.profile.tally import Profile


class FoundStacks(Struct, frozen=True):
    """The stacks of a profile."""

    finest: tuple[Stack, ...]
    """The stacks with source lines, as far as the lines are known."""
    shown: tuple[Stack, ...]
    """The stacks as the report shows them: with source lines, or added up by function."""
    notes: tuple[str, ...]
    """Sentences that say why stacks, names or lines are missing."""
    recorded: bool = True
    """Whether the profile has call stacks."""


def names_of(profile: Profile, folder: Path | None, debug_path: Sequence[str] = ()) -> FrameNames:
    """The names of the frames of a profile.

    folder: the folder of a kept profile, which may have names that 'cairn symbolize' found. None if
    the profile was not kept.
    """
    from cairn.binary.build_ids import FilesByBuildId
    from cairn.profile import kept_names
    from cairn.profile.frame_names import FrameNames

    ended = max((one.ended_unix_ns for one in profile.processes), default=0)
    kept = kept_names.read(folder) if folder is not None else None
    return FrameNames(FilesByBuildId(debug_path, ended or None), kept)


class StackOutputs(Struct, frozen=True):
    """The forms that the user asked for, with their files; "-" is standard output."""

    tree: bool
    collapsed: str | None
    speedscope: str | None
    pprof: str | None
    flame_graph: str | None
    by_line: bool = False
    """Whether the report distinguishes the source lines of a function."""
    debug_path: tuple[str, ...] = ()
    """Folders with programs, libraries and debug files."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files, in the order of the fields."""
        return tuple(one for one in self._all if one)

    @property
    def _all(self) -> tuple[str | None, ...]:
        return self.collapsed, self.speedscope, self.pprof, self.flame_graph

    @property
    def wanted(self) -> bool:
        """Whether any form was asked for."""
        return self.tree or self.by_line or bool(self.files)

    def check(self, others: Sequence[str | None], force: bool) -> None:
        """Raises UsageError if a file cannot be written, or if two outputs share one."""
        named = [one for one in (*others, *self.files) if one]
        if named.count("-") > 1:
            raise UsageError("only one output can be standard output; give the others a file")
        refuse_one_file(*(_path(one) for one in named))
        for file in self.files:
            check_out(_path(file), force)

    def stacks(self, profile: Profile, folder: Path | None) -> FoundStacks:
        """The call stacks of the profile. folder: as for `names_of`.

        If a form needs call stacks and the profile has none, a note says so. But for a kept
        profile, which can be reported again without this form, it raises CairnError.
        """
        from cairn.profile.callers import by_function, has_lines, stacks
        from cairn.report.naming_table import NO_LINES, changed, lines_missing

        if not profile.stacks:
            if self.wanted and folder is not None:
                raise CairnError(
                    profile.stacks_problem
                    or "there are no call stacks in this profile; record it with --stacks"
                )
            notes = self._without(profile) if self.wanted else ()
            return FoundStacks((), (), notes, recorded=False)
        names = names_of(profile, folder, self.debug_path)
        finest = stacks(profile.stacks, names.at)
        note = ""
        if names.lines_missing:
            note = lines_missing(install_line(PACKAGE))
        elif self.by_line and not has_lines(finest):
            note = NO_LINES
        notes = tuple(one for one in (changed(names.changed), note) if one)
        return FoundStacks(finest, finest if self.by_line else by_function(finest), notes)

    @staticmethod
    def _without(profile: Profile) -> tuple[str, ...]:
        """The sentence that says why no call stacks were recorded, if the report has none."""
        why = (
            "▲ No call stacks were recorded. Call stacks are lost if a process changes its user or "
            "its root folder, installs a filter of system calls, or finds no room for its file."
        )
        # The notes of the report have the problem.
        return () if profile.stacks_problem else (why,)

    def writes(self, found: FoundStacks, title: str, force: bool) -> tuple[Callable[[], None], ...]:
        """Returns a function for each form that writes it.

        Without call stacks, no form is written. If one was asked for, the only function raises
        CairnError.
        """
        from cairn.report import flame_graph, stack_forms

        if not found.recorded:
            return (self._refuse,) if self.files else ()
        finest, shown, by_line = found.finest, found.shown, self.by_line
        forms: tuple[tuple[str | None, Callable[[], str | bytes]], ...] = (
            (self.collapsed, lambda: stack_forms.collapsed(shown)),
            (self.speedscope, lambda: stack_forms.speedscope(shown, title)),
            (self.pprof, lambda: stack_forms.pprof(finest)),
            (
                self.flame_graph,
                lambda: flame_graph.flame_graph(finest, title, by_line=by_line),
            ),
        )
        return tuple(
            partial(_write, content, _path(file), force)
            for file, content in forms
            if file is not None
        )

    def _refuse(self) -> None:
        files = " and ".join("standard output" if one == "-" else one for one in self.files)
        raise CairnError(f"without call stacks, nothing is written to {files}")


def _write(content: Callable[[], str | bytes], file: Path | None, force: bool) -> None:
    emit(content(), file, force)


def _path(out: str) -> Path | None:
    return None if out == "-" else Path(out)
