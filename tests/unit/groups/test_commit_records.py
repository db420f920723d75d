"""The short ways to encode a commit write the very bytes the tables would, and are replayed to the same offsets."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim import GROUP, Sim, commit, committed, stable_group

from tidelog.groups.commit_records import CommitRecords, encode_records
from tidelog.groups.group import Context
from tidelog.groups.offsets import Offsets
from tidelog.groups.records import (
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_by_table,
    encode_record,
)
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.commit_fast import PARTITIONS_MAX, PlainCommit, TopicOffsets
from tidelog.wire.record_batch import batch_of, build_batch
from tidelog.wire.records import Record, encode_pairs


@given(
    st.text(max_size=20),
    st.text("abc.-", min_size=1, max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from(["", "", "note"]),
    st.integers(0, 2**62),
    st.sampled_from([-1, -1, 5]),
    st.sampled_from([NO_TOPIC_ID, TopicId(UUID(int=77))]),
)
def test_equal_to_the_tables(group, topic, partition, offset, epoch, metadata, at, expires, topic_id):
    record = GroupRecord(
        OffsetCommitKey(group=group, topic=topic, partition=partition),
        OffsetCommitValue(
            offset=offset,
            leader_epoch=epoch,
            metadata=metadata,
            commit_timestamp=at,
            expire_timestamp=expires,
            topic_id=topic_id,
        ),
    )
    assert encode_record(record) == encode_by_table(record)
    key, value = encode_record(record)
    if expires == -1:
        assert decode_record(key, value) == record


topic_ids = st.sampled_from([NO_TOPIC_ID, TopicId(UUID(int=77)), TopicId(UUID(int=2**127))])
rows = st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1))


def topic_of(name: str, topic_id: TopicId, rows: list[tuple[int, int, int]]) -> TopicOffsets:
    partitions, offsets, epochs = zip(*rows, strict=True)
    return TopicOffsets(name, topic_id, partitions, offsets, epochs)


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=150),
    st.lists(
        st.builds(topic_of, st.text("abc.-", max_size=150), topic_ids, st.lists(rows, min_size=1, max_size=90)),
        max_size=3,
    ),
    st.integers(0, 2**62),
)
def test_columns_are_equal_to_the_records_they_stand_for(group, topics, at):
    columns = CommitRecords(group, tuple(topics), at)
    records = list(columns)
    assert len(columns) == len(records) == sum(len(topic.partitions) for topic in topics)
    assert [record.key.partition for record in records] == [each for topic in topics for each in topic.partitions]
    pairs = [encode_by_table(record) for record in records]
    assert encode_records(columns) == encode_records(records) == encode_pairs(pairs)
    if records:
        batch = build_batch(Record(place, at, key, value) for place, (key, value) in enumerate(pairs))
        assert batch_of(columns.payload(), len(columns), at) == batch
        assert columns[0] == records[0]
        assert columns[-3:] == tuple(records[-3:])


def test_as_many_columns_as_there_may_be():
    rows = [(number, number * 2**40, number) for number in range(PARTITIONS_MAX)]
    columns = CommitRecords("g", (topic_of("t", NO_TOPIC_ID, rows),), 5)
    assert columns.payload() == encode_pairs([encode_by_table(record) for record in columns])


names = st.sampled_from("tu")
few = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.just(-1)), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.builds(topic_of, names, topic_ids, few), min_size=1, max_size=4))
def test_columns_are_replayed_as_the_records_they_stand_for(topics):
    quick, plain = Offsets(), Offsets()
    at = 0
    for topic in topics:
        columns = CommitRecords("g", (topic, topic._replace(name="v")), at)
        quick.replay_commit(columns, at)
        for offset, (key, value) in enumerate(columns, at):
            plain.replay(key, value, offset)
        at += len(columns)
        assert quick.dump() == plain.dump()
    assert all(type(partition) is TopicPartition for partition in quick.of("g"))


@pytest.mark.parametrize("version", [7, 9])
def test_a_commit_in_columns_is_decided_like_any_other(version):
    sim = Sim()
    (leader, follower), generation = stable_group(sim, 2)
    sim.ask(commit({("t", 0): 1}, group_id="simple"))
    for group_id in (GROUP, "simple", "nobody"):
        for member_id in ("", "stranger", leader, follower):
            for epoch in (-1, generation - 1, generation, generation + 1):
                for instance_id in (None, "i"):
                    who = {"group_id": group_id, "member_id": member_id}
                    usual = commit({("t", 0): 5, ("t", 1): 6}, generation=epoch, instance_id=instance_id, **who)
                    columns = PlainCommit(
                        **who,
                        generation_id_or_member_epoch=epoch,
                        group_instance_id=instance_id,
                        topics=(TopicOffsets("t", NO_TOPIC_ID, (0, 1), (5, 6), (-1, -1)),),
                    )
                    context = Context("client", "/127.0.0.1", version, 1)
                    expected = sim.shard.handle(usual, context, sim.now_ms)
                    decided = sim.shard.commit(columns, version, sim.now_ms)
                    codes = {each.error_code for topic in expected.response.topics for each in topic.partitions}
                    assert codes == {decided.response}
                    assert list(decided.records) == list(expected.records)
                    assert decided.timers == expected.timers
                    assert bool(decided.records) is not bool(decided.response)


def test_a_commit_with_metadata_or_of_very_many_partitions_is_stored_as_well():
    sim = Sim()
    sim.ask(commit({("t", 0): 5}, metadata="note"))
    many = {("u", number): number for number in range(PARTITIONS_MAX + 1)}
    sim.ask(commit(many))
    assert committed(sim) == {("t", 0): 5, **many}
    assert sim.reloaded().shard.dump() == sim.shard.dump()
