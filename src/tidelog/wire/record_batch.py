"""Kafka's v2 record batch: a 61-byte header over records that the broker leaves alone.

    base_offset            i64   assigned by the broker  ┐ outside the CRC, so both can be
    batch_length           i32   bytes after this field  │ patched in place without touching
    partition_leader_epoch i32   assigned by the broker  ┘ the producer's checksum
    magic                  i8    2
    crc                    u32   CRC-32C of everything from `attributes` to the end
    attributes             i16   codec (bits 0-2), timestamp type (3), transactional (4), control (5), delete horizon (6)
    last_offset_delta      i32
    base_timestamp         i64
    max_timestamp          i64
    producer_id            i64
    producer_epoch         i16
    base_sequence          i32
    records_count          i32
"""

from struct import Struct
from typing import Final, NamedTuple

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LENGTH_OVERHEAD: Final = 12  # batch_length counts what follows base_offset and itself
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
MIN_RECORD_SIZE: Final = 7  # seven one-byte varints: the smallest record that can exist

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, position))
