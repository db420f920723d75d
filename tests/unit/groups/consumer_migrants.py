"""A client of the classic protocol that does not know which kind of group it is in."""

import sys
from pathlib import Path
from struct import pack
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from consumer_world import GROUP, World

from tidelog.errors import ErrorCode
from tidelog.groups.consumer_embedded import EmbeddedAssignment, EmbeddedPartitions, Subscription, read_subscription
from tidelog.groups.embedded import assigned_partitions
from tidelog.ids import TopicPartition
from tidelog.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog.wire.schema import encode

Owned = frozenset[TopicPartition]
NOTHING: Owned = frozenset()


def by_topic(owned: Owned) -> tuple[EmbeddedPartitions, ...]:
    return tuple(
        EmbeddedPartitions(topic=topic, partitions=tuple(sorted(n for t, n in owned if t == topic)))
        for topic in sorted({topic for topic, _ in owned})
    )


class ClassicConsumer:
    """`poke` does the next thing such a client would do. As leader it balances; a cooperative one never takes away and
    gives in the same round."""

    def __init__(
        self, world: World, name: str, topics: tuple[str, ...] = ("orders",), *, cooperative: bool = False,
        instance_id: str | None = None, version: int = 1,
    ) -> None:  # fmt: skip
        self.world, self.name, self.topics, self.cooperative = world, name, topics, cooperative
        self.instance_id, self.version = instance_id, version
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = NOTHING
        self.doing = "join"
        self.waiter: int | None = None
        self.crashed = False
        self.joins = 0
        self._joined: JoinGroupResponse | None = None

    # -- requests -----------------------------------------------------------------------------------------------------

    def _metadata(self) -> bytes:
        subscription = Subscription(topics=self.topics, owned_partitions=by_topic(self.owned))
        return pack(">h", self.version) + encode(subscription, self.version)

    def _join(self) -> JoinGroupRequest:
        if not self.cooperative:
            self.owned = NOTHING
        protocol = JoinGroupRequestProtocol(name=self._protocol, metadata=self._metadata())
        return JoinGroupRequest(
            group_id=GROUP, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, member_id=self.member_id,
            group_instance_id=self.instance_id, protocol_type="consumer", protocols=(protocol,),
        )  # fmt: skip

    @property
    def _protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def _sync(self) -> SyncGroupRequest:
        assert self._joined is not None
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if self._joined.leader == self.member_id:
            assignments = self._lead(self._joined)
        return SyncGroupRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=assignments,
            group_instance_id=self.instance_id, protocol_type="consumer", protocol_name=self._joined.protocol_name,
        )  # fmt: skip

    def _lead(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequestAssignment, ...]:
        said = {one.member_id: read_subscription(bytes(one.metadata)) for one in joined.members}
        holders = {
            TopicPartition(part.topic, n): member_id
            for member_id, subscription in said.items()
            for part in subscription.owned_partitions
            for n in part.partitions
        }
        given: dict[str, set[TopicPartition]] = {member_id: set() for member_id in said}
        planned = dict.fromkeys(said, 0)
        for topic in sorted({topic for one in said.values() for topic in one.topics}):
            found = self.world.topics.find(topic)
            takers = sorted(member_id for member_id, one in said.items() if topic in one.topics)
            for n in range(found.partitions if found else 0):
                one = TopicPartition(topic, n)
                taker = min(
                    takers, key=lambda member_id: (planned[member_id], holders.get(one) != member_id, member_id)
                )
                planned[taker] += 1
                if holders.get(one, taker) == taker:
                    given[taker].add(one)
        return tuple(
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=b"\0\0" + encode(EmbeddedAssignment(assigned_partitions=by_topic(frozenset(slots))), 0),
            )
            for member_id, slots in given.items()
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    def poke(self) -> None:
        if self.waiter is not None:
            if self.waiter not in self.world.answers:
                return
            answer, self.waiter = self.world.answers.pop(self.waiter), None
            self._take(answer)
            return
        match self.doing:
            case "join":
                self.joins += 1
                self.waiter = self.world.post(self._join(), 7, self.name)
            case "sync":
                self.waiter = self.world.post(self._sync(), 5, self.name)
            case _:
                request = HeartbeatRequest(
                    group_id=GROUP, generation_id=self.generation, member_id=self.member_id,
                    group_instance_id=self.instance_id,
                )  # fmt: skip
                self.waiter = self.world.post(request, 4, self.name)
        if self.waiter in self.world.answers:
            self.poke()

    def _take(self, answer: Any) -> None:
        code = answer.error_code
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.restart()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self.generation, self.owned, self.doing = -1, NOTHING, "join"
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.doing = "join"
        elif code:
            raise AssertionError(ErrorCode(code))
        elif self.doing == "join":
            self.member_id, self.generation, self._joined = answer.member_id, answer.generation_id, answer
            self.doing = "sync"
        elif self.doing == "sync":
            assigned = assigned_partitions(bytes(answer.assignment))
            assert assigned is not None
            lost, self.owned = self.owned - assigned, assigned
            self.doing = "join" if lost else "heartbeat"

    def restart(self) -> None:
        self.member_id, self.generation, self.owned, self.doing = "", -1, NOTHING, "join"
        self.waiter, self.crashed = None, False

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="going home")
        self.world.send(LeaveGroupRequest(group_id=GROUP, members=(identity,)), 5, self.name)
        self.restart()

    @property
    def numbers(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)


def live(*clients: Any, rounds: int = 12) -> None:
    """Everybody does what is next, round after round, as seconds pass."""
    for _ in range(rounds):
        for client in clients:
            client.poke() if isinstance(client, ClassicConsumer) else client.beat()
        clients[0].world.advance(1_000)
