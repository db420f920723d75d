"""What classic and consumer groups have in common, as offsets and administration see them, and what a handler is told
about a request besides the request itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from tidelog.coordination import NOBODY, Outcome, TimerKey, Waiter
from tidelog.errors import ErrorCode
from tidelog.groups.records import GroupRecord
from tidelog.ids import TopicId
from tidelog.wire.schema import Message

BATCH_BYTES: Final = 512 * 1024
NAME_IN_ID_MAX: Final = 255


class Context(NamedTuple):
    """Who asks."""

    client_id: str
    client_host: str  # as Kafka writes it down: "/127.0.0.1"
    version: int  # of the request
    waiter: Waiter = NOBODY
    """By which a deferred response will be completed."""


Slots = Callable[[], Iterable[tuple[TopicId, int]]]
"""The partitions of a commit, for whoever needs to know them."""


class Dice(Protocol):
    def getrandbits(self, bits: int, /) -> int: ...


def new_member_id(name: str, dice: Dice) -> str:
    """Begins with what the client calls itself. All of that may be as long as a string can be: then nobody could be
    told an id that is longer still, neither it nor the others in the group."""
    return f"{name[:NAME_IN_ID_MAX]}-{UUID(int=dice.getrandbits(128), version=4)}"


class GroupType(Enum):
    """Kafka's words, as ListGroups sends them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's settings of the same names, in milliseconds; the defaults are Kafka's."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    batch_bytes: int = BATCH_BYTES
    """What may be written in several steps is written in batches of about this size: larger ones the log refuses."""


class Group(Protocol):
    """The checks answer with a code, ErrorCode.NONE if there is nothing to object to."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str: ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def is_empty(self) -> bool: ...

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, slots: Slots, *, transactional: bool, version: int
    ) -> ErrorCode:
        """May this member, of this generation or member epoch, commit offsets of these partitions?"""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode: ...

    def check_delete(self) -> ErrorCode: ...

    def check_offset_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def expires_since(self, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset committed then is counted; None while it must be kept."""
        ...

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """The records that remove the group, its offsets apart."""
        ...


class ConsumerGroups(Protocol):
    """The groups of the consumer protocol (KIP-848) in this shard."""

    def find(self, group_id: str) -> Group | None: ...

    def all(self) -> Iterable[Group]: ...

    def topic_id(self, name: str) -> TopicId:
        """NO_TOPIC_ID if there is no such topic."""
        ...

    def handle(self, request: Message, context: Context, now_ms: int, classic: Any) -> Outcome[Any, GroupRecord]:
        """ConsumerGroupHeartbeat and ConsumerGroupDescribe, and JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a
        group that `find` knows. `classic` is the ClassicGroup of that id, if there is one: its members may be taken
        over. A ClassicGroup in the outcome's memory is one that this side hands back."""
        ...

    def replay(self, record: GroupRecord) -> None:
        """Any record but OffsetCommit and GroupMetadata."""
        ...

    def remember(self, item: Any) -> None: ...

    def on_loaded(self, now_ms: int) -> Outcome[None, GroupRecord]: ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, GroupRecord]:
        """Any key that does not begin with a word of `classic_step.TIMERS`."""
        ...
