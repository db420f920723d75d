"""Members of a consumer group, by the protocol of KIP-848: they read what they are given from where others stopped, and
commit how far they came."""

from random import Random

from tests.simulation.replication.asking import RETRIED, Asking, Life
from tests.simulation.replication.names import TOPIC, TOPIC_IDS
from tests.simulation.replication.owners import GROUP
from tests.simulation.replication.rooms import SESSION_MS, Reply
from tests.simulation.replication.world import World

from tidelog.broker.coordinators.groups import OFFSETS_TOPIC
from tidelog.errors import ErrorCode
from tidelog.ids import TopicId
from tidelog.wire.messages import offsets
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatTopicPartitions
from tidelog.wire.schema import Message

JOIN_EPOCH = 0


class Member(Asking):
    def __init__(self, world: World, dice: Random, member_id: str) -> None:
        # A commit says nothing of its place among others: one that comes late must come by a connection that is gone.
        super().__init__(world, dice, may_be_late=False)
        self.member_id = member_id
        self._epoch = JOIN_EPOCH
        self.owned: dict[int, int] = {}
        """Partitions and how far it has read them."""
        self._told: set[int] = set()
        self._in_doubt = False
        """An answer is missing, that may have said what it has: it asks in full."""
        self.calm = False
        """It only belongs to the group, and lets the log come to rest."""
        self._life = self._live()

    def step(self) -> None:
        next(self._life)

    def _live(self) -> Life:
        while True:
            yield from self._heartbeat()
            yield from self._reconcile()
            if not self.calm and self._dice.random() < 0.06:
                # Long enough for others to go on in its place, of which it hears only when it commits.
                yield from self._sleep(self._dice.choice([SESSION_MS // 2, 3 * SESSION_MS // 2]))
            for number in list(self.owned):
                if not self.calm and self._dice.random() < 0.8:
                    yield from self._commit(number)
            yield from self._sleep(self._dice.choice([5, 15, 40]))

    def _request(self, request: Message, version: int) -> Life:
        def send(target: int, reply: Reply) -> None:
            rooms = self._world.brokers[target].rooms
            assert rooms is not None
            rooms.handle_group(request, version, reply)

        return (yield from self._ask(self._world.number_of(OFFSETS_TOPIC), send))

    # -- belonging -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> Life:
        full = self._epoch == JOIN_EPOCH or self._in_doubt
        numbers = tuple(sorted(self.owned))
        mine = (ConsumerGroupHeartbeatTopicPartitions(topic_id=TopicId(TOPIC_IDS[TOPIC]), partitions=numbers),)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=SESSION_MS if full else -1,
            subscribed_topic_names=(TOPIC,) if full else None,
            topic_partitions=mine if numbers else (),
        )
        answer = yield from self._request(request, 1)
        self._in_doubt = answer is None or answer.error_code != ErrorCode.NONE
        if answer is None or ErrorCode(answer.error_code) in RETRIED:
            return
        if answer.error_code:
            self._world.say(f"-- {self.member_id} is told {ErrorCode(answer.error_code).name}")
            self._epoch = JOIN_EPOCH
            self.owned.clear()
            self._told.clear()
            return
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._told = {number for each in answer.assignment.topic_partitions for number in each.partitions}

    def _reconcile(self) -> Life:
        if set(self.owned) - self._told and self._dice.random() < 0.5:
            yield from self._sleep(self._dice.choice([10, 80]))  # what is to be given up is still worked on
        for number in set(self.owned) - self._told:
            del self.owned[number]
        for number in sorted(self._told - set(self.owned)):
            offset = yield from self._position(number)
            if offset is not None and number in self._told:
                self.owned[number] = max(offset, 0)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def _position(self, number: int) -> Life:
        topics = (offsets.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(number,)),)
        group = offsets.OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self.member_id, member_epoch=self._epoch, topics=topics
        )
        answer = yield from self._request(offsets.OffsetFetchRequest(groups=(group,), require_stable=True), 9)
        if answer is None or answer.groups[0].error_code:
            return None
        (found,) = answer.groups[0].topics[0].partitions
        return None if found.error_code else found.committed_offset

    def _commit(self, number: int) -> Life:
        self.owned[number] += self._dice.randint(0, 3)
        where = offsets.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=self.owned[number], committed_metadata=""
        )
        request = offsets.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self.member_id,
            topics=(offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=(where,)),),
        )
        yield from self._request(request, 9)


def members_of(world: World, dice: Random) -> list[Member]:
    assert world.owners is not None
    world.owners.members = [Member(world, dice, f"m{number}") for number in range(3)]
    return world.owners.members
