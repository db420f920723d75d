"""Members of a group: unmodified clients, each polling in a thread of its own and telling what it owns and reads."""

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import aiokafka
import aiokafka.coordinator.assignors.range
import aiokafka.coordinator.assignors.roundrobin
import aiokafka.coordinator.assignors.sticky.sticky_assignor
import confluent_kafka
import kafka
import kafka.coordinator.assignors.cooperative_sticky
import kafka.coordinator.assignors.range
import kafka.coordinator.assignors.roundrobin
import kafka.coordinator.assignors.sticky.sticky_assignor

POLL_S = 0.02
SETTLE_S = 60.0
"""For what must happen at all; how soon is the business of the benchmarks."""


class Place(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Change:
    at: float
    kind: Literal["assigned", "revoked", "lost"]
    places: frozenset[Place]


class Read(NamedTuple):
    place: Place
    offset: int
    value: bytes
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Short heartbeats, so that tests are short, and a session that no stall of a busy machine ends. Tests that wait
    for its end choose a shorter one, and a broker whose group.min.session.timeout.ms is small."""

    assignor: str = "range"
    protocol: str = "classic"
    session_ms: int = 20_000
    heartbeat_ms: int = 60
    max_poll_ms: int = 300_000
    instance_id: str | None = None
    auto_commit: bool = False
    reset: str = "earliest"
    long_poll_ms: int = 510
    """Of kafka-python. A poll of 3.0.12 that times out between the answers to JoinGroup and SyncGroup loses the latter,
    and then the client neither reads nor sends heartbeats ever again. Long polls make that unlikely."""


class Member(ABC):
    """`with` joins and leaves. `owned` is what it may read now, `changes` how it came to that, `reads` what it read."""

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], options: Options | None = None) -> None:
        self.bootstrap, self.group, self.topics = bootstrap, group, list(topics)
        self.options = options or Options()
        self.owned: frozenset[Place] = frozenset()
        self.changes: list[Change] = []
        self.reads: list[Read] = []
        self.errors: list[Any] = []
        self.polling = threading.Event()
        self.polling.set()
        self._failure: BaseException | None = None
        self._ending = threading.Event()
        self._wishes: queue.Queue[tuple[Callable[[Any], Any], queue.Queue[Any]]] = queue.Queue()
        self._thread = threading.Thread(target=self._guarded, name=f"member of {group}", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Leave, in the way the client library does it."""
        self._ending.set()
        self.polling.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the client did not close"
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def do(self, wish: Callable[[Any], Any]) -> Any:
        """Runs `wish(consumer)` between two polls, in the thread the client belongs to; what it returned or raised."""
        answer: queue.Queue[Any] = queue.Queue()
        self._wishes.put((wish, answer))
        result = answer.get(timeout=20)
        if isinstance(result, BaseException):
            raise result
        return result

    @property
    def values(self) -> list[bytes]:
        return [read.value for read in self.reads]

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self._failure = failure

    @abstractmethod
    def _run(self) -> None: ...

    def _grant(self, consumer: Any) -> None:
        while not self._wishes.empty():
            wish, answer = self._wishes.get()
            try:
                answer.put(wish(consumer))
            except BaseException as failure:
                answer.put(failure)

    def _assigned(self, places: Sequence[Place]) -> None:
        """Of all that is owned, or of what came on top of it."""
        self.changes.append(Change(time.monotonic(), "assigned", frozenset(places)))
        self.owned |= frozenset(places)

    def _revoked(self, places: Sequence[Place], kind: Literal["revoked", "lost"] = "revoked") -> None:
        self.changes.append(Change(time.monotonic(), kind, frozenset(places)))
        self.owned -= frozenset(places)

    def _note(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        self.reads.append(Read(Place(topic, partition), offset, value, time.monotonic()))


class ConfluentMember(Member):
    def settings(self) -> dict[str, Any]:
        options = self.options
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": options.protocol,
            "auto.offset.reset": options.reset,
            "enable.auto.commit": options.auto_commit,
            "auto.commit.interval.ms": 200,
            "max.poll.interval.ms": options.max_poll_ms,
            "topic.metadata.refresh.interval.ms": 1000,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        if options.instance_id:
            settings["group.instance.id"] = options.instance_id
        if options.protocol == "classic":
            settings["session.timeout.ms"] = options.session_ms
            settings["heartbeat.interval.ms"] = options.heartbeat_ms
            settings["partition.assignment.strategy"] = options.assignor
        elif options.assignor != "range":
            settings["group.remote.assignor"] = options.assignor
        return settings

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(self.settings())
        consumer.subscribe(
            self.topics,
            on_assign=lambda _, partitions: self._assigned(_places(partitions)),
            on_revoke=lambda _, partitions: self._revoked(_places(partitions)),
            on_lost=lambda _, partitions: self._revoked(_places(partitions), "lost"),
        )
        while not self._ending.is_set():
            self.polling.wait()
            for message in consumer.consume(200, POLL_S):
                if message.error() is not None:
                    self.errors.append(message.error())
                else:
                    self._note(
                        message.topic() or "", message.partition() or 0, message.offset() or 0, message.value() or b""
                    )
            self._grant(consumer)
        consumer.close()


class KafkaPythonMember(Member):
    ASSIGNORS = {
        "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
        "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
        "sticky": kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
        "cooperative-sticky": kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor,
    }

    def _run(self) -> None:
        member, options = self, self.options
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=options.instance_id,
            auto_offset_reset=options.reset,
            enable_auto_commit=options.auto_commit,
            auto_commit_interval_ms=200,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            max_poll_interval_ms=options.max_poll_ms,
            partition_assignment_strategy=[self.ASSIGNORS[options.assignor]],
            metadata_max_age_ms=1000,
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
        )

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member._assigned(_places(assigned))

            def on_partitions_revoked(self, revoked: Any) -> None:
                member._revoked(_places(revoked))

            def on_partitions_lost(self, lost: Any) -> None:
                member._revoked(_places(lost), "lost")

        consumer.subscribe(self.topics, listener=Listener())
        while not self._ending.is_set():
            self.polling.wait()
            for partition, messages in consumer.poll(timeout_ms=options.long_poll_ms).items():
                for message in messages:
                    self._note(partition.topic, partition.partition, message.offset, message.value)
            self._grant(consumer)
        consumer.close()


class AioKafkaMember(Member):
    ASSIGNORS = {
        "range": aiokafka.coordinator.assignors.range.RangePartitionAssignor,
        "roundrobin": aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
        "sticky": aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
    }

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        member, options = self, self.options
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=options.instance_id,
            auto_offset_reset=options.reset,
            enable_auto_commit=options.auto_commit,
            auto_commit_interval_ms=200,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=options.heartbeat_ms,
            max_poll_interval_ms=options.max_poll_ms,
            rebalance_timeout_ms=5000,
            partition_assignment_strategy=(self.ASSIGNORS[options.assignor],),
            metadata_max_age_ms=1000,
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
        )

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member._assigned(_places(assigned))

            async def on_partitions_revoked(self, revoked: Any) -> None:
                member._revoked(_places(revoked))

        consumer.subscribe(self.topics, listener=Listener())
        await consumer.start()
        while not self._ending.is_set():
            while not self.polling.is_set():
                await asyncio.sleep(POLL_S)
            for partition, messages in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).items():
                for message in messages:
                    self._note(partition.topic, partition.partition, message.offset, message.value)
            await self._grant_async(consumer)
        await consumer.stop()
        self._revoked(sorted(self.owned))  # it tells its listener nothing of its own leaving

    async def _grant_async(self, consumer: Any) -> None:
        while not self._wishes.empty():
            wish, answer = self._wishes.get()
            try:
                result = wish(consumer)
                answer.put(await result if isinstance(result, Awaitable) else result)
            except BaseException as failure:
                answer.put(failure)


MEMBERS: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
ASSIGNORS = {
    "confluent": ("range", "roundrobin", "cooperative-sticky"),
    "kafka-python": tuple(KafkaPythonMember.ASSIGNORS),
    "aiokafka": tuple(AioKafkaMember.ASSIGNORS),
}


def _places(partitions: Sequence[Any]) -> list[Place]:
    return [Place(partition.topic, partition.partition) for partition in partitions]


def wait_for(holds: Callable[[], object], what: str | Callable[[], str], seconds: float = SETTLE_S) -> float:
    """Polls; how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.005)
    return time.monotonic() - began


def balanced(members: Sequence[Member], partitions: int) -> bool:
    """Everything is owned, nothing twice, and nobody has two more than another."""
    owned = [member.owned for member in members]
    sizes = sorted(len(each) for each in owned)
    return sum(sizes) == partitions == len(frozenset().union(*owned)) and sizes[-1] - sizes[0] <= 1


def settle(members: Sequence[Member], partitions: int, seconds: float = SETTLE_S) -> float:
    return wait_for(
        lambda: balanced(members, partitions),
        lambda: f"{partitions} partitions shared by {len(members)}: {[sorted(member.owned) for member in members]}",
        seconds,
    )
