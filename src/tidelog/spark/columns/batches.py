"""What a Fetch brought, made ready for the kernel: checked, without what was aborted, unpacked, in bounded portions."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.client.fetcher import Fetched
from tidelog.errors import CorruptMessage, KafkaError
from tidelog.wire.checksum import crc32c
from tidelog.wire.compression import DECOMPRESSED_MAX, Codec
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MIN_RECORD_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    payload_of,
)

PORTION_BYTES: Final = 2 << 20
"""Payload that is turned into one Arrow batch. A bigger batch of the log is a portion of its own."""


class Portion(NamedTuple):
    """Batches to be walked together: `places` says where in `data` the payload of each lies, and how long it is."""

    data: bytes | memoryview
    headers: list[BatchHeader]
    places: list[tuple[int, int]]

    def payload(self, index: int) -> bytes:
        place, size = self.places[index]
        return bytes(self.data[place : place + size])


class Unreadable(CorruptMessage):
    """A batch that cannot be read, and where it lies."""

    def __init__(self, topic: str, partition: int, base_offset: int, why: str) -> None:
        self.topic, self.partition, self.base_offset = topic, partition, base_offset
        super().__init__(f"topic {topic}, partition {partition}: the batch at offset {base_offset} is corrupt: {why}")


def portions(
    fetched: Fetched, *, topic: str, partition: int, read_committed: bool, first: int, until: int
) -> Iterator[Portion]:
    """Every batch that has data records to show in [first, until), a few at a time."""
    headers: list[BatchHeader] = []
    places: list[tuple[int, int]] = []
    unpacked: list[bytes] = []  # payloads of compressed batches; others stay where they were received
    size = 0
    hidden = _Hidden(fetched) if read_committed else None
    for header, position in fetched.batches:
        batch = fetched.records[position : position + header.size]
        try:
            # First of all: what a corrupt batch says of itself must not decide that it is skipped.
            if crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
                raise CorruptMessage("its checksum does not match its bytes")
            if hidden is not None and hidden.hides(header, batch):
                continue
            if header.attributes & CONTROL or not header.records_count:
                continue
            if header.last_offset < first or header.base_offset >= until:
                continue
            payload = _payload(header, batch)
        except KafkaError as error:
            raise Unreadable(topic, partition, header.base_offset, str(error)) from None
        length = header.size - HEADER_SIZE if payload is None else len(payload)
        if headers and (size + length > PORTION_BYTES or (payload is None) == bool(unpacked)):
            yield Portion(b"".join(unpacked) if unpacked else fetched.records, headers, places)
            headers, places, unpacked, size = [], [], [], 0
        headers.append(header)
        places.append((position + HEADER_SIZE, length) if payload is None else (size, length))
        if payload is not None:
            unpacked.append(payload)
        size += length
    if headers:
        yield Portion(b"".join(unpacked) if unpacked else fetched.records, headers, places)


def _payload(header: BatchHeader, batch: memoryview) -> bytes | None:
    """The records' bytes if they had to be unpacked; None if they can be read where they are."""
    if header.attributes & CODEC_MASK != Codec.NONE:
        return payload_of(header, batch, DECOMPRESSED_MAX)
    if not 0 <= header.records_count <= (len(batch) - HEADER_SIZE) // MIN_RECORD_SIZE:
        raise CorruptMessage(f"{len(batch) - HEADER_SIZE} bytes cannot hold {header.records_count} records")
    return None


class _Hidden:
    """Batches of aborted transactions: a producer's, from its transaction's first offset to the abort marker."""

    def __init__(self, fetched: Fetched) -> None:
        self._ahead = sorted(fetched.aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """To be asked for every batch in the order of the log."""
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._aborting.add(self._ahead.pop().producer_id)
        if header.producer_id not in self._aborting:
            return False
        if header.attributes & CONTROL:
            marker = read_marker(batch)
            if marker is not None and not marker.committed:
                self._aborting.discard(header.producer_id)
        return bool(header.attributes & TRANSACTIONAL)


def append_time(header: BatchHeader) -> int | None:
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
