"""Producer snapshots: `<offset>.snapshot`, the state of every producer as of that offset.

Kafka's format (version 1, CRC-32C, one entry a producer) keeps only the last batch of each producer. Ours continues
behind Kafka's entries with all remembered batches, so that a retry of any of the five is recognised after a restart
too. Kafka reads its entries, includes the rest in the checksum and otherwise ignores it; a snapshot without our part is
read as Kafka would.
"""

from contextlib import suppress
from struct import Struct
from struct import error as StructError
from typing import Final

from tidelog.storage.disk import Disk
from tidelog.storage.naming import SNAPSHOT, offset_name, parse_offset_name
from tidelog.storage.producer_state import BATCHES_REMEMBERED, NO_OFFSET, ProducedBatch, Producer, ProducerStates
from tidelog.wire.checksum import crc32c

_VERSION: Final = 1
_PREFIX: Final = Struct(">hIi")  # version, crc, number of entries; the CRC covers what follows itself
_CRC_END: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")
_WINDOW_MAGIC: Final = b"TLW1"
_WINDOW: Final = Struct(">qB")  # last seen, number of batches
_BATCH: Final = Struct(">iiqqq")
_SEQUENCE_MASK: Final = 0x7FFFFFFF
STRAY_SNAPSHOTS_KEPT: Final = 2  # those taken between rolls, to shorten a recovery


class SnapshotCorrupt(Exception):
    """The file is no snapshot. An older one and the log say the same."""


def encode(states: ProducerStates) -> bytes:
    producers = list(states.producers.values())
    parts = [b""]
    for producer in producers:
        last = producer.batches[-1] if producer.batches else ProducedBatch(-1, -1, NO_OFFSET, NO_OFFSET, -1)
        parts.append(
            _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_first_offset,
            )
        )
    parts.append(_WINDOW_MAGIC)
    for producer in producers:
        parts.append(_WINDOW.pack(producer.last_seen_ms, len(producer.batches)))
        parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
    body = len(producers).to_bytes(4, "big") + b"".join(parts)
    return _PREFIX.pack(_VERSION, crc32c(body), 0)[:_CRC_END] + body


def decode(data: bytes, now_ms: int) -> list[Producer]:
    """`now_ms` stands in for when a producer was last seen, which Kafka's own snapshots do not say."""
    try:
        version, crc, count = _PREFIX.unpack_from(data)
        if version != _VERSION or crc32c(memoryview(data)[_CRC_END:]) != crc:
            raise SnapshotCorrupt("version or checksum")
        position = _PREFIX.size
        if not 0 <= count <= (len(data) - position) // _ENTRY.size:
            raise SnapshotCorrupt(f"{len(data)} bytes cannot hold {count} producers")
        producers = [_decode_entry(data, position + slot * _ENTRY.size, now_ms) for slot in range(count)]
        position += count * _ENTRY.size
        if data[position : position + len(_WINDOW_MAGIC)] == _WINDOW_MAGIC:
            _decode_windows(data, position + len(_WINDOW_MAGIC), producers)
    except StructError as error:
        raise SnapshotCorrupt(str(error)) from error
    return producers


def _decode_entry(data: bytes, position: int, now_ms: int) -> Producer:
    fields = _ENTRY.unpack_from(data, position)
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first = fields
    producer = Producer(producer_id, epoch)
    producer.last_timestamp = timestamp
    producer.last_seen_ms = now_ms
    producer.coordinator_epoch = coordinator_epoch
    producer.current_txn_first_offset = txn_first
    if last_offset >= 0 and last_sequence >= 0:
        first_sequence = (last_sequence - delta) & _SEQUENCE_MASK
        producer.batches.append(
            ProducedBatch(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
        )
    return producer


def _decode_windows(data: bytes, position: int, producers: list[Producer]) -> None:
    for producer in producers:
        producer.last_seen_ms, count = _WINDOW.unpack_from(data, position)
        position += _WINDOW.size
        if count > BATCHES_REMEMBERED:
            raise SnapshotCorrupt(f"{count} batches of one producer")
        producer.batches.clear()
        for _ in range(count):
            producer.batches.append(ProducedBatch._make(_BATCH.unpack_from(data, position)))
            position += _BATCH.size


class Snapshots:
    """The snapshot files of one partition."""

    def __init__(self, disk: Disk, directory: str, names: list[str]) -> None:
        self._disk = disk
        self._directory = directory
        parsed = [parse_offset_name(name) for name in names if name.endswith(SNAPSHOT)]
        self.offsets = sorted(entry[0] for entry in parsed if entry)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset_name(offset, SNAPSHOT)}"

    def take(self, offset: int, states: ProducerStates) -> None:
        """Not durable: a lost or torn snapshot is noticed, and costs a longer replay."""
        self._disk.write_atomic(self.path(offset), encode(states), durable=False)
        self.taken(offset)

    def taken(self, offset: int) -> None:
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()

    def newest(self, at_or_below: int, now_ms: int) -> tuple[int, list[Producer]] | None:
        """The newest readable snapshot; unreadable ones on the way are removed."""
        for offset in reversed([offset for offset in self.offsets if offset <= at_or_below]):
            try:
                return offset, decode(self._disk.read_all(self.path(offset)), now_ms)
            except (SnapshotCorrupt, FileNotFoundError):
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        with suppress(ValueError):
            self.offsets.remove(offset)
        self._disk.remove(self.path(offset))

    def remove_unreadable(self) -> None:
        for offset in self.offsets[:]:
            self.newest(offset, 0)

    def remove_above(self, offset: int) -> None:
        for later in [known for known in self.offsets if known > offset]:
            self.remove(later)

    def remove_below(self, offset: int) -> None:
        for earlier in [known for known in self.offsets if known < offset]:
            self.remove(earlier)

    def prune(self, segment_bases: list[int]) -> None:
        """Keep one snapshot a segment, and the newest of those taken in between."""
        kept = set(segment_bases)
        strays = [offset for offset in self.offsets if offset not in kept]
        for offset in strays[:-STRAY_SNAPSHOTS_KEPT]:
            self.remove(offset)
