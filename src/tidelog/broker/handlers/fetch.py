"""Fetch: file slices from the log to the socket, untouched.

Versions 4-18: sessions from 7, leader epochs from 9, zstd from 10, topic ids from 13. Long polls are parked once and
woken by the append. Both isolation levels are served: read_committed ends at the last stable offset and is told which
transactions were aborted. A follower's fetch (only by the listener for brokers) reads to the end of the log, and says
that everything before it is safe there. A consumer that says where it stands is sent to an in-sync replica of its rack
(from 11, KIP-392), which serves it up to the watermark it knows of.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.flusher import Flusher
from tidelog.broker.handlers.fetch_attempt import Aborted, Attempt, failure
from tidelog.broker.handlers.fetch_sharing import CONSUMER, Asked, AskedBefore, Lone, SharedAnswer
from tidelog.broker.handlers.follower_fetch import FollowerFetches, divergence
from tidelog.broker.partitions import Partitions
from tidelog.broker.requests import Context, Endpoint, Later, RawReply
from tidelog.broker.waiting import ParkedFetch, Shared, Waiting
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition, encode_fetch_response
from tidelog.wire.messages.data import AbortedTransaction, FetchPartition

READ_COMMITTED = 1
AT_ONCE = 2000
"""Partitions read before others get their turn: a few milliseconds' worth."""
FIRST_VERSION_WITH_IDS = 13
NOTHING_ABORTED: tuple[()] = ()
NOT_YET = object()

Again = Callable[[Later, bool, Shared], bool]
"""Look again, for somebody who waits. True if that was worth an answer, or nobody is there to have it."""
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
        if asked.lone is not None:
            replica = self._ends_at(asked.lone)
            if replica is not None:
                self._park(context, asked, [replica], partial(self._answer_alike, context, asked))
                return None
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
        self._see_to_flush(attempt)
        if session is None and attempt.follower == CONSUMER:
            self._park(context, asked, attempt.replicas, partial(self._answer_alike, context, asked))
        else:
            self._park(context, asked, attempt.replicas, partial(self._answer_again, attempt))
        return None

    def _ends_at(self, lone: Lone) -> Replica | None:
        """The short way for who waits for one partition: this one, if all of it has been read already. Whatever else
        there is to say about it, the long way says."""
        name, topic_id, wish = lone
        try:
            replicas = self._partitions.of_topic(name, topic_id)
        except KafkaError:
            return None
        replica = replicas[wish.partition] if 0 <= wish.partition < len(replicas) else None
        if replica is None or not replica.is_leader or not _is_plain(replica, wish):
            return None
        offset = wish.fetch_offset
        return replica if offset == replica.high_watermark and offset == replica.log.end_offset else None

    def _see_to_flush(self, attempt: Attempt) -> None:
        """What a reader waits for may be written, and only have to reach the disk."""
        for replica in attempt.replicas:
            if replica.high_watermark != replica.log.end_offset and attempt.follower == CONSUMER:
                self._flusher.mark(replica)

    def _park(self, context: Context, asked: Asked, replicas: list[Replica], again: Again) -> None:
        connection = context.connection
        retry = partial(again, Later(connection))
        follows = asked.follower != CONSUMER
        self._waiting.park_fetch(
            ParkedFetch(connection, replicas, retry, follows=follows), self._wait_s(asked.request.max_wait_ms)
        )

    def _wait_s(self, longest_ms: int) -> float:
        return (longest_ms if self._followers is None else self._followers.wait_ms(longest_ms)) / 1000

    def _answer_again(self, attempt: Attempt, later: Later, time_is_up: bool, shared: Shared) -> bool:
        if attempt.context.connection.closed:
            return True
        if not self._read(attempt) and not time_is_up:
            return False
        later.fulfil(attempt.encode())
        return True

    def _answer_alike(self, context: Context, asked: Asked, later: Later, time_is_up: bool, shared: Shared) -> bool:
        """For consumers without a session: what one is told is true for all who asked the same."""
        if context.connection.closed:
            return True
        answer = shared.get(asked)
        if answer is None:
            attempt = Attempt(context, asked, None)
            worth = self._read(attempt) or time_is_up
            answer = shared[asked] = SharedAnswer(attempt.encode()) if worth else NOT_YET
        if not isinstance(answer, SharedAnswer):
            return False
        later.fulfil(answer.to(context.correlation_id))
        return True

    async def _fetch_in_turns(self, attempt: Attempt) -> None:
        """So many partitions that others would wait: read some, let them have their turn, go on. Such a fetch waits for
        the first news of any of them, since being woken again and again would cost the same each time."""
        connection = attempt.context.connection
        if not await self._read_in_turns(attempt) and attempt.request.max_wait_ms > 0:
            self._see_to_flush(attempt)
            await self._wait_for_news(attempt)
        if not connection.closed:
            connection.answer(attempt.encode())

    async def _read_in_turns(self, attempt: Attempt) -> bool:
        attempt.begin(self._limit(attempt))
        for name, topic_id, wishes in attempt.topics:
            for begin in range(0, len(wishes), AT_ONCE):
                self._read_topic(attempt, name, topic_id, wishes[begin : begin + AT_ONCE])
                await asyncio.sleep(0)
        return attempt.is_worth_telling

    async def _wait_for_news(self, attempt: Attempt) -> None:
        """Then read again. Also once before, with somebody watching: what was read first may have changed since."""
        connection = attempt.context.connection
        news = asyncio.get_running_loop().create_future()

        def heard() -> None:
            if not news.done():
                news.set_result(None)

        def look(time_is_up: bool, shared: Shared) -> bool:
            heard()
            return True

        parked = ParkedFetch(connection, attempt.replicas, look, follows=attempt.follower != CONSUMER)
        self._waiting.park_fetch(parked, self._wait_s(attempt.request.max_wait_ms))
        connection.parked[news] = heard
        if not await self._read_in_turns(attempt):
            await news
            await self._read_in_turns(attempt)
        connection.parked.pop(news, None)
        self._waiting.unpark_fetch(parked)

    def _limit(self, attempt: Attempt) -> int:
        return min(max(attempt.request.max_bytes, 0), self._max_bytes)

    def _read(self, attempt: Attempt) -> bool:
        """Read every wanted partition within the request's limits. True when that is worth an answer now."""
        attempt.begin(self._limit(attempt))
        for name, topic_id, wishes in attempt.topics:
            self._read_topic(attempt, name, topic_id, wishes)
        return attempt.is_worth_telling

    def _read_topic(self, attempt: Attempt, name: str, topic_id: UUID, wishes: Sequence[FetchPartition]) -> None:
        results = attempt.results
        try:
            replicas = self._partitions.of_topic(name, topic_id)
        except KafkaError as error:
            attempt.failed = True
            results.extend(failure(wish.partition, error.code) for wish in wishes)
            return
        count = len(replicas)
        aborted: Aborted = NOTHING_ABORTED if attempt.request.isolation_level == READ_COMMITTED else None
        for wish in wishes:
            index = wish.partition
            if not 0 <= index < count:
                attempt.failed = True
                results.append(failure(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            replica = replicas[index]
            if replica is None or (not replica.is_leader and not attempt.may_read_from(replica)):
                attempt.failed = True
                results.append(failure(index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
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


def _is_plain(replica: Replica, wish: FetchPartition) -> bool:
    """The log is well, and the client has no doubts about its own history that we would have to answer."""
    return (
        replica.log.failure is None
        and wish.last_fetched_epoch < 0
        and wish.current_leader_epoch in (-1, replica.leader_epoch)
    )


def _read_one(attempt: Attempt, replica: Replica, wish: FetchPartition, aborted: Aborted) -> FetchedPartition:
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
