"""Varints and UUIDs, the parts every message is made of."""

from uuid import UUID

import pytest

from tidelog.errors import MalformedMessage
from tidelog.wire.primitives import read_uvarint, uuid_of, uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_uvarint(value, encoded):
    raw = bytes.fromhex(encoded)
    assert uvarint(value) == raw
    assert read_uvarint(b"x" + raw + b"y", 1) == (value, 1 + len(raw))
    assert read_uvarint(memoryview(raw), 0) == (value, len(raw))


def test_a_varint_ends_after_five_bytes():
    with pytest.raises(MalformedMessage):
        read_uvarint(bytes.fromhex("ffffffffff01"), 0)
    with pytest.raises(MalformedMessage):
        read_uvarint(bytes.fromhex("808080808000"), 0)


def test_uuids():
    assert uuid_of(bytes(range(16))) == UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert uuid_of(bytes(16)) == UUID(int=0)
