"""What a batch from a client must satisfy before a log takes it, and with which of Kafka's errors it is refused.

Two depths. `check_batch` looks at the header and the checksum only: every produce pays for it, so it costs microseconds
however many records there are. `prepare_batch` decodes: a compacted topic must see every key, and a topic with its own
`compression.type` must recompress. It is a plain function of bytes, so that a worker process can run it.

Kafka decodes every batch. Where a topic needs no preparation, a producer that lies about the records inside a valid
checksum is not found out here; its readers are told CORRUPT_MESSAGE.
"""

from typing import Final, NoReturn

from tidelog.config import TopicConfig
from tidelog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
)
from tidelog.wire.checksum import crc32c
from tidelog.wire.compression import CODEC_NAMES, DECOMPRESSED_MAX, Codec, compress
from tidelog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    MIN_RECORD_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    pack_batch,
    payload_of,
)
from tidelog.wire.records import scan_records

Records = memoryview | bytes | bytearray

_NO_TIMESTAMP: Final = -1
_LEGACY_BATCH_MIN: Final = (
    14  # the least that any format can declare, and the line Kafka draws between broken and short
)


def check_batch(records: Records, config: TopicConfig, now_ms: int, *, sequenced: bool = True) -> BatchHeader:
    """Exactly one batch that `config` accepts, or the error Kafka would answer. The order of checks is Kafka's too.
    Only a coordinator's own batches may have a producer and no sequence."""
    header = _check_frame(records, config)
    attributes = header.attributes
    count = header.records_count
    if not attributes & CODEC_MASK and count > (len(records) - HEADER_SIZE) // MIN_RECORD_SIZE:
        raise InvalidRecord(f"{len(records) - HEADER_SIZE} bytes cannot hold the declared {count} records")
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{count} records do not span {header.last_offset_delta + 1} offsets")
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control records")
    if header.producer_id >= 0:
        if (header.base_sequence < 0 and sequenced) or header.producer_epoch < 0:
            raise InvalidRecord(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
            )
    elif attributes & TRANSACTIONAL:
        raise InvalidRecord("a transactional batch needs a producer id")
    if attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("producers may not set the timestamp type to LogAppendTime")
    if config.message_timestamp_type == "CreateTime":
        _check_timestamps(header, config, now_ms)
    return header


def _check_frame(records: Records, config: TopicConfig) -> BatchHeader:
    """The bytes are one whole batch as its producer sealed it, of a size and codec this topic takes."""
    size = len(records)
    if size < HEADER_SIZE:
        _refuse_short(records)
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header.magic != MAGIC or header.batch_length != size - LENGTH_OVERHEAD:
        _refuse_frame(header, size)
    if header.base_offset != 0:
        raise InvalidRecord(f"a producer's batch has base offset 0, not {header.base_offset}")
    if size > config.max_message_bytes:
        raise MessageTooLarge(size, config.max_message_bytes)
    if crc32c(memoryview(records)[ATTRIBUTES_POSITION:]) != header.crc:
        raise CorruptMessage("the batch does not match its checksum")
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise UnsupportedCompression(f"unknown compression codec {header.attributes & CODEC_MASK}")
    return header


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    # Base and maximum are the timestamps of real records in every client's batches, and bound the others.
    newest, oldest = header.max_timestamp, header.base_timestamp
    if newest - now_ms > config.message_timestamp_after_max_ms and newest != _NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {newest} is more than message.timestamp.after.max.ms past {now_ms}")
    if now_ms - oldest > config.message_timestamp_before_max_ms and oldest != _NO_TIMESTAMP:
        raise InvalidTimestamp(f"timestamp {oldest} is more than message.timestamp.before.max.ms before {now_ms}")


def _refuse_short(records: Records) -> NoReturn:
    """Kafka calls an incomplete batch an absence of batches, but a senseless length or magic corrupt."""
    if len(records) > MAGIC_POSITION:
        length = int.from_bytes(records[8:12], "big", signed=True)
        if length < _LEGACY_BATCH_MIN or length + LENGTH_OVERHEAD <= len(records) or records[MAGIC_POSITION] > MAGIC:
            raise CorruptMessage(
                f"{len(records)} bytes with length {length}, magic {records[MAGIC_POSITION]}: no batch"
            )
    raise InvalidRecord(f"{len(records)} bytes hold no whole record batch")


def _refuse_frame(header: BatchHeader, size: int) -> NoReturn:
    if header.batch_length < _LEGACY_BATCH_MIN or not 0 <= header.magic <= MAGIC:
        raise CorruptMessage(f"not a batch: magic {header.magic}, length {header.batch_length}")
    if header.size > size:
        raise InvalidRecord(f"the batch declares {header.size} bytes, {size} arrived")
    if header.magic != MAGIC:
        # Kafka refuses old formats here as bad records, keeping UNSUPPORTED_FOR_MESSAGE_FORMAT for old topics.
        raise InvalidRecord(f"record batches must have magic 2, not {header.magic}")
    if header.size < HEADER_SIZE:
        raise CorruptMessage(f"the batch declares {header.size} bytes, less than its own header")
    raise InvalidRecord(f"{size - header.size} bytes follow the one record batch allowed per partition")


def needs_preparation(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether `prepare_batch` must see this batch: keys to check, or another codec to write."""
    if "compact" in config.cleanup_policy:
        return True
    target = config.compression_type
    return target != "producer" and CODEC_NAMES[target] != header.attributes & CODEC_MASK


def prepare_batch(records: Records, config: TopicConfig, limit: int = DECOMPRESSED_MAX) -> bytes:
    """The batch to append in place of `records`: each record is looked at. `check_batch` has the rest to say, before or
    after; only the frame is checked here too, because recompression seals the batch anew, over any damage.

    Broken records under a valid checksum are what the producer meant to send, so they get INVALID_RECORD:
    CORRUPT_MESSAGE would make it retry in vain.
    """
    header = _check_frame(records, config)
    try:
        payload = payload_of(header, records, limit)
        _check_records(payload, header, keys_needed="compact" in config.cleanup_policy)
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from None
    codec = header.codec
    target = codec if config.compression_type == "producer" else CODEC_NAMES[config.compression_type]
    if target == codec:
        return bytes(records)
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | target)
    batch = pack_batch(changed, compress(target, payload, _level(target, config)))
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(len(batch), config.max_message_bytes)
    return batch


def _check_records(payload: bytes, header: BatchHeader, *, keys_needed: bool) -> None:
    spans = scan_records(payload, header.records_count, header.last_offset_delta)
    for expected, (_, _, delta, _, key, _) in enumerate(spans):
        if delta != expected:
            raise InvalidRecord(f"record {expected} of the batch has offset delta {delta}")
        if key is None and keys_needed:
            raise InvalidRecord(f"record {expected} has no key, which a compacted topic needs")


def _level(codec: int, config: TopicConfig) -> int | None:
    if codec == Codec.GZIP:
        return config.compression_gzip_level
    if codec == Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec == Codec.ZSTD else None
