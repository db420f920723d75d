"""Produce: batches from the socket to the log, untouched.

Versions: 3-13 work; 0-2 are advertised only because kcat stops compressing when the minimum is higher. acks=0 is
never answered (an error closes the connection, as in Kafka); acks=1 is answered after the write; acks=all after the
records are visible: on disk with flush.on.ack, in the page cache without. A batch that opens a transaction in its log
is written after the transaction's coordinator has vouched for it; from 12 on that also adds the partition. Internal
topics are closed to everybody; Kafka leaves them open to the client.id __admin_client.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from tidelog.broker.connection import Part
from tidelog.broker.coordinators.verification import Codes, TransactionVerifier, Writer
from tidelog.broker.deep_work import DeepWork
from tidelog.broker.flusher import Flusher
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint, Later, RawReply
from tidelog.broker.turns import Turn
from tidelog.broker.waiting import ParkedProduce, Waiting
from tidelog.clock import Clock
from tidelog.cluster.image import INTERNAL_TOPICS
from tidelog.cluster.replica import Replica
from tidelog.errors import CorruptMessage, ErrorCode, InvalidTopic, KafkaError
from tidelog.ids import TopicId
from tidelog.storage.log import Appended, Verification
from tidelog.storage.validation import needs_preparation
from tidelog.wire.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.wire.produce_fast import decode_produce, encode_produce_response
from tidelog.wire.produce_one import OneBatch, decode_one, encode_one
from tidelog.wire.record_batch import HEADER_SIZE, BatchHeader, read_header

ACKS_ALL: Final = -1
ADDS_SINCE: Final = 12
"""The first version whose producers get a new epoch with each transaction, and add partitions by writing to them."""
ABORTABLE_SINCE: Final = 11
"""The first version whose producers know TRANSACTION_ABORTABLE."""


class ProduceHandler:
    def __init__(
        self,
        partitions: Partitions,
        waiting: Waiting,
        flusher: Flusher,
        deep_work: DeepWork,
        verifier: TransactionVerifier,
        clock: Clock,
        expect: Callable[[], None] = lambda: None,
    ) -> None:
        """`expect`: told of answers to clients that will ask for more at once."""
        self._expect = expect
        self._partitions = partitions
        self._waiting = waiting
        self._flusher = flusher
        self._deep_work = deep_work
        self._verifier = verifier
        self._clock = clock

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(0, 0, 13, handle_raw=self.produce, min_accepted=3)]

    def produce(self, context: Context, frame: memoryview, body: int) -> RawReply:
        one = decode_one(frame, body, context.version)
        if one is not None and one.acks in (1, ACKS_ALL):
            try:
                replica = self._find(one.topic, one.topic_id, one.partition)
                config = replica.log.config
                if config.compression_type == "producer" and not config.compacted:
                    if one.transactional_id is None:
                        return self._append_only(context, one, replica)
                    if len(one.records) >= HEADER_SIZE:
                        verification = self._ask_at_once(context, one, one.transactional_id, replica)
                        if not isinstance(verification, Undecided):
                            return self._append_only(context, one, replica, verification)
            except KafkaError as error:
                return _refusal(context, one.topic, one.topic_id, _failure(one.partition, error.code, str(error)))
            except OSError as error:
                return _refusal(context, one.topic, one.topic_id, _disk_refused(one.partition, error))
        return self._produce_any(context, frame, body)

    def _ask_at_once(
        self, context: Context, one: OneBatch, transactional_id: str, replica: Replica
    ) -> "Verification | Undecided | None":
        """The coordinator's word for this batch, if its log needs one, and if it can be given now."""
        header = read_header(one.records)
        log = replica.log
        if not log.needs_verification(header):
            return None
        adds = context.version >= ADDS_SINCE
        verification = log.begin_verification(header, every_epoch_is_new=adds)
        writer = Writer(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            adds=adds,
            knows_abortable=context.version >= ABORTABLE_SINCE,
        )
        return verification if self._verifier.at_once(writer, (replica.partition,)) else UNDECIDED

    def _append_only(
        self, context: Context, one: OneBatch, replica: Replica, verification: Verification | None = None
    ) -> RawReply:
        """The short way, for one batch to one partition."""
        acks = one.acks
        appended = replica.append(one.records, acks=acks, now_ms=self._clock.now_ms(), verification=verification)
        self._see_to_flush(replica, appended, acks)
        answer = encode_one(
            context.version,
            context.correlation_id,
            one,
            appended.base_offset,
            appended.append_time_ms,
            replica.log.start_offset,
        )
        if acks != ACKS_ALL or replica.high_watermark > appended.last_offset:
            return [answer]
        later = Later(context.connection)
        topic, topic_id, index = one.topic, one.topic_id, one.partition  # and not its records, while it waits
        transactional = one.transactional_id is not None

        def done(parked: ParkedProduce) -> None:
            failure = _failure_after(parked, replica, appended.last_offset + 1, index)
            later.fulfil([answer] if failure is None else _refusal(context, topic, topic_id, failure))
            if transactional:
                self._expect()

        wait = [(replica, appended.last_offset + 1)]
        self._waiting.park_produce(wait, max(one.timeout_ms, 0) / 1000, done)
        return None

    def _see_to_flush(self, replica: Replica, appended: Appended, acks: int) -> None:
        if replica.log.config.flush_on_ack and not appended.duplicate:
            if acks == ACKS_ALL or self._waiting.has_reader(replica):
                self._flusher.mark(replica)
            else:
                self._flusher.mark_lazily(replica)

    def _produce_any(self, context: Context, frame: memoryview, body: int) -> RawReply:
        request = decode_produce(frame, body, context.version)
        if sum(len(topic.partition_data) for topic in request.topic_data) > AT_ONCE:
            return self._produce_in_turns(context, _own(context, frame, body), None)
        targets = [self._target(topic, data) for topic in request.topic_data for data in topic.partition_data]
        words = self._ask(context, request, targets)
        if (words is not None and not words.given) or any(_is_deep(*each) for each in targets):
            return self._produce_in_turns(context, _own(context, frame, body), words)
        waits: Waits = []
        now_ms = self._clock.now_ms()
        results = [
            self._append(request, target, data, now_ms, None, waits, words.get(position) if words else None)
            for position, (target, data) in enumerate(targets)
        ]
        return self._answer(context, request, targets, results, waits)

    async def _produce_in_turns(self, context: Context, request: ProduceRequest, words: "Words | None") -> None:
        """Decoding megabytes in this thread would hold up everyone, so a worker process does it; and so would a hundred
        thousand batches in one go. The connection waits: the batch behind may carry the next sequence number."""
        turn = Turn()
        targets: Targets = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                targets.append(self._target(topic, data))
                await turn.give_way()
        results: Results = []
        waits: Waits = []
        words = words or self._ask(context, request, targets)
        if words is not None:
            await words.wait()
        for position, (target, data) in enumerate(targets):
            prepared: bytes | KafkaError | None = None
            if _is_deep(target, data):
                assert isinstance(target, Replica)
                try:
                    prepared = await self._deep_work.prepare(bytes(data.records or b""), target.config)
                except KafkaError as error:
                    prepared = error
            word = words.get(position) if words else None
            results.append(self._append(request, target, data, self._clock.now_ms(), prepared, waits, word))
            await turn.give_way()
        parts = self._answer(context, request, targets, results, waits)
        if parts is not None:
            context.connection.answer(parts)

    def _ask(self, context: Context, request: ProduceRequest, targets: "Targets") -> "Words | None":
        """The coordinator, for its word about each batch that would open a transaction in its log."""
        if request.transactional_id is None or not (needing := _unverified(targets)):
            return None
        words = Words()
        writers = {(header.producer_id, header.producer_epoch) for _, _, header in needing}
        if len(writers) > 1:
            error = KafkaError("one transactional id, several producers", ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            words.give({position: error for position, _, _ in needing})
            return words
        adds = context.version >= ADDS_SINCE
        begun: dict[int, Word] = {
            position: replica.log.begin_verification(header, every_epoch_is_new=adds)
            for position, replica, header in needing
        }

        def verified(codes: Codes) -> None:
            for position, replica, _ in needing:
                code = codes[replica.partition]
                if code:
                    begun[position] = KafkaError(f"{replica.partition} is not part of the transaction", code)
            words.give(begun)

        knows_abortable = context.version >= ABORTABLE_SINCE
        writer = Writer(request.transactional_id, *writers.pop(), adds=adds, knows_abortable=knows_abortable)
        self._verifier.ask(writer, [replica.partition for _, replica, _ in needing], verified)
        return words

    def _find(self, topic: str, topic_id: UUID, partition: int) -> Replica:
        replica = self._partitions.find(topic, topic_id, partition)
        if replica.partition.topic in INTERNAL_TOPICS:
            # A coordinator would not know of it before it loads its log again, and then stop at what it cannot read.
            raise InvalidTopic(f"{replica.partition.topic} is internal: only coordinators write to it")
        return replica

    def _target(self, topic: TopicProduceData, data: PartitionProduceData) -> "tuple[Target, PartitionProduceData]":
        """Where a batch goes, or why it cannot."""
        try:
            return self._find(topic.name, topic.topic_id, data.index), data
        except KafkaError as error:
            # Not with all that was at hand when it was raised, as there may be a hundred thousand of them.
            return error.with_traceback(None), data

    def _append(
        self,
        request: ProduceRequest,
        target: "Target",
        data: PartitionProduceData,
        now_ms: int,
        prepared: bytes | KafkaError | None,
        waits: "Waits",
        word: "Word | None",
    ) -> PartitionProduceResponse:
        try:
            if isinstance(target, KafkaError):
                raise target
            if isinstance(word, KafkaError):
                raise word
            return self._append_one(request, target, data, now_ms, prepared, waits, word)
        except KafkaError as error:
            return _failure(data.index, error.code, str(error))
        except OSError as error:
            return _disk_refused(data.index, error)

    def _answer(
        self, context: Context, request: ProduceRequest, targets: "Targets", results: "Results", waits: "Waits"
    ) -> list[Part] | None:
        if request.acks == 0:
            if any(result.error_code for result in results):
                context.connection.close("an acks=0 produce failed, and closing is the only way to say so")
            return None
        if waits:
            self._park(context, request, targets, results, waits)
            return None
        return _encode(context, _topics_of(request), results)

    def _park(
        self, context: Context, request: ProduceRequest, targets: "Targets", results: "Results", waits: "Waits"
    ) -> None:
        later = Later(context.connection)
        # What was written is not kept while it waits, neither by the request nor by the traceback of an error: hundreds
        # may wait for a slow follower, with a buffer each.
        topics = _topics_of(request)
        written = [target if isinstance(target, Replica) else None for target, _ in targets]
        transactional = request.transactional_id is not None

        def done(parked: ParkedProduce) -> None:
            later.fulfil(_encode(context, topics, _settled(results, written, waits, parked)))
            if transactional:
                self._expect()

        self._waiting.park_produce(waits, max(request.timeout_ms, 0) / 1000, done)

    def _append_one(
        self,
        request: ProduceRequest,
        replica: Replica,
        data: PartitionProduceData,
        now_ms: int,
        prepared: bytes | KafkaError | None,
        waits: "Waits",
        verification: Verification | None,
    ) -> PartitionProduceResponse:
        acks = request.acks
        if acks not in (ACKS_ALL, 0, 1):
            raise KafkaError(f"acks={acks} is not one of -1, 0 and 1", ErrorCode.INVALID_REQUIRED_ACKS)
        if isinstance(prepared, KafkaError):
            raise prepared
        records = data.records if prepared is None else prepared
        if records is None:
            raise CorruptMessage("no records")
        appended = replica.append(
            records, acks=acks, now_ms=now_ms, prepared=prepared is not None, verification=verification
        )
        self._see_to_flush(replica, appended, acks)
        if acks == ACKS_ALL and replica.high_watermark <= appended.last_offset:
            waits.append((replica, appended.last_offset + 1))
        return PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=replica.log.start_offset,
        )


Target = Replica | KafkaError
Targets = list[tuple[Target, PartitionProduceData]]
Results = list[PartitionProduceResponse]
Waits = list[tuple[Replica, int]]
Topics = list[tuple[str, TopicId, int]]
"""Those of a request, and how many partitions of each."""
Word = Verification | KafkaError
Needing = list[tuple[int, Replica, BatchHeader]]

TOO_FEW = "written, but fewer replicas are in sync than min.insync.replicas"
AT_ONCE = 200
"""Batches appended before others get their turn."""
INLINE_MAX = 16 * 1024
"""A batch up to this size is decoded faster here than it travels to a worker process and back."""


def _own(context: Context, frame: memoryview, body: int) -> ProduceRequest:
    """With a copy of the batches: who works in turns outlives the connection's buffer."""
    return decode_produce(memoryview(bytes(frame)), body, context.version)


def _is_deep(target: Target, data: PartitionProduceData) -> bool:
    """Whether decoding this batch is needed, and more than a moment's work. A compressed one may be any size inside."""
    if not isinstance(target, Replica):
        return False
    config, records = target.log.config, data.records
    if (config.compression_type == "producer" and not config.compacted) or records is None:
        return False
    if len(records) < HEADER_SIZE:
        return False
    header = read_header(records)
    return (len(records) > INLINE_MAX or header.codec != 0) and needs_preparation(header, config)


class Undecided:
    """In place of the coordinator's word: it has to be asked for."""


UNDECIDED: Final = Undecided()


class Words:
    """By position, for each batch that needs it: the coordinator's word, or why it refuses. Mostly it is given at once;
    if not, the request can be waited with."""

    __slots__ = ("_by_position", "_waiting", "given")

    def __init__(self) -> None:
        self.given = False
        self._by_position: dict[int, Word] = {}
        self._waiting: asyncio.Future[None] | None = None

    def give(self, by_position: dict[int, Word]) -> None:
        self.given = True
        self._by_position = by_position
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        if not self.given:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def get(self, position: int) -> Word | None:
        return self._by_position.get(position)


def _unverified(targets: Targets) -> Needing:
    """The batches that would open a transaction in their log, by position."""
    found: Needing = []
    for position, (target, data) in enumerate(targets):
        if isinstance(target, Replica) and data.records is not None and len(data.records) >= HEADER_SIZE:
            header = read_header(data.records)
            if target.log.needs_verification(header):
                found.append((position, target, header))
    return found


def _failure(index: int, code: ErrorCode, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


def _disk_refused(index: int, error: OSError) -> PartitionProduceResponse:
    return _failure(index, ErrorCode.KAFKA_STORAGE_ERROR, f"the disk refused the write: {error}")


def _refusal(context: Context, topic: str, topic_id: TopicId, failure: PartitionProduceResponse) -> list[Part]:
    return _encode(context, [(topic, topic_id, 1)], [failure])


def _settled(results: Results, written: Sequence[Replica | None], waits: Waits, parked: ParkedProduce) -> Results:
    """The results as they stand after waiting: a partition whose records did not become visible is not acknowledged."""
    needed = dict(waits)
    settled = list(results)
    for position, (replica, result) in enumerate(zip(written, results, strict=True)):
        if replica is None or result.error_code or replica not in needed:
            continue
        settled[position] = _failure_after(parked, replica, needed[replica], result.index) or result
    return settled


def _failure_after(parked: ParkedProduce, replica: Replica, needed: int, index: int) -> PartitionProduceResponse | None:
    """What to say instead of success if the records up to `needed` did not become visible."""
    if replica in parked.failed and not replica.is_leader:
        return _failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads before the records were safe")
    if replica in parked.failed and not replica.has_enough:
        return _failure(index, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, TOO_FEW)
    if replica in parked.failed:
        return _failure(index, ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed before the records were safe")
    if replica.high_watermark < needed:
        return _failure(index, ErrorCode.REQUEST_TIMED_OUT, "the records were not safe in time")
    if replica.in_sync < replica.config.min_insync_replicas:
        return _failure(index, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, TOO_FEW)
    return None


def _topics_of(request: ProduceRequest) -> Topics:
    return [(topic.name, topic.topic_id, len(topic.partition_data)) for topic in request.topic_data]


def _encode(context: Context, topics: Topics, results: Results) -> list[Part]:
    responses: list[TopicProduceResponse] = []
    position = 0
    for name, topic_id, count in topics:
        end = position + count
        answered = tuple(results[position:end])
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answered))
        position = end
    return [encode_produce_response(context.version, context.correlation_id, responses)]
