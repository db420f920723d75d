"""What a log remembers of its producers: enough to recognise a retry, to refuse a gap and to know open transactions.

Per producer id: its epoch and its last five batches (a client may have five requests in flight). The rules are
Kafka's: a producer nobody remembers may begin at any sequence, because retention may have removed its past; a known one
continues where it stopped; a new epoch begins at zero. A transaction begins with a producer's first transactional
batch and ends with a marker; only its own producer epoch, or a marker, may write in between.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from tidelog.storage.open_transactions import OpenTransactions, Verification, Verifications
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.control import Marker
from tidelog.wire.record_batch import TRANSACTIONAL, BatchHeader

BATCHES_REMEMBERED: Final = 5
PRODUCERS_MAX: Final = 100_000  # a log forgets the longest idle ones rather than grow without end
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
EPOCH_PER_TRANSACTION: Final = 2  # the transaction.version from which a marker has a newer epoch than what it ends
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

    def last_offset_below(self, offset: int) -> int:
        """Of its last batch that ends before `offset`: what compaction up to there must leave the sequence of."""
        return next((batch.last_offset for batch in reversed(self.batches) if batch.last_offset < offset), NO_OFFSET)

    def original_of(self, first_sequence: int, last_delta: int) -> ProducedBatch | None:
        """The batch that one with these sequences is a retry of."""
        last_sequence = (first_sequence + last_delta) & _SEQUENCE_MASK
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


class ProducerStates:
    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self.producers: dict[int, Producer] = {}
        self.transactions = OpenTransactions()
        self.verifications = Verifications()
        self._limit = limit
        self.doubtful: set[int] = set()
        """Whose transaction was open when the log was opened. Its end may be decided, and its marker lost: what the
        producer writes next could be of its next transaction, so the coordinator is asked once more."""

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
        original = producer.original_of(first_sequence, last_delta)
        if original is None:
            raise OutOfOrderSequence(producer_id, expected, first_sequence)
        return original

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """All that is asked of a coordinator's own writes, which carry no sequence."""
        producer = self.producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, producer.epoch, epoch)

    def check_plain(self, producer_id: int) -> None:
        if producer_id in self.transactions.open:
            raise InvalidTxnState(f"producer {producer_id} has a transaction open here and wrote outside it")

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether this batch would begin a transaction here, of which only the coordinator can say that it is open."""
        if not header.attributes & TRANSACTIONAL:
            return False
        producer = self.producers.get(header.producer_id)
        if producer is None or header.producer_epoch > producer.epoch:
            return True
        if header.producer_epoch < producer.epoch:
            return False  # refused
        if header.producer_id in self.transactions.open and header.producer_id not in self.doubtful:
            return False  # vouched for already
        return producer.original_of(header.base_sequence, header.last_offset_delta) is None

    def check_transactional(self, header: BatchHeader, verification: Verification | None) -> None:
        producer_id, sequence = header.producer_id, header.base_sequence
        producer = self.producers.get(producer_id)
        if (
            producer is not None
            and producer.epoch == header.producer_epoch
            and producer.current_txn_first_offset != NO_OFFSET
            and producer_id not in self.doubtful
        ):
            return
        if verification is None or not self.verifications.holds(verification, header):
            raise InvalidTxnState(f"producer {producer_id} has no verified transaction here")
        if sequence > verification.lowest_sequence:
            # One that came before it was verified beside it and has not been written.
            raise OutOfOrderSequence(producer_id, verification.lowest_sequence, sequence)
        if verification.every_epoch_is_new and producer is None and sequence > 0:
            raise OutOfOrderSequence(producer_id, 0, sequence)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(producer_id, producer.epoch, epoch)
        if (
            transaction_version >= EPOCH_PER_TRANSACTION
            and epoch == producer.epoch
            and producer.current_txn_first_offset != NO_OFFSET
        ):
            # It ended the transaction before this one. Without an open one it is a retry, and harmless.
            raise InvalidProducerEpoch(producer_id, producer.epoch, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(producer_id, producer.coordinator_epoch, coordinator_epoch)

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
        if not header.attributes & TRANSACTIONAL:
            return
        if producer.current_txn_first_offset == NO_OFFSET:
            producer.current_txn_first_offset = base_offset
            self.transactions.begin(header.producer_id, base_offset)
            self.verifications.end(header.producer_id)
        elif header.producer_id in self.doubtful:
            self.doubtful.discard(header.producer_id)
            self.verifications.end(header.producer_id)

    def aborted_by(self, producer_id: int, marker: Marker | None, offset: int) -> AbortedTransaction | None:
        """What a marker at `offset` would abort. Nothing if it commits, or if nothing is open."""
        first = self.transactions.open.get(producer_id)
        if first is None or marker is None or marker.committed:
            return None
        return AbortedTransaction(producer_id, first, offset, self.transactions.stable_after(producer_id, offset))

    def end_transaction(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp: int, now_ms: int
    ) -> None:
        """A marker was appended there."""
        producer = self.producers.get(producer_id) or self._new(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.current_txn_first_offset = NO_OFFSET
        self.transactions.end(producer_id, offset)
        self.doubtful.discard(producer_id)
        self.verifications.end(producer_id)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        producer.last_timestamp = timestamp
        producer.last_seen_ms = now_ms

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

    def seen_as_in(self, other: "ProducerStates") -> None:
        """What was read again says who wrote, but not when: without that they would be forgotten at the next look."""
        for producer in self:
            known = other.producers.get(producer.producer_id)
            if known is not None:
                producer.last_seen_ms = known.last_seen_ms

    def load(self, producers: list[Producer]) -> None:
        self.producers = {producer.producer_id: producer for producer in producers}
        firsts = ((producer.current_txn_first_offset, producer.producer_id) for producer in producers)
        self.transactions.load([entry for entry in firsts if entry[0] != NO_OFFSET])

    def _new(self, producer_id: int, epoch: int) -> Producer:
        if len(self.producers) >= self._limit:
            # A tenth at a time, so that the sort is paid for by many new producers.
            idle = sorted(self.producers.values(), key=lambda producer: producer.last_seen_ms)
            for producer in idle[: max(1, self._limit // 10)]:
                if producer.current_txn_first_offset == NO_OFFSET:
                    del self.producers[producer.producer_id]
        producer = self.producers[producer_id] = Producer(producer_id, epoch)
        return producer
