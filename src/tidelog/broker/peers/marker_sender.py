"""Sends the ends of transactions to the brokers that lead the partitions they wrote to."""

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tidelog.broker.coordinators.markers import Failures
from tidelog.broker.coordinators.shard_host import TransactionEnd
from tidelog.broker.metadata import Metadata
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.transaction import by_topic
from tidelog.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ANSWER_SECONDS: Final = 35.0
"""Longer than a leader waits for its marker to be safe."""


class WritesMarkers(Protocol):
    def write(
        self,
        end: TransactionEnd,
        partitions: Iterable[TopicPartition],
        done: Callable[[Failures], None],
    ) -> bool:
        """`done` is told what failed, when all else is safe. True if they are all in logs of this broker by now."""
        ...


class MarkerSender:
    """Implements `WritesMarkers` for a cluster."""

    def __init__(
        self,
        node_id: int,
        here: WritesMarkers,
        metadata: Metadata,
        link_to: Callable[[int], PeerLink],
        loop: AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._here = here
        self._metadata = metadata
        self._link_to = link_to
        self._loop = loop
        self._sending: set[Task[None]] = set()

    def write(
        self,
        end: TransactionEnd,
        partitions: Iterable[TopicPartition],
        done: Callable[[Failures], None],
    ) -> bool:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            by_leader.setdefault(self._leader_of(partition), []).append(partition)
        failures: Failures = {}
        missing = len(by_leader)
        if not missing:
            done(failures)
            return False

        def arrived(failed: Failures) -> None:
            nonlocal missing
            failures.update(failed)
            missing -= 1
            if missing == 0:
                done(failures)

        for leader, led in by_leader.items():
            if leader == self._node_id:
                self._here.write(end, led, arrived)
            else:
                task = self._loop.create_task(self._send(leader, end, led, arrived))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        return False

    def _leader_of(self, partition: TopicPartition) -> int:
        """This broker for what it does not know: it will say so."""
        topic = self._metadata.image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return self._node_id
        return topic.partitions[partition.partition].leader

    async def _send(
        self, leader: int, end: TransactionEnd, led: list[TopicPartition], arrived: Callable[[Failures], None]
    ) -> None:
        request = WriteTxnMarkersRequest(
            markers=(
                WritableTxnMarker(
                    producer_id=end.producer_id,
                    producer_epoch=end.producer_epoch,
                    transaction_result=end.committed,
                    topics=tuple(
                        WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                        for topic, numbers in by_topic(led)
                    ),
                    coordinator_epoch=end.coordinator_epoch,
                    transaction_version=end.transaction_version,
                ),
            )
        )
        try:
            if leader < 0:
                raise Unreachable("nobody leads it")
            answer: WriteTxnMarkersResponse = await self._link_to(leader).call(request, timeout=ANSWER_SECONDS)
        except Unreachable as error:
            arrived(dict.fromkeys(led, KafkaError(str(error), ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            return
        arrived(
            {
                TopicPartition(topic.name, each.partition_index): KafkaError(
                    f"broker {leader} refused the marker", ErrorCode(each.error_code)
                )
                for marker in answer.markers
                for topic in marker.topics
                for each in topic.partitions
                if each.error_code
            }
        )
