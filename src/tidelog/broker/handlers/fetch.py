"""Fetch: file slices from the log to the socket, untouched.

Versions 4-18: sessions from 7, leader epochs from 9, zstd from 10, topic ids from 13. Long polls are parked once and
woken by the append. Both isolation levels are served: read_committed ends at the last stable offset and is told which
transactions were aborted. A follower's fetch (only by the listener for brokers) reads to the end of the log, and says
that everything before it is safe there. A consumer that says where it stands is sent to an in-sync replica of its rack
(from 11, KIP-392), which serves it up to the watermark it knows of.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from uuid import UUID

from tidelog.broker.connection import Part
from tidelog.broker.fetch_sessions import FetchSessions, Key, Session, Wanted
from tidelog.broker.flusher import Flusher
from tidelog.broker.handlers.fetch_sharing import Asked, AskedBefore, SharedAnswer, Topics
from tidelog.broker.handlers.follower_fetch import FollowerFetches, divergence
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint, Later, RawReply
from tidelog.broker.waiting import ParkedFetch, Shared, Waiting
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, encode_fetch_response
from tidelog.wire.messages.data import AbortedTransaction, EpochEndOffset, FetchPartition

READ_COMMITTED = 1
CONSUMER = -1
"""The replica id of whoever is not one."""
AT_ONCE = 2000
"""Partitions read before others get their turn: a few milliseconds' worth."""
FIRST_VERSION_WITH_IDS = 13
FOLLOWERS_SINCE = 11
"""The first version by which consumers read from replicas that do not lead."""
NOTHING_ABORTED: tuple[()] = ()
NOT_YET = object()

Aborted = tuple[AbortedTransaction, ...] | None
Closest = Callable[[Replica, int, str], int | None]
"""The broker of this rack from which the offset can be read, if that is not this one."""

_new = tuple.__new__


class FetchHandler:
    def __init__(
        self,
        partitions: Partitions,
        waiting: Waiting,
        flusher: Flusher,
        sessions: FetchSessions,
        max_bytes: int,
        *,
        followers: FollowerFetches | None = None,
        closest: Closest | None = None,
    ) -> None:
        self._closest = closest
        self._followers = followers
        """Only the listener for brokers has it: on the others nobody may say that it is a follower."""
        self._partitions = partitions
        self._waiting = waiting
        self._flusher = flusher
        self._sessions = sessions
        self._max_bytes = max_bytes
        self._asked = AskedBefore()

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(1, 4, 18, handle_raw=self.fetch)]

    def fetch(self, context: Context, frame: memoryview, body: int) -> RawReply:
        asked = self._asked.decode(frame, body, context.version)
        request = asked.request
        try:
            session = self._sessions.open(request, uses_ids=context.version >= FIRST_VERSION_WITH_IDS)
        except KafkaError as error:
            return encode_fetch_response(context.version, context.correlation_id, 0, error.code, 0, ())
        attempt = Attempt(context, asked, session)
        if attempt.follower != CONSUMER:
            if self._followers is None:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                return encode_fetch_response(context.version, context.correlation_id, 0, code, 0, ())
            self._followers.note(attempt)
        if attempt.size > AT_ONCE:
            return self._fetch_in_turns(attempt)
        done = self._read(attempt)
        if done or request.max_wait_ms <= 0 or not attempt.replicas:
            return attempt.encode()
        follows = attempt.follower != CONSUMER
        for replica in attempt.replicas:
            if replica.high_watermark != replica.log.end_offset and not follows:
                self._flusher.mark(replica)  # what this reader waits for is written, and only has to reach the disk
        connection = context.connection
        again = self._answer_again if session is not None or follows else self._answer_alike
        retry = partial(again, attempt, Later(connection))
        wait_ms = request.max_wait_ms
        if self._followers is not None:
            wait_ms = self._followers.wait_ms(wait_ms)
        self._waiting.park_fetch(ParkedFetch(connection, attempt.replicas, retry, follows=follows), wait_ms / 1000)
        return None

    def _answer_again(self, attempt: "Attempt", later: Later, time_is_up: bool, shared: Shared) -> bool:
        """Look again, for somebody who waits. True if that was worth an answer, or nobody is there to have it."""
        if attempt.context.connection.closed:
            return True
        if not self._read(attempt) and not time_is_up:
            return False
        later.fulfil(attempt.encode())
        return True

    def _answer_alike(self, attempt: "Attempt", later: Later, time_is_up: bool, shared: Shared) -> bool:
        """The same, for consumers without a session: what one is told is true for all who asked the same."""
        if attempt.context.connection.closed:
            return True
        answer = shared.get(attempt.asked)
        if answer is None:
            worth = self._read(attempt) or time_is_up
            answer = shared[attempt.asked] = SharedAnswer(attempt.encode()) if worth else NOT_YET
        if not isinstance(answer, SharedAnswer):
            return False
        later.fulfil(answer.to(attempt.context.correlation_id))
        return True

    async def _fetch_in_turns(self, attempt: "Attempt") -> None:
        """So many partitions that others would wait: read some, let them have their turn, go on. Such a fetch is
        answered with what there is, since being woken for it again and again would cost the same each time."""
        attempt.begin(self._limit(attempt))
        for name, topic_id, wishes in attempt.topics:
            for begin in range(0, len(wishes), AT_ONCE):
                self._read_topic(attempt, name, topic_id, wishes[begin : begin + AT_ONCE])
                await asyncio.sleep(0)
        attempt.context.connection.answer(attempt.encode())

    def _limit(self, attempt: "Attempt") -> int:
        return min(max(attempt.request.max_bytes, 0), self._max_bytes)

    def _read(self, attempt: "Attempt") -> bool:
        """Read every wanted partition within the request's limits. True when that is worth an answer now."""
        attempt.begin(self._limit(attempt))
        for name, topic_id, wishes in attempt.topics:
            self._read_topic(attempt, name, topic_id, wishes)
        min_bytes = attempt.request.min_bytes
        return attempt.failed or attempt.found >= min_bytes or min_bytes <= 0

    def _read_topic(self, attempt: "Attempt", name: str, topic_id: UUID, wishes: Sequence[FetchPartition]) -> None:
        results = attempt.results
        try:
            replicas = self._partitions.of_topic(name, topic_id)
        except KafkaError as error:
            attempt.failed = True
            results.extend(_failure(wish.partition, error.code) for wish in wishes)
            return
        count = len(replicas)
        aborted: Aborted = NOTHING_ABORTED if attempt.request.isolation_level == READ_COMMITTED else None
        for wish in wishes:
            index = wish.partition
            if not 0 <= index < count:
                attempt.failed = True
                results.append(_failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            replica = replicas[index]
            if replica is None or (not replica.is_leader and not attempt.may_read_from(replica)):
                attempt.failed = True
                results.append(_failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            attempt.replicas.append(replica)
            if self._followers is not None and attempt.follower != CONSUMER:
                results.append(self._followers.read(attempt, replica, wish))
                continue
            if attempt.request.rack_id and self._closest is not None:
                nearer = self._closest(replica, wish.fetch_offset, attempt.request.rack_id)
                if nearer is not None:
                    attempt.failed = True  # worth an answer at once
                    results.append(_elsewhere(replica, index, nearer))
                    continue
            watermark = replica.high_watermark
            if wish.fetch_offset == watermark and _is_plain(replica, wish):
                # Nothing new: what nearly every partition of a long list says. Made without keyword arguments.
                stable, start = replica.last_stable_offset, replica.log.start_offset
                results.append(
                    _new(FetchedPartition, (index, 0, watermark, stable, start, None, aborted, None, -1, None))
                )
            else:
                results.append(_read_one(attempt, replica, wish, aborted))


class Attempt:
    """One fetch request while it is being answered."""

    __slots__ = (
        "asked", "context", "failed", "follower", "found", "left", "replicas", "request", "results", "session",
        "topics", "wanted",
    )  # fmt: skip

    def __init__(self, context: Context, asked: Asked, session: Session | None) -> None:
        self.context = context
        self.asked = asked
        self.request = asked.request
        self.session = session
        self.follower = asked.follower
        self.wanted: list[Wanted] = [] if session is None else list(session.partitions.values())
        self.topics: Topics = asked.topics if session is None else _by_topic(self.wanted)
        self.begin(0)

    def limit(self, wish: FetchPartition) -> int:
        """Bytes that may be read for this partition. Only the first one with data may exceed it, by one batch, so that
        a reader always gets on."""
        return max(min(wish.partition_max_bytes, self.left), 0)

    def fail(self, wish: FetchPartition, code: ErrorCode) -> FetchedPartition:
        self.failed = True
        return _failure(wish.partition, code)

    def take(
        self,
        replica: Replica,
        wish: FetchPartition,
        diverging: EpochEndOffset | None,
        records: Slice | None,
        stable: int,
        aborted: Aborted,
    ) -> FetchedPartition:
        """Account for what was read."""
        if records is not None and records.length == 0:
            records = None
        if records is not None:
            self.found += records.length
            self.left -= records.length
        self.failed = self.failed or diverging is not None
        return FetchedPartition(
            partition=wish.partition,
            error_code=0,
            high_watermark=replica.high_watermark,
            last_stable_offset=stable,
            log_start_offset=replica.log.start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
            records=records,
        )

    def may_read_from(self, replica: Replica) -> bool:
        """Whether a consumer may be served by this replica although it does not lead."""
        return self.follower == CONSUMER and self.context.version >= FOLLOWERS_SINCE and replica.leader >= 0

    @property
    def size(self) -> int:
        return sum(len(wishes) for _, _, wishes in self.topics)

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


def _by_topic(wanted: Iterable[Wanted]) -> Topics:
    """Partitions that follow each other in one topic, together, in the order they are wanted in."""
    topics: list[tuple[str, UUID, list[FetchPartition]]] = []
    last_name: str | None = None
    last_id: UUID | None = None
    for each in wanted:
        name, topic_id, _ = each.key
        if name is not last_name or topic_id is not last_id:
            topics.append((name, topic_id, []))
            last_name, last_id = name, topic_id
        topics[-1][2].append(each.wish)
    return topics


def _is_plain(replica: Replica, wish: FetchPartition) -> bool:
    """The log is well, and the client has no doubts about its own history that we would have to answer."""
    return (
        replica.log.failure is None
        and wish.last_fetched_epoch < 0
        and wish.current_leader_epoch in (-1, replica.leader_epoch)
    )


def _read_one(attempt: "Attempt", replica: Replica, wish: FetchPartition, aborted: Aborted) -> FetchedPartition:
    records: Slice | None = None
    try:
        replica.check_epoch(wish.current_leader_epoch)
        diverging = divergence(replica, wish) if wish.last_fetched_epoch >= 0 else None
        limit = attempt.limit(wish)
        if diverging is None and (limit > 0 or attempt.found == 0):
            records = replica.read(wish.fetch_offset, limit, min_one=attempt.found == 0, committed=aborted is not None)
            if aborted is not None and records.length:
                aborted = _aborted_in(replica, wish.fetch_offset, records)
    except KafkaError as error:
        return attempt.fail(wish, error.code)
    except OSError:
        return attempt.fail(wish, ErrorCode.KAFKA_STORAGE_ERROR)
    return attempt.take(replica, wish, diverging, records, replica.last_stable_offset, aborted)


def _aborted_in(replica: Replica, offset: int, records: Slice) -> Aborted:
    return tuple(
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in replica.log.aborted_in(offset, records)
    )


def _elsewhere(replica: Replica, partition: int, node_id: int) -> FetchedPartition:
    return FetchedPartition(
        partition=partition,
        error_code=0,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        log_start_offset=replica.log.start_offset,
        diverging_epoch=None,
        aborted_transactions=None,
        records=None,
        preferred_read_replica=node_id,
    )


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
