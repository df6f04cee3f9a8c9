"""Unpacks the user's archive: tar with any compression, or zip.

An archive may be damaged or hostile. Nothing is written outside of the target folder, and each
fault is reported as one sentence. The checksum of the whole stream is always checked, which tarfile
does not do.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import zipfile
from pathlib import Path

from cairn.errors import UsageError

_OF_THE_ARCHIVE = (
    errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ELOOP,
    errno.ENOENT,
)  # fmt: skip
"""The errors of the system that the names in an archive can cause."""
_AT_ONCE = 1 << 20
_LINK_MOST = 4096
"""The longest target of a link in a zip file, in bytes. A longer one is unpacked as a file."""


def unpack(place: str, target: Path) -> None:
    """Unpacks the archive `place` into the folder `target`.

    Raises UsageError for a file that is not an archive, or that cannot be unpacked, and OSError if
    the disk refuses.
    """
    try:
        try:
            archive = tarfile.open(place)  # noqa: SIM115 - closed below
        except tarfile.ReadError:
            if not zipfile.is_zipfile(place):
                raise UsageError(
                    f"{place} is not a readable archive; give a folder, a tar or a zip file."
                ) from None
            _unpack_zip(place, target)
        else:
            with archive:
                _unpack_tar(place, archive, target)
    except UsageError:
        raise
    except OSError as error:
        # For damaged data, the decompressors raise OSError without an errno.
        if error.errno is not None and error.errno not in _OF_THE_ARCHIVE:
            raise
        raise _cannot(place, error) from None
    except Exception as error:
        # Damaged data make the decompressors and tarfile raise errors of a dozen kinds.
        raise _cannot(place, error) from None


def _cannot(place: str, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return UsageError(f"{place} cannot be unpacked ({reason}); give a folder, or pack it again.")


def _unpack_tar(place: str, archive: tarfile.TarFile, target: Path) -> None:
    if hasattr(tarfile, "data_filter"):
        archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
    else:
        _unpack_members(place, archive, target)
    # tarfile stops at the end mark. The checksum of a compressed stream comes after the mark, and
    # is compared when the stream is read to its end.
    while archive.fileobj is not None and archive.fileobj.read(_AT_ONCE):
        pass


def _unpack_members(place: str, archive: tarfile.TarFile, target: Path) -> None:
    """Unpacks each member that stays in the folder. Python lacks data_filter before 3.11.4.

    A name is followed through the links that are already unpacked. Raises UsageError for a member
    or a link that leads outside, and for a device.
    """
    root = os.path.realpath(target)
    for member in archive:
        path = os.path.join(root, member.name.lstrip("/"))
        ends = [path]
        if member.issym():
            ends.append(os.path.join(os.path.dirname(path), member.linkname))
        elif member.islnk():
            ends.append(os.path.join(root, member.linkname))
        elif not (member.isfile() or member.isdir()):
            raise UsageError(f"{place} cannot be unpacked ({member.name} is a device).")
        if any(not Path(os.path.realpath(end)).is_relative_to(root) for end in ends):
            raise UsageError(
                f"{place} cannot be unpacked ({member.name} leads outside); give a folder, "
                "or pack it again."
            )
        member.name = member.name.lstrip("/")
        member.mode = member.mode & 0o755 | 0o600 | (0o100 if member.isdir() else 0)
        archive.extract(member, root)


def _unpack_zip(place: str, target: Path) -> None:
    """Unpacks files, and also permissions to execute and symbolic links, which zipfile drops."""
    links: list[tuple[Path, str]] = []
    with zipfile.ZipFile(place) as packed:
        for entry in packed.infolist():
            path = Path(packed.extract(entry, target))
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode) and entry.file_size <= _LINK_MOST:
                links.append((path, os.fsdecode(packed.read(entry))))
            elif path.is_file() and mode & 0o111:
                path.chmod(0o755)
    # Links are made at the end, so that no file is written through one.
    root = os.path.realpath(target)
    for path, text in links:
        path.unlink()
        os.symlink(text, path)
    for path, text in links:
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise UsageError(
                f"{place} cannot be unpacked (its link {text} leads outside); give a folder, or "
                "pack it again."
            )
