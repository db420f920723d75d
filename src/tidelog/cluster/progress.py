"""What a leader knows of its followers: how far each has got, and which of them count as in sync."""

from collections.abc import Iterable
from typing import Final

from tidelog.errors import StaleBrokerEpoch

NOTHING: Final = -1
"""Of a follower that was not heard of in this epoch. It may have less than it once had, so nothing is assumed."""


class Follower:
    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_then")

    def __init__(self, now_ms: int) -> None:
        self.end_offset = NOTHING
        """Everything before it is safe there."""
        self.broker_epoch = NOTHING
        self.caught_up_ms = now_ms
        """When it last had everything there was. A new leader gives everyone the benefit of the doubt."""
        self.fetched_ms = now_ms
        self.leader_end_then = NOTHING


class Followers:
    """Of one partition, in one leader epoch. Times are monotonic."""

    def __init__(self, node_id: int, replicas: Iterable[int], isr: Iterable[int], monotonic_ms: int) -> None:
        self._node_id = node_id
        self._followers = {node: Follower(monotonic_ms) for node in replicas if node != node_id}
        self.isr = frozenset(isr)
        self.asked: frozenset[int] | None = None
        """The in-sync set that the controller was asked for and has not granted yet."""
        self._epochs_asked: dict[int, int] = {}

    def ask(self, isr: frozenset[int]) -> None:
        """The controller is asked for this set; again, if it was before. Who joins is the process that was heard of
        when it was asked first: its successor may have less."""
        if self.asked is None:
            self._epochs_asked = {node: self.broker_epoch_of(node) for node in isr}
        self.asked = isr

    def update(self, replicas: Iterable[int], isr: Iterable[int], monotonic_ms: int) -> None:
        """The controller has decided. What we know of who stays is still true."""
        known = self._followers
        self._followers = {
            node: known.get(node) or Follower(monotonic_ms) for node in replicas if node != self._node_id
        }
        self.isr = frozenset(isr)
        self.asked = None

    @property
    def replica_count(self) -> int:
        """The leader included."""
        return len(self._followers) + 1

    def __contains__(self, node_id: int) -> bool:
        return node_id in self._followers

    def fetched(self, node_id: int, offset: int, leader_end: int, broker_epoch: int, monotonic_ms: int) -> None:
        """It asks for `offset`, so everything before is safe there. Raises StaleBrokerEpoch if the one that asked is no
        more: its successor may have less."""
        follower = self._followers[node_id]
        if broker_epoch < follower.broker_epoch:
            raise StaleBrokerEpoch(f"broker {node_id} has restarted since: {broker_epoch} < {follower.broker_epoch}")
        if offset >= leader_end:
            follower.caught_up_ms = monotonic_ms
        elif offset >= follower.leader_end_then:
            # It has all that there was when it last asked: behind only by what was written since.
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.broker_epoch = broker_epoch
        follower.leader_end_then = leader_end
        follower.fetched_ms = monotonic_ms

    def safe_offset(self, own: int) -> int:
        """Before it everything is safe on every member of the in-sync set, and of the one that was asked for: the
        controller may have granted that already."""
        lowest = own
        members = self.isr if self.asked is None else self.isr | self.asked
        for node in members:
            if node != self._node_id:
                follower = self._followers.get(node)
                lowest = min(lowest, NOTHING if follower is None else follower.end_offset)
        return lowest

    def joinable(self, high_watermark: int, epoch_start: int) -> frozenset[int]:
        """Those outside the set that have everything that was ever acknowledged. They must have reached this epoch:
        before that, the watermark may say less than what an earlier leader acknowledged."""
        needed = max(high_watermark, epoch_start)
        return frozenset(
            node for node, follower in self._followers.items() if node not in self.isr and follower.end_offset >= needed
        )

    def lagging(self, leader_end: int, lag_max_ms: int, monotonic_ms: int) -> frozenset[int]:
        """Members that have not had everything for too long. One that has it all is in sync however long ago it
        asked."""
        return frozenset(
            node
            for node, follower in self._followers.items()
            if node in self.isr
            and follower.end_offset != leader_end
            and monotonic_ms - follower.caught_up_ms > lag_max_ms
        )

    def heard(self, silence_max_ms: int, monotonic_ms: int) -> int:
        """How many of those in sync are there, as far as this leader can tell: itself, and who asked lately."""
        oldest = monotonic_ms - silence_max_ms
        return 1 + sum(node in self.isr and each.fetched_ms >= oldest for node, each in self._followers.items())

    def broker_epoch_of(self, node_id: int) -> int:
        follower = self._followers.get(node_id)
        return NOTHING if follower is None else follower.broker_epoch

    def joining_epoch_of(self, node_id: int) -> int:
        """The broker epoch of the process that is to be in sync."""
        return self.broker_epoch_of(node_id) if self.asked is None else self._epochs_asked.get(node_id, NOTHING)

    def end_offset_of(self, node_id: int) -> int:
        follower = self._followers.get(node_id)
        return NOTHING if follower is None else follower.end_offset
