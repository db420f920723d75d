"""What a partition refused a moment ago: the batches behind it are refused alike.

A producer has several batches under way. If the first is refused because too few replicas are in sync, and the next
comes when they are again, the next one is out of order. librdkafka takes that as a reason to begin a new epoch, in
which it sends everything anew that was not acknowledged; and a batch which an earlier attempt had left in the log is
then there twice. To hear the same refusal for all of them keeps it in the old epoch, where a retry is recognised.
"""

from typing import Final

from tidelog.errors import KafkaError
from tidelog.storage.producer_state import ProducerStates
from tidelog.wire.record_batch import HEADER_SIZE, BatchHeader, read_header

Buffer = bytes | bytearray | memoryview

REMEMBERED_MS: Final = 5000
"""What was under way beside a refused batch is here by then."""

PRODUCERS_MAX: Final = 1000
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class Refused:
    """Of one producer: the sequences from `first` until before `end`."""

    __slots__ = ("code", "end", "epoch", "first", "last_ms", "reason")

    def __init__(self, epoch: int, first: int, error: KafkaError) -> None:
        self.epoch = epoch
        self.first = first
        self.end = first
        self.code = error.code
        self.reason = str(error)
        self.last_ms = 0

    def cover(self, header: BatchHeader) -> bool:
        """This batch is refused too. True if none of its sequences, or of later ones, was before."""
        end = (header.base_sequence + header.last_offset_delta + 1) & _SEQUENCE_MASK
        if _distance(self.first, header.base_sequence) < 0:
            self.first = header.base_sequence
        if _distance(self.end, end) <= 0:
            return False
        self.end = end
        return True

    def expected_by(self, producers: ProducerStates, producer_id: int) -> int | None:
        """The sequence that its log would take next; None if it takes nothing of this epoch any more."""
        known = producers.producers.get(producer_id)
        if known is None:
            return self.first  # any, in fact; but then the refused ones never again
        if known.epoch > self.epoch:
            return None
        return 0 if known.epoch < self.epoch else (known.last_sequence + 1) & _SEQUENCE_MASK


class Refusals:
    __slots__ = ("_of_producer",)

    def __init__(self) -> None:
        self._of_producer: dict[int, Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._of_producer)

    def note(self, records: Buffer, error: KafkaError, now_ms: int) -> None:
        """This batch was not appended, and its producer will send it again."""
        if len(records) < HEADER_SIZE:
            return
        header = read_header(records)
        producer_id, sequence = header.producer_id, header.base_sequence
        if producer_id < 0 or sequence < 0:
            return
        refused = self._of_producer.get(producer_id)
        if refused is None or refused.epoch != header.producer_epoch or _is_over(refused, now_ms):
            if len(self._of_producer) >= PRODUCERS_MAX:
                self._of_producer.clear()  # whoever is forgotten is told what Kafka would tell it
            refused = self._of_producer[producer_id] = Refused(header.producer_epoch, sequence, error)
        refused.cover(header)
        refused.last_ms = now_ms

    def check(self, records: Buffer, producers: ProducerStates, now_ms: int) -> None:
        """Before a batch is appended. Raises what its predecessor was told, if only that is why it comes too early."""
        if len(records) < HEADER_SIZE:
            return
        header = read_header(records)
        refused = self._of_producer.get(header.producer_id)
        if refused is None or header.base_sequence < 0:
            return
        expected = refused.expected_by(producers, header.producer_id)
        if refused.epoch != header.producer_epoch or expected is None or _is_over(refused, now_ms):
            del self._of_producer[header.producer_id]
        elif _distance(expected, refused.end) <= 0:
            del self._of_producer[header.producer_id]  # all of it has come
        elif _distance(refused.first, expected) >= 0 and _distance(expected, header.base_sequence) > 0:
            if refused.cover(header):
                # It was under way as well. A retry of it would not be: whoever sends that without what was before has
                # given that up, and must hear it some day.
                refused.last_ms = now_ms
            raise KafkaError(f"behind a batch of producer {header.producer_id}: {refused.reason}", refused.code)


def _distance(sequence: int, other: int) -> int:
    """How far the other is ahead; negative if it is behind. After the last sequence comes 0."""
    ahead = (other - sequence) & _SEQUENCE_MASK
    return ahead if ahead <= _SEQUENCE_MASK >> 1 else ahead - _SEQUENCE_MASK - 1


def _is_over(refused: Refused, now_ms: int) -> bool:
    return not 0 <= now_ms - refused.last_ms <= REMEMBERED_MS
