"""The coordinators of one process, as production puts them together, on the simulated loop, network and disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from batches import batch
from tests.simulation.replication.loop import BrokerClock, Link, Loop

from tidelog.broker.coordinators.groups import GroupRoom
from tidelog.broker.coordinators.markers import Failures, MarkerWriter
from tidelog.broker.coordinators.shard_host import TransactionEnd
from tidelog.broker.coordinators.transactions import TransactionRoom
from tidelog.broker.coordinators.verification import Codes, Remote, TransactionVerifier, Writer
from tidelog.broker.peers.marker_sender import MarkerSender
from tidelog.broker.waiting import Waiting
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig
from tidelog.coordination import coordinator_code
from tidelog.errors import ErrorCode, KafkaError, NotLeaderOrFollower
from tidelog.groups.group import Context as GroupContext
from tidelog.groups.refusals import refuse as refuse_group
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context
from tidelog.transactions.refusals import refuse
from tidelog.wire.messages import transactions as messages
from tidelog.wire.record_batch import TRANSACTIONAL, read_header
from tidelog.wire.schema import Message

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.seat import Seat

NO_IMAGE = MetadataImage("simulated")
LAZY_MS = 5
SESSION_MS = 400
HEARTBEAT_MS = 50

Reply = Callable[[Any], None]


class Here:
    """The broker as its rooms look at it: its partitions, its metadata, its disk, its producer ids."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def image(self) -> MetadataImage:
        return self._broker.image or NO_IMAGE

    def seat(self, place: TopicPartition) -> "Seat":
        return next(seat for seat in self._broker.seats if seat.place == place)

    def get(self, topic: str, partition: int) -> Replica:
        replica = self.seat(TopicPartition(topic, partition)).replica
        if replica is None:
            raise NotLeaderOrFollower(f"{topic}-{partition} is not here")
        return replica

    def mark(self, replica: Replica) -> None:
        self.seat(replica.partition).flush(lambda: None)

    def mark_lazily(self, replica: Replica) -> None:
        self._broker.world.timer(self._broker, LAZY_MS, lambda: self.mark(replica))

    def take(self) -> int:
        return next(self._broker.world.producer_ids)


class Rooms:
    def __init__(self, broker: "Broker") -> None:
        here, clock, loop = Here(broker), BrokerClock(broker), Loop(broker)
        self._here = here
        self._broker = broker
        self.waiting = Waiting(cast(Any, loop))
        world: dict[str, Any] = {"partitions": here, "metadata": here, "flusher": here, "clock": clock, "loop": loop}
        config = BrokerConfig(
            node_id=broker.id,
            group_consumer_min_session_timeout_ms=SESSION_MS,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            group_consumer_min_heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self.groups = GroupRoom(config, dice=broker.dice, **world)
        self.markers = MarkerWriter(cast(Any, here), self.groups.coordinator, self.waiting, cast(Any, here), clock)
        sender = MarkerSender(broker.id, self.markers, cast(Any, here), self._link_to, cast(Any, loop))
        self.transactions = TransactionRoom(
            config, groups=self.groups, producer_ids=cast(Any, here), markers=sender, **world
        )
        coordinator = self.transactions.coordinator
        self.verifier = TransactionVerifier(coordinator, Remote(broker.id, coordinator, self._link_to))
        self._coordinators: list[Any] = [coordinator, self.groups.coordinator]

    def _link_to(self, node: int) -> Any:
        return Link(self._broker, self._broker.world.brokers[node])

    # -- what a node tells its rooms -------------------------------------------------------------------------------

    def role_changed(self, replica: Replica) -> None:
        if not replica.is_leader:
            self.waiting.on_failure(replica)
        for coordinator in self._coordinators:
            if coordinator.topic.name == replica.partition.topic:
                (coordinator.adopt if replica.is_leader else coordinator.resign)(replica)

    def watermark_moved(self, replica: Replica) -> None:
        self.waiting.on_watermark(replica)
        for coordinator in self._coordinators:
            if coordinator.topic.name == replica.partition.topic:
                coordinator.on_watermark(replica)

    def let_go(self, replica: Replica) -> None:
        self.waiting.forget_replicas([replica])
        for coordinator in self._coordinators:
            if coordinator.topic.name == replica.partition.topic:
                coordinator.resign(replica)

    # -- requests --------------------------------------------------------------------------------------------------

    def handle(self, request: Message, version: int | None, connection: int, reply: Reply) -> None:
        """Of clients and of other brokers."""
        if isinstance(request, messages.WriteTxnMarkersRequest):
            self._write_markers(request, reply)
            return
        assert version is not None
        known = version

        def decide(shard: Any, waiter: int, now_ms: int) -> Any:
            return shard.handle(request, Context(known, waiter, connection), now_ms)

        def answered(answer: Any) -> None:
            reply(refuse(request, coordinator_code(answer), known) if isinstance(answer, KafkaError) else answer)

        self.transactions.coordinator.submit("any", decide, answered)

    def handle_group(self, request: Message, version: int, reply: Reply) -> None:
        """Of the group, whose coordinator's answers are looked at when they are let out."""
        coordinator = self.groups.coordinator
        owners = self._broker.world.owners
        assert owners is not None

        def refused(error: KafkaError) -> None:
            reply(refuse_group(request, coordinator_code(error), version))

        try:
            host = coordinator.host_at(0)
        except KafkaError as error:
            refused(error)
            return
        epoch = host.replica.leader_epoch

        def decide(shard: Any, waiter: int, now_ms: int) -> Any:
            return shard.handle(request, GroupContext("member", "/127.0.0.1", version, waiter), now_ms)

        def answered(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                refused(answer)
                return
            owners.answered(host.shard, epoch, request, answer)
            reply(answer)

        host.submit(decide, answered)

    def _write_markers(self, request: messages.WriteTxnMarkersRequest, reply: Reply) -> None:
        (marker,) = request.markers
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        places = [TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes]

        def written(failures: Failures) -> None:
            codes = {place: failures[place].code if place in failures else ErrorCode.NONE for place in places}
            topics = tuple(
                messages.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        messages.WritableTxnMarkerPartitionResult(
                            partition_index=number, error_code=codes[TopicPartition(topic.name, number)]
                        )
                        for number in topic.partition_indexes
                    ),
                )
                for topic in marker.topics
            )
            result = messages.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            reply(messages.WriteTxnMarkersResponse(markers=(result,)))

        self.markers.write(end, places, written)

    def produce(
        self,
        place: TopicPartition,
        values: list[bytes],
        producer: tuple[int, int, int],
        transactional_id: str,
        *,
        adds: bool,
        answer: Callable[[ErrorCode], None],
    ) -> None:
        """In a transaction, for which its coordinator is asked where the log needs that. `adds`: in the second
        protocol, of which each write adds its partition."""
        seat = self._here.seat(place)
        records = batch(*values, producer=producer, attributes=TRANSACTIONAL)
        header = read_header(records)
        replica = seat.replica
        if replica is None or not replica.is_leader:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not replica.log.needs_verification(header):
            seat.append(records, values, -1, answer)
            return
        verification = replica.log.begin_verification(header, every_epoch_is_new=adds)

        def verified(codes: Codes) -> None:
            if codes[place]:
                answer(codes[place])
            elif seat.replica is not replica:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                seat.append(records, values, -1, answer, verification)

        writer = Writer(transactional_id, producer[0], producer[1], adds=adds, knows_abortable=True)
        self.verifier.ask(writer, [place], verified)
