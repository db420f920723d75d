"""Short words for transactions over a raw connection, in both protocols, and for what readers see of them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.configs import DescribeProducersRequest, DescribeProducersRequestTopic
from tidelog.wire.messages.data import (
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, iter_batches, iter_records

from . import kit

GROUP, TRANSACTION = 0, 1  # FindCoordinator's key types
COMMITTED = 1  # isolation level
RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Protocol(NamedTuple):
    """The versions in which a client speaks."""

    produce: int
    init: int
    end: int
    offset_commit: int

    @property
    def second(self) -> bool:
        return self.produce >= 12


FIRST = Protocol(produce=11, init=4, end=4, offset_commit=4)
SECOND = Protocol(produce=12, init=5, end=5, offset_commit=5)


def find_coordinator(connection: Connection, key: str, kind: int = TRANSACTION) -> None:
    """Also what makes the coordinator's topic, and waits until it is loaded."""

    def found() -> bool:
        answer = connection.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,)), 4)
        return bool(answer.coordinators[0].error_code == 0)

    kit.eventually(found, f"a coordinator for {key}")


@dataclass
class Txn:
    """One producer. Every method is one request and returns its error code, unless it says otherwise."""

    connection: Connection
    name: str
    protocol: Protocol = FIRST
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def init(self, timeout_ms: int = 60_000, *, keep: bool = False) -> ErrorCode:
        """Until it succeeds or is refused for good. `keep`: the epoch is to be raised, by its owner (KIP-360)."""
        find_coordinator(self.connection, self.name)
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if keep else -1,
            producer_epoch=self.epoch if keep else -1,
        )
        answer: Any = None

        def settled() -> bool:
            nonlocal answer
            answer = self.connection.call(request, self.protocol.init)
            return answer.error_code not in RETRIED

        kit.eventually(settled, f"an identity for {self.name}")
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return ErrorCode(answer.error_code)

    def add(self, topic: str, *partitions: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions or (0,)),),
        )
        (result,) = self.connection.call(request, 3).results_by_topic_v3_and_below
        codes = {each.partition_error_code for each in result.results_by_partition}
        assert len(codes) == 1, codes
        return ErrorCode(codes.pop())

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> Any:
        """One batch; the partition's part of the answer. A success moves the sequence on."""
        sequence = self.sequences.get((topic, partition), 0)
        batch = kit.batch_of(*values, producer=(self.producer_id, self.epoch, sequence), attributes=TRANSACTIONAL)
        data = (PartitionProduceData(index=partition, records=memoryview(batch)),)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name=topic, partition_data=data),),
        )
        answer = self.connection.call(request, self.protocol.produce).responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.sequences[topic, partition] = sequence + len(values)
        return answer

    def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """As a client does it, and it must succeed: adds the partition first in the first protocol."""
        if not self.protocol.second:

            def added() -> bool:
                code = self.add(topic, partition)
                assert code == 0 or code in RETRIED, code
                return code == 0

            kit.eventually(added, f"{topic}-{partition} in the transaction")
        answer = self.produce(topic, *values, partition=partition)
        assert answer.error_code == 0, (ErrorCode(answer.error_code), answer.error_message)
        offset: int = answer.base_offset
        return offset

    def end(self, committed: bool, *, epoch: int | None = None) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=committed,
        )
        answer = self.connection.call(request, self.protocol.end)
        if answer.error_code == 0 and self.protocol.second:
            if (self.producer_id, self.epoch) != (answer.producer_id, answer.producer_epoch):
                self.sequences = {}
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def commit(self) -> ErrorCode:
        return self.end(True)

    def abort(self) -> ErrorCode:
        return self.end(False)

    def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        return ErrorCode(self.connection.call(request, 4).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0, **member: Any) -> ErrorCode:
        place = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(place,)),),
            **member,
        )
        answer = self.connection.call(request, self.protocol.offset_commit)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def write_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """As a client does it, and it must succeed."""
        if not self.protocol.second:
            assert self.add_offsets(group) == ErrorCode.NONE
        assert self.commit_offset(group, topic, offset, partition) == ErrorCode.NONE


# -- what others see ---------------------------------------------------------------------------------------------------


def state_of(connection: Connection, name: str) -> Any:
    (answer,) = connection.call(DescribeTransactionsRequest(transactional_ids=(name,))).transaction_states
    return answer


def is_in(connection: Connection, name: str, *labels: str) -> bool:
    return state_of(connection, name).transaction_state in labels


def until_over(connection: Connection, *names: str) -> None:
    for name in names:
        kit.eventually(
            lambda each=name: is_in(connection, each, "CompleteCommit", "CompleteAbort"),  # type: ignore[misc]
            f"the end of {name}",
        )


def listed(connection: Connection, **filters: Any) -> Any:
    fields = {"state_filters": (), "producer_id_filters": (), **filters}
    return connection.call(ListTransactionsRequest(**fields))


def producers_of(connection: Connection, topic: str, partition: int = 0) -> list[Any]:
    asked = (DescribeProducersRequestTopic(name=topic, partition_indexes=(partition,)),)
    (found,) = connection.call(DescribeProducersRequest(topics=asked)).topics[0].partitions
    return list(found.active_producers)


def stable_offset(connection: Connection, topic: str, partition: int = 0) -> int:
    """ListOffsets LATEST, as a reader of committed records asks it."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=kit.LATEST)
    topics = (ListOffsetsTopic(name=topic, partitions=(asked,)),)
    request = ListOffsetsRequest(replica_id=-1, isolation_level=COMMITTED, topics=topics)
    answer = connection.call(request, 8).topics[0].partitions[0]
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    offset: int = answer.offset
    return offset


def read_committed(
    connection: Connection, topic: str, partition: int = 0, start: int = 0, **options: Any
) -> list[bytes]:
    """What a client makes of one fetch after another up to the last stable offset: from its first offset on an aborted
    producer's batches are left out, until its abort marker comes by."""
    found: list[bytes] = []
    at = start
    while at < stable_offset(connection, topic, partition):
        answer = kit.fetch(connection, topic, at, partition, isolation_level=COMMITTED, **options)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        waiting = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        ignored: set[int] = set()
        batches = list(iter_batches(answer.records or b""))
        if not batches:
            break
        for header, batch in batches:
            while waiting and waiting[0][0] <= header.last_offset:
                ignored.add(waiting.pop(0)[1])
            if header.attributes & CONTROL:
                # Compaction leaves a marker without its record, to keep the producer's epoch.
                if any((marker.key or b"")[2:4] == b"\x00\x00" for marker in iter_records(batch)):
                    ignored.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in ignored):
                found += [bytes(record.value or b"") for record in iter_records(batch) if record.offset >= at]
        at = batches[-1][0].last_offset + 1
    return found


def committed_offset(
    connection: Connection, group: str, topic: str, partition: int = 0, *, stable: bool = True
) -> tuple[int, ErrorCode]:
    topics = (OffsetFetchRequestTopics(name=topic, partition_indexes=(partition,)),)
    groups = (OffsetFetchRequestGroup(group_id=group, topics=topics),)
    (answer,) = connection.call(OffsetFetchRequest(groups=groups, require_stable=stable), 9).groups
    (found,) = answer.topics[0].partitions
    return found.committed_offset, ErrorCode(found.error_code or answer.error_code)


def write_marker(
    connection: Connection, producer_id: int, epoch: int, committed: bool, *places: tuple[str, int], version: int = 0
) -> dict[tuple[str, int], ErrorCode]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=tuple(
            WritableTxnMarkerTopic(name=name, partition_indexes=tuple(numbers)) for name, numbers in topics.items()
        ),
        coordinator_epoch=0,
        transaction_version=version,
    )
    answer = connection.call(WriteTxnMarkersRequest(markers=(marker,)))
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for result in answer.markers
        for topic in result.topics
        for each in topic.partitions
    }


# -- markers that cannot be written ------------------------------------------------------------------------------------


def hold_markers(connection: Connection, topic: str) -> None:
    """The topic asks for more replicas than there are: its log takes nothing, so a decision cannot be carried out."""
    assert kit.alter_config(connection, kit.TOPIC, topic, {"min.insync.replicas": "2"}).error_code == 0


def let_markers_go(connection: Connection, topic: str) -> None:
    assert kit.alter_config(connection, kit.TOPIC, topic, {"min.insync.replicas": "1"}).error_code == 0
