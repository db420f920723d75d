"""A producer told over raw connections: it sends what it is told to, late or twice, and shows the code it was answered.

`versions` say the protocol: FIRST adds partitions before it writes and keeps its epoch, SECOND (KIP-890) does neither.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.wire.record_batch import TRANSACTIONAL, build_batch
from tidelog.wire.records import Record
from tidelog.wire.schema import Message

RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # of a topic that was made a moment ago
)
RETRY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    init: int
    add_offsets: int
    offset_commit: int
    produce: int
    end: int


FIRST = Versions(init=4, add_offsets=3, offset_commit=3, produce=9, end=3)
FIRST_NEWEST = Versions(init=5, add_offsets=4, offset_commit=4, produce=11, end=4)
SECOND = Versions(init=5, add_offsets=4, offset_commit=5, produce=12, end=5)


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class WireProducer:
    """`identity` and `sequence` are plain attributes: set them back, and what is sent next is late."""

    def __init__(self, bootstrap: str, transactional_id: str, versions: Versions = FIRST) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.connection = Connection(host, int(port))
        self.transactional_id, self.versions = transactional_id, versions
        self.identity = Identity(-1, -1)
        self.sequence: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.connection.close()

    def init(self, timeout_ms: int = 30_000) -> ErrorCode:
        """As a producer that starts: it knows no identity yet."""
        return self._init(Identity(-1, -1), timeout_ms)

    def init_again(self, timeout_ms: int = 30_000) -> ErrorCode:
        """As one that has an identity and wants a new epoch (KIP-360)."""
        return self._init(self.identity, timeout_ms)

    def _init(self, known: Identity, timeout_ms: int) -> ErrorCode:
        find = FindCoordinatorRequest(key=self.transactional_id, key_type=1)
        self._call(find, 3, lambda answer: answer.error_code)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        code, answer = self._call(request, self.versions.init, lambda answer: answer.error_code)
        if code is ErrorCode.NONE:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
            self.sequence.clear()
        return code

    def add(self, topic: str, *partitions: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions),),
        )
        return self._call(request, 3, _code_of_topics)[0]

    def produce(self, topic: str, partition: int, *values: bytes) -> ErrorCode:
        """The sequence goes on only if it was accepted."""
        place = (topic, partition)
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(number, now_ms, None, value, ()) for number, value in enumerate(values)],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence.get(place, 0),
            attributes=TRANSACTIONAL,
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
        )
        code, _ = self._call(
            request, self.versions.produce, lambda answer: answer.responses[0].partition_responses[0].error_code
        )
        if code is ErrorCode.NONE:
            self.sequence[place] = self.sequence.get(place, 0) + len(values)
        return code

    def write(self, topic: str, partition: int, *values: bytes) -> None:
        """In the way of its protocol, and it must work."""
        if self.versions is not SECOND:
            code = self.add(topic, partition)
            assert code is ErrorCode.NONE, code
        code = self.produce(topic, partition, *values)
        assert code is ErrorCode.NONE, code

    def end(self, commit: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )
        code, answer = self._call(request, self.versions.end, lambda answer: answer.error_code)
        if code is ErrorCode.NONE and self.versions is SECOND:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
            self.sequence.clear()
        return code

    def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group,
        )
        return self._call(request, self.versions.add_offsets, lambda answer: answer.error_code)[0]

    def commit_offset(
        self, group: str, topic: str, offset: int, *, generation: int = -1, member_id: str = ""
    ) -> ErrorCode:
        """Of partition 0."""
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=generation,
            member_id=member_id,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(place,)),),
        )
        return self._call(
            request, self.versions.offset_commit, lambda answer: answer.topics[0].partitions[0].error_code
        )[0]

    def mark(self, topic: str, partition: int, commit: bool, *, coordinator_epoch: int = 0) -> ErrorCode:
        """As if from the coordinator."""
        marker = WritableTxnMarker(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            transaction_result=commit,
            topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(partition,)),),
            coordinator_epoch=coordinator_epoch,
        )
        request = WriteTxnMarkersRequest(markers=(marker,))
        return self._call(request, 1, lambda answer: answer.markers[0].topics[0].partitions[0].error_code)[0]

    def _call(self, request: Message, version: int, code_of: Callable[[Any], int]) -> tuple[ErrorCode, Any]:
        """Asks again while the broker says that it is not ready, as every client does."""
        deadline = time.monotonic() + RETRY_S
        while True:
            answer = self.connection.call(request, version)
            code = ErrorCode(code_of(answer))
            if code not in RETRIED or time.monotonic() > deadline:
                return code, answer
            time.sleep(0.02)


def _code_of_topics(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
