"""One fetch request while it is being answered: what is wanted, what was found, and how it is told."""

from collections.abc import Iterable
from uuid import UUID

from tidelog.broker.connection import Part
from tidelog.broker.fetch_sessions import Key, Session, Wanted
from tidelog.broker.handlers.fetch_sharing import CONSUMER, Asked, Topics
from tidelog.broker.requests import Context
from tidelog.cluster.replica import Replica
from tidelog.errors import ErrorCode
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition, FetchedTopic, encode_fetch_response
from tidelog.wire.messages.data import AbortedTransaction, EpochEndOffset, FetchPartition

FOLLOWERS_SINCE = 11
"""The first version by which consumers read from replicas that do not lead."""

Aborted = tuple[AbortedTransaction, ...] | None


class Attempt:
    """One fetch request while it is being answered."""

    __slots__ = (
        "context", "failed", "follower", "found", "left", "replicas", "request", "results", "session", "size",
        "topics", "wanted",
    )  # fmt: skip

    def __init__(self, context: Context, asked: Asked, session: Session | None) -> None:
        self.context = context
        self.request = asked.request
        self.session = session
        self.follower = asked.follower
        self.wanted: list[Wanted] = [] if session is None else list(session.partitions.values())
        self.topics: Topics = asked.topics if session is None else _by_topic(self.wanted)
        self.size = asked.size if session is None else len(self.wanted)
        self.begin(0)

    def limit(self, wish: FetchPartition) -> int:
        """Bytes that may be read for this partition. Only the first one with data may exceed it, by one batch, so that
        a reader always gets on."""
        return max(min(wish.partition_max_bytes, self.left), 0)

    def fail(self, wish: FetchPartition, code: ErrorCode) -> FetchedPartition:
        self.failed = True
        return failure(wish.partition, code)

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

    def begin(self, left: int) -> None:
        """Forget what was read before: `left` bytes may be answered."""
        self.left = left
        self.found = 0
        self.failed = False
        self.results: list[FetchedPartition] = []
        self.replicas: list[Replica] = []

    @property
    def is_worth_telling(self) -> bool:
        """At once, and not when there is more or the time is up."""
        return self.failed or self.found >= max(self.request.min_bytes, 0)

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


def failure(partition: int, code: ErrorCode) -> FetchedPartition:
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
