"""Random lives of groups in which both protocols meet: they are upgraded and downgraded at any moment.

After every event no partition is in the hands of two clients that the coordinator still counts; when nothing changes
any more, everything is read by somebody; and the log alone brings back the same group, of whichever kind it is by then.
"""

import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "groups"))

from consumer_migrants import ClassicConsumer
from consumer_world import GROUP, Consumer, World

from tidelog.groups.classic_group import State
from tidelog.groups.consumer_group import GroupState
from tidelog.groups.records import decode_record
from tidelog.ids import TopicPartition

SEEDS = 1000
STEPS = 60


class Life:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.world = World({"orders": self.dice.randint(1, 6)}, seed=seed)
        self.cooperative = self.dice.random() < 0.5
        self.classic: list[ClassicConsumer] = []
        self.modern: list[Consumer] = []
        self.born = 0

    def step(self) -> None:
        dice = self.dice
        alive = [one for one in self.classic if not one.crashed]
        match dice.choices(range(9), (40, 25, 6, 4, 4, 4, 3, 2, 1))[0]:
            case 0 if alive:
                dice.choice(alive).poke()
            case 1 if self.modern:
                dice.choice(self.modern).beat()
            case 2 if len(self.classic) < 4:
                self.born += 1
                self.classic.append(ClassicConsumer(self.world, f"c{self.born}", cooperative=self.cooperative))
            case 3 if len(self.modern) < 2:
                self.born += 1
                self.modern.append(Consumer(self.world, f"m{self.born}"))
                self.modern[-1].beat()
            case 4 if self.modern:
                self.modern.pop(dice.randrange(len(self.modern))).leave()
            case 5 if alive:
                one = dice.choice(alive)
                if one.member_id and one.waiter is None:
                    one.leave()
                    self.classic.remove(one)
            case 6:
                self.world.advance(dice.choice([500, 3_000, 10_000, 50_000]))
            case 7 if alive:
                one = dice.choice(alive)
                one.crashed = True
            case 8:
                for one in self.classic:  # whoever waited for an answer of the old coordinator asks again
                    one.waiter = None
                self.world.load()

    def hands(self) -> Counter[TopicPartition]:
        consumer, classic = self.world.groups.find(GROUP), self.world.shard.classic(GROUP)
        counted = set(consumer.members if consumer else ()) | set(classic.members if classic else ())
        hands = Counter(slot for one in self.classic if one.member_id in counted for slot in one.owned)
        for other in self.modern:
            if other.member_id in counted:
                hands.update(TopicPartition("orders", n) for n in other.numbers)
        return hands

    def check(self) -> None:
        hands = self.hands()
        assert not hands or max(hands.values()) == 1, f"{hands.most_common(1)} is in two hands"
        assert self.world.groups.find(GROUP) is None or self.world.shard.classic(GROUP) is None

    def check_replay(self) -> None:
        groups, shard = self.world.new_shard()
        for offset, (key, value) in enumerate(self.world.log):
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record, offset)
        assert {one.group_id: vars(one) for one in groups.all()} == {
            one.group_id: vars(one) for one in self.world.groups.all()
        }
        assert shard.dump()["classic"] == self.world.shard.dump()["classic"]

    def converge(self) -> None:
        for one in self.classic:
            if one.crashed:
                one.restart()
        if not self.classic:
            self.classic.append(ClassicConsumer(self.world, "last", cooperative=self.cooperative))
        for _ in range(150):
            self.world.advance(1_000)
            for one in self.classic:
                one.poke()
            for other in self.modern:
                other.beat()
            if self.is_settled():
                return
        raise AssertionError("it never settles")

    def is_settled(self) -> bool:
        consumer, classic = self.world.groups.find(GROUP), self.world.shard.classic(GROUP)
        group = consumer or classic
        if group is None or group.state_name != GroupState.STABLE.value != State.STABLE:
            return False
        topic = self.world.topics.find("orders")
        assert topic is not None
        ours = {one.member_id for one in self.classic} | {one.member_id for one in self.modern}
        return (
            sorted(self.hands()) == [TopicPartition("orders", n) for n in range(topic.partitions)]
            and ours == set(group.members)  # type: ignore[attr-defined]
            and (consumer is not None) == bool(self.modern)
        )


def run(seed: int) -> None:
    life = Life(seed)
    for number in range(STEPS):
        try:
            life.step()
            life.check()
        except BaseException as error:
            error.add_note(f"step {number}")
            raise
    life.converge()
    life.check()
    life.check_replay()


@pytest.mark.parametrize("part", range(2))
def test_random_lives_of_mixed_groups(part: int) -> None:
    for seed in range(part, SEEDS, 2):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"run({seed}) repeats this")
            raise
