"""What a Fetch brought, made ready for the kernel: checked, without what was aborted, unpacked, in bounded portions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tidelog.client.fetcher import Fetched
from tidelog.errors import CorruptMessage, KafkaError
from tidelog.wire.compression import DECOMPRESSED_MAX, Codec
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MIN_RECORD_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    payload_of,
)

PORTION_BYTES: Final = 8 << 20
"""Payload that is turned into one Arrow batch. A bigger batch of the log is a portion of its own."""


@dataclass(slots=True)
class Portion:
    """Batches to be walked together. `payloads` are in the order of `headers`."""

    headers: list[BatchHeader] = field(default_factory=list)
    payloads: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0


class Unreadable(CorruptMessage):
    """A batch that cannot be read, and where it lies."""

    def __init__(self, topic: str, partition: int, base_offset: int, why: str) -> None:
        self.topic, self.partition, self.base_offset = topic, partition, base_offset
        super().__init__(f"topic {topic}, partition {partition}: the batch at offset {base_offset} is corrupt: {why}")


def portions(
    fetched: Fetched, *, topic: str, partition: int, read_committed: bool, first: int, until: int
) -> Iterator[Portion]:
    """Every batch that has data records to show in [first, until), a few at a time."""
    portion = Portion()
    for header, batch in _visible(fetched, read_committed):
        if header.last_offset < first or header.base_offset >= until or not header.records_count:
            continue
        try:
            payload = _payload(header, batch)
        except KafkaError as error:
            raise Unreadable(topic, partition, header.base_offset, str(error)) from None
        if portion.headers and portion.size + len(payload) > PORTION_BYTES:
            yield portion
            portion = Portion()
        portion.headers.append(header)
        portion.payloads.append(payload)
        portion.size += len(payload)
    if portion.headers:
        yield portion


def _payload(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
    if crc_of(batch) != header.crc:
        raise CorruptMessage("its checksum does not match its bytes")
    if header.attributes & CODEC_MASK != Codec.NONE:
        return payload_of(header, batch, DECOMPRESSED_MAX)
    payload = batch[HEADER_SIZE:]
    if not 0 <= header.records_count <= len(payload) // MIN_RECORD_SIZE:
        raise CorruptMessage(f"{len(payload)} bytes cannot hold {header.records_count} records")
    return payload


def _visible(fetched: Fetched, read_committed: bool) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The data batches; with `read_committed` those of no aborted transaction.

    An aborted producer's batches are hidden from the transaction's first offset to its abort marker.
    """
    ahead = sorted(fetched.aborted, key=lambda entry: entry.first_offset, reverse=True) if read_committed else []
    aborting: set[int] = set()
    for header, batch in fetched.batches:
        while ahead and ahead[-1].first_offset <= header.last_offset:
            aborting.add(ahead.pop().producer_id)
        if header.attributes & CONTROL:
            if header.producer_id in aborting:
                marker = read_marker(batch)
                if marker is not None and not marker.committed:
                    aborting.discard(header.producer_id)
            continue
        if header.attributes & TRANSACTIONAL and header.producer_id in aborting:
            continue
        yield header, batch


def append_time(header: BatchHeader) -> int | None:
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
