"""Consumer groups over raw connections: what no client library lets one say."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.testing import Broker
from tidelog.wire.frames import encode_request
from tidelog.wire.messages.groups import (
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
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
from tidelog.wire.schema import encode

from .kit import connect, create_topic, eventually

SETTINGS = {"group.min.session.timeout.ms": 100, "offsets.topic.num.partitions": 2}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


class Member:
    """One member of the group "team", saying exactly what it is told to."""

    def __init__(self, connection: Connection, session_ms: int = 10_000, rebalance_ms: int = 10_000) -> None:
        self.connection = connection
        self.member_id, self.generation = "", -1
        self._session_ms, self._rebalance_ms = session_ms, rebalance_ms
        connection.call(FindCoordinatorRequest(key="team"), 2)

    def ask_to_join(self) -> None:
        self.connection.send(
            JoinGroupRequest(
                group_id="team",
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
            ),
            7,
        )

    def joined(self) -> int:
        answer = self.connection.receive()
        if answer.error_code == 0:
            self.generation = answer.generation_id
        self.member_id = answer.member_id or self.member_id
        code: int = answer.error_code
        return code

    def join(self) -> None:
        self.ask_to_join()
        if self.joined() == ErrorCode.MEMBER_ID_REQUIRED:
            self.ask_to_join()
            assert self.joined() == 0

    def sync(self, *others: "Member") -> int:
        """As the leader, who assigns everybody his own id; as a follower without others."""
        members = (self, *others) if others or self.generation == 1 else ()
        assigned = tuple(
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=each.member_id.encode()) for each in members
        )
        request = SyncGroupRequest(
            group_id="team", generation_id=self.generation, member_id=self.member_id, assignments=assigned
        )
        code: int = self.connection.call(request, 3).error_code
        return code

    def beat(self) -> int:
        request = HeartbeatRequest(group_id="team", generation_id=self.generation, member_id=self.member_id)
        code: int = self.connection.call(request, 3).error_code
        return code

    def commit(self, offset: int, *, generation: int | None = None, member_id: str | None = None) -> int:
        return commit(
            self.connection,
            "team",
            offset,
            self.generation if generation is None else generation,
            self.member_id if member_id is None else member_id,
        )


def commit(connection: Connection, group: str, offset: int, generation: int = -1, member_id: str = "") -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(name="work", partitions=(partition,)),),
    )
    code: int = connection.call(request, 7).topics[0].partitions[0].error_code
    return code


def committed(connection: Connection, group: str = "team") -> int:
    wanted = (OffsetFetchRequestTopic(name="work", partition_indexes=(0,)),)
    answer = connection.call(OffsetFetchRequest(group_id=group, topics=wanted), 5)
    assert answer.error_code == 0
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


# -- finding the coordinator -------------------------------------------------------------------------------------------


def test_a_coordinator_that_was_found_answers(broker: Broker) -> None:
    """Also to those who asked while the first question was still creating the topic."""
    answers: list[tuple[int, int]] = []

    def ask(number: int) -> None:
        group = f"group-{number}"
        with connect(broker) as connection:
            found = connection.call(FindCoordinatorRequest(coordinator_keys=(group,)), 4).coordinators[0]
            beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
            answers.append((found.error_code, connection.call(beat, 4).error_code))

    with ExitStack() as stack:
        for number in range(8):
            thread = threading.Thread(target=ask, args=(number,))
            thread.start()
            stack.callback(thread.join)
    assert answers == [(0, ErrorCode.UNKNOWN_MEMBER_ID)] * 8  # a coordinator's word


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_stale_generations_and_strangers_commit_nothing(broker: Broker) -> None:
    with connect(broker) as one, connect(broker) as two:
        create_topic(one, "work")
        first, second = Member(one), Member(two)
        first.join()
        assert first.sync() == 0
        assert first.commit(5) == 0
        second.ask_to_join()
        assert second.joined() == ErrorCode.MEMBER_ID_REQUIRED
        second.ask_to_join()
        eventually(lambda: first.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "the first hears of the second")
        assert first.commit(6) == 0  # who is still to join again may say how far it came
        old = first.generation
        first.join()
        assert second.joined() == 0
        assert first.generation == second.generation == old + 1
        assert first.commit(7) == ErrorCode.REBALANCE_IN_PROGRESS  # assigned nothing yet, so it can have done nothing
        assert first.sync(second) == 0
        assert second.sync() == 0
        assert first.commit(8, generation=old) == ErrorCode.ILLEGAL_GENERATION
        assert first.commit(8, member_id="somebody") == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(one, "team", 8) == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(one) == 6
        assert second.commit(9) == 0
        assert committed(one) == 9


def test_a_silent_member_is_out(broker: Broker) -> None:
    with connect(broker) as one:
        create_topic(one, "work")
        member = Member(one, session_ms=2000)
        member.join()
        assert member.sync() == 0
        for _ in range(4):
            time.sleep(0.6)
            assert member.beat() == 0  # each is a new session
        # Looking at the group does not count as a sign of life.
        eventually(lambda: [each.group_state for each in one.call(ListGroupsRequest(), 4).groups] == ["Empty"], "out")
        assert member.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert member.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert committed(one) == -1


def test_who_does_not_join_again_in_time_is_left_behind(broker: Broker) -> None:
    """It sends heartbeats, but its poll is late: the rebalance goes on without it."""
    with connect(broker) as one, connect(broker) as two:
        create_topic(one, "work")
        late, second = Member(one, rebalance_ms=400), Member(two, rebalance_ms=400)
        late.join()
        assert late.sync() == 0
        second.ask_to_join()
        assert second.joined() == ErrorCode.MEMBER_ID_REQUIRED
        began = time.monotonic()
        second.ask_to_join()
        while (code := late.beat()) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            assert time.monotonic() - began < 15
            time.sleep(0.02)
        assert code == ErrorCode.UNKNOWN_MEMBER_ID
        assert second.joined() == 0
        assert second.generation == late.generation + 1
        assert time.monotonic() - began > 0.35


@pytest.mark.parametrize("version", [3, 5, 9])
def test_a_member_with_the_longest_of_names_is_told_its_id(broker: Broker, version: int) -> None:
    """Its name is part of its id, and old versions have room for 32,767 bytes: nobody of the group was told."""
    request = JoinGroupRequest(
        group_id="long",
        session_timeout_ms=6000,
        rebalance_timeout_ms=1000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    name = "x" * 32_767
    with connect(broker) as one:
        one.call(FindCoordinatorRequest(key_type=0, coordinator_keys=("long",)))
        one.send_raw(encode_request(11, version, 1, name, encode(request, version)))
        assert b"xxx-" in bytes(one.recv_frame())


def test_session_timeouts_have_bounds(broker: Broker) -> None:
    with connect(broker) as one:
        for session_ms in (99, 1_800_001):
            member = Member(one, session_ms=session_ms)
            member.ask_to_join()
            assert member.joined() == ErrorCode.INVALID_SESSION_TIMEOUT


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_offsets_of_groups_that_do_not_exist(broker: Broker) -> None:
    with connect(broker) as one:
        create_topic(one, "work")
        one.call(FindCoordinatorRequest(key="nobody"), 2)
        assert committed(one, "nobody") == -1
        assert commit(one, "nobody", 5, generation=3, member_id="ghost") == ErrorCode.ILLEGAL_GENERATION
        wanted = OffsetFetchRequestGroup(
            group_id="nobody", topics=(OffsetFetchRequestTopics(name="work", partition_indexes=(0,)),)
        )
        (group,) = one.call(OffsetFetchRequest(groups=(wanted,)), 8).groups
        assert (group.error_code, group.topics[0].partitions[0].committed_offset) == (0, -1)


def test_offsets_of_partitions_that_do_not_exist(broker: Broker) -> None:
    with connect(broker) as one:
        one.call(FindCoordinatorRequest(key="team"), 2)
        assert commit(one, "team", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_with_and_without_metadata_are_answered_and_kept_alike(broker: Broker, version: int) -> None:
    """Those without, of partitions that exist, take a shorter way."""
    with connect(broker) as one:
        ids = {name: create_topic(one, name, partitions=3) for name in ("work", "play")}
        ids["gone"] = UUID(int=7)
        wishes = (
            {"work": (0, 1, 2)},
            {"work": (2, 0), "play": (1,)},
            {"work": (1, 1)},
            {"work": (0, 3, -1), "play": (2,)},
            {"play": (0,), "gone": (0,)},
        )
        for number, wish in enumerate(wishes):
            answers, kept = [], []
            for metadata in ("", "note"):
                group = f"group-{number}-{metadata}"
                one.call(FindCoordinatorRequest(key=group), 2)
                topics = tuple(
                    OffsetCommitRequestTopic(
                        name=name if version < 10 else "",
                        topic_id=TopicId(ids[name]) if version >= 10 else NO_TOPIC_ID,
                        partitions=tuple(
                            OffsetCommitRequestPartition(
                                partition_index=index, committed_offset=100 + at, committed_metadata=metadata
                            )
                            for at, index in enumerate(partitions)
                        ),
                    )
                    for name, partitions in wish.items()
                )
                answers.append(one.call(OffsetCommitRequest(group_id=group, member_id="", topics=topics), version))
                stored = one.call(OffsetFetchRequest(group_id=group, topics=None), 5).topics
                kept.append(
                    {
                        (topic.name, each.partition_index): each.committed_offset
                        for topic in stored
                        for each in topic.partitions
                    }
                )
            assert answers[0] == answers[1]
            assert kept[0] == kept[1] != {}


# -- the same after a restart ------------------------------------------------------------------------------------------


def test_a_restarted_broker_knows_its_members(tmp_path: Path) -> None:
    """From the log alone: generation, ids and offsets; and that a member which stays away is out."""
    with Broker(SETTINGS, data_dir=tmp_path) as broker, connect(broker) as one, connect(broker) as two:
        create_topic(one, "work")
        first, second = Member(one, session_ms=4000), Member(two, session_ms=4000)
        first.join()
        assert first.sync() == 0
        second.ask_to_join()
        second.joined()
        second.ask_to_join()
        eventually(lambda: first.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "the first hears of the second")
        first.join()
        assert second.joined() == 0
        assert first.sync(second) == 0
        assert second.sync() == 0
        assert first.commit(7) == 0
    with Broker(SETTINGS, data_dir=tmp_path) as broker, connect(broker) as one:
        one.call(FindCoordinatorRequest(key="team"), 2)
        first.connection = one
        assert committed(one) == 7
        assert first.beat() == 0
        assert first.commit(8) == 0
        assert first.commit(9, generation=first.generation - 1) == ErrorCode.ILLEGAL_GENERATION
        eventually(lambda: first.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "the second stayed away")
        before = first.generation
        first.join()
        assert first.generation == before + 1
        leave = LeaveGroupRequest(group_id="team", members=(MemberIdentity(member_id=first.member_id),))
        assert one.call(leave, 3).error_code == 0
        assert committed(one) == 8


def test_a_group_with_more_offsets_than_fit_into_a_batch_is_deleted() -> None:
    """So are its offsets alone: a tombstone for each of them would not be accepted in one batch."""
    partitions = range(120)
    with Broker({**SETTINGS, "message.max.bytes": 2_000}) as small, connect(small) as connection:
        create_topic(connection, "wide", partitions=len(partitions))
        connection.call(FindCoordinatorRequest(key="team"), 2)
        for group in ("team", "other"):
            for start in range(0, len(partitions), 10):
                topic = OffsetCommitRequestTopic(
                    name="wide",
                    partitions=tuple(
                        OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata="")
                        for each in partitions[start : start + 10]
                    ),
                )
                request = OffsetCommitRequest(
                    group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=(topic,)
                )
                (answered,) = connection.call(request, 7).topics
                assert all(each.error_code == ErrorCode.NONE for each in answered.partitions)

        deleted = connection.call(DeleteGroupsRequest(groups_names=("team",)), 2)
        assert [each.error_code for each in deleted.results] == [ErrorCode.NONE]
        again = connection.call(DeleteGroupsRequest(groups_names=("team",)), 2)
        assert [each.error_code for each in again.results] == [ErrorCode.GROUP_ID_NOT_FOUND]
        wanted = OffsetDeleteRequestTopic(
            name="wide", partitions=tuple(OffsetDeleteRequestPartition(partition_index=each) for each in partitions)
        )
        answer = connection.call(OffsetDeleteRequest(group_id="other", topics=(wanted,)), 0)
        assert answer.error_code == ErrorCode.NONE
        assert {each.error_code for topic in answer.topics for each in topic.partitions} == {ErrorCode.NONE}
        listed = connection.call(ListGroupsRequest(), 4)
        assert (listed.error_code, listed.groups) == (ErrorCode.NONE, ())


def test_offsets_that_nobody_needs_any_more_expire() -> None:
    """Unasked. Old clients may name a retention of their own, which a test can wait for."""
    with Broker({**SETTINGS, "offsets.retention.check.interval.ms": 50}) as eager, connect(eager) as one:
        create_topic(one, "work")
        for group, retention_ms in (("gone", 200), ("kept", -1)):
            one.call(FindCoordinatorRequest(key=group), 2)
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                retention_time_ms=retention_ms,
                topics=(OffsetCommitRequestTopic(name="work", partitions=(partition,)),),
            )
            (topic,) = one.call(request, 4).topics
            assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE]
        eventually(lambda: committed(one, "gone") == -1, "the offset expired")
        assert committed(one, "kept") == 7
        eventually(lambda: [each.group_id for each in one.call(ListGroupsRequest(), 4).groups] == ["kept"], "so did it")
