"""Tests of archives of the user, which may be damaged or hostile."""

from __future__ import annotations

import errno
import io
import os
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from cairn.allocators import archives
from cairn.errors import UsageError

FORMS = ("tar", "tar.gz", "tar.bz2", "tar.xz", "zip")


def packed(form: str, path: Path) -> bytes:
    """Makes an archive with a script and a file that cannot be compressed; returns its bytes."""
    blob = random.Random(7).randbytes(3000)
    files = {"top/configure": (b"#!/bin/sh\n", 0o755), "top/blob": (blob, 0o644)}
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, (content, mode) in files.items():
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (stat.S_IFREG | mode) << 16
                made.writestr(entry, content, zipfile.ZIP_DEFLATED)
    else:
        with tarfile.open(path, f"w:{form[4:]}") as archive:  # type: ignore[call-overload]
            for name, (content, mode) in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), mode
                archive.addfile(info, io.BytesIO(content))
    return path.read_bytes()


def unpacked(path: Path, target: Path) -> Path:
    target.mkdir()
    archives.unpack(str(path), target)
    return target


@pytest.mark.parametrize("form", FORMS)
def test_files_keep_their_permission_to_execute(tmp_path: Path, form: str) -> None:
    """Files of a zip once lost this permission, so that ./configure could not be run."""
    packed(form, tmp_path / "a")
    target = unpacked(tmp_path / "a", tmp_path / "out")
    assert os.access(target / "top/configure", os.X_OK)
    assert not (target / "top/blob").stat().st_mode & 0o111


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_changed_byte_anywhere_is_noticed(tmp_path: Path, form: str) -> None:
    """Cairn once did not read the checksum at the end of the stream, and built a damaged source."""
    whole = packed(form, tmp_path / "a")
    for place in (len(whole) // 3, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[place : place + 16] = bytes(255 - byte for byte in damaged[place : place + 16])
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(UsageError, match=r"cannot be unpacked|not a readable archive"):
            unpacked(tmp_path / "bad", tmp_path / f"{form}-{place}")


@pytest.mark.parametrize("form", FORMS)
def test_any_damage_is_one_sentence(tmp_path: Path, form: str) -> None:
    whole, rng = packed(form, tmp_path / "a"), random.Random(3)
    for number in range(25):
        damaged = bytearray(whole[: rng.randrange(1, len(whole))] if number % 2 else whole)
        for _ in range(number % 5):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / "bad").write_bytes(damaged)
        try:
            unpacked(tmp_path / "bad", tmp_path / f"out-{number}")
        except UsageError as error:
            assert "\n" not in str(error) and str(error).endswith(".")


def test_a_link_of_a_zip_is_a_link_and_never_leads_outside(tmp_path: Path) -> None:
    for target, inside in (("real", True), ("../../etc/passwd", False), ("/etc/passwd", False)):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
            made.writestr("real", "text")
            entry = zipfile.ZipInfo("link")
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            made.writestr(entry, target)
        out = tmp_path / f"out-{len(target)}"
        if inside:
            assert (unpacked(tmp_path / "a.zip", out) / "link").readlink() == Path("real")
            continue
        with pytest.raises(UsageError, match="leads outside"):
            unpacked(tmp_path / "a.zip", out)


def test_a_hard_link_to_nothing_and_a_time_that_cannot_be_are_sentences(tmp_path: Path) -> None:
    link, old = tarfile.TarInfo("link"), tarfile.TarInfo("old")
    link.type, link.linkname = tarfile.LNKTYPE, "none"
    old.mtime = 1 << 70
    for number, info in enumerate((link, old)):
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as archive:
            archive.addfile(info)
        with pytest.raises(UsageError, match="cannot be unpacked"):
            unpacked(tmp_path / "a.tar", tmp_path / str(number))


def test_a_full_disk_is_no_fault_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed("tar.gz", tmp_path / "a")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives, "_unpack_tar", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(tmp_path / "a", tmp_path / "out")
