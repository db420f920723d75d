"""A coordinator without a network: the real shard and runtime over a list of encoded records, and a clock we turn."""

from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from tidelog.coordination import NOBODY, Producer, Released, Runtime
from tidelog.errors import KafkaError
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_groups import ConsumerGroups
from tidelog.groups.consumer_heartbeat import ConsumerGroupSettings
from tidelog.groups.consumer_member import Slot, from_wire
from tidelog.groups.consumer_topics import Topic, TopicTable
from tidelog.groups.group import Context, GroupSettings
from tidelog.groups.history import GroupEvent
from tidelog.groups.records import GroupRecord, decode_record, encode_record
from tidelog.groups.shard import GroupShard
from tidelog.ids import TopicId
from tidelog.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tidelog.wire.schema import Message

GROUP = "readers"


def topic_id(name: str, life: int = 0) -> TopicId:
    return TopicId(UUID(bytes=name.encode().ljust(15, b"\0")[:15] + bytes([life])))


def table(counts: Mapping[str, int], version: int = 1) -> TopicTable:
    return TopicTable({name: Topic(topic_id(name), count) for name, count in counts.items()}, version)


class World:
    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: ConsumerGroupSettings | None = None,
        group_settings: GroupSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings or ConsumerGroupSettings()
        self.group_settings = group_settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self.dice = Random(seed)
        self.topics = table(topics or {"orders": 4})
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1_000_000
        self.answers: dict[int, Any] = {}
        self._waiter = 0
        self.load()

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """A coordinator that knows nothing but the log."""
        self.groups, self.shard = self.new_shard()
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, offset)
        self.runtime = Runtime(self.shard, self._append, end_offset=len(self.log), committed_offset=len(self.log))
        self._note(self.runtime.loaded(now_ms=self.now_ms, monotonic_ms=self.now_ms))

    def new_shard(self) -> tuple[ConsumerGroups, GroupShard]:
        groups = ConsumerGroups(self.settings, self.group_settings, self.dice, self.topics)
        return groups, GroupShard(self.group_settings, self.dice, groups)

    def _append(self, records: tuple[GroupRecord, ...], producer: Producer | None) -> int:
        assert producer is None
        self.log += [encode_record(record) for record in records]
        return len(self.log)

    def _note(self, released: list[Released]) -> None:
        self.answers |= {one.waiter: one.answer for one in released if one.waiter != NOBODY}

    # -- what can happen ----------------------------------------------------------------------------------------------

    def post(self, request: Message, version: int, client_id: str = "client") -> int:
        """Send without waiting; the answer will be in `answers` under the number returned."""
        self._waiter += 1
        context = Context(client_id, "/127.0.0.1", version, self._waiter)
        self._note(
            self.runtime.run(
                self._waiter, lambda: self.shard.handle(request, context, self.now_ms), monotonic_ms=self.now_ms
            )
        )
        self._note(self.runtime.commit(len(self.log)))
        return self._waiter

    def send(self, request: Message, version: int, client_id: str = "client") -> Any:
        answer = self.answers.pop(self.post(request, version, client_id))
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        while (deadline := self.runtime.next_deadline_ms) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            self._note(self.runtime.expire(now_ms=self.now_ms, monotonic_ms=self.now_ms))
            self._note(self.runtime.commit(len(self.log)))
        self.now_ms = end

    def set_topics(self, counts: Mapping[str, int]) -> None:
        self.topics = table(counts, self.topics.version + 1)
        self.groups.topics_changed(self.topics)

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.find(GROUP)
        assert group is not None
        return group

    @property
    def history(self) -> tuple[GroupEvent, ...]:
        return self.shard.history.of(GROUP)

    def heartbeat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        response: ConsumerGroupHeartbeatResponse = self.send(request, version, member_id)
        return response


class Consumer:
    """A well-behaved client of the protocol: gives up what is no longer assigned, then says what it has."""

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: tuple[str, ...] = ("orders",),
        instance_id: str | None = None,
        **fields: Any,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription: dict[str, Any] = {"subscribed_topic_names": topics, **fields}
        self.epoch = 0
        self.owned: frozenset[Slot] = frozenset()

    def _owned(self) -> tuple[ConsumerGroupHeartbeatTopicPartitions, ...]:
        topics = {one for one, _ in self.owned}
        return tuple(
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=one, partitions=tuple(sorted(n for topic, n in self.owned if topic == one))
            )
            for one in sorted(topics)
        )

    def beat(self, *, full: bool = True, lost: bool = False) -> ConsumerGroupHeartbeatResponse:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if full or self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "topic_partitions": self._owned(), **self.subscription}
        response = self.world.heartbeat(self.member_id, self.epoch, **fields)
        if not lost:
            self.take(response)
        return response

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code:
            self.epoch, self.owned = 0, frozenset()
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = from_wire(response.assignment.topic_partitions) or frozenset()

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response = self.world.heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self.epoch, self.owned = 0, frozenset()
        return response

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.owned)


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
