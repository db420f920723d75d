"""What a log remembers of its idempotent producers: enough to recognise a retry and to refuse a gap.

Per producer id: its epoch and its last five batches (a client may have five requests in flight). The rules are
Kafka's: a producer nobody remembers may begin at any sequence, because retention may have removed its past; a known one
continues where it stopped; a new epoch begins at zero.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.errors import InvalidProducerEpoch, OutOfOrderSequence
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, BatchHeader

BATCHES_REMEMBERED: Final = 5
PRODUCERS_MAX: Final = 100_000  # a log forgets the longest idle ones rather than grow without end
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF  # after 2^31-1 comes 0


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_REMEMBERED)
        self.coordinator_epoch = NO_EPOCH
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = -1
        self.last_seen_ms = -1  # broker time: record timestamps may be years old while the producer is alive

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class ProducerStates:
    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self.producers: dict[int, Producer] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self.producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self.producers.values())

    def check(self, producer_id: int, epoch: int, first_sequence: int, last_delta: int) -> ProducedBatch | None:
        """None: append it. A batch: this one is a retry of it. Raises if it is neither."""
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                raise InvalidProducerEpoch(producer_id, producer.epoch, epoch)
            if first_sequence != 0:
                raise OutOfOrderSequence(producer_id, 0, first_sequence)
            return None
        batches = producer.batches
        if not batches:
            # Only markers or sequence-less batches so far under this epoch, so nothing may have come before.
            if first_sequence != 0:
                raise OutOfOrderSequence(producer_id, 0, first_sequence)
            return None
        expected = (batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        if first_sequence == expected:
            return None
        last_sequence = (first_sequence + last_delta) & _SEQUENCE_MASK
        for batch in batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        raise OutOfOrderSequence(producer_id, expected, first_sequence)

    def update(self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """A batch was appended there. It was checked by whoever appended it first; a replica takes it as it is."""
        producer = self.producers.get(header.producer_id)
        epoch = header.producer_epoch
        if producer is None:
            producer = self._new(header.producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        first_sequence = header.base_sequence
        delta = header.last_offset_delta
        if first_sequence >= 0:
            last_sequence = (first_sequence + delta) & _SEQUENCE_MASK
            producer.batches.append(
                ProducedBatch(first_sequence, last_sequence, base_offset, base_offset + delta, timestamp)
            )
        producer.last_timestamp = timestamp
        producer.last_seen_ms = now_ms
        if header.attributes & TRANSACTIONAL and producer.current_txn_first_offset == NO_OFFSET:
            producer.current_txn_first_offset = base_offset

    def end_transaction(
        self, producer_id: int, epoch: int, timestamp: int, now_ms: int, coordinator_epoch: int = NO_EPOCH
    ) -> None:
        producer = self.producers.get(producer_id) or self._new(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.current_txn_first_offset = NO_OFFSET
        producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
        producer.last_timestamp = timestamp
        producer.last_seen_ms = now_ms

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Learn from a batch that is in the log already."""
        if header.producer_id < 0:
            return
        if header.attributes & CONTROL:
            self.end_transaction(header.producer_id, header.producer_epoch, header.max_timestamp, now_ms)
            return
        self.update(header, header.base_offset, header.max_timestamp, now_ms)

    def expire(self, horizon_ms: int) -> int:
        """Forget producers not heard of since `horizon_ms` that have no transaction open. Returns how many."""
        gone = [
            producer.producer_id
            for producer in self
            if producer.last_seen_ms <= horizon_ms and producer.current_txn_first_offset == NO_OFFSET
        ]
        for producer_id in gone:
            del self.producers[producer_id]
        return len(gone)

    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        offsets = (producer.current_txn_first_offset for producer in self.producers.values())
        return min((offset for offset in offsets if offset != NO_OFFSET), default=None)

    def load(self, producers: list[Producer]) -> None:
        self.producers = {producer.producer_id: producer for producer in producers}

    def _new(self, producer_id: int, epoch: int) -> Producer:
        if len(self.producers) >= self._limit:
            # A tenth at a time, so that the sort is paid for by many new producers.
            idle = sorted(self.producers.values(), key=lambda producer: producer.last_seen_ms)
            for producer in idle[: max(1, self._limit // 10)]:
                if producer.current_txn_first_offset == NO_OFFSET:
                    del self.producers[producer.producer_id]
        producer = self.producers[producer_id] = Producer(producer_id, epoch)
        return producer
