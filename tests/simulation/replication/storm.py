"""What happens to a world: traffic and faults first, then calm, in which everything must come right."""

import errno
from collections.abc import Callable
from random import Random
from uuid import UUID

from tests.simulation.network import CLEAR, Weather
from tests.simulation.replication import controller as control
from tests.simulation.replication.broker import Broker
from tests.simulation.replication.checks import Checks, require
from tests.simulation.replication.idempotent import IdempotentClient
from tests.simulation.replication.members import members_of
from tests.simulation.replication.names import TOPIC_IDS
from tests.simulation.replication.rot import Rot
from tests.simulation.replication.transactional import transactional_clients
from tests.simulation.replication.world import World

from tidelog.cluster import elections
from tidelog.cluster.image import NO_LEADER
from tidelog.errors import ErrorCode, KafkaError

STORM_MS = 2_400
CALM_MS = 8_000
LAST_WRITE_MS = 1_500
CLIENT = -1
DAY_MS = 86_400_000


class Storm:
    def __init__(
        self,
        seed: int,
        log: Callable[[str], None] | None = None,
        *,
        retries: bool = False,
        partitions: int = 1,
        transactions: bool = False,
        groups: bool = False,
        clocks: bool = False,
        rot: bool = False,
        compaction: bool = False,
    ) -> None:
        """`retries`: with a client that sends each of its batches until it is acknowledged. `transactions`: with some
        that write in transactions. `groups`: with members of a group that commit offsets. `clocks`: the wall clocks of
        brokers jump by days. `rot`: bits flip on disks, and reads fail. `compaction`: brokers keep only the last
        record of each key."""
        self.world = World(
            seed, log, partitions=partitions, transactions=transactions, groups=groups, compaction=compaction
        )
        self._compaction = compaction
        self.members = members_of(self.world, Random(seed)) if groups else []
        self.transactional = transactional_clients(self.world, Random(seed)) if transactions else []
        self.client = IdempotentClient(self.world, Random(seed)) if retries else None
        self.rot = Rot(self.world, Random(seed)) if rot else None
        self.dice = self.world.dice
        self._clocks = clocks
        self._written = 0
        self._idle = self.dice.randint(0, 5)
        """Which quarter of the time nobody writes, if any: much that a write would mend stays as it is then."""

    def run(self) -> World:
        world = self.world
        world.say(f"seed {world.seed}: {world.plan}")
        for broker in world.brokers.values():
            world.start(broker)
        self._every(control.TICK_MS, control.TICK_MS, world.controller.tick)
        world.run_until(200)
        nodes = [self.dice.sample(sorted(world.brokers), world.plan.replicas) for _ in world.checks]
        for topic in dict.fromkeys(checks.place.topic for checks in world.checks):
            replicas = [nodes[checks.number] for checks in world.checks if checks.place.topic == topic]
            world.controller.create_topic(topic, replicas, world.plan.minimum)
        if self.dice.random() < 0.6:
            self._weather(world.brokers[1])
        self._every(5, 20, self._client)
        if self.client is not None:
            self._every(5, 30, self._retrying_client)
        for client in self.transactional:
            self._every(3, 12, lambda client=client: self.world.is_stormy and client.step())  # type: ignore[misc]
        for member in self.members:
            self._every(3, 12, member.step)
        self._every(60, 350, self._fault)
        self._every(*((150, 500) if world.plan.mood in ("mixed", "disks") else (30, 200)), self._operator)
        world.run_until(STORM_MS)
        self._calm()
        return world

    def _every(self, low: int, high: int, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.world.at(self.dice.randint(low, high), again)

        self.world.at(self.dice.randint(low, high), again)

    # -- traffic ---------------------------------------------------------------------------------------------------

    def _client(self) -> None:
        world, dice = self.world, self.dice
        if not world.is_stormy or (world.now // 150) % 4 == self._idle:
            return
        number = self._number(world.data)
        target = world.controller.partition(number).leader
        if target == NO_LEADER or dice.random() < 0.15:
            led = [b for b in world.brokers.values() if b.leads]
            target = dice.choice(led or list(world.brokers.values())).id  # perhaps a leader of old
        self.write(target, number, -1 if dice.random() < 0.8 else 1)

    def _number(self, among: list[Checks]) -> int:
        """Of a partition, by dice if there are several."""
        return self.dice.randrange(len(among)) if len(among) > 1 else 0

    def _of(self, number: int) -> tuple[UUID, int]:
        place = self.world.controller.place(number)
        return TOPIC_IDS[place.topic], place.partition

    def _retrying_client(self) -> None:
        if self.client is not None and self.world.is_stormy:
            self.client.step()

    def write(self, target: int, number: int, acks: int, then: Callable[[ErrorCode], None] = lambda code: None) -> None:
        world = self.world
        values = []
        for _ in range(self.dice.randint(1, 3)):
            self._written += 1
            values.append(b"%d" % self._written + b"." * self.dice.choice([0, 0, 0, 30, 150]))
            if self._compaction and self.dice.random() < 0.1:
                values[-1] = b""
        seat = world.brokers[target].seats[number]
        world.send(CLIENT, target, lambda: seat.produce(values, acks, then))

    # -- operators -------------------------------------------------------------------------------------------------

    def _operator(self) -> None:
        world, dice = self.world, self.dice
        if not world.is_stormy or world.victim is not None:
            return
        chance, mood, number = dice.random(), world.plan.mood, self._number(world.checks)
        try:
            if mood == "leaders" and dice.random() < 0.7:
                self._move_leader(number, dice.randint(1, 3))
            elif mood == "moves" and dice.random() < 0.7:
                self._remove_and_add(number)
            elif chance < 0.2:
                self._reassign(number, dice.sample(sorted(world.brokers), world.plan.replicas))
            elif chance < 0.3:
                self._remove_and_add(number)
            elif chance < 0.35:
                records = elections.cancel_reassignment(world.controller.image, *self._of(number))
                world.controller.change("cancel", records)
            elif chance < 0.55:
                self._move_leader(number, dice.randint(1, 3))
            elif chance < 0.7:
                broker = self._any()
                if broker is not None and not world.controller.spared:
                    broker.stopping = True
            elif chance < 0.85 and number < len(world.data):
                leader = world.brokers.get(world.controller.partition(number).leader)
                if leader is not None and leader.up and not leader.paused:
                    world.act(leader, lambda: leader.seats[number].delete_records(dice.choice([0, 1, 5])))
        except KafkaError as error:
            world.say(f"operator: refused: {error}")

    def _reassign(self, number: int, target: list[int]) -> None:
        controller = self.world.controller
        if not controller.spared:  # whose disk is new and who has not said so yet: a person would wait for that
            records = elections.reassign(controller.image, *self._of(number), target)
            controller.change(f"reassign to {target}", records)

    def _remove_and_add(self, number: int) -> None:
        """Before all have noticed."""
        partition = self.world.controller.partition(number)
        followers = [node for node in partition.isr if node != partition.leader]
        spare = len(partition.replicas) > self.world.plan.minimum
        if spare and followers and not partition.adding and not self.world.controller.spared:
            gone = self.dice.choice(followers)
            self._reassign(number, [node for node in partition.replicas if node != gone])
            self.world.at(self.dice.choice([1, 10, 50, 200]), lambda: self._add(number, gone))

    def _add(self, number: int, node: int) -> None:
        partition = self.world.controller.partition(number)
        if node not in partition.replicas and not partition.adding:
            self._reassign(number, [*partition.replicas, node])

    def _move_leader(self, number: int, times: int) -> None:
        """To somebody else in sync, and soon again to the next."""
        controller = self.world.controller
        partition = controller.partition(number)
        others = [n for n in partition.isr if n != partition.leader and controller.image.is_available(n)]
        if partition.leader != NO_LEADER and others:
            record = elections.led_by(partition, self._of(number)[0], self.dice.choice(others), partition.isr)
            assert record is not None
            controller.change("move", [record])
        if times > 1 and self.world.is_stormy:
            self.world.at(self.dice.choice([2, 15, 60]), lambda: self._move_leader(number, times - 1))

    def _any(self) -> Broker | None:
        running = [broker for broker in self.world.brokers.values() if broker.up and not broker.paused]
        leading = [broker for broker in running if broker.leads]
        if leading and self.dice.random() < 0.4:
            return self.dice.choice(leading)
        return self.dice.choice(running) if running else None

    # -- faults ----------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        world, dice = self.world, self.dice
        if not world.is_stormy or world.controller.spared:
            return
        broker = self._any()
        if broker is None:
            return
        faults = [
            (14, self._crash),
            (6, self._crash_soon),
            (10, self._pause),
            (8, self._isolate),
            (8, self._cut_off_from_controller),
            (10, self._one_way),
            (6 if world.plan.mood == "mixed" else 20, self._weather),
            (8, self._slow_disk),
            (5, self._disk_error),
            (60 if world.plan.mood == "disks" else 6, self._replace_disk),
            (3, self._everybody),
            (5, self._new_controller),
        ]
        if self._clocks:
            faults.append((40, self._jump))
        if self.rot is not None:
            faults += [(60, self._flip), (20, self._fail_reads)]
        weights, actions = zip(*faults, strict=True)
        dice.choices(actions, weights)[0](broker)

    def _crash(self, broker: Broker) -> None:
        power = self.dice.random() < 0.6
        self.world.say(f"-- {broker.id} {'loses power' if power else 'is killed'}")
        self.world.crash(broker, power=power)
        self._start_later(broker)

    def _start_later(self, broker: Broker) -> None:
        delay = self.dice.choice([1, 20, 100, 400, 900])
        self.world.at(delay, lambda: self.world.start(broker))

    def _crash_soon(self, broker: Broker) -> None:
        if self.world.plan.flush_on_ack:
            broker.disk.crash_after = self.dice.randint(0, 40)
            self.world.say(f"-- {broker.id} loses power soon")
            self.world.at(150, lambda: self._start_later(broker) if not broker.up else None)

    def _pause(self, broker: Broker) -> None:
        duration = self.dice.choice([50, 200, 400, 800])
        self.world.say(f"-- {broker.id} is paused for {duration}")
        self.world.pause(broker)
        self.world.at(duration, lambda: self.world.resume(broker))

    def _isolate(self, broker: Broker) -> None:
        others = [node for node in (control.ID, *self.world.brokers) if node != broker.id]
        self._block([broker.id], others, both=True)

    def _cut_off_from_controller(self, broker: Broker) -> None:
        ways = [([broker.id], [control.ID]), ([control.ID], [broker.id])]
        senders, receivers = self.dice.choice(ways)
        self._block(senders, receivers, both=self.dice.random() < 0.4)

    def _one_way(self, broker: Broker) -> None:
        others = [node for node in self.world.brokers if node != broker.id]
        chosen = self.dice.sample(others, self.dice.randint(1, len(others)))
        if self.dice.random() < 0.5:
            self._block([broker.id], chosen, both=False)
        else:
            self._block(chosen, [broker.id], both=False)

    def _block(self, senders: list[int], receivers: list[int], *, both: bool) -> None:
        self.world.say(f"-- {senders} {'and' if both else 'to'} {receivers}: cut")
        self.world.network.block(senders, receivers)
        if both:
            self.world.network.block(receivers, senders)
        self.world.at(self.dice.choice([80, 300, 600]), self.world.network.heal)

    def _weather(self, broker: Broker) -> None:
        world, dice = self.world, self.dice
        world.network.weather = Weather(
            drop=dice.choice([0, 0.02, 0.2]),
            double=dice.choice([0, 0.05, 0.3]),
            slow=dice.choice([0, 0.1, 0.4]),
            slow_ms=dice.choice([100, 300, 900]),
        )
        world.say(f"-- {world.network.weather}")

    def _slow_disk(self, broker: Broker) -> None:
        broker.slow_ms = self.dice.choice([0, 10, 60, 300])
        self.world.say(f"-- the disk of {broker.id} takes up to {broker.slow_ms}")

    def _jump(self, broker: Broker) -> None:
        broker.skew_ms = self.dice.choice([-30 * DAY_MS, -DAY_MS, 3_600_000, 30 * DAY_MS])
        self.world.say(f"-- the clock of {broker.id} is wrong by {broker.skew_ms} ms")

    def _disk_error(self, broker: Broker) -> None:
        operation, code = self.dice.choice([("sync", errno.EIO), ("write", errno.ENOSPC), ("rename", errno.EIO)])
        self.world.say(f"-- the next {operation} of {broker.id} fails")
        broker.disk.fail_on[operation] = code

    def _flip(self, broker: Broker) -> None:
        if self.rot is not None and self.rot.flip(broker):
            self.dice.choice([self._crash, self._crash, self._everybody, self._slow_disk])(broker)

    def _fail_reads(self, broker: Broker) -> None:
        if self.rot is not None and self.rot.fail_reads(broker):
            self._crash(broker)

    def _replace_disk(self, broker: Broker) -> None:
        """Never of a broker that might be the only one with something: a person would not do that either. Before the
        controller has noticed, only while all others are well, and until it has."""
        world, controller = self.world, self.world.controller
        partitions = [controller.partition(checks.number) for checks in world.checks]
        if any(set(partition.isr) == {broker.id} for partition in partitions):
            return
        moving = any(partition.adding or partition.removing for partition in partitions)
        fenced = controller.image.brokers[broker.id].fenced
        if world.victim not in (None, broker) or (moving and (self._compaction or not fenced)):
            return
        if not fenced:
            others = [each for each in world.brokers.values() if each is not broker]
            if any(not each.up or each.paused or each.stopping or each.image is None for each in others):
                return
            world.network.heal()
            for each in others:
                each.disk.crash_after = None
                each.disk.fail_on.clear()
                each.disk.unreadable = 0
            controller.spared = {broker.id}
        controller.hang_up(broker.id, broker.boots)  # or its last wish might be to be alone in sync
        world.say(f"-- {broker.id} gets an empty disk")
        if self.dice.random() < 0.5:
            self._block([broker.id], [node for node in world.brokers if node != broker.id], both=False)
        world.crash(broker, power=False)
        world.replace_disk(broker)
        world.at(self.dice.choice([1, 50, 300]), lambda: world.start(broker))

    def _everybody(self, broker: Broker) -> None:
        self.world.say("-- the power goes everywhere")
        for each in self.world.brokers.values():
            if each.up:
                self.world.crash(each, power=True)
                self._start_later(each)

    def _new_controller(self, broker: Broker) -> None:
        suspects = [node for node in self.world.brokers if self.dice.random() < 0.2]
        self.world.say(f"-- a new controller, which suspects {suspects}")
        self.world.controller.take_office(suspects)

    # -- afterwards ------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        world = self.world
        self.world.is_stormy = False
        world.say("-- calm")
        world.network.heal()
        world.network.weather = CLEAR
        for broker in world.brokers.values():
            broker.slow_ms = 0
            broker.disk.crash_after = None
            broker.disk.fail_on.clear()
            broker.disk.unreadable = 0
            world.resume(broker)
            world.at(1, lambda broker=broker: world.start(broker))  # type: ignore[misc]
        for member in self.members:
            member.calm = True
        deadline = world.now + CALM_MS
        missing = "?"
        while missing and world.now < deadline:
            world.run_until(world.now + 100)
            if self.rot is not None:
                self.rot.mend(world.now - deadline + CALM_MS)
            missing = self._missing()
        require(not missing, f"{CALM_MS} ms after the storm: {missing}")
        answers: list[ErrorCode] = []
        for checks in world.data:
            self.write(world.controller.partition(checks.number).leader, checks.number, -1, answers.append)
        deadline = world.now + LAST_WRITE_MS
        while (len(answers) < len(world.data) or self._missing()) and world.now < deadline:
            world.run_until(world.now + 50)
        require(answers == [ErrorCode.NONE] * len(world.data), f"the last writes got {answers}")
        require(not self._missing(), "disturbed again without a cause")
        for checks in world.checks:
            checks.in_the_end()
        if self.client is not None:
            self.client.check()
        if world.readers is not None:
            world.readers.in_the_end()

    def _missing(self) -> str:
        missing = next(filter(None, (checks.converged() for checks in self.world.checks)), "")
        if not missing and self.world.readers is not None:
            missing = self.world.readers.undecided()
        if not missing and self.world.owners is not None:
            missing = self.world.owners.unsettled()
        if not missing and self.rot is not None:
            missing = self.rot.unmended()
        return missing
