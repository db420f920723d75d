"""One partition read from an offset to another, the next answer under way while the last is worked on.

The reader holds one connection and one thread. The thread looks only at batch headers, enough to know what to ask for
next; it holds at most one answer that nobody has taken yet, so memory is bounded by three answers whatever the
partition's size. Their buffers are used again in turn: touching fresh memory costs more than receiving into it.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.client.cluster import RETRIABLE, Cluster, raise_for
from tidelog.client.negotiated import NegotiatedConnection
from tidelog.errors import CorruptMessage, ErrorCode, KafkaError, MalformedMessage, UnknownTopicOrPartition
from tidelog.ids import NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.messages.data import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.record_batch import BatchHeader, iter_batches

FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500
GONE_S: Final = 2.0
"""A topic that nobody has known for so long is gone."""
_JOIN_S: Final = 2.0
_OFFER_S: Final = 0.2
_TOPIC_IDS_SINCE: Final = 13
_GONE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Fetched(NamedTuple):
    """One answer: whole batches in offset order, and who of their producers aborted (read_committed only).

    `records` is overwritten once the next answer has been taken.
    """

    records: memoryview
    batches: list[tuple[BatchHeader, int]]  # and where in `records` each begins
    aborted: tuple[AbortedTransaction, ...] = ()
    first: int = 0  # what was asked for: earlier records of the first batch may be deleted ones

    @classmethod
    def of(
        cls, records: bytes | bytearray | memoryview, aborted: tuple[AbortedTransaction, ...] = (), first: int = 0
    ) -> "Fetched":
        """Every whole batch in `records`. Base offsets are outside the checksum, so their order is checked here."""
        view, position, batches = memoryview(records), 0, []
        last = -1
        for header, batch in iter_batches(view):
            if header.last_offset_delta < 0 or header.base_offset <= last:
                raise CorruptMessage(
                    f"a batch with offsets {header.base_offset} to {header.last_offset} follows offset {last}"
                )
            batches.append((header, position))
            position += len(batch)
            last = header.last_offset
        return cls(view, batches, aborted, first)


class _Ring:
    """Three buffers in turn: one is received into, one waits to be taken, one is worked on.

    Only an answer that is passed on moves it. If errors and empty answers did too, what comes behind them would be
    received into the buffer that is worked on.
    """

    def __init__(self) -> None:
        self._buffers = [bytearray(0)] * 3
        self._turn = 0

    def allocate(self, size: int) -> memoryview:
        if len(self._buffers[self._turn]) < size:
            self._buffers[self._turn] = bytearray(size)
        return memoryview(self._buffers[self._turn])[:size]

    def pass_on(self) -> None:
        """What was received last is somebody's now."""
        self._turn = (self._turn + 1) % len(self._buffers)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRange:
    """What to read: offsets `start` up to but without `end` of one incarnation of a topic."""

    partition: TopicPartition
    topic_id: TopicId = NO_TOPIC_ID
    start: int
    end: int
    isolation_level: int = 0
    fetch_bytes: int = FETCH_BYTES


class DataLost(KafkaError):
    """Records that were asked for are not in the log any more."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, partition: TopicPartition, start: int, end: int, why: str) -> None:
        self.partition, self.start, self.end, self.why = partition, start, end, why
        super().__init__(
            f"topic {partition.topic}, partition {partition.partition}: offsets {start} to {end - 1} are gone: {why}"
        )


class TopicGone(UnknownTopicOrPartition):
    """The topic was deleted, or deleted and created anew."""


OnLoss = Callable[[DataLost], None]


def refuse_loss(loss: DataLost) -> None:
    raise loss


def _offer(
    answers: "queue.Queue[Fetched | BaseException | None]",
    item: Fetched | BaseException | None,
    stopped: threading.Event,
) -> None:
    while not stopped.is_set():
        try:
            answers.put(item, timeout=_OFFER_S)
            return
        except queue.Full:
            continue


class PartitionFetcher:
    """Iterate it once. `on_loss` decides about a hole: raise, or return to read on behind it."""

    def __init__(
        self, cluster: Cluster, wanted: FetchRange, *, on_loss: OnLoss = refuse_loss, timeout_s: float = 60.0
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._on_loss = on_loss
        self._timeout_s = timeout_s
        self._offset = wanted.start
        self._connection: NegotiatedConnection | None = None
        self._epoch = -1
        self._empty_answers = 0
        self._ring = _Ring()

    def __iter__(self) -> Iterator[Fetched]:
        answers: queue.Queue[Fetched | BaseException | None] = queue.Queue(1)
        stopped = threading.Event()
        worker = threading.Thread(target=self._pump, args=(answers, stopped), name="tidelog-fetch", daemon=True)
        worker.start()
        try:
            while (answer := answers.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            # The consumer may have seen enough: the thread must wait neither for it nor for the broker.
            stopped.set()
            connection = self._connection
            if connection is not None:
                connection.abort()
            worker.join(_JOIN_S)

    def _pump(self, answers: "queue.Queue[Fetched | BaseException | None]", stopped: threading.Event) -> None:
        last: BaseException | None = None
        try:
            while self._offset < self._wanted.end and not stopped.is_set():
                fetched = self._next(stopped)
                if fetched is not None:
                    _offer(answers, fetched, stopped)
        except BaseException as error:
            last = error
        finally:
            self._close()
        _offer(answers, last, stopped)

    def _next(self, stopped: threading.Event) -> Fetched | None:
        """The next answer that holds batches; None when nothing is left to read."""
        deadline = time.monotonic() + self._timeout_s
        pause = 0.05
        gone_since = 0.0
        while not stopped.is_set():
            try:
                part = self._ask()
                if part is not None:
                    return self._take(part)
                if self._offset >= self._wanted.end:
                    return None
                pause = 0.0  # an empty answer: the broker has waited already
            except (OSError, MalformedMessage, KafkaError) as error:
                if stopped.is_set():
                    return None
                self._close()
                code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
                if code in _GONE:
                    gone_since = gone_since or time.monotonic()
                    # A broker that has just started may not know all topics yet.
                    if time.monotonic() - gone_since > GONE_S:
                        self._check_topic()
                elif code not in RETRIABLE:
                    raise
                if time.monotonic() > deadline:
                    raise
                pause = min(2 * pause + 0.05, 1.0)
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"{self._wanted.partition}: the log did not reach offset {self._wanted.end} in {self._timeout_s} s,"
                    f" reading stands at {self._offset}",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
            stopped.wait(pause)
        return None

    def _take(self, part: PartitionData) -> Fetched:
        records = part.records if part.records is not None else memoryview(b"")
        try:
            fetched = Fetched.of(records, part.aborted_transactions or (), self._offset)
        except CorruptMessage as error:
            raise CorruptMessage(f"{self._wanted.partition}, behind offset {self._offset}: {error}") from None
        if not fetched.batches or fetched.batches[-1][0].last_offset < self._offset:
            raise CorruptMessage(
                f"{self._wanted.partition}: {len(records)} bytes at offset {self._offset} hold no whole batch of it"
            )
        self._ring.pass_on()
        self._offset = fetched.batches[-1][0].last_offset + 1
        self._empty_answers = 0
        return fetched

    def _ask(self) -> PartitionData | None:
        """One Fetch; None when it brought nothing."""
        wanted = self._wanted
        connection = self._connection if self._connection is not None else self._connect()
        with_ids = connection.version_of(FetchRequest) >= _TOPIC_IDS_SINCE
        if with_ids and wanted.topic_id == NO_TOPIC_ID:
            raise ValueError(f"{wanted.partition}: reading by topic id needs one")
        asked = FetchPartition(
            partition=wanted.partition.partition,
            current_leader_epoch=self._epoch,
            fetch_offset=self._offset,
            partition_max_bytes=wanted.fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=wanted.fetch_bytes,
            isolation_level=wanted.isolation_level,
            topics=(FetchTopic(topic=wanted.partition.topic, topic_id=wanted.topic_id, partitions=(asked,)),),
        )
        answer = connection.ask(request)
        raise_for(answer.error_code, f"fetch of {wanted.partition}")
        if not answer.responses:  # Kafka's word for a quota that is used up: it takes the next request when it is not
            return None
        part: PartitionData = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(part)
            return None
        raise_for(part.error_code, f"fetch of {wanted.partition}")
        if part.records:
            return part
        visible = part.last_stable_offset if wanted.isolation_level else part.high_watermark
        # Readable up to the end and yet nothing came, twice: compaction took what was there.
        self._empty_answers = self._empty_answers + 1 if visible >= wanted.end else 0
        if self._empty_answers > 1:
            self._offset = wanted.end
        return None

    def _out_of_range(self, part: PartitionData) -> None:
        wanted, start = self._wanted, part.log_start_offset
        if start < 0:  # not told with this error by every broker
            start = self._cluster.offsets({wanted.partition: -2})[wanted.partition].offset
        if self._offset < start:
            upto = min(start, wanted.end)
            self._on_loss(DataLost(wanted.partition, self._offset, upto, f"the log begins at {start} now"))
            self._offset = upto
            return
        end = part.high_watermark if part.high_watermark >= 0 else -1
        told = f"the log ends at {end} now" if end >= 0 else "the log ends before them now"
        self._on_loss(DataLost(wanted.partition, self._offset, wanted.end, told))
        self._offset = wanted.end

    def _connect(self) -> NegotiatedConnection:
        wanted = self._wanted
        topic = self._cluster.topics([wanted.partition.topic]).get(wanted.partition.topic)
        leader = topic.partitions.get(wanted.partition.partition) if topic is not None else None
        if leader is None:
            raise UnknownTopicOrPartition(f"{wanted.partition} does not exist")
        if leader.node_id < 0:
            raise KafkaError(f"{wanted.partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        self._epoch = leader.epoch
        self._connection = self._cluster.connect(leader.node_id)
        self._connection.allocate = self._ring.allocate
        return self._connection

    def _check_topic(self) -> None:
        """Raises unless the topic is the one that was planned for: then metadata was only a moment behind."""
        wanted = self._wanted
        name = wanted.partition.topic
        topic = self._cluster.topics([name]).get(name)
        rest = f"offsets {self._offset} to {wanted.end - 1} of partition {wanted.partition.partition} cannot be read"
        if topic is None or wanted.partition.partition not in topic.partitions:
            raise TopicGone(f"topic {name} was deleted while it was read: {rest}")
        if wanted.topic_id not in (NO_TOPIC_ID, topic.topic_id):
            raise TopicGone(
                f"topic {name} was deleted and created anew while it was read (id {wanted.topic_id} then, "
                f"{topic.topic_id} now): {rest}"
            )

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
