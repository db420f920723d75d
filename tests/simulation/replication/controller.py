"""The controller: the pure decisions on an image that changes at once, as it does by Raft; brokers hear of it late."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from tests.simulation.replication.checks import partition_of
from tests.simulation.replication.names import TOPIC_IDS

from tidelog.cluster import brokers as registry
from tidelog.cluster import controller as topics
from tidelog.cluster import elections
from tidelog.cluster.image import MetadataImage, PartitionImage
from tidelog.cluster.records import AnyRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.replication.world import World

ID = 0
SESSION_MS = 250
SUSPECT_MS = 60
TICK_MS = 30

Answer = tuple[ErrorCode, object]


class Controller:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.image = MetadataImage("simulated")
        self.liveness = registry.Liveness(SESSION_MS, SUSPECT_MS)
        self._heard: dict[tuple[int, int, str], int] = {}
        self._dead: dict[int, int] = {}
        self.spared: set[int] = set()
        """Not declared dead for now: an operator who replaces a disk waits until the others are well."""

    def partition(self, number: int) -> PartitionImage:
        return partition_of(self.image, self.place(number))

    def place(self, number: int) -> TopicPartition:
        return self._world.checks[number].place

    def change(self, why: str, records: list[AnyRecord]) -> None:
        if not records:
            return
        before = self.image
        self.image = before.apply(records)
        changed = self._changed(before)
        for partition in changed:
            self._world.say(f"controller: {why}: {shown(partition)}")
        if not changed:
            self._world.say(f"controller: {why}")
        for checks in self._world.checks:
            checks.image_changed(before, self.image)
        for broker in self._world.brokers.values():
            self.publish(broker.id)

    def _changed(self, before: MetadataImage) -> list[PartitionImage]:
        changed = []
        for name, topic in self.image.topics.items():
            known = before.topics[name].partitions if name in before.topics else ()
            changed += [each for each in topic.partitions if each not in known]
        return changed

    def publish(self, node: int) -> None:
        image = self.image
        broker = self._world.brokers[node]
        self._world.send(ID, node, lambda: broker.learn(image))

    def create_topic(self, topic: str, replicas: list[list[int]], minimum: int) -> None:
        configs = {"min.insync.replicas": str(minimum)}
        self.change(
            "topic",
            topics.create_topic(
                self.image,
                topic,
                topic_id=TOPIC_IDS[topic],
                brokers=sorted(self._world.brokers),
                partitions=len(replicas),
                replication_factor=len(replicas[0]),
                assignments=dict(enumerate(replicas)),
                configs=configs,
            ),
        )

    # -- time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        now = self._world.now
        for node in self.liveness.silent(now):
            if self.spared and node not in self.spared:
                self.liveness.heard(node, now)
            else:
                self.change(f"{node} is silent", registry.fence(self.image, node))

    def take_office(self, suspects: list[int]) -> None:
        self.liveness = registry.Liveness(SESSION_MS, SUSPECT_MS)
        self.liveness.take_office(self.image.brokers, suspects, self._world.now)

    # -- what brokers ask for --------------------------------------------------------------------------------------

    def receive(self, node: int, boot: int, purpose: str, number: int, handle: Callable[[], object]) -> Answer | None:
        """A connection per process and purpose, and its requests in order: one that was overtaken was on one that is
        closed."""
        if boot <= self._dead.get(node, 0):
            return None
        if number <= self._heard.get((node, boot, purpose), 0):
            return None
        self._heard[node, boot, purpose] = number
        try:
            return ErrorCode.NONE, handle()
        except KafkaError as error:
            return error.code, str(error)

    def hang_up(self, node: int, boot: int) -> None:
        """What this process had sent and was not received yet is lost."""
        self._dead[node] = boot

    def register(self, node: int, incarnation: UUID, directory_id: str) -> int:
        alive = self.liveness.is_alive(node, self._world.now)
        records = registry.register(
            self.image,
            node,
            incarnation=incarnation,
            broker_epoch=self.image.version + 1,
            directory_id=directory_id,
            endpoints=(),
            rack=None,
            is_alive=alive,
        )
        self.change(f"{node} registers", records)
        self.liveness.heard(node, self._world.now)
        self.spared.discard(node)
        return self.image.brokers[node].broker_epoch

    def heartbeat(self, node: int, broker_epoch: int, version: int, *, caught_up: bool, stopping: bool) -> bool:
        """Whether it may stop."""
        broker = registry.check_epoch(self.image, node, broker_epoch)
        self.liveness.heard(node, self._world.now)
        if stopping:
            self.change(f"{node} wants to stop", registry.begin_stop(self.image, node))
        elif broker.fenced and caught_up:
            self.change(f"{node} is back", registry.unfence(self.image, node))
        if version < self.image.version:
            self.publish(node)
        return registry.may_stop(self.image, node)

    def alter_isr(
        self,
        node: int,
        broker_epoch: int,
        number: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: list[tuple[int, int]],
    ) -> PartitionImage:
        registry.check_epoch(self.image, node, broker_epoch)
        place = self.place(number)
        records = elections.alter_isr(
            self.image,
            TOPIC_IDS[place.topic],
            place.partition,
            leader=node,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=isr,
        )
        self.change(f"{node} wants {[member for member, _ in isr]} in sync", records)
        return self.partition(number)


def shown(partition: PartitionImage) -> str:
    moving = f" +{list(partition.adding)} -{list(partition.removing)}" if partition.adding or partition.removing else ""
    which = f"{partition.partition}: " if partition.partition else ""
    return (
        f"{which}leader {partition.leader} epoch {partition.leader_epoch} replicas {list(partition.replicas)} "
        f"isr {list(partition.isr)} v{partition.partition_epoch}{moving}"
    )
