"""One client asks a great deal; the others are answered within a second meanwhile (invariants 34 and 35)."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.ids import NO_TOPIC_ID
from tidelog.wire.compression import compress
from tidelog.wire.frames import encode_request
from tidelog.wire.messages.admin import (
    ApiVersionsRequest,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
    MetadataRequestTopic,
)
from tidelog.wire.messages.configs import (
    DescribableLogDirTopic,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tidelog.wire.messages.data import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tidelog.wire.messages.transactions import (
    DescribeTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.wire.record_batch import BatchHeader, pack_batch
from tidelog.wire.schema import Message, encode

from . import kit

MANY = 50_000
WIDE = 300
VERSIONS = {ListOffsetsRequest: 8, OffsetFetchRequest: 9, OffsetCommitRequest: 9, ProduceRequest: 12}
"""Where the newest does not name topics, or is not what is asked for here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("fair") / "data") as running:
        with running.connect() as connection:
            kit.create_topic(connection, "wide", WIDE)
            for key_type in (0, 1):  # groups and transactional ids: their coordinators are made when asked for
                connection.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=("any",)))
        yield running


def longest_wait_of_others(server: Server, work: Callable[[], object]) -> float:
    done = threading.Event()
    waits = [0.0]

    def ask() -> None:
        with server.connect(60) as other:
            while not done.is_set():
                began = time.perf_counter()
                other.call(ApiVersionsRequest(), 0)
                waits.append(time.perf_counter() - began)
                time.sleep(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        work()
    finally:
        done.set()
        asking.join()
    return max(waits)


def create_many() -> Message:
    unlikely = (
        CreatableTopic(name=f"no/{n}", num_partitions=1, replication_factor=1, assignments=(), configs=())
        for n in range(MANY)
    )
    return CreateTopicsRequest(topics=tuple(unlikely))


def delete_many() -> Message:
    absent = tuple(DeleteTopicState(name=f"absent-{n}", topic_id=NO_TOPIC_ID) for n in range(MANY))
    return DeleteTopicsRequest(topics=absent, timeout_ms=1)


def describe_many() -> Message:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"no/{n}") for n in range(MANY)))


def alter_many() -> Message:
    absent = (
        IncrementalAlterConfigsResource(resource_type=2, resource_name=f"absent-{n}", configs=()) for n in range(MANY)
    )
    return IncrementalAlterConfigsRequest(resources=tuple(absent), validate_only=False)


def list_many_offsets() -> Message:
    asked = tuple(ListOffsetsPartition(partition_index=n % WIDE, timestamp=5) for n in range(MANY))
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="wide", partitions=asked),))


def delete_many_records() -> Message:
    asked = tuple(DeleteRecordsPartition(partition_index=n % WIDE, offset=-1) for n in range(MANY))
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="wide", partitions=asked),), timeout_ms=1)


def describe_many_groups() -> Message:
    return DescribeGroupsRequest(groups=tuple(f"absent-{n}" for n in range(2 * MANY)))


def delete_many_groups() -> Message:
    return DeleteGroupsRequest(groups_names=tuple(f"absent-{n}" for n in range(2 * MANY)))


def fetch_offsets_of_many_groups() -> Message:
    groups = tuple(OffsetFetchRequestGroup(group_id=f"absent-{n}", topics=None) for n in range(2 * MANY))
    return OffsetFetchRequest(groups=groups)


def list_groups_by_many_filters() -> Message:
    return ListGroupsRequest(states_filter=tuple(f"odd-{n}" for n in range(4 * MANY)))


def find_many_coordinators() -> Message:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=tuple(f"absent-{n}" for n in range(2 * MANY)))


def commit_to_one_topic_many_times() -> Message:
    """Its answer names the topic once, and was put together part by part."""
    offset = OffsetCommitRequestPartition(partition_index=WIDE, committed_offset=1, committed_metadata=None)
    named = OffsetCommitRequestTopic(name="wide", partitions=(offset,))
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=(named,) * MANY)


def produce_to_many() -> Message:
    nothing = PartitionProduceData(index=0, records=memoryview(b""))
    topics = (TopicProduceData(name=f"absent-{n}", partition_data=(nothing,)) for n in range(2 * MANY))
    return ProduceRequest(acks=1, timeout_ms=1, topic_data=tuple(topics))


def describe_many_transactions() -> Message:
    return DescribeTransactionsRequest(transactional_ids=tuple(f"absent-{n}" for n in range(2 * MANY)))


def write_many_markers() -> Message:
    topic = WritableTxnMarkerTopic(name="wide", partition_indexes=(0,))
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=(topic,)
    )
    return WriteTxnMarkersRequest(markers=(marker,) * MANY)


@pytest.mark.parametrize(
    "question",
    [
        create_many,
        delete_many,
        describe_many,
        alter_many,
        list_many_offsets,
        delete_many_records,
        describe_many_groups,
        delete_many_groups,
        fetch_offsets_of_many_groups,
        list_groups_by_many_filters,
        find_many_coordinators,
        commit_to_one_topic_many_times,
        describe_many_transactions,
        write_many_markers,
        produce_to_many,
    ],
)
def test_a_request_with_very_many_parts(server: Server, question: Callable[[], Message]) -> None:
    request = question()
    with server.connect(60) as connection:
        connection.call(ApiVersionsRequest(), 0)

        def ask() -> None:
            connection.send(request, VERSIONS.get(type(request)))
            connection.recv_frame()

        assert longest_wait_of_others(server, ask) < 1


@pytest.mark.parametrize("timestamp", [1, -3], ids=["by time", "the newest"])
def test_looking_for_a_time_in_a_batch_that_is_much_larger_inside(server: Server, timestamp: int) -> None:
    """A few kilobytes, as they arrive: what is in them is not looked at before somebody asks."""
    count = 3_000_000
    same = b"\x0c\0\0\0\1\1\0"  # seven bytes, the smallest record there is
    at = kit.now_ms()
    claim = BatchHeader(0, 0, -1, 2, 0, 4, count - 1, at - 5, at, -1, -1, -1, count)
    with server.connect(60) as connection:
        topic = f"larger-inside{timestamp}"
        kit.create_topic(connection, topic)
        assert kit.produce(connection, topic, pack_batch(claim, compress(4, same * count))).error_code == 0
        assert kit.delete_records(connection, topic, count - 1).error_code == 0
        assert longest_wait_of_others(server, lambda: kit.offset_at(connection, topic, timestamp)) < 1


def repeated() -> list[Any]:
    """Small questions that name the same thing again and again."""
    config = DescribeConfigsResource(resource_type=2, resource_name="wide", configuration_keys=None)
    partitions = tuple(range(WIDE))
    return [
        MetadataRequest(topics=(MetadataRequestTopic(name="wide"),) * 1000),
        DescribeConfigsRequest(resources=(config,) * 1000, include_synonyms=True, include_documentation=True),
        DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic="wide", partitions=partitions),) * 100),
        DescribeProducersRequest(
            topics=(DescribeProducersRequestTopic(name="wide", partition_indexes=partitions),) * 100
        ),
        DescribeGroupsRequest(groups=("absent",) * 50_000),
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="absent", topics=None),) * 50_000),
    ]


@pytest.mark.parametrize("request_", repeated(), ids=lambda each: type(each).__name__)
def test_naming_a_thing_a_thousand_times_gets_it_once(server: Server, request_: Message) -> None:
    with server.connect() as connection:
        connection.send(request_)
        assert len(connection.recv_frame()) < 100_000


def test_pipelined_questions_with_long_answers(server: Server) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    question = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)

    def flood() -> None:
        with server.connect(60) as connection:
            for _ in range(500):
                connection.send(question)
            for _ in range(500):
                connection.recv_frame()

    before = server.rss_mb
    assert longest_wait_of_others(server, flood) < 1
    assert server.rss_mb - before < 50


def test_answers_nobody_reads_are_not_made(server: Server) -> None:
    """A client that asks and asks and never reads is not read from either."""
    question = encode(MetadataRequest(topics=(MetadataRequestTopic(name="wide"),)), 5)
    questions = encode_request(3, 5, 1, "deaf", question) * 1_000_000
    before = server.rss_mb
    deaf: list[Connection] = []
    for _ in range(5):
        connection = server.connect(0.5)
        deaf.append(connection)
        with pytest.raises(TimeoutError):
            connection.send_raw(questions)
    assert server.rss_mb - before < 100
    assert longest_wait_of_others(server, lambda: time.sleep(0.3)) < 1
    for connection in deaf:
        connection.close()
