"""Fetch: file slices from the log to the socket, untouched.

Versions 4-18: sessions from 7, leader epochs from 9, zstd from 10, topic ids from 13. Long polls are parked once and
woken by the append. Both isolation levels are served: nothing is ever aborted while there are no transactions. Not
done: replica_id is ignored (followers come with the cluster); fetches are never redirected to another replica.
"""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from tidelog.broker.connection import Part
from tidelog.broker.fetch_sessions import FetchSessions, Key, Session, Wanted
from tidelog.broker.flusher import Flusher
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint, Later, RawReply
from tidelog.broker.waiting import ParkedFetch, Waiting
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError, OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, decode_fetch, encode_fetch_response
from tidelog.wire.messages.data import EpochEndOffset, FetchPartition, FetchRequest

READ_COMMITTED = 1
AT_ONCE = 2000
"""Partitions read before others get their turn: a few milliseconds' worth."""
FIRST_VERSION_WITH_IDS = 13
NOTHING_ABORTED: tuple[()] = ()

_new = tuple.__new__


class FetchHandler:
    def __init__(
        self, partitions: Partitions, waiting: Waiting, flusher: Flusher, sessions: FetchSessions, max_bytes: int
    ) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._flusher = flusher
        self._sessions = sessions
        self._max_bytes = max_bytes

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(1, 4, 18, handle_raw=self.fetch)]

    def fetch(self, context: Context, frame: memoryview, body: int) -> RawReply:
        request = decode_fetch(frame, body, context.version)
        try:
            session, wanted = self._sessions.open(request, uses_ids=context.version >= FIRST_VERSION_WITH_IDS)
        except KafkaError as error:
            return encode_fetch_response(context.version, context.correlation_id, 0, error.code, 0, ())
        attempt = Attempt(context, request, session, wanted)
        if len(wanted) > AT_ONCE:
            return self._fetch_in_turns(attempt)
        done = self._read(attempt)
        if done or request.max_wait_ms <= 0 or not attempt.replicas:
            return attempt.encode()
        later = Later(context.connection)

        def retry(time_is_up: bool) -> bool:
            if context.connection.closed:
                return True
            if not self._read(attempt) and not time_is_up:
                return False
            later.fulfil(attempt.encode())
            return True

        for replica in attempt.replicas:
            if replica.high_watermark != replica.log.end_offset:
                self._flusher.mark(replica)  # what this reader waits for is written, and only has to reach the disk
        self._waiting.park_fetch(ParkedFetch(context.connection, attempt.replicas, retry), request.max_wait_ms / 1000)
        return None

    async def _fetch_in_turns(self, attempt: "Attempt") -> None:
        """So many partitions that others would wait: read some, let them have their turn, go on. Such a fetch is
        answered with what there is, since being woken for it again and again would cost the same each time."""
        attempt.begin(min(max(attempt.request.max_bytes, 0), self._max_bytes))
        for begin in range(0, len(attempt.wanted), AT_ONCE):
            self._read_some(attempt, attempt.wanted[begin : begin + AT_ONCE])
            await asyncio.sleep(0)
        attempt.context.connection.answer(attempt.encode())

    def _read(self, attempt: "Attempt") -> bool:
        """Read every wanted partition within the request's limits. True when that is worth an answer now."""
        attempt.begin(min(max(attempt.request.max_bytes, 0), self._max_bytes))
        self._read_some(attempt, attempt.wanted)
        min_bytes = attempt.request.min_bytes
        return attempt.failed or attempt.found >= min_bytes or min_bytes <= 0

    def _read_some(self, attempt: "Attempt", some: list[Wanted]) -> None:
        isolation = attempt.request.isolation_level
        results, replicas = attempt.results, attempt.replicas
        left, found, failed = attempt.left, attempt.found, attempt.failed
        last_name: str | None = None
        last_id: UUID | None = None
        of_topic: list[Replica] = []
        for wanted in some:
            name, topic_id, index = wanted.key
            try:
                if name is not last_name or topic_id is not last_id:
                    last_name = None  # a topic that is not there must not pass for the one before it
                    of_topic = self._partitions.of_topic(name, topic_id)
                    last_name, last_id = name, topic_id
                if not 0 <= index < len(of_topic):
                    raise UnknownTopicOrPartition(f"there is no partition {name}-{index}")
                replica = of_topic[index]
                replicas.append(replica)
                fetched = _read_one(replica, wanted, left, isolation, nothing_yet=found == 0)
            except KafkaError as error:
                failed = True
                fetched = _failure(index, error.code)
            except OSError:
                failed = True
                fetched = _failure(index, ErrorCode.KAFKA_STORAGE_ERROR)
            results.append(fetched)
            if fetched.records is not None:
                found += fetched.records.length
                left -= fetched.records.length
            elif fetched.diverging_epoch is not None:
                failed = True
        attempt.left, attempt.found, attempt.failed = left, found, failed


class Attempt:
    """One fetch request while it is being answered."""

    __slots__ = ("context", "failed", "found", "left", "replicas", "request", "results", "session", "wanted")

    def __init__(self, context: Context, request: FetchRequest, session: Session | None, wanted: list[Wanted]) -> None:
        self.context = context
        self.request = request
        self.session = session
        self.wanted = wanted
        self.begin(0)

    def begin(self, left: int) -> None:
        """Forget what was read before: `left` bytes may be answered."""
        self.left = left
        self.found = 0
        self.failed = False
        self.results: list[FetchedPartition] = []
        self.replicas: list[Replica] = []

    def encode(self) -> list[Part]:
        session = self.session
        session_id = 0 if session is None else session.session_id
        topics = self._all_topics() if session is None else self._topics_with_news(session)
        return encode_fetch_response(self.context.version, self.context.correlation_id, 0, 0, session_id, topics)

    def _all_topics(self) -> list[FetchedTopic]:
        """Without a session the results are in the order of the request."""
        topics: list[FetchedTopic] = []
        begin = 0
        for topic in self.request.topics:
            end = begin + len(topic.partitions)
            topics.append(FetchedTopic(topic.topic, topic.topic_id, self.results[begin:end]))
            begin = end
        return topics

    def _topics_with_news(self, session: Session) -> list[FetchedTopic]:
        topics: list[FetchedTopic] = []
        last_name: str | None = None
        last_id: UUID | None = None
        for wanted, result in self._news(session, zip(self.wanted, self.results, strict=True)):
            name, topic_id, _ = wanted.key
            # A topic is named twice when its partitions do not follow each other; clients take that, from Kafka too.
            if name is not last_name or topic_id is not last_id:
                topics.append(FetchedTopic(name, topic_id, []))
                last_name, last_id = name, topic_id
            topics[-1].partitions.append(result)
        return topics

    def _news(
        self, session: Session, results: Iterable[tuple[Wanted, FetchedPartition]]
    ) -> list[tuple[Wanted, FetchedPartition]]:
        """All of it when the session opens; afterwards only what the client does not know yet."""
        opening = self.request.session_epoch == 0
        news: list[tuple[Wanted, FetchedPartition]] = []
        served: list[Key] = []
        for wanted, result in results:
            changed = result.high_watermark != wanted.told_watermark or result.log_start_offset != wanted.told_start
            if result.records is not None:
                served.append(wanted.key)
            elif not (opening or changed or result.error_code or result.diverging_epoch is not None):
                continue
            # An error is told again and again until the client acts on it.
            wanted.told_watermark = -2 if result.error_code else result.high_watermark
            wanted.told_start = result.log_start_offset
            news.append((wanted, result))
        session.served(served)
        return news


def _read_one(replica: Replica, wanted: Wanted, left: int, isolation: int, *, nothing_yet: bool) -> FetchedPartition:
    wish = wanted.wish
    if wish.current_leader_epoch != -1:
        replica.check_epoch(wish.current_leader_epoch)
    diverging = _divergence(replica, wish) if wish.last_fetched_epoch >= 0 else None
    records: Slice | None = None
    log = replica.log
    watermark = replica.high_watermark
    if diverging is None and (wish.fetch_offset != watermark or log.failure is not None):
        limit = min(wish.partition_max_bytes, left)
        if limit > 0 or nothing_yet:
            # Only the first partition with data may exceed the limits, by one batch, so that a reader always gets on.
            records = replica.read(wish.fetch_offset, max(limit, 0), min_one=nothing_yet)
            if records.length == 0:
                records = None
    aborted = NOTHING_ABORTED if isolation == READ_COMMITTED else None
    stable = replica.last_stable_offset
    # As the class itself would make it, less its detour through keyword arguments: there may be thousands of these.
    return _new(
        FetchedPartition,
        (wish.partition, 0, watermark, stable, log.start_offset, diverging, aborted, records, -1, None),
    )


def _divergence(replica: Replica, wish: FetchPartition) -> EpochEndOffset | None:
    """Where the client's history leaves ours, if it does: it must truncate before it can read on."""
    epoch, end = replica.log.epochs.end_offset_for(wish.last_fetched_epoch, replica.log.end_offset)
    if epoch == wish.last_fetched_epoch and end >= wish.fetch_offset:
        return None
    if epoch < 0 or end < 0:
        # An epoch we never heard of: there is no place to send the client back to, and silence would keep it asking.
        raise OffsetOutOfRange(wish.fetch_offset, replica.log.start_offset, replica.log.end_offset)
    return EpochEndOffset(epoch=epoch, end_offset=end)


def _failure(partition: int, code: ErrorCode) -> FetchedPartition:
    return FetchedPartition(
        partition=partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        diverging_epoch=None,
        aborted_transactions=None,
        records=None,
    )
