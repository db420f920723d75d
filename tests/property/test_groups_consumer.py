"""Random lives of consumer groups: members come, go, crash, stall and lose answers; topics change; coordinators die.

After every event: no partition is in two members' hands, neither in the coordinator's books nor in the clients'. At the
end, when nothing changes any more: everything is assigned, balanced, and both sides agree. At any time: the log alone
brings back exactly the same state. A failing run names its seed; `run(seed)` repeats it.
"""

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "groups"))

from consumer_world import GROUP, Consumer, World

from tidelog.groups.consumer_group import ConsumerGroup, GroupState
from tidelog.groups.consumer_groups import ConsumerGroups
from tidelog.groups.consumer_member import Slot, from_wire
from tidelog.groups.records import decode_record
from tidelog.wire.messages.groups import ConsumerGroupHeartbeatResponse

SEEDS = 2000
STEPS = 40
NAMES = ("orders", "payments", "clicks")
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"subscribed_topic_names": ("orders",)},
    {"subscribed_topic_names": ("orders",), "subscribed_topic_regex": ""},
    {"subscribed_topic_names": ("orders", "payments")},
    {"subscribed_topic_names": ("clicks",)},
    {"subscribed_topic_names": (), "subscribed_topic_regex": "(orders|p.*)"},
    {"subscribed_topic_names": (), "subscribed_topic_regex": ".*"},
)


class SlowConsumer(Consumer):
    """Takes its time to give up partitions, as an application in the middle of a record does."""

    stalled = False
    crashed = False
    giving_up: frozenset[Slot] = frozenset()

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        had = self.owned
        super().take(response)
        if response.error_code:
            self.giving_up = frozenset()
        elif response.assignment is not None:
            assigned = from_wire(response.assignment.topic_partitions) or frozenset()
            self.giving_up = (had - assigned) if self.stalled else frozenset()
            self.owned = assigned | self.giving_up

    def give_up(self) -> None:
        self.owned -= self.giving_up
        self.giving_up = frozenset()

    def restart(self) -> None:
        self.epoch, self.owned, self.giving_up, self.crashed = 0, frozenset(), frozenset(), False


class Life:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.world = World({name: self.dice.randint(1, 7) for name in NAMES if self.dice.random() < 0.8}, seed=seed)
        self.consumers: list[SlowConsumer] = []
        self.born = 0

    def born_one(self) -> None:
        self.born += 1
        instance_id = f"i{self.dice.randint(1, 2)}" if self.dice.random() < 0.3 else None
        subscription = self.dice.choice(SUBSCRIPTIONS) if self.dice.random() < 0.5 else SUBSCRIPTIONS[0]
        assignor = self.dice.choice([None, None, "uniform", "range"])
        self.consumers.append(
            SlowConsumer(self.world, f"m{self.born}", (), instance_id, **subscription, server_assignor=assignor)
        )

    def step(self) -> None:
        dice, alive = self.dice, [one for one in self.consumers if not one.crashed]
        match dice.choices(range(11), (30, 6, 3, 2, 3, 4, 4, 2, 3, 2, 6))[0]:
            case 0 if alive:
                dice.choice(alive).beat(full=dice.random() < 0.5)
            case 1 if len(self.consumers) < 6:
                self.born_one()
                self.consumers[-1].beat()
            case 2 if alive:
                one = dice.choice(alive)
                one.leave(-2 if one.instance_id and dice.random() < 0.7 else -1)
                self.consumers.remove(one)
            case 3 if alive:
                dice.choice(alive).crashed = True
            case 4 if self.consumers:
                one = dice.choice(self.consumers)
                one.restart()
            case 5 if alive:
                one = dice.choice(alive)
                one.stalled = not one.stalled
            case 6 if alive:
                dice.choice(alive).beat(lost=True)
            case 7:
                counts = {name: topic.partitions for name, topic in self.world.topics.table.items()}
                name = dice.choice(NAMES)
                counts = {**counts, name: counts.get(name, 0) + dice.randint(1, 3)} if dice.random() < 0.8 else {
                    other: count for other, count in counts.items() if other != name
                }  # fmt: skip
                self.world.set_topics(counts)
            case 8:
                self.world.advance(dice.choice([100, 5_000, 20_000, 50_000]))
            case 9:
                self.world.load()
            case 10 if alive:
                dice.choice(alive).give_up()

    def group(self) -> ConsumerGroup | None:
        return self.world.groups.find(GROUP)

    def check_safety(self) -> None:
        group = self.group()
        if group is None:
            return
        books = Counter(slot for member in group.members.values() for slot in member.slots())
        assert not books or max(books.values()) == 1, f"{books.most_common(1)} is in the books of two members"
        assert group.holders.keys() == books.keys()
        # A client that was evicted must stop by itself when its session ends; all others count.
        hands = Counter(
            slot
            for one in self.consumers
            if one.epoch > 0
            and one.member_id in group.members
            and group.members[one.member_id].member_epoch >= one.epoch
            for slot in one.owned
        )
        assert not hands or max(hands.values()) == 1, f"{hands.most_common(1)} is in the hands of two clients"

    def check_replay(self) -> None:
        """From the whole log, and from what compaction leaves of it: the last record of each key, tombstones or not."""
        log = self.world.log
        last = {key: offset for offset, (key, _) in enumerate(log)}
        compacted = [record for offset, record in enumerate(log) if last[record[0]] == offset]
        for records in (log, compacted, [record for record in compacted if record[1] is not None]):
            fresh, shard = self.world.new_shard()
            for offset, (key, value) in enumerate(records):
                record = decode_record(key, value)
                assert record is not None
                shard.replay(record, offset)
            assert dump(fresh) == dump(self.world.groups)

    def is_settled(self) -> bool:
        group = self.group()
        ours = {one.member_id for one in self.consumers if one.epoch > 0}
        return group is not None and group.state is GroupState.STABLE and ours == set(group.members)

    def check_convergence(self) -> None:
        for one in self.consumers:
            one.crashed = one.stalled = False
            one.give_up()
        if not self.consumers:
            self.born_one()
        for _ in range(30):  # a static member whose name is taken gets in when the other is evicted
            self.world.advance(5_000)
            for one in self.consumers:
                one.beat()
            if self.is_settled():
                break
        group = self.group()
        assert group is not None
        joined = [one for one in self.consumers if one.epoch > 0]
        assert group.state is GroupState.STABLE
        assert {one.member_id for one in joined} == set(group.members)
        wanted: set[Slot] = set()
        for name in group.subscribed_topics():
            topic = self.world.topics.find(name)
            if topic is not None:
                wanted |= {(topic.topic_id, n) for n in range(topic.partitions)}
        assert sorted(slot for one in joined for slot in one.owned) == sorted(wanted)
        for one in joined:
            assert set(group.members[one.member_id].slots()) == one.owned


def dump(groups: ConsumerGroups) -> dict[str, dict[str, object]]:
    return {group.group_id: vars(group) for group in groups.all()}


def run(seed: int) -> None:
    life = Life(seed)
    for number in range(STEPS):
        try:
            life.step()
            life.check_safety()
        except BaseException as error:
            error.add_note(f"seed {seed}, step {number}")
            raise
    life.check_replay()
    life.check_convergence()
    life.check_safety()
    life.check_replay()


@pytest.mark.parametrize("part", range(4))
def test_random_lives(part: int) -> None:
    for seed in range(part, SEEDS, 4):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"run({seed}) repeats this")
            raise
