"""A cluster seen by one blocking client: who leads what, where logs begin and end, how big they are.

Every question is retried until `timeout_s` has passed: brokers restart, leaders move, and metadata is a moment behind.
What does not pass by waiting (an unknown topic, a refused right) is raised at once.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from tidelog.client.negotiated import NegotiatedConnection
from tidelog.errors import ErrorCode, KafkaError, MalformedMessage, UnknownTopicOrPartition
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.layout import Message
from tidelog.wire.messages.admin import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.data import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.schema import UnsupportedVersion

T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0


class Leader(NamedTuple):
    node_id: int  # -1: none at the moment
    epoch: int


class Topic(NamedTuple):
    name: str
    topic_id: TopicId
    is_internal: bool
    partitions: dict[int, Leader]


class FoundOffset(NamedTuple):
    offset: int  # -1: no record is that young
    timestamp: int
    leader_epoch: int


class NoBroker(ConnectionError):
    """None of the bootstrap servers answered in time."""


class Cluster:
    """`Cluster("host:9092,other:9092")`; a context manager. Not for use by several threads at once."""

    def __init__(self, bootstrap_servers: str, *, client_id: str = "tidelog", timeout_s: float = 60.0) -> None:
        self._bootstrap = parse_servers(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, NegotiatedConnection] = {}
        self._any: NegotiatedConnection | None = None
        self._topics: dict[str, Topic] = {}

    # --- questions ----------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None) -> dict[str, Topic]:
        """The topics of these names that exist; None asks for all. Nothing is created by asking."""
        wanted = None if names is None else tuple(MetadataRequestTopic(name=name) for name in sorted(set(names)))
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.retry(lambda: self._topics_once(request))

    def topic(self, name: str) -> Topic:
        found = self.topics([name])
        if name not in found:
            raise UnknownTopicOrPartition(f"topic {name} does not exist")
        return found[name]

    def offsets(
        self, wanted: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, FoundOffset]:
        """For every partition the offset of a timestamp, or of EARLIEST or LATEST. READ_COMMITTED moves LATEST down to
        the last stable offset."""
        if not wanted:
            return {}
        return self.retry(lambda: self._offsets_once(wanted, isolation_level))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where each leader epoch ended; -1 where the leader does not know it."""
        if not epochs:
            return {}
        return self.retry(lambda: self._epoch_ends_once(epochs))

    # --- connections --------------------------------------------------------------------------------------------------

    def connect(self, node_id: int) -> NegotiatedConnection:
        """A connection of the caller's own, to a node known from `topics`."""
        host, port = self._addresses[node_id]
        return NegotiatedConnection(host, port, self._timeout_s, client_id=self._client_id)

    def node(self, node_id: int) -> NegotiatedConnection:
        """The shared connection to a node."""
        if node_id not in self._connections:
            if node_id not in self._addresses:
                raise KafkaError(f"node {node_id} is not known", ErrorCode.BROKER_NOT_AVAILABLE)
            self._connections[node_id] = self.connect(node_id)
        return self._connections[node_id]

    def remember(self, node_id: int, host: str, port: int) -> None:
        if self._addresses.get(node_id) != (host, port):
            self._addresses[node_id] = (host, port)
            self._drop(node_id)

    def anyone(self) -> NegotiatedConnection:
        """A connection to whichever bootstrap server answers first."""
        if self._any is not None:
            return self._any
        problems = []
        for host, port in self._bootstrap:
            try:
                self._any = NegotiatedConnection(host, port, self._timeout_s, client_id=self._client_id)
                return self._any
            except OSError as error:
                problems.append(f"{host}:{port}: {error}")
        raise NoBroker("; ".join(problems))

    def retry(self, ask: Callable[[], T]) -> T:
        """Repeats `ask` while what it raises may pass by waiting."""
        deadline = time.monotonic() + self._timeout_s
        pause = _PAUSE_S
        while True:
            try:
                return ask()
            except (OSError, MalformedMessage, KafkaError) as error:
                if isinstance(error, KafkaError) and error.code not in RETRIABLE:
                    raise
                self._forget_connections()
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_S_MAX)

    def close(self) -> None:
        self._forget_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one attempt --------------------------------------------------------------------------------------------------

    def _topics_once(self, request: MetadataRequest) -> dict[str, Topic]:
        answer = self.anyone().ask(request)
        for broker in answer.brokers:
            self.remember(broker.node_id, broker.host, broker.port)
        found: dict[str, Topic] = {}
        for row in answer.topics:
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.pop(row.name, None)
                continue
            raise_for(row.error_code, f"topic {row.name}")
            leaders = {part.partition_index: Leader(part.leader_id, part.leader_epoch) for part in row.partitions}
            found[row.name] = Topic(row.name, row.topic_id, row.is_internal, dict(sorted(leaders.items())))
        self._topics.update(found)
        return found

    def _offsets_once(self, wanted: Mapping[TopicPartition, int], level: int) -> dict[TopicPartition, FoundOffset]:
        found: dict[TopicPartition, FoundOffset] = {}
        for node_id, partitions in self.by_leader(wanted).items():
            topics = tuple(
                ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=p, timestamp=wanted[TopicPartition(topic, p)])
                        for p in numbers
                    ),
                )
                for topic, numbers in partitions.items()
            )
            request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
            for row in self.node(node_id).ask(request).topics:
                for part in row.partitions:
                    partition = TopicPartition(row.name, part.partition_index)
                    _raise_for_leader(part.error_code, f"offsets of {partition}")
                    found[partition] = FoundOffset(part.offset, part.timestamp, part.leader_epoch)
        return found

    def _epoch_ends_once(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node_id, partitions in self.by_leader(epochs).items():
            topics = tuple(
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=tuple(
                        OffsetForLeaderPartition(partition=p, leader_epoch=epochs[TopicPartition(topic, p)])
                        for p in numbers
                    ),
                )
                for topic, numbers in partitions.items()
            )
            # A consumer's replica id is -1; the message's default means a debugging tool.
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
            for row in self.node(node_id).ask(request).topics:
                for part in row.partitions:
                    partition = TopicPartition(row.topic, part.partition)
                    _raise_for_leader(part.error_code, f"epochs of {partition}")
                    found[partition] = part.end_offset
        return found

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, dict[str, list[int]]]:
        """The partitions grouped by the node that leads them now and by topic."""
        wanted = sorted(set(partitions))
        names = {topic for topic, _ in wanted}
        if not names <= self._topics.keys():
            self._topics_once(
                MetadataRequest(
                    topics=tuple(MetadataRequestTopic(name=name) for name in sorted(names)),
                    allow_auto_topic_creation=False,
                )
            )
        grouped: dict[int, dict[str, list[int]]] = {}
        for topic, number in wanted:
            leader = self._topics[topic].partitions.get(number) if topic in self._topics else None
            if leader is None:
                raise UnknownTopicOrPartition(f"partition {number} of topic {topic} does not exist")
            if leader.node_id < 0:
                raise KafkaError(f"{topic}-{number} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
            grouped.setdefault(leader.node_id, {}).setdefault(topic, []).append(number)
        return grouped

    def _drop(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def _forget_connections(self) -> None:
        """After an error: a connection with half an answer in it is of no use, and leaders may have moved."""
        for node_id in list(self._connections):
            self._drop(node_id)
        self._topics.clear()
        if self._any is not None:
            self._any.close()
            self._any = None

    def ask_nodes(self, request: Message, nodes: Sequence[int]) -> list[Any]:
        """The answers of those of these nodes that know the request."""
        answers = []
        for node_id in nodes:
            with contextlib.suppress(UnsupportedVersion):
                answers.append(self.node(node_id).ask(request))
        return answers


def parse_servers(text: str) -> list[tuple[str, int]]:
    """`host:port,[::1]:port`."""
    servers = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        host, colon, port = item.rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"bootstrap server {item!r} is not host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise ValueError("no bootstrap server is given")
    return servers


def raise_for(code: int, what: str) -> None:
    if code:
        error = ErrorCode(code)
        raise KafkaError(f"{what}: {error.name}", error)


def _raise_for_leader(code: int, what: str) -> None:
    """Of a partition that metadata says this broker leads. One that is new it may not have heard of itself; if the
    partition is gone, the metadata that is asked for before the next attempt says so."""
    raise_for(ErrorCode.LEADER_NOT_AVAILABLE if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code, what)


__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_TOPIC_ID",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "RETRIABLE",
    "Cluster",
    "FoundOffset",
    "Leader",
    "NoBroker",
    "Topic",
    "parse_servers",
    "raise_for",
]
