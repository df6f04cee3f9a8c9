"""Tests of the spare memory and its reader.

Processes that cannot write a file of their own record into the spare memory. They share it, so its
content may be wrong. The programs that record there are in tests/e2e/test_profile_gaps.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.probes import busy

from cairn.errors import CairnError
from cairn.profile import reader, spare
from cairn.profile.missing import Executed
from cairn.profile.tally import Missing
from cairn.run.spare_memory import spare_memory


@pytest.fixture
def memory() -> Iterator[spare.Spare]:
    with spare_memory() as made:
        assert made is not None
        yield made


def put(memory: spare.Spare, offset: int, content: bytes) -> None:
    assert os.pwrite(memory.descriptor, content, offset) == len(content)


def window(records: list[int], unrecorded: list[tuple[int, int, bytes]], more: int = 0) -> bytes:
    made = np.zeros(1, spare.WINDOW)
    made["magic"] = spare.MAGIC
    made["record_offsets"][0, : len(records)] = records
    for place, one in enumerate(unrecorded):
        made["unrecorded"][0, place] = one
    made["unrecorded_count"] = len(unrecorded) + more
    return made.tobytes()


def test_new_memory_has_no_records_and_takes_no_space(memory: spare.Spare) -> None:
    assert memory.names() == [] and memory.missing() == ()
    assert os.fstat(memory.descriptor).st_blocks * 512 <= 4096
    number, device, inode, _ = memory.variable()["CAIRN_PROBE_SPARE"].split(":")
    about = os.fstat(int(number))
    assert (about.st_dev, about.st_ino) == (int(device), int(inode))
    assert os.get_inheritable(int(number)) and int(number) >= 700


def test_no_process_can_change_its_size(memory: spare.Spare) -> None:
    for size in (0, 1 << 50):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)


def test_records_of_all_windows_are_read_and_saved(memory: spare.Spare, tmp_path: Path) -> None:
    content = busy().content()
    place = 5 * spare.WINDOW_BYTES
    put(memory, place, window([spare.HEAD_BYTES], [(812, 27, b"prog")]))
    put(memory, place + spare.HEAD_BYTES, content)
    (found,) = memory.profiles()
    assert found is not None
    assert memory.missing() == (Missing(812, "prog", "EFBIG"),)
    memory.save(tmp_path)
    (file,) = tmp_path.glob("*.probe")
    assert file.read_bytes() == content
    assert file.stat().st_mode & 0o777 == 0o600
    again = reader.gather(tmp_path, memory.profiles())
    assert [process.pid for process in again.processes] == [found.process.pid] * 2


def test_a_record_is_not_read_beyond_its_end(tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_bytes(b"beforerecordbehind")
    with open(file, "rb") as opened:
        source = reader._Source(opened.fileno(), 6, 6)
        assert source.read(100, 0) == b"record" and source.read(100, 2) == b"cord"
        assert source.read(3, 1) == b"eco" and source.read(100, 6) == b""


def test_processes_beyond_the_table_are_counted(memory: spare.Spare) -> None:
    put(memory, 0, window([], [(7, 13, b"prog")] * spare.UNRECORDED, more=3))
    missing = memory.missing()
    assert len(missing) == spare.UNRECORDED + 3
    assert missing[-1] == Missing(0, "", "")


def test_executed_programs_are_read_with_their_reasons(memory: spare.Spare) -> None:
    made = np.frombuffer(bytearray(window([], [])), spare.WINDOW)
    made["executed"][0, 0] = (100, 7, 13, b"dynamic", b"sort")
    made["executed"][0, 1] = (200, 0, 13, b"dynamic", b"failed")
    made["executed"][0, 2] = (300, 8, 13, b"static", b"busybox")
    made["executed_count"] = spare.EXECUTED + 2
    put(memory, 0, made.tobytes())
    assert memory.executed() == (
        Executed(100, Missing(7, "sort", "EACCES")),
        Executed(300, Missing(8, "busybox", "static")),
    )
    assert memory.missing() == (Missing(0, "", ""),) * 2


def test_wrong_content_is_one_sentence_or_ignored(memory: spare.Spare) -> None:
    chance = random.Random(1)
    content = bytearray(busy().content())
    for _ in range(200):
        offsets = [chance.choice((0, spare.HEAD_BYTES, spare.WINDOW_BYTES - 8, 2**64 - 1))]
        unrecorded = [(chance.getrandbits(32), chance.getrandbits(32), chance.randbytes(56))]
        more = chance.choice((0, 2**40))
        put(memory, 0, window(offsets, unrecorded, more))
        content[chance.randrange(400)] = chance.getrandbits(8)
        put(memory, spare.HEAD_BYTES, bytes(content))
        memory.missing()
        memory.executed()
        try:
            list(memory.profiles())
        except CairnError as error:
            assert "spare memory" in str(error)
