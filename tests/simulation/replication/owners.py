"""What coordinators of groups promise: a partition has one owner, and a committed offset never goes back."""

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.checks import require

from tidelog.broker.coordinators.groups import OFFSETS_TOPIC
from tidelog.groups.shard import GroupShard
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.offsets import OffsetCommitRequest
from tidelog.wire.schema import Message

if TYPE_CHECKING:
    from tests.simulation.replication.members import Member
    from tests.simulation.replication.world import World

GROUP = "g"


class Owners:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.members: list[Member] = []
        self.committed: dict[int, int] = {}
        """The highest offset that was acknowledged, by partition."""
        self._epochs: dict[int, int] = {}
        """The newest leader epoch in which that was done. An older coordinator may tell late what is long so."""
        self.commits = 0
        self._by_epoch: dict[tuple[int, int], str] = {}
        """By partition and member epoch: who was told to have it."""

    def answered(self, shard: GroupShard, leader_epoch: int, request: Message, answer: Any) -> None:
        """A coordinator lets an answer out."""
        if isinstance(request, OffsetCommitRequest):
            for each in answer.topics[0].partitions:
                if not each.error_code:
                    offset = request.topics[0].partitions[0].committed_offset
                    self._committed(each.partition_index, offset, leader_epoch)
        elif isinstance(request, ConsumerGroupHeartbeatRequest):
            if not answer.error_code and answer.assignment is not None:
                newest = leader_epoch >= self._world.checks[self._world.number_of(OFFSETS_TOPIC)].newest_epoch
                for topic in answer.assignment.topic_partitions:
                    for number in topic.partitions:
                        self._granted(number, request.member_id, answer.member_epoch, shard if newest else None)
        else:
            for each in answer.groups[0].topics[0].partitions if answer.groups[0].topics else ():
                if not each.error_code and not answer.groups[0].error_code:
                    self._fetched(each.partition_index, each.committed_offset, leader_epoch)

    def _committed(self, number: int, offset: int, leader_epoch: int) -> None:
        known = self.committed.get(number, -1)
        if leader_epoch >= self._epochs.get(number, -1):
            require(offset >= known, f"offset {offset} of partition {number} is committed after {known} was")
            self._epochs[number] = leader_epoch
        self.committed[number] = max(known, offset)
        self.commits += 1

    def _fetched(self, number: int, offset: int, leader_epoch: int) -> None:
        known = self.committed.get(number, -1)
        current = leader_epoch >= self._epochs.get(number, -1)
        require(
            offset >= known or not current, f"partition {number} is said to be at {offset}, but {known} was committed"
        )

    def _granted(self, number: int, member_id: str, epoch: int, shard: GroupShard | None) -> None:
        """`shard`: of whoever coordinates the group now."""
        owner = self._by_epoch.setdefault((number, epoch), member_id)
        require(owner == member_id, f"partition {number} is of {owner} and of {member_id} in epoch {epoch}")
        group: Any = shard and shard.find(GROUP)
        for other in self.members if group is not None else ():
            has = other.member_id != member_id and number in other.owned and other.member_id in group.members
            require(not has, f"partition {number} is given to {member_id}, but {other.member_id} has it")

    # -- in the end ------------------------------------------------------------------------------------------------

    def unsettled(self) -> str:
        """What is still to come."""
        everything = {checks.place.partition for checks in self._world.data}
        owned = [number for member in self.members for number in member.owned]
        return "" if sorted(owned) == sorted(everything) else f"the members have {owned}, not each partition once"
