"""Commits with a member epoch that is no longer the newest (KIP-1251), for whichever broker `bootstrap` names."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
    FindCoordinatorRequest,
)
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

COMMIT_BY_NAME = 9
RETRIABLE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Member:
    """Says what it owns with every heartbeat, and gives up at once what it is no longer given."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        self._connection, self._group, self._topic = connection, group, topic
        self.member_id = uuid4().hex[:22]
        self.epoch = 0
        self.owned: ConsumerGroupHeartbeatTopicPartitions | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        return () if self.owned is None else tuple(sorted(self.owned.partitions))

    def beat(self) -> None:
        answer = self._ask()
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self.owned = given[0] if given else None

    def _ask(self) -> ConsumerGroupHeartbeatResponse:
        deadline = time.monotonic() + 30
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=(self._topic,),
                topic_partitions=() if self.owned is None else (self.owned,),
            )
            answer: ConsumerGroupHeartbeatResponse = self._connection.call(request, 1)
            if answer.error_code not in RETRIABLE:
                assert answer.error_code == ErrorCode.NONE, answer.error_message
                return answer
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def commit(self, epoch: int, *numbers: int) -> set[int]:
        topic = OffsetCommitRequestTopic(
            name=self._topic,
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
                for number in numbers
            ),
        )
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=epoch, member_id=self.member_id, topics=(topic,)
        )
        answer = self._connection.call(request, COMMIT_BY_NAME)
        return {each.error_code for topic in answer.topics for each in topic.partitions}


class CommitEpochCases:
    @pytest.fixture
    def topic(self, bootstrap: str) -> str:
        name = f"epochs-{uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})  # held in a name: its requests end with it
        admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
        return name

    def test_a_member_may_commit_what_it_kept(self, bootstrap: str, topic: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        group = f"group-{uuid4().hex[:10]}"
        with Connection(host, int(port), timeout=30) as connection:
            connection.call(FindCoordinatorRequest(key=group), 2)
            a, b = Member(connection, group, topic), Member(connection, group, topic)
            until(lambda: len(a.numbers) == 4, a)
            old = a.epoch
            assert a.commit(old, 0, 1, 2, 3) == {ErrorCode.NONE}
            until(lambda: len(a.numbers) == len(b.numbers) == 2, a, b)
            assert a.epoch > old
            given_up = b.numbers[0]
            assert a.commit(old, *a.numbers) == {ErrorCode.NONE}
            assert a.commit(a.epoch, *a.numbers) == {ErrorCode.NONE}
            assert a.commit(old, *a.numbers, given_up) == {ErrorCode.STALE_MEMBER_EPOCH}
            assert a.commit(a.epoch + 1, *a.numbers) == {ErrorCode.STALE_MEMBER_EPOCH}
            assert b.commit(old, given_up) == {ErrorCode.STALE_MEMBER_EPOCH}
            assert b.commit(b.epoch, given_up) == {ErrorCode.NONE}


def until(holds: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        for member in members:
            member.beat()
        time.sleep(0.05)
