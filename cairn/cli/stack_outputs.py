"""The forms of call stacks that 'cairn profile' writes beside its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli.console import check_out, emit, refuse_one_file
from cairn.errors import CairnError, UsageError

if TYPE_CHECKING:
    from cairn.profile.callers import Stack
    from cairn.profile.tally import Profile


@dataclass(frozen=True, slots=True)
class StackOutputs:
    """The forms that the user asked for, with their files; "-" is standard output."""

    tree: bool
    collapsed: str | None
    speedscope: str | None
    pprof: str | None
    flame_graph: str | None

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
        return self.tree or bool(self.files)

    def check(self, others: Sequence[str | None], force: bool) -> None:
        """Raises UsageError if a file cannot be written, or if two outputs share one."""
        named = [one for one in (*others, *self.files) if one]
        if named.count("-") > 1:
            raise UsageError("only one output can be standard output; give the others a file")
        refuse_one_file(*(_path(one) for one in named))
        for file in self.files:
            check_out(_path(file), force)

    def stacks(self, profile: Profile) -> tuple[Stack, ...]:
        """The stacks of the profile. Raises CairnError if a form needs some and there are none."""
        from cairn.profile.callers import stacks
        from cairn.profile.function_names import Names

        if self.wanted and not profile.stacks:
            raise CairnError(
                profile.stacks_problem
                or "there are no call stacks in this profile; record it with --stacks"
            )
        return stacks(profile.stacks, Names().function_at)

    def write(self, stacks: Sequence[Stack], title: str, force: bool) -> None:
        """Writes all forms."""
        from cairn.report import flame_graph, stack_forms

        forms: tuple[tuple[str | None, Callable[[], str | bytes]], ...] = (
            (self.collapsed, lambda: stack_forms.collapsed(stacks)),
            (self.speedscope, lambda: stack_forms.speedscope(stacks, title)),
            (self.pprof, lambda: stack_forms.pprof(stacks)),
            (self.flame_graph, lambda: flame_graph.flame_graph(stacks, title)),
        )
        for file, content in forms:
            if file is not None:
                emit(content(), _path(file), force)


def _path(out: str) -> Path | None:
    return None if out == "-" else Path(out)
