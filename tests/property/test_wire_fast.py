"""The hand-written encoders against the compiled tables: the same bytes, whatever the answer."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import Dice, Drawn, make

from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, encode_fetch_response
from tidelog.wire.frames import decode_response_header, encode_response, frame_length
from tidelog.wire.messages.data import (
    BatchIndexAndErrorMessage,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.produce_fast import encode_produce_response
from tidelog.wire.schema import decode, encode

NO_EPOCH = PartitionData(partition_index=0, high_watermark=0, records=None)


class FileSlice(NamedTuple):
    """Stands for bytes in a file: only its length may be looked at."""

    content: bytes

    @property
    def length(self):
        return len(self.content)


def fetched(partition: PartitionData) -> FetchedPartition:
    return FetchedPartition(
        partition=partition.partition_index,
        error_code=partition.error_code,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        diverging_epoch=None if partition.diverging_epoch == NO_EPOCH.diverging_epoch else partition.diverging_epoch,
        aborted_transactions=partition.aborted_transactions,
        records=None if partition.records is None else FileSlice(bytes(partition.records)),
        preferred_read_replica=partition.preferred_read_replica,
        current_leader=None if partition.current_leader == NO_EPOCH.current_leader else partition.current_leader,
    )


def without_nulls(response: FetchResponse) -> FetchResponse:
    """What the fast path cannot or will not say: snapshot ids are for the metadata log, null records become empty."""

    def plain(partition):
        values = {name: getattr(partition, name) for name in partition.__struct_fields__}
        values |= {"snapshot_id": NO_EPOCH.snapshot_id, "records": partition.records or b""}
        return PartitionData(**values)

    topics = tuple(
        type(topic)(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(map(plain, topic.partitions)))
        for topic in response.responses
    )
    return FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        responses=topics,
        node_endpoints=response.node_endpoints,
    )


def check_fetch(response: FetchResponse, version: int) -> None:
    response = without_nulls(response)
    parts = encode_fetch_response(
        version,
        77,
        response.throttle_time_ms,
        response.error_code,
        response.session_id,
        [
            FetchedTopic(topic.topic, topic.topic_id, list(map(fetched, topic.partitions)))
            for topic in response.responses
        ],
        response.node_endpoints,
    )
    sent = b"".join(part if isinstance(part, bytes) else part.content for part in parts)
    assert sent == encode_response(1, version, 77, encode(response, version))
    slices = sum(bool(partition.records) for topic in response.responses for partition in topic.partitions)
    assert [isinstance(part, bytes) for part in parts][: 2 * slices] == [True, False] * slices
    assert len(parts) <= 2 * slices + 1
    assert b"" not in parts


def check_produce(response: ProduceResponse, version: int) -> None:
    sent = encode_produce_response(version, 77, response.responses, response.throttle_time_ms, response.node_endpoints)
    assert sent == encode_response(0, version, 77, encode(response, version))


def test_fetch_answers_of_every_version():
    for version in range(4, 19):
        for seed in range(40):
            check_fetch(make(FetchResponse, version, Dice(seed)), version)


def test_produce_answers_of_every_version():
    for version in range(3, 14):
        for seed in range(20):
            check_produce(make(ProduceResponse, version, Dice(seed)), version)
        plain = tuple(PartitionProduceResponse(index=n, base_offset=n * 7, log_start_offset=-1) for n in range(200))
        name = "orders" if version < 13 else ""
        check_produce(ProduceResponse(responses=(TopicProduceResponse(name=name, partition_responses=plain),)), version)
        for reason in (
            {"record_errors": (BatchIndexAndErrorMessage(batch_index=3),)},
            {"error_message": "why"},
            {"current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=2)} if version >= 10 else {},
        ):
            told = (*plain[:3], PartitionProduceResponse(index=9, base_offset=-1, error_code=6, **reason))
            answer = ProduceResponse(responses=(TopicProduceResponse(name=name, partition_responses=told),))
            check_produce(answer, version)


@settings(max_examples=60, deadline=None)
@given(st.integers(4, 18), st.data())
def test_any_fetch_answer(version, data):
    check_fetch(make(FetchResponse, version, Drawn(data)), version)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 13), st.data())
def test_any_produce_answer(version, data):
    check_produce(make(ProduceResponse, version, Drawn(data)), version)


def test_a_leader_is_not_mentioned_without_a_reason():
    result = PartitionProduceResponse(index=0, base_offset=5)
    frame = encode_produce_response(10, 1, (TopicProduceResponse(name="t", partition_responses=(result,)),))
    assert frame_length(frame) == len(frame) - 4
    _, body = decode_response_header(0, 10, frame[4:])
    assert decode(ProduceResponse, 10, frame, 4 + body).responses[0].partition_responses == (result,)
    assert frame[-6] == 0  # the partition's tagged fields: none
