"""Names the frames of a stack: functions, inlined functions, and source lines.

The names of a frame come from the first of these that knows its address:

    kept names     those that 'cairn symbolize' wrote beside the profile
    files          the symbol tables and the debug information of files with the build ID
"""

from __future__ import annotations

from cairn.binary.build_ids import FilesByBuildId
from cairn.profile.callers import Frame
from cairn.profile.function_names import Names, title
from cairn.profile.kept_names import KeptNames
from cairn.profile.source_lines import SourceLines


class FrameNames:
    """Finds the stack frames that belong to an address in a program or library."""

    def __init__(self, files: FilesByBuildId | None = None, kept: KeptNames | None = None) -> None:
        self._files = files = files or FilesByBuildId()
        self.changed: set[str] = set()
        """The paths at which another file is now, so that some of its frames have no names."""
        self._names, self._lines = Names(files), SourceLines(files)
        self._kept = kept

    @property
    def lines_missing(self) -> bool:
        """Whether source lines are missing only because a Python package is not installed."""
        return self._lines.is_missing

    def at(self, path: str, address: int, build_id: str) -> tuple[Frame, ...]:
        """The frames at an address, the outermost first. All frames but the first are inlined.

        If no name is known, the only frame has a name such as "library+address".
        """
        if self._kept is not None and (kept := self._kept.at(build_id, address)):
            return tuple(
                Frame(function, path, file, line, place > 0)
                for place, (function, file, line) in enumerate(kept)
            )
        if found := self.found(path, address, build_id):
            return found
        if self._files.is_other(path, build_id):
            self.changed.add(path)
        return (Frame(self._names.function_at(path, address, build_id), path),)

    def found(self, path: str, address: int, build_id: str) -> tuple[Frame, ...]:
        """The frames at an address by files of this machine alone, without kept names.

        The outermost frame comes first. The result is empty if the files do not know the function.
        """
        name = self._names.known_at(path, address, build_id)
        places = self._lines.at(path, address, build_id)
        if not places:
            return () if name is None else (Frame(name, path),)
        *inlined, outer = places
        return (
            Frame(name or title(outer.symbol), path, outer.file, outer.line),
            *(
                Frame(title(one.symbol), path, one.file, one.line, True)
                for one in reversed(inlined)
            ),
        )
