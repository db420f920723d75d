"""Rows become record batches: placed by key as Java's producer does it, in their order, numbered for their producer."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from tidelog.ids import TopicPartition
from tidelog.spark.sink import kernel
from tidelog.spark.sink.columns import InvalidRow, Rows
from tidelog.wire.compression import compress
from tidelog.wire.record_batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL, seal

CHUNK_BYTES: Final = 8 << 20
"""Columns that are encoded together: enough that partitions get good batches of it, little enough to be held twice."""
CHUNK_ROWS: Final = 1 << 18
SEQUENCE_WRAP: Final = 1 << 31
"""Sequence numbers go on at 0 behind the highest i32."""


class Batch(NamedTuple):
    partition: TopicPartition
    sequence: int
    rows: int
    data: bytearray

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.rows - 1) % SEQUENCE_WRAP


class BatchMaker:
    """For one producer id and epoch. `partitions_of` says how many partitions a topic has; `bytes_max` is the most that
    a batch of the topic may take, and `batch_bytes` what one is filled up to."""

    def __init__(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
        codec: int = 0,
        batch_bytes: int,
        bytes_max: int,
        topic: str | None,
        partitions_of: Callable[[str], int],
        turn: int = 0,
    ) -> None:
        self._identity = producer_id, producer_epoch
        self._attributes = codec | (TRANSACTIONAL if transactional else 0)
        self._codec = codec
        self._limit = min(batch_bytes, bytes_max) - HEADER_SIZE
        self._most = bytes_max - HEADER_SIZE
        self._topic = topic
        self._partitions_of = partitions_of
        # Rows without a key stay together, chunk by chunk in another partition: tasks begin at different ones.
        self._turn = turn
        self._sequences: dict[TopicPartition, int] = {}
        self._out = np.empty(self._limit, np.uint8)
        self._report = np.zeros(kernel.REPORT_WIDTH, np.int64)

    def make(self, rows: Rows) -> Iterator[Batch]:
        """The batches of these rows: for each partition one behind the other."""
        counts = [self._partitions_of(topic) for topic in rows.topics]
        bases = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        keyless = np.array([self._turn % count for count in counts], np.int64)
        self._turn += 1
        slots = np.empty(rows.count, np.int64)
        wrong = kernel.place(
            rows.count, *rows.keys, rows.partitions, rows.topic_of, bases, np.array(counts, np.int64), keyless, slots
        )
        if wrong >= 0:
            index = int(rows.topic_of[wrong]) if len(rows.topic_of) else 0
            given, topic, count = rows.partitions[wrong], rows.topics[index], counts[index]
            raise InvalidRow(f"partition {given} present in the data; topic {topic} has partitions 0..{count - 1}")
        starts, order = np.empty(int(bases[-1]) + 1, np.int64), np.empty(rows.count, np.int64)
        kernel.sort_rows(slots, starts, order)
        for index, topic in enumerate(rows.topics):
            for number in range(counts[index]):
                slot = int(bases[index]) + number
                mine = order[starts[slot] : starts[slot + 1]]
                if len(mine):
                    yield from self._partition(TopicPartition(topic, number), rows, mine)

    def _partition(self, partition: TopicPartition, rows: Rows, order: Any) -> Iterator[Batch]:
        done = 0
        while done < len(order):
            first = int(rows.times[order[done]]) if len(rows.times) > 1 else int(rows.times[0])
            self._encode(rows, order[done:], first)
            count, size, time_max, needed = (int(number) for number in self._report)
            if not count:
                self._grow(partition, needed)
                continue
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = (sequence + count) % SEQUENCE_WRAP
            yield Batch(partition, sequence, count, self._seal(sequence, count, size, first, time_max))
            done += count

    def _encode(self, rows: Rows, order: Any, first: int) -> None:
        kernel.encode(
            order, rows.times, first, self._limit, *rows.keys, *rows.values, rows.header_from, rows.header_until,
            *rows.names, *rows.contents, self._out, self._report,
        )  # fmt: skip

    def _grow(self, partition: TopicPartition, needed: int) -> None:
        """For one record that is bigger than a batch usually becomes."""
        if needed > self._most:
            raise InvalidRow(
                f"a record for {partition} takes {needed + HEADER_SIZE} bytes, more than kafka.max.request.size "
                f"({self._most + HEADER_SIZE}); raise it, and the topic's max.message.bytes with it"
            )
        self._out = np.empty(needed, np.uint8)

    def _seal(self, sequence: int, count: int, size: int, first: int, time_max: int) -> bytearray:
        payload: Any = self._out[:size].data
        if self._codec:
            payload = compress(self._codec, payload)
        producer_id, epoch = self._identity
        batch = bytearray(HEADER_SIZE + len(payload))
        length = len(batch) - LENGTH_OVERHEAD
        HEADER.pack_into(
            batch, 0, 0, length, -1, MAGIC, 0, self._attributes, count - 1, first, time_max, producer_id, epoch,
            sequence, count,
        )  # fmt: skip
        batch[HEADER_SIZE:] = payload
        seal(batch)
        return batch


def chunks(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Arrow batches put together until they are worth a round of encoding, and cut where they are too much for one."""
    held: list[Any] = []
    size = rows = 0
    for batch in batches:
        for piece in _pieces(batch):
            held.append(piece)
            size += piece.nbytes
            rows += piece.num_rows
            if size >= CHUNK_BYTES or rows >= CHUNK_ROWS:
                yield held
                held, size, rows = [], 0, 0
    if rows:
        yield held


def _pieces(batch: Any) -> Iterator[Any]:
    if not batch.num_rows:
        return
    parts = max(1, min(batch.num_rows, -(-batch.nbytes // (2 * CHUNK_BYTES))))
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
