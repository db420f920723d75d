"""Committing, fetching, deleting and expiring offsets; listing, describing and deleting groups."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sim import (
    GROUP,
    SESSION_MS,
    Sim,
    assignment,
    commit,
    committed,
    fetch_all,
    heartbeat,
    join,
    leave,
    new_member,
    stable_group,
    subscription,
    sync,
)

from tidelog.coordination import Outcome
from tidelog.errors import ErrorCode
from tidelog.groups.group import GroupSettings
from tidelog.groups.offsets import Offsets
from tidelog.groups.records import GroupRecord, OffsetCommitKey, OffsetCommitValue, encode_record
from tidelog.ids import TopicId, TopicPartition
from tidelog.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.record_batch import build_pairs
from tidelog.wire.schema import Message

DAY_MS = 86_400_000


def code_of(response: object) -> int:
    code: int = response.topics[0].partitions[0].error_code  # type: ignore[attr-defined]
    return code


def delete_offsets(topic: str, *partitions: int) -> OffsetDeleteRequest:
    numbers = tuple(OffsetDeleteRequestPartition(partition_index=number) for number in partitions)
    return OffsetDeleteRequest(group_id=GROUP, topics=(OffsetDeleteRequestTopic(name=topic, partitions=numbers),))


def txn_commit(
    offset: int, *, producer_id: int = 7, member_id: str = "", generation: int = -1
) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=producer_id,
        producer_epoch=0,
        generation_id=generation,
        member_id=member_id,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )


# Commit and fetch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_is_read_back(version: int) -> None:
    sim = Sim()
    assert code_of(sim.ask(commit({("t", 0): 5, ("t", 1): 6}, metadata="m"), version)) == 0
    assert committed(sim) == {("t", 0): 5, ("t", 1): 6}
    assert committed(sim.reloaded()) == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_names_what_is_there_and_what_is_not(version: int) -> None:
    sim = Sim()
    sim.ask(commit({("t", 0): 5}, metadata="m"))
    if version < 8:
        topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0, 9)),)
        found = sim.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), version).topics
    else:
        group = OffsetFetchRequestGroup(
            group_id=GROUP, topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0, 9)),)
        )
        found = sim.ask(OffsetFetchRequest(groups=(group,)), version).groups[0].topics
    assert [(each.committed_offset, each.metadata, each.error_code) for each in found[0].partitions] == [
        (5, "m", 0),
        (-1, "", 0),
    ]


@pytest.mark.parametrize("version", range(2, 8))
def test_fetch_of_everything_in_old_versions(version: int) -> None:
    sim = Sim()
    sim.ask(commit({("u", 1): 2, ("t", 10): 5, ("t", 2): 1}))
    topics = sim.ask(OffsetFetchRequest(group_id=GROUP, topics=None), version).topics
    found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in topics]
    assert found == [("t", [2, 10]), ("u", [1])]


def test_unknown_group_has_committed_nothing() -> None:
    sim = Sim()
    assert committed(sim, "nobody") == {}
    topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
    answer = sim.ask(OffsetFetchRequest(group_id="nobody", topics=topics), 3)
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (0, -1)


def test_fetch_of_several_groups() -> None:
    sim = Sim()
    sim.ask(commit({("t", 0): 5}))
    sim.ask(commit({("t", 0): 6}, group_id="h"))
    request = OffsetFetchRequest(
        groups=tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "h", "none"))
    )
    groups = sim.ask(request).groups
    assert [group.group_id for group in groups] == [GROUP, "h", "none"]
    assert [sum(each.committed_offset for t in g.topics for each in t.partitions) for g in groups] == [5, 6, 0]


def test_too_long_metadata_refuses_that_partition_only() -> None:
    sim = Sim(GroupSettings(offset_metadata_max_bytes=3))
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=(
            OffsetCommitRequestTopic(
                name="t",
                partitions=tuple(
                    OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata="x" * n)
                    for n in (3, 4)
                ),
            ),
        ),
    )
    answer = sim.ask(request, 9)
    assert [each.error_code for each in answer.topics[0].partitions] == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert committed(sim) == {("t", 3): 3}


def test_offsets_of_a_topic_made_again_under_the_same_name_are_not_its_own() -> None:
    sim = Sim()
    old, new = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", topic_id=old, partitions=(partition,))
    sim.ask(OffsetCommitRequest(group_id=GROUP, member_id="", topics=(topic,)), 10)
    found = []
    for topic_id in (old, new):
        wanted = OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=(0,))
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=(wanted,)),))
        found.append(sim.ask(request, 10).groups[0].topics[0].partitions[0].committed_offset)
    assert found == [9, -1]


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.parametrize("transactional", [False, True])
def test_a_topic_made_again_inherits_nothing_that_its_deletion_missed(version: int, transactional: bool) -> None:
    """Because of a crash, or of a log that took no tombstones at that moment."""
    ids = {"t": TopicId(UUID(int=1))}
    sim = Sim(topic_id_of=ids.__getitem__)
    if transactional:
        sim.ask(txn_commit(9))
        sim.shard.replay_marker(7, True)
    else:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata=None)
        topic = OffsetCommitRequestTopic(name="t", topic_id=ids["t"], partitions=(partition,))
        sim.ask(OffsetCommitRequest(group_id=GROUP, member_id="", topics=(topic,)), 9)
    assert offset_of_t(sim, version) == 9
    ids["t"] = TopicId(UUID(int=2))
    assert offset_of_t(sim, version) == -1


def offset_of_t(sim: Sim, version: int) -> int:
    if version < 8:
        topics = (OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),)
        answer = sim.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), version).topics[0]
    else:
        group = OffsetFetchRequestGroup(
            group_id=GROUP, topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
        )
        answer = sim.ask(OffsetFetchRequest(groups=(group,)), version).groups[0].topics[0]
    offset: int = answer.partitions[0].committed_offset
    return offset


# Who may commit -------------------------------------------------------------------------------------------------------


def test_only_the_current_generation_of_a_member_commits() -> None:
    sim = Sim()
    (leader, follower), generation = stable_group(sim, 2)
    good = {"member_id": follower, "generation": generation}
    assert code_of(sim.ask(commit({("t", 1): 3}, **good))) == 0
    for wrong, code in (
        ({"member_id": follower, "generation": generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": follower, "generation": generation + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "ghost", "generation": generation}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({**good, "instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert code_of(sim.ask(commit({("t", 1): 99}, **wrong))) == code
    sim.submit(join(leader), 9)
    assert code_of(sim.ask(commit({("t", 1): 4}, **good))) == 0, "while it finishes its work before it joins again"
    sim.submit(join(follower), 9)
    late = {"member_id": follower, "generation": generation + 1}
    assert code_of(sim.ask(commit({("t", 1): 99}, **late))) == ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of(sim.ask(commit({("t", 1): 99}, **good))) == ErrorCode.ILLEGAL_GENERATION
    assert committed(sim) == {("t", 1): 4}


def test_static_member_is_fenced_when_its_double_came() -> None:
    sim = Sim()
    waiter = sim.submit(join(instance_id="a"), 9)
    sim.advance(0)
    old = sim.answers[waiter].member_id
    sim.ask(sync(old, 1, {old: assignment("t", 0)}, instance_id="a"))
    sim.ask(join(instance_id="a"), 9)
    answer = sim.ask(commit({("t", 0): 1}, member_id=old, generation=1, instance_id="a"))
    assert code_of(answer) == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    assert code_of(Sim().ask(commit({("t", 0): 1}, member_id="m", generation=3), version)) == code


def test_administrator_may_commit_for_an_empty_group_only() -> None:
    sim = Sim()
    (only,), _ = stable_group(sim, 1)
    assert code_of(sim.ask(commit({("t", 0): 1}))) == ErrorCode.UNKNOWN_MEMBER_ID
    sim.ask(leave(only))
    assert code_of(sim.ask(commit({("t", 0): 1}))) == 0


def test_commit_keeps_a_member_alive() -> None:
    sim = Sim()
    (only,), generation = stable_group(sim, 1)
    for offset in range(4):
        sim.advance(SESSION_MS - 1)
        assert code_of(sim.ask(commit({("t", 0): offset}, member_id=only, generation=generation))) == 0


def test_memory_does_not_grow_with_commits() -> None:
    sim = Sim()
    for offset in range(100):
        sim.ask(commit({("t", 0): offset}))
    assert len(sim.shard.offsets.of(GROUP)) == 1


# Delete and expire ----------------------------------------------------------------------------------------------------


def test_offset_delete() -> None:
    sim = Sim()
    assert sim.ask(delete_offsets("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (only,), generation = stable_group(sim, 1)
    sim.ask(commit({("t", 0): 1, ("u", 0): 2, ("u", 1): 3}, member_id=only, generation=generation))
    assert code_of(sim.ask(delete_offsets("t", 0))) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert code_of(sim.ask(delete_offsets("u", 0, 7))) == 0
    assert committed(sim) == {("t", 0): 1, ("u", 1): 3}
    assert committed(sim.reloaded()) == {("t", 0): 1, ("u", 1): 3}


def test_offset_delete_of_a_group_that_says_nothing_about_topics() -> None:
    sim = Sim()
    stable_group(sim, 1, protocol_type="connect")
    assert sim.ask(delete_offsets("t", 0)).error_code == ErrorCode.NON_EMPTY_GROUP


def test_delete_groups() -> None:
    sim = Sim()
    (only,), generation = stable_group(sim, 1)
    sim.ask(commit({("t", 0): 1}, member_id=only, generation=generation))
    sim.ask(commit({("t", 0): 1}, group_id="simple"))
    codes = [each.error_code for each in sim.ask(DeleteGroupsRequest(groups_names=(GROUP, "none", "simple"))).results]
    assert codes == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND, 0]
    sim.ask(leave(only))
    results = sim.ask(DeleteGroupsRequest(groups_names=(GROUP, GROUP))).results
    assert [each.error_code for each in results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert list(sim.shard.all()) == []
    assert sim.shard.history.of(GROUP) == ()
    assert list(sim.reloaded().shard.all()) == []


def test_offsets_of_an_empty_group_expire_and_take_it_along() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=0, offsets_retention_ms=DAY_MS))
    (only,), generation = stable_group(sim, 1)
    sim.ask(commit({("t", 0): 1}, member_id=only, generation=generation))
    sim.advance(1)
    for _ in range(4):
        sim.now_ms += DAY_MS  # nobody is evicted: the timers are not run
        sim.expire_offsets()
    assert committed(sim) == {("t", 0): 1}, "a live group keeps what it reads"
    sim.ask(leave(only))
    sim.advance(DAY_MS - 1)
    sim.expire_offsets()
    assert committed(sim) == {("t", 0): 1}, "counted from when it became empty"
    sim.advance(1)
    sim.expire_offsets()
    assert list(sim.shard.all()) == []
    assert list(sim.reloaded().shard.all()) == []


def test_group_that_somebody_is_about_to_join_is_kept() -> None:
    sim = Sim()
    (only,), _ = stable_group(sim, 1)
    sim.ask(leave(only))
    member_id = sim.ask(join(), 9).member_id
    sim.expire_offsets()
    waiter = sim.submit(join(member_id), 9)
    sim.advance(0)
    assert sim.answers[waiter].generation_id == 3


def test_live_group_loses_offsets_of_topics_it_no_longer_reads() -> None:
    sim = Sim(GroupSettings(group_initial_rebalance_delay_ms=0, offsets_retention_ms=DAY_MS))
    (only,), generation = stable_group(sim, 1)
    sim.ask(commit({("t", 0): 1, ("u", 0): 2}, member_id=only, generation=generation))
    sim.now_ms += DAY_MS
    sim.expire_offsets()
    assert committed(sim) == {("t", 0): 1}


def test_simple_group_expires_by_its_last_commit() -> None:
    sim = Sim(GroupSettings(offsets_retention_ms=DAY_MS))
    sim.ask(commit({("t", 0): 1}))
    sim.ask(commit({("t", 1): 1}, retention_ms=1_000), 4)
    sim.advance(1_000)
    sim.expire_offsets()
    assert committed(sim) == {("t", 0): 1}, "old clients may name a retention of their own"
    sim.advance(DAY_MS)
    sim.expire_offsets()
    assert list(sim.shard.all()) == []


def test_deleted_partitions_lose_their_offsets() -> None:
    sim = Sim()
    sim.ask(commit({("t", 0): 1, ("t", 1): 2}))
    sim.ask(commit({("t", 0): 1}, group_id="h"))
    for outcome in sim.shard.on_partitions_deleted([TopicPartition("t", 0)]):
        sim.run(lambda outcome=outcome: outcome)
    assert (committed(sim), committed(sim, "h")) == ({("t", 1): 2}, {})


@pytest.mark.parametrize("how", ["delete the group", "delete its offsets", "expire", "delete the topic"])
def test_no_batch_of_removals_is_too_large(how: str) -> None:
    """However many offsets there are: half of what the log takes is never exceeded."""
    limit = 2_000
    sim = Sim(GroupSettings(offsets_retention_ms=DAY_MS, batch_bytes=limit))
    places = [("t" * 200, number) for number in range(100)]
    sim.ask(commit(dict.fromkeys(places, 1)))
    written = len(sim.log)
    request: Message = DeleteGroupsRequest(groups_names=(GROUP,))
    steps: Iterator[Outcome[Any, GroupRecord]] | None = None
    if how == "delete its offsets":
        request = delete_offsets(places[0][0], *range(100))
    elif how == "expire":
        sim.now_ms += DAY_MS
        steps = sim.shard.expiry(sim.now_ms)
    elif how == "delete the topic":
        steps = sim.shard.on_partitions_deleted(TopicPartition(*place) for place in places)
    batches = []
    for outcome in sim.shard.prelude(request) if steps is None else steps:
        batches.append(outcome.records)
        sim.run(lambda outcome=outcome: outcome)  # type: ignore[misc]
    if steps is None:
        before = len(sim.log)
        answer = sim.ask(request)
        assert getattr(answer, "error_code", 0) == 0
        assert all(each.error_code == 0 for each in getattr(answer, "results", ()))
        assert 0 < len(sim.log) - before <= 10
    assert len(sim.log) - written == len(places)
    assert all(len(build_pairs([encode_record(record) for record in batch], 0)) < limit + 100 for batch in batches)
    assert len(batches) >= 10
    assert list(sim.shard.all()) == []


# Transactions ---------------------------------------------------------------------------------------------------------


def test_transactional_commit_counts_when_the_marker_comes() -> None:
    sim = Sim()
    sim.ask(commit({("t", 0): 1}))
    assert code_of(sim.ask(txn_commit(5))) == 0
    assert committed(sim) == {("t", 0): 1}
    unstable = sim.ask(fetch_all(require_stable=True)).groups[0].topics[0].partitions[0]
    assert (unstable.error_code, unstable.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert sim.reloaded().shard.dump() == sim.shard.dump()
    sim.shard.replay_marker(7, True)
    assert committed(sim) == {("t", 0): 5}
    sim.ask(txn_commit(9, producer_id=8))
    sim.shard.replay_marker(8, False)
    assert committed(sim) == {("t", 0): 5}
    assert not sim.shard.offsets.has_open_transaction(GROUP)


def test_transactional_commit_of_a_stale_generation_is_refused() -> None:
    sim = Sim()
    (only,), generation = stable_group(sim, 1)
    assert code_of(sim.ask(txn_commit(1, member_id=only, generation=generation))) == 0
    assert code_of(sim.ask(txn_commit(1, member_id=only, generation=generation - 1))) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(sim.ask(txn_commit(1, member_id="ghost", generation=generation))) == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_a_plain_and_a_transactional_commit_the_later_record_wins() -> None:
    offsets = Offsets()
    key = OffsetCommitKey(group=GROUP, topic="t", partition=0)

    def value(offset: int) -> OffsetCommitValue:
        return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0)

    offsets.replay(key, value(1), 0, producer_id=7)
    offsets.replay(key, value(2), 1)
    offsets.replay_marker(7, True)
    assert offsets.of(GROUP)[TopicPartition("t", 0)].offset == 2


def test_deleting_an_offset_deletes_what_is_pending_too() -> None:
    sim = Sim()
    sim.ask(txn_commit(5))
    assert code_of(sim.ask(delete_offsets("t", 0))) == 0
    sim.shard.replay_marker(7, True)
    assert committed(sim) == {}
    assert list(sim.shard.all()) == []


# Listing and describing -----------------------------------------------------------------------------------------------


def test_list_groups_by_state_and_type() -> None:
    sim = Sim()
    stable_group(sim, 1)
    sim.ask(commit({("t", 0): 1}, group_id="simple"))
    new_member(sim, group_id="busy")

    def listed(**filters: tuple[str, ...]) -> dict[str, tuple[str, str, str]]:
        groups = sim.ask(ListGroupsRequest(**filters)).groups
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in groups}

    everything = {
        GROUP: ("consumer", "Stable", "classic"),
        "simple": ("", "Empty", "classic"),
        "busy": ("consumer", "PreparingRebalance", "classic"),
    }
    assert listed() == everything
    assert set(listed(states_filter=("stable", "Empty"))) == {GROUP, "simple"}
    assert listed(types_filter=("Classic",)) == everything
    assert listed(types_filter=("consumer",)) == {}
    for version in range(6):
        assert len(sim.ask(ListGroupsRequest(), version).groups) == 3


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(version: int) -> None:
    sim = Sim()
    (only,), generation = stable_group(sim, 1)
    found, dead = sim.ask(DescribeGroupsRequest(groups=(GROUP, "none")), version).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    member = found.members[0]
    assert (member.member_id, member.client_id, member.client_host) == (only, "client", "/127.0.0.1")
    assert bytes(member.member_metadata) == subscription("t")
    assert bytes(member.member_assignment) == assignment("t", 0)
    assert dead.group_state == "Dead"
    assert dead.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    sim.submit(join(only, metadata=subscription("u")), 9)
    assert sim.ask(heartbeat(only, generation + 1)).error_code == 0
    rebalancing = sim.ask(DescribeGroupsRequest(groups=(GROUP,)), version).groups[0]
    assert (rebalancing.group_state, rebalancing.protocol_data) == ("CompletingRebalance", "")
    assert bytes(rebalancing.members[0].member_assignment) == b""
