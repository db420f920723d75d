"""A coordinator without a broker: a shard, its runtime, a log that is a list of bytes, and a clock that is a number.

Every answer is encoded in the version that was asked for, so a response that the wire cannot say fails here too.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.coordination import Outcome, Producer, Released, Runtime
from tidelog.errors import KafkaError
from tidelog.groups.group import Context, GroupSettings
from tidelog.groups.records import GroupRecord, decode_record, encode_record
from tidelog.groups.shard import GroupShard
from tidelog.ids import NO_PRODUCER_ID
from tidelog.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tidelog.wire.schema import Message, encode, spec_of

START_MS = 1_700_000_000_000
GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000

Entry = tuple[bytes, bytes | None, int]  # key, value, producer id


class Sim:
    def __init__(
        self, settings: GroupSettings | None = None, *, seed: int = 1, log: list[Entry] | None = None, **shard: Any
    ) -> None:
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=0)
        self.shard = GroupShard(self.settings, Random(seed), **shard)
        self.log: list[Entry] = list(log or ())
        self.answers: dict[int, Any] = {}
        self.refusal: KafkaError | None = None
        self.holding = False  # the high watermark stands still
        self.now_ms = START_MS
        self._seed = seed
        self._versions: dict[int, int] = {}
        self._last_waiter = 0
        for offset, (key, value, producer_id) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record, offset, producer_id)
        self.runtime: Runtime[GroupRecord] = Runtime(
            self.shard, self._append, end_offset=len(self.log), committed_offset=len(self.log)
        )
        self._take(self.runtime.loaded(now_ms=self.now_ms, monotonic_ms=self.now_ms))

    def _append(self, records: tuple[GroupRecord, ...], producer: Producer | None) -> int:
        if self.refusal is not None:
            raise self.refusal
        for record in records:
            self.log.append((*encode_record(record), NO_PRODUCER_ID if producer is None else producer.producer_id))
        return len(self.log)

    def _take(self, released: list[Released]) -> None:
        if not self.holding:
            released = released + self.runtime.commit(len(self.log))
        for waiter, answer in released:
            assert waiter not in self.answers, "answered twice"
            if isinstance(answer, Message):
                encode(answer, self._versions[waiter])
            self.answers[waiter] = answer

    # -- events -------------------------------------------------------------------------------------------------------

    def run(self, decide: Callable[[], Outcome[Any, GroupRecord]]) -> None:
        self._take(self.runtime.run(-1, decide, monotonic_ms=self.now_ms))

    def submit(self, request: Message, version: int | None = None, client_id: str = "client") -> int:
        """Who waits; the answer is in `answers` once it is there."""
        self._last_waiter += 1
        waiter = self._last_waiter
        version = spec_of(type(request)).max if version is None else version
        self._versions[waiter] = version
        context = Context(client_id, "/127.0.0.1", version, waiter)
        decided = self.runtime.run(
            waiter, lambda: self.shard.handle(request, context, self.now_ms), monotonic_ms=self.now_ms
        )
        self._take(decided)
        return waiter

    def ask(self, request: Message, version: int | None = None, client_id: str = "client") -> Any:
        """For what is answered at once."""
        waiter = self.submit(request, version, client_id)
        assert waiter in self.answers, f"{type(request).__name__} is not answered yet"
        return self.answers.pop(waiter)

    def release(self) -> None:
        self.holding = False
        self._take([])

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (deadline := self.runtime.next_deadline_ms) is not None and deadline <= end_ms:
            self.now_ms = max(self.now_ms, deadline)
            self._take(self.runtime.expire(now_ms=self.now_ms, monotonic_ms=self.now_ms))
        self.now_ms = end_ms

    def expire_offsets(self) -> None:
        for outcome in self.shard.expiry(self.now_ms):
            self.run(lambda outcome=outcome: outcome)

    def reloaded(self, **shard: Any) -> "Sim":
        """Another coordinator that takes over with nothing but the log."""
        return Sim(self.settings, seed=self._seed + 1, log=self.log, **shard)

    def compacted(self) -> "Sim":
        """Likewise, after compaction left only the last record of each key."""
        last = {key: (key, value, producer) for key, value, producer in self.log}
        return Sim(self.settings, seed=self._seed + 1, log=list(last.values()))


# Requests -------------------------------------------------------------------------------------------------------------


def subscription(*topics: str) -> bytes:
    body = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


def assignment(topic: str, *partitions: int) -> bytes:
    numbers = b"".join(partition.to_bytes(4, "big") for partition in partitions)
    name = len(topic).to_bytes(2, "big") + topic.encode()
    return b"\0\0\0\0\0\1" + name + len(partitions).to_bytes(4, "big") + numbers + b"\xff\xff\xff\xff"


def join(
    member_id: str = "",
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = subscription("t"),
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols),
    )


def sync(
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    group_id: str = GROUP,
    instance_id: str | None = None,
    protocol_name: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_name=protocol_name,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=bytes_)
            for member, bytes_ in (assignments or {}).items()
        ),
    )


def heartbeat(
    member_id: str, generation: int, *, group_id: str = GROUP, instance_id: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )


def leave(*member_ids: str, group_id: str = GROUP, instance_ids: tuple[str, ...] = ()) -> LeaveGroupRequest:
    by_id = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    by_instance = [MemberIdentity(member_id="", group_instance_id=instance_id) for instance_id in instance_ids]
    return LeaveGroupRequest(group_id=group_id, members=(*by_id, *by_instance))


def commit(
    offsets: dict[tuple[str, int], int],
    *,
    group_id: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    metadata: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    ),
                ),
            )
            for (topic, partition), offset in offsets.items()
        ),
    )


def fetch_all(group_id: str = GROUP, *, require_stable: bool = False) -> OffsetFetchRequest:
    groups = (OffsetFetchRequestGroup(group_id=group_id, topics=None),)
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def committed(sim: Sim, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    """What OffsetFetch says of the whole group."""
    response = sim.ask(fetch_all(group_id), 9)
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in response.groups[0].topics
        for partition in topic.partitions
    }


# Whole dances ---------------------------------------------------------------------------------------------------------


def new_member(sim: Sim, version: int = 9, **request: Any) -> tuple[str, int]:
    """A dynamic member that has been told its id and now waits for the rebalance: id and waiter."""
    member_id = sim.ask(join(**request), version).member_id
    return member_id, sim.submit(join(member_id, **request), version)


def stable_group(sim: Sim, members: int, **request: Any) -> tuple[list[str], int]:
    """A group that has just become stable, partition i of t with member i. Member ids, leader first; generation."""
    waiting = dict(new_member(sim, **request) for _ in range(members))
    sim.advance(sim.settings.group_initial_rebalance_delay_ms + 1)
    if not all(waiter in sim.answers for waiter in waiting.values()):
        sim.advance(2 * sim.settings.group_initial_rebalance_delay_ms + 1)
    joins = {member_id: sim.answers.pop(waiter) for member_id, waiter in waiting.items()}
    generation = next(iter(joins.values())).generation_id
    leader = next(iter(joins.values())).leader
    ids = [leader, *(member_id for member_id in joins if member_id != leader)]
    shares = {member_id: assignment("t", number) for number, member_id in enumerate(ids)}
    for member_id in reversed(ids):
        mine = shares if member_id == leader else None
        sim.submit(sync(member_id, generation, mine, group_id=request.get("group_id", GROUP)))
    return ids, generation
