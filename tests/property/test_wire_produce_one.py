"""The lane for one batch agrees with the compiled tables, and steps aside for everything else."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import Dice, make

from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.frames import encode_response
from tidelog.wire.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.produce_one import TOPIC_IDS_SINCE, decode_one, encode_one
from tidelog.wire.schema import decode, encode

VERSIONS = range(3, 14)


def request_of(version, transactional_id, acks, timeout_ms, name, topic_id, index, records):
    by_id = version >= TOPIC_IDS_SINCE
    topic = TopicProduceData(
        name="" if by_id else name,
        topic_id=topic_id if by_id else NO_TOPIC_ID,
        partition_data=(PartitionProduceData(index=index, records=records),),
    )
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=(topic,))


@settings(max_examples=300, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    transactional_id=st.none() | st.text("abc.é", max_size=60),
    acks=st.sampled_from([-1, 0, 1, 7]),
    timeout_ms=st.integers(-1, 2**31 - 1),
    name=st.text("abc.é", min_size=1, max_size=60),
    topic_id=st.uuids().map(TopicId),
    index=st.integers(0, 2**31 - 1),
    records=st.binary(max_size=300),
    prefix=st.binary(max_size=5),
    offsets=st.tuples(st.integers(0, 2**62), st.integers(-1, 2**42), st.integers(0, 2**62)),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_equal_to_the_tables(
    version, transactional_id, acks, timeout_ms, name, topic_id, index, records, prefix, offsets, correlation_id
):
    request = request_of(version, transactional_id, acks, timeout_ms, name, topic_id, index, records)
    frame = memoryview(prefix + encode(request, version))
    one = decode_one(frame, len(prefix), version)
    assert one is not None
    assert (one.acks, one.timeout_ms, one.partition, bytes(one.records)) == (acks, timeout_ms, index, records)
    topic = request.topic_data[0]
    assert (one.topic, one.topic_id, one.transactional_id) == (topic.name, topic.topic_id, transactional_id)

    base, time, start = offsets
    answer = PartitionProduceResponse(index=index, base_offset=base, log_append_time_ms=time, log_start_offset=start)
    response = ProduceResponse(
        responses=(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(answer,)),)
    )
    expected = encode_response(0, version, correlation_id, encode(response, version))
    assert encode_one(version, correlation_id, one, base, time, start) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_tables(version):
    for seed in range(60):
        request = make(ProduceRequest, version, Dice(seed))
        one = decode_one(memoryview(encode(request, version)), 0, version)
        if one is not None:
            assert one.transactional_id == request.transactional_id
            (topic,) = request.topic_data
            (data,) = topic.partition_data
            assert (one.topic, one.topic_id, one.partition) == (topic.name, topic.topic_id, data.index)
            assert bytes(one.records) == bytes(data.records)


@pytest.mark.parametrize("transactional_id", [None, "", "billing-1"])
@pytest.mark.parametrize("version", VERSIONS)
def test_cut_or_altered_bytes_are_never_taken_for_more_than_they_are(version, transactional_id):
    whole = encode(
        request_of(version, transactional_id, 1, 1000, "orders", TopicId(UUID(int=7)), 3, b"x" * 40), version
    )
    for cut in range(len(whole)):
        assert decode_one(memoryview(whole[:cut]), 0, version) is None
    for position in range(len(whole) - 45):
        for value in (0, 1, 2, 127, 128, 255):
            altered = bytearray(whole)
            altered[position] = value
            one = decode_one(memoryview(altered), 0, version)
            if one is not None:
                same = decode(ProduceRequest, version, memoryview(altered))
                assert one.partition == same.topic_data[0].partition_data[0].index
                assert one.transactional_id == same.transactional_id
                assert len(one.records) <= len(whole)
