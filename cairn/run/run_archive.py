"""A whole run in one file, to keep or to send: a tar archive of its parts, compressed with xz."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

from cairn.errors import CairnError, UsageError, cannot
from cairn.run.stored_run import (
    INSTRUCTIONS,
    LARGEST_FILE,
    REFUSED,
    RUN,
    SAMPLES,
    SIMULATION,
    STOPPED,
    StoredRun,
)

ENDING = ".tar.xz"
_MAGIC = b"\xfd7zXZ\0"
"""The first bytes of a file that is compressed with xz."""
_PARTS = (RUN, SAMPLES, STOPPED, REFUSED, INSTRUCTIONS, SIMULATION)


class RunArchive(StoredRun):
    """A file made by `packed`. Reading it writes nothing to the disk.

    Members of the archive that are not part of a run are ignored.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._parts = _read(path)

    def content(self, name: str) -> bytes | None:
        """Returns one part of the run, as StoredRun.content does."""
        return self._parts.get(name)


def _read(path: Path) -> dict[str, bytes]:
    parts = {}
    try:
        with tarfile.open(path, "r:xz") as archive:
            for member in archive:
                if member.name not in _PARTS or not member.isreg():
                    continue
                if member.size > LARGEST_FILE:
                    raise CairnError(
                        f"{path} is not a run file of cairn: its {member.name} is larger than "
                        f"{LARGEST_FILE >> 20} MiB, the most that cairn writes; name another run"
                    )
                file = archive.extractfile(member)
                assert file is not None
                parts[member.name] = file.read()
    except OSError as error:
        raise cannot("read", path, error) from error
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise UsageError(
                    f"{path} is not a run; a run is a folder that contains run.json, or a file "
                    f"that ends in {ENDING}"
                ) from None
        raise CairnError(
            f"{path} is not a run file, or is damaged: {error}; name another run"
        ) from error
    return parts


def packed(run: StoredRun) -> bytes:
    """Returns the run as the bytes of a run file. The same run always gives the same bytes."""
    created_at = int(run.run().created_at)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for name in _PARTS:
            content = run.content(name)
            if content is None:
                continue
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), created_at, 0o644
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()
