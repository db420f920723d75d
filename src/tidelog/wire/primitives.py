"""The smallest pieces of Kafka's wire format: integer kinds, unsigned varints, UUIDs.

The aliases are what message tables are written in. To the type checker `i16` is an `int`; to the compiler it is two
bytes, big endian.
"""

from functools import lru_cache
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from tidelog.errors import MalformedMessage


class Fixed(NamedTuple):
    """A value of constant size, by its `struct` format character."""

    format: str


class Opaque(NamedTuple):
    """Length-prefixed bytes nobody looks into here; decoded as a slice of the input, not a copy."""

    what: str


i8 = Annotated[int, Fixed("b")]
i16 = Annotated[int, Fixed("h")]
i32 = Annotated[int, Fixed("i")]
i64 = Annotated[int, Fixed("q")]
u16 = Annotated[int, Fixed("H")]
u32 = Annotated[int, Fixed("I")]
f64 = Annotated[float, Fixed("d")]
Bytes = Annotated[bytes | bytearray | memoryview, Opaque("bytes")]
Records = Annotated[bytes | bytearray | memoryview, Opaque("records")]

NO_UUID: Final = UUID(int=0)
ONE_BYTE: Final = tuple(bytes([value]) for value in range(256))  # looked up, a byte is three times cheaper than packed
UVARINT_BYTES_MAX: Final = 5  # 32 bits, seven at a time


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """The value and the position after it."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return finish_uvarint(buffer, position + 1, first)


def finish_uvarint(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte is read: nearly all are one byte long, which callers handle inline."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessage(f"varint longer than {UVARINT_BYTES_MAX} bytes")


# Topic ids repeat on every request of a connection and `UUID()` costs more than decoding the partition it names.
@lru_cache(maxsize=8192)
def uuid_of(raw: bytes) -> UUID:
    return UUID(bytes=raw)
