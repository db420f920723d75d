"""The broker's side of a coordinator: a shard per partition of its internal topic, loaded from the log, driven by
requests, timers and the high watermark.

It moves records and answers; what they say is decided by the shard, in what order things happen by
`coordination.Runtime`.
"""

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog.broker.flusher import Flusher
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.clock import Clock
from tidelog.cluster import controller
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.cluster.replica import Replica
from tidelog.coordination import NOBODY, Outcome, Producer, Released, Runtime, Shard
from tidelog.errors import ErrorCode, KafkaError, StorageOffline
from tidelog.ids import NO_PRODUCER_ID
from tidelog.wire.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    build_pairs,
    iter_batches,
    iter_records,
)

ACKS_ALL: Final = -1
LOAD_BYTES: Final = 1024 * 1024
"""Read between two turns of the loop, so that loading a long history holds up nobody."""
COMMIT_MARKER: Final = 1
READY_SECONDS: Final = 5.0
"""How long whoever looks for a coordinator waits for it to be loaded, before it is told to come back."""

log = get_logger("coordinator")

Rec = TypeVar("Rec")
S = TypeVar("S", bound=Shard[Any])
Done = Callable[[Any], None]
"""Told the response, or the KafkaError to answer instead."""


Decide = Callable[[S, int, int], Outcome[Any, Rec]]
"""Given the shard, the waiter by which a deferred answer is completed later, and the time."""


class RecordFormat(Protocol[Rec]):
    """How a coordinator's records are written to its topic."""

    def encode(self, record: Rec) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Rec | None:
        """None: a record of a kind that is not ours to know."""
        ...


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class ShardHost(Generic[S, Rec]):
    """One partition of the internal topic, its shard and its runtime."""

    def __init__(
        self,
        replica: Replica,
        shard: S,
        records: RecordFormat[Rec],
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
    ) -> None:
        self.replica = replica
        self.shard = shard
        self._records = records
        self._flusher = flusher
        self._clock = clock
        self._loop = loop
        self._runtime: Runtime[Rec] | None = None
        self._waiting: dict[int, Done] = {}
        self._last_waiter = 0
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    # -- loading ----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        partition_log = self.replica.log
        offset = partition_log.start_offset
        while offset < (end := self.replica.high_watermark):
            piece = partition_log.read(offset, LOAD_BYTES, upper=end)
            for header, batch in iter_batches(piece.file.read(piece.position, piece.length)):
                self._replay(header, batch)
                offset = header.last_offset + 1
            if piece.length == 0:
                break  # what compaction left of the end holds no batch
            await asyncio.sleep(0)
        self._runtime = Runtime(
            self.shard,
            self._append,
            end_offset=partition_log.end_offset,
            committed_offset=self.replica.high_watermark,
        )
        self._answer(self._runtime.loaded(now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms()))
        self._arm()

    def _replay(self, header: BatchHeader, batch: memoryview) -> None:
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else NO_PRODUCER_ID
        for record in iter_records(batch):
            if header.attributes & CONTROL:
                kind = int.from_bytes((record.key or b"")[2:4], "big")
                self.shard.replay_marker(header.producer_id, kind == COMMIT_MARKER)
                continue
            known = self._records.decode(bytes(record.key or b""), record.value and bytes(record.value))
            if known is not None:
                self.shard.replay(known, record.offset, producer_id)

    # -- events -----------------------------------------------------------------------------------------------------

    def submit(self, decide: "Decide[S, Rec]", done: Done) -> None:
        """Decide now; `done` when the answer may be known outside."""
        runtime = self._runtime
        if runtime is None:
            done(KafkaError("the coordinator is still loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        waiter = self._last_waiter = self._last_waiter + 1
        self._waiting[waiter] = done
        now_ms = self._clock.now_ms()
        self._answer(
            runtime.run(waiter, lambda: decide(self.shard, waiter, now_ms), monotonic_ms=self._clock.monotonic_ms())
        )
        self._arm()

    def apply(self, outcomes: Callable[[S, int], Iterable[Outcome[Any, Rec]]]) -> None:
        """Make outcomes true that nobody waits for, each before the next is asked for."""
        runtime = self._runtime
        if runtime is None:
            return
        for outcome in outcomes(self.shard, self._clock.now_ms()):
            self._answer(runtime.run(NOBODY, partial(_same, outcome), monotonic_ms=self._clock.monotonic_ms()))
        self._arm()

    def on_watermark(self) -> None:
        if self._runtime is not None:
            self._answer(self._runtime.commit(self.replica.high_watermark))

    def fail(self, error: KafkaError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._runtime is not None:
            self._answer(self._runtime.fail(error))

    def _append(self, records: tuple[Rec, ...], producer: Producer | None) -> int:
        now_ms = self._clock.now_ms()
        batch = build_pairs(
            [self._records.encode(record) for record in records],
            now_ms,
            producer_id=producer.producer_id if producer else NO_PRODUCER_ID,
            producer_epoch=producer.producer_epoch if producer else -1,
            attributes=TRANSACTIONAL if producer else 0,
        )
        # Prepared: these are our own records, all with keys, in the codec they should have.
        appended = self.replica.append(bytearray(batch), acks=ACKS_ALL, now_ms=now_ms, prepared=True)
        if self.replica.config.flush_on_ack:
            self._flusher.mark(self.replica)
        return appended.last_offset + 1

    def _answer(self, released: list[Released]) -> None:
        for waiter, answer in released:
            done = self._waiting.pop(waiter, None)
            if done is not None:
                done(answer)

    # -- timers -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One loop timer for the earliest deadline. It may ring early, when deadlines moved on: that costs one look."""
        deadline = self._runtime.next_deadline_ms if self._runtime is not None else None
        if deadline is None or (self._timer is not None and self._timer_ms <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline
        delay = max(deadline - self._clock.monotonic_ms(), 0) / 1000
        self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        runtime = self._runtime
        if runtime is not None and runtime.failure is None:
            self._answer(runtime.expire(now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms()))
            self._arm()


class Coordinator(Generic[S, Rec]):
    """All shards of one internal topic."""

    def __init__(
        self,
        topic: InternalTopic,
        make_shard: Callable[[int], S],
        records: RecordFormat[Rec],
        *,
        partitions: Partitions,
        metadata: Metadata,
        flusher: Flusher,
        clock: Clock,
        loop: AbstractEventLoop,
        new_topic_id: Callable[[], Any],
    ) -> None:
        self.topic = topic
        self._make_shard = make_shard
        self._records = records
        self._partitions = partitions
        self._metadata = metadata
        self._flusher = flusher
        self._clock = clock
        self._loop = loop
        self._new_topic_id = new_topic_id
        self._hosts: dict[int, ShardHost[S, Rec]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._loaded: dict[int, asyncio.Event] = {}

    async def ensure_topic(self) -> None:
        """Made when the first client asks for a coordinator: a broker without groups has no files for them."""
        if self.topic.name in self._metadata.image.topics:
            return
        brokers = (self._partitions.broker_config.node_id,)

        def decide(image: MetadataImage) -> list[AnyRecord]:
            if self.topic.name in image.topics:
                return []
            return controller.create_topic(
                image,
                self.topic.name,
                topic_id=self._new_topic_id(),
                brokers=brokers,
                partitions=self.topic.partitions,
                replication_factor=min(self.topic.replication_factor, len(brokers)),
                configs=self.topic.config,
            )

        await self._metadata.change(decide)

    def adopt(self, replica: Replica) -> None:
        """A partition of the topic is here: load what it says."""
        shard = self._make_shard(replica.partition.partition)
        host = ShardHost(replica, shard, self._records, self._flusher, self._clock, self._loop)
        self._hosts[replica.partition.partition] = host
        task = self._loop.create_task(self._load(host))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load(self, host: ShardHost[S, Rec]) -> None:
        try:
            await host.load()
            self._loaded_event(host.replica.partition.partition).set()
        except Exception:
            # Not served rather than served with half its state: clients are told to come back, people are told why.
            log.exception("cannot load coordinator state", partition=str(host.replica.partition))

    async def ready(self, keys: Iterable[str]) -> None:
        """Until the shards of these keys answer. A client that is told where its coordinator is and then refused there
        asks again after seconds only; one that learns it a few milliseconds later joins at once."""
        count = self.partition_count
        if not count:
            raise KafkaError(f"{self.topic.name} is not here yet", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            async with asyncio.timeout(READY_SECONDS):
                for key in keys:
                    await self._loaded_event(partition_of(key, count)).wait()
        except TimeoutError as error:
            text = "the coordinator is still loading"
            raise KafkaError(text, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error

    def _loaded_event(self, partition: int) -> asyncio.Event:
        return self._loaded.setdefault(partition, asyncio.Event())

    def host_for(self, key: str) -> ShardHost[S, Rec]:
        count = self.partition_count
        host = self._hosts.get(partition_of(key, count)) if count else None
        if host is None:
            raise KafkaError(f"{self.topic.name} is not here yet", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return host

    @property
    def partition_count(self) -> int:
        topic = self._metadata.image.topics.get(self.topic.name)
        return len(topic.partitions) if topic is not None else 0

    @property
    def hosts(self) -> Iterator[ShardHost[S, Rec]]:
        return iter(self._hosts.values())

    def on_watermark(self, replica: Replica) -> None:
        host = self._hosts.get(replica.partition.partition)
        if host is not None and host.replica is replica:
            host.on_watermark()

    def submit(self, key: str, decide: "Decide[S, Rec]", done: Done) -> None:
        try:
            host = self.host_for(key)
        except KafkaError as error:
            done(error)
            return
        host.submit(decide, done)

    def fail(self, error: StorageOffline) -> None:
        """The disk under the topic is gone, and with it what these shards could promise."""
        for host in self._hosts.values():
            host.fail(error)


def _same(outcome: Outcome[Any, Rec]) -> Outcome[Any, Rec]:
    return outcome


def partition_of(key: str, partitions: int) -> int:
    """Where Kafka keeps this group: Java's String.hashCode over UTF-16, made positive."""
    hashed = 0
    units = key.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    if hashed == 0x80000000:
        return 0
    return (hashed if hashed < 0x80000000 else 0x100000000 - hashed) % partitions
