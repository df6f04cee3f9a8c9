"""Reads protobuf messages without their schema."""

from __future__ import annotations


def fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a message, as (field number, value). A value is a number or bytes."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            assert key & 7 == 2
            length = varint()
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def numbers(content: int | bytes) -> list[int]:
    """The numbers of a packed field, each below 128."""
    assert isinstance(content, bytes)
    assert all(byte < 0x80 for byte in content)
    return list(content)
