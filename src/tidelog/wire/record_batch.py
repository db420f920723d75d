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

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.wire.checksum import crc32c
from tidelog.wire.compression import DECOMPRESSED_MAX, Buffer, Codec, compress, decompress
from tidelog.wire.records import Record, append_record, decode_records, encode_pairs

__all__ = [
    "ATTRIBUTES_POSITION",
    "CODEC_MASK",
    "CONTROL",
    "CRC_POSITION",
    "HAS_DELETE_HORIZON",
    "HEADER",
    "HEADER_SIZE",
    "LEADER_EPOCH_POSITION",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME",
    "MAGIC",
    "MAGIC_POSITION",
    "MAX_TIMESTAMP_POSITION",
    "MIN_RECORD_SIZE",
    "TRANSACTIONAL",
    "BatchHeader",
    "Buffer",
    "Record",
    "batch_of",
    "build_batch",
    "build_pairs",
    "crc_of",
    "iter_batches",
    "iter_records",
    "pack_batch",
    "patch",
    "payload_of",
    "read_header",
    "seal",
]

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
_HEADER: Final = HEADER.pack
LENGTH_OVERHEAD: Final = 12  # batch_length counts what follows base_offset and itself
MAGIC: Final = 2
LEADER_EPOCH_POSITION: Final = 12
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

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_U32: Final = Struct(">I")


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


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def crc_of(batch: Buffer) -> int:
    """The checksum this batch should carry; `batch` is exactly one batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every whole batch in `buffer`; a partial one at the end is what a bounded fetch leaves, and is not an error."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position + HEADER_SIZE <= end:
        header = BatchHeader._make(HEADER.unpack_from(view, position))
        size = header.batch_length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptMessage(f"batch at {position} declares {header.batch_length} bytes, less than a header")
        if header.magic != MAGIC:
            raise CorruptMessage(f"batch at {position} has magic {header.magic}")
        if position + size > end:
            return
        yield header, view[position : position + size]
        position += size


def payload_of(header: BatchHeader, batch: Buffer, limit: int = DECOMPRESSED_MAX) -> bytes:
    """The records' bytes, decompressed; refused early when the header cannot be true of them."""
    codec = header.attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise CorruptMessage(f"unknown compression codec {codec}")
    data = decompress(codec, memoryview(batch)[HEADER_SIZE : header.size], limit)
    if not 0 <= header.records_count <= len(data) // MIN_RECORD_SIZE:
        raise CorruptMessage(f"{len(data)} bytes cannot hold {header.records_count} records")
    return data


def iter_records(batch: Buffer, limit: int = DECOMPRESSED_MAX) -> Iterator[Record]:
    """The records of one batch, control records included. The CRC is not looked at: see `crc_of`.

    Raises CorruptMessage, at the record where it shows, for anything that is not a batch.
    """
    if len(batch) < HEADER_SIZE:
        raise CorruptMessage(f"{len(batch)} bytes are less than a batch header")
    header = read_header(batch)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch):
        raise CorruptMessage(f"not a batch: magic {header.magic}, length {header.batch_length}")
    return decode_records(
        payload_of(header, batch, limit),
        header.records_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_time_ms=header.max_timestamp if header.attributes & LOG_APPEND_TIME else None,
    )


def patch(
    batch: bytearray | memoryview,
    *,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    append_time_ms: int | None = None,
) -> None:
    """Write what a leader assigns. Only `append_time_ms` (LogAppendTime) lies inside the CRC and recomputes it."""
    if base_offset is not None:
        _I64.pack_into(batch, 0, base_offset)
    if leader_epoch is not None:
        _I32.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)
    if append_time_ms is not None:
        (attributes,) = _I16.unpack_from(batch, ATTRIBUTES_POSITION)
        _I16.pack_into(batch, ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME)
        _I64.pack_into(batch, MAX_TIMESTAMP_POSITION, append_time_ms)
        seal(batch)


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum of a batch whose other bytes are final."""
    _U32.pack_into(batch, CRC_POSITION, crc_of(batch))


def pack_batch(header: BatchHeader, payload: Buffer) -> bytes:
    """`header` over `payload` as it stands (already compressed); length and checksum are computed here."""
    fields = header._replace(batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(payload), crc=0)
    batch = bytearray(HEADER.pack(*fields))
    batch += payload
    seal(batch)
    return bytes(batch)


def build_pairs(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    attributes: int = 0,
) -> bytes:
    """`build_batch` for what coordinators write: keyed records of one moment, without headers, from offset 0."""
    return bytes(
        batch_of(
            encode_pairs(pairs),
            len(pairs),
            timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            attributes=attributes,
        )
    )


def batch_of(
    payload: Buffer,
    count: int,
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    attributes: int = 0,
) -> bytearray:
    """A batch from offset 0 over `count` records of one moment that are encoded already."""
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    last = count - 1
    batch = bytearray(
        _HEADER(0, length, -1, MAGIC, 0, attributes, last, timestamp, timestamp, producer_id, producer_epoch, -1, count)
    )
    batch += payload
    seal(batch)
    return batch


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    attributes: int = 0,
    append_time_ms: int | None = None,
) -> bytes:
    """One batch of `records`, whose offsets must rise from `base_offset`; gaps (a compacted log) are kept.

    `attributes` adds bits to the codec's, such as TRANSACTIONAL. With `append_time_ms` the batch is one that a
    LogAppendTime topic stores. The delete horizon moves the base timestamp: that is compaction's
    business, not done here.
    """
    entries = list(records)
    if not entries:
        raise ValueError("a batch needs at least one record")
    base_timestamp = entries[0].timestamp
    max_timestamp = max(entry.timestamp for entry in entries)
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = append_time_ms
    payload = bytearray()
    for record in entries:
        append_record(payload, record, record.offset - base_offset, record.timestamp - base_timestamp)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes & ~CODEC_MASK | codec,
        last_offset_delta=entries[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(entries),
    )
    return pack_batch(header, compress(codec, payload, level) if codec else payload)
