"""Disks that go bad under a replica: bits flip in what it had synced long ago, and reads fail.

Promised is that nobody takes damage for a record, that it does not get from one disk to another, and that nothing is
lost of what others have as well. What a recovery finds is cut off and fetched again from a peer. What nothing has
looked at yet is found by an operator, who gives that broker an empty disk. A damaged replica that is the last in sync
does not lead: then the operator has to choose another.
"""

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.replication.broker import Broker
from tests.simulation.replication.checks import Checks
from tests.simulation.replication.looking import look
from tests.simulation.replication.names import TOPIC_IDS

from tidelog.cluster import elections

if TYPE_CHECKING:
    from tests.simulation.replication.seat import Seat
    from tests.simulation.replication.world import World

NOTICED_MS = 1_000
"""After which an operator looks at what does not come right by itself."""


class Rot:
    def __init__(self, world: "World", dice: Random) -> None:
        self._world = world
        self._dice = dice
        self.elections = 0
        """Because a damaged replica was the last in sync."""

    # -- faults ----------------------------------------------------------------------------------------------------

    def flip(self, broker: Broker) -> bool:
        """Only of what somebody else has too, who is in sync."""
        world = self._world
        if not world.plan.flush_on_ack or world.victim not in (None, broker) or not self._has_peers(broker):
            return False
        partitions = [world.controller.partition(checks.number) for checks in world.checks]
        if any(partition.adding or partition.removing for partition in partitions):
            return False
        seats = [seat for seat in broker.seats if seat.replica is not None and seat.replica.high_watermark > 0]
        if not seats:
            return False
        # What is below both of its checkpoints is known to have been safe, whatever is found there later.
        world.act(broker, broker.checkpoint)
        seat = self._dice.choice(seats)
        if not broker.up or seat.replica is None:
            return False
        log = seat.log
        below = min(log.flushed_offset, seat.replica.high_watermark)
        segments = [each for each in log.segments if each.base_offset < below]
        where = broker.disk.flip(self._dice.choice(segments), below, self._dice) if segments else None
        if where is not None:
            world.flips += 1
            world.say(f"-- a bit flips on the disk of {broker.id}, in {seat.place} at {where}")
        return where is not None

    def _has_peers(self, broker: Broker) -> bool:
        image = self._world.controller.image
        for checks in self._world.checks:
            partition = self._world.controller.partition(checks.number)
            if broker.id not in partition.replicas:
                continue
            if not any(node != broker.id and image.is_available(node) for node in partition.isr):
                return False
        return True

    def fail_reads(self, broker: Broker) -> bool:
        """Whether that is to be while it starts."""
        disk = broker.disk
        disk.unreadable, disk.readable = self._dice.choice([1, 1, 5, 20]), self._dice.choice([0, 0, 2, 5, 8, 12])
        self._world.say(f"-- {disk.unreadable} reads of {broker.id} fail after the next {disk.readable}")
        return self._dice.random() < 0.5

    # -- an operator -----------------------------------------------------------------------------------------------

    def mend(self, calm_ms: int) -> None:
        """Now and then, in calm."""
        world = self._world
        victim = world.victim
        if victim is None or calm_ms < NOTICED_MS or not victim.up or victim.broker_epoch is None:
            return
        for seat in victim.seats:
            if seat.replica is not None and seat.replica.is_damaged and self._leads(seat):
                self._elect_another(seat)
                return
        if self.unmended() and self._has_peers(victim):
            world.say(f"-- {victim.id} gets an empty disk, since there is damage on it")
            world.controller.hang_up(victim.id, victim.boots)
            world.crash(victim, power=False)
            world.replace_disk(victim)
            world.at(50, lambda: world.start(victim))

    def unmended(self) -> str:
        """Where there is still damage."""
        for seat in self._world.victim.seats if self._world.victim is not None else ():
            damaged = look(seat).damaged if seat.replica is not None else None
            if damaged:
                return f"{seat.place} is damaged at {seat.id}: {sorted(damaged)}"
        return ""

    def _leads(self, seat: "Seat") -> bool:
        return self._world.controller.partition(seat.number).leader == seat.id

    def _elect_another(self, seat: "Seat") -> None:
        """Whoever has the most. With `min.insync.replicas` above 1, that is everything."""
        controller, checks = self._world.controller, seat.checks
        partition = controller.partition(seat.number)
        others = [
            each
            for node, each in checks.brokers.items()
            if node in partition.replicas and each is not seat and each.replica is not None
        ]
        best = max(others, key=lambda each: (each.log.epochs.latest, each.log.end_offset), default=None)
        if best is None:
            return
        self._world.say(f"-- {best.id} is to lead, since {seat.id} has lost something")
        if self._world.plan.minimum == 1:
            self._give_up_what_was_promised_once(checks, best)
        self.elections += 1
        record = elections.led_by(partition, TOPIC_IDS[seat.place.topic], best.id, (best.id,))
        assert record is not None
        controller.change("unclean", [record])

    def _give_up_what_was_promised_once(self, checks: Checks, best: "Seat") -> None:
        """What one disk was enough for may be lost with it, and may be written anew."""
        held = dict(look(best).values)
        for offset in [offset for offset, value in checks.truth.items() if held.get(offset) != value]:
            del checks.truth[offset]
