"""What happened to each group lately, for people who ask why it lags: a bounded list of events per group.

Kept in memory only. It is gone after a restart, like the rebalances it tells about.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

EVENTS_MAX: Final = 128
"""Per group: a day of a calm one, minutes of a storm, which is when they are looked at."""


class EventKind(Enum):
    JOINED = "joined"
    REPLACED = "replaced"  # a static member came back under a new member id
    LEFT = "left"
    EVICTED = "evicted"
    REBALANCE = "rebalance"
    GENERATION = "generation"
    STABLE = "stable"
    EMPTY = "empty"


class GroupEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that say nothing about this kind of event have their defaults."""

    group_id: str
    at_ms: int
    kind: EventKind
    generation: int
    member_id: str = ""
    client_id: str = ""
    reason: str = ""
    """Why: of a rebalance, a departure, an eviction."""
    members: int = -1
    stopped_ms: int = -1
    """How long nobody worked, for STABLE."""
    partitions_moved: int = -1
    """Partitions whose owner changed, for STABLE of consumers."""


def counted(number: int, noun: str) -> str:
    """For reasons that people read: "1 member", "2 members"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class History:
    def __init__(self) -> None:
        self._events: dict[str, deque[GroupEvent]] = {}

    def add(self, event: GroupEvent) -> None:
        events = self._events.get(event.group_id)
        if events is None:
            events = self._events[event.group_id] = deque(maxlen=EVENTS_MAX)
        events.append(event)

    def of(self, group_id: str) -> tuple[GroupEvent, ...]:
        return tuple(self._events.get(group_id, ()))

    def forget(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            self._events.pop(group_id, None)
