"""The lane for commits without metadata agrees with the compiled tables, and steps aside for everything else."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import Dice, make

from tidelog.errors import ErrorCode, MalformedMessage
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.wire.commit_fast import (
    FLEXIBLE_SINCE,
    INSTANCES_SINCE,
    LEADER_EPOCHS_SINCE,
    PARTITIONS_MAX,
    TOPIC_IDS_SINCE,
    WITH_RETENTION_UNTIL,
    PlainCommit,
    TopicOffsets,
    decode_commit,
    encode_commit_response,
)
from tidelog.wire.decoder import STRING_MAX
from tidelog.wire.frames import encode_response
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.schema import decode, encode

VERSIONS = range(2, 11)

names = st.text("abc.é", max_size=60)
rows = st.tuples(st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1))
topics = st.lists(
    st.tuples(names, st.uuids().map(TopicId), st.lists(rows, min_size=1, max_size=90)), min_size=1, max_size=3
)


def request_of(version, topics, *, group="g", epoch=-1, member="", instance=None, empty="", retention_ms=-1):
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=instance if version >= INSTANCES_SINCE else None,
        retention_time_ms=retention_ms if version <= WITH_RETENTION_UNTIL else -1,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name if version < TOPIC_IDS_SINCE else "",
                topic_id=topic_id if version >= TOPIC_IDS_SINCE else NO_TOPIC_ID,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch if version >= LEADER_EPOCHS_SINCE else -1,
                        committed_metadata=empty,
                    )
                    for index, offset, leader_epoch in rows
                ),
            )
            for name, topic_id, rows in topics
        ),
    )


def in_columns(request: OffsetCommitRequest) -> PlainCommit:
    """What the tables read, turned into columns by hand."""
    return PlainCommit(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=tuple(
            TopicOffsets(
                topic.name,
                topic.topic_id,
                tuple(each.partition_index for each in topic.partitions),
                tuple(each.committed_offset for each in topic.partitions),
                tuple(each.committed_leader_epoch for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


@settings(max_examples=200, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    topics=topics,
    group=st.text(max_size=150),
    epoch=st.integers(-1, 2**31 - 1),
    member=names,
    instance=st.none() | names,
    empty=st.sampled_from(["", None]),
    prefix=st.binary(max_size=5),
    suffix=st.binary(max_size=5),
)
def test_requests_equal_to_the_tables(version, topics, group, epoch, member, instance, empty, prefix, suffix):
    request = request_of(version, topics, group=group, epoch=epoch, member=member, instance=instance, empty=empty)
    frame = memoryview(prefix + encode(request, version) + suffix)
    assert decode_commit(frame, len(prefix), version) == in_columns(request)


@settings(max_examples=200, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    topics=topics,
    code=st.sampled_from([ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_SERVER_ERROR]),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_responses_equal_to_the_tables(version, topics, code, correlation_id):
    columns = in_columns(request_of(version, topics)).topics
    response = OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in topic.partitions
                ),
            )
            for topic in columns
        )
    )
    expected = encode_response(8, version, correlation_id, encode(response, version))
    assert encode_commit_response(version, correlation_id, columns, code) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_the_tables(version):
    row = (0, 5, -1)
    one = [("t", TopicId(UUID(int=7)), [row])]
    plain = request_of(version, one)
    assert decode_commit(memoryview(encode(plain, version)), 0, version) is not None
    others = [
        request_of(version, one, empty="note"),
        request_of(version, []),
        request_of(version, [("t", TopicId(UUID(int=7)), [])]),
        request_of(version, [("t", TopicId(UUID(int=7)), [row] * (PARTITIONS_MAX + 1))]),
        request_of(version, [*one, ("u", TopicId(UUID(int=8)), [row] * PARTITIONS_MAX)]),
    ]
    if version <= WITH_RETENTION_UNTIL:
        others.append(request_of(version, one, retention_ms=60_000))
    for request in others:
        assert decode_commit(memoryview(encode(request, version)), 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_request_is_read_as_the_tables_read_it_or_not_at_all(version):
    for seed in range(60):
        request = make(OffsetCommitRequest, version, Dice(seed))
        plain = decode_commit(memoryview(encode(request, version)), 0, version)
        assert plain is None or plain == in_columns(request)


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_or_altered_bytes_are_never_taken_for_more_than_they_are(version):
    topic_id = TopicId(UUID(int=7))
    whole = encode(request_of(version, [("orders", topic_id, [(0, 5, 1), (1, 6, 1)])], instance="i"), version)
    for cut in range(len(whole)):
        assert decode_commit(memoryview(whole[:cut]), 0, version) is None
    for position in range(len(whole)):
        for value in (0, 1, 2, 3, 127, 128, 255):
            altered = bytearray(whole)
            altered[position] = value
            plain = decode_commit(memoryview(altered), 0, version)
            try:
                same = decode(OffsetCommitRequest, version, memoryview(altered))
            except MalformedMessage:
                assert plain is None
            else:
                assert plain is None or plain == in_columns(same)


def test_tags_from_the_future_are_left_to_the_tables():
    version = FLEXIBLE_SINCE
    whole = encode(request_of(version, [("t", NO_TOPIC_ID, [(0, 5, 1)])]), version)
    assert whole.endswith(b"\0\0\0")  # of the partition, of the topic, of the request
    for kept in (1, 2, 3):
        body = whole[: len(whole) - kept] + b"\1\5\1x" + b"\0" * (kept - 1)
        assert decode(OffsetCommitRequest, version, body) is not None
        assert decode_commit(memoryview(body), 0, version) is None


@pytest.mark.parametrize("field", ["group", "member", "instance", "topic"])
def test_strings_longer_than_any_may_be_are_left_to_the_tables(field):
    longer = "x" * (STRING_MAX + 1)
    named = {} if field == "topic" else {field: longer}
    request = request_of(9, [(longer if field == "topic" else "t", NO_TOPIC_ID, [(0, 5, 1)])], **named)
    frame = memoryview(encode(request, 9))
    assert decode_commit(frame, 0, 9) is None
    with pytest.raises(MalformedMessage):
        decode(OffsetCommitRequest, 9, frame)
