"""Fetch sessions (KIP-227): a consumer of a thousand partitions names only what changed since its last fetch.

Pure bookkeeping. A session remembers what the client wants of each partition and what it was last told of it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final
from uuid import UUID

from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic

NO_SESSION: Final = 0
FULL_FETCH: Final = 0  # the session epoch that opens a session
FINAL_EPOCH: Final = -1  # the session epoch that wants none
MAX_EPOCH: Final = 2**31 - 1
PARTITIONS_MAX: Final = 200_000
"""In all sessions together, at half a kilobyte each: one fetch may name a million, and is not asked if they exist."""

Key = tuple[str, UUID, int]


class Wanted:
    """One partition of a fetch: the client's wish, and what it last heard."""

    __slots__ = ("key", "told_start", "told_watermark", "wish")

    def __init__(self, key: Key, wish: FetchPartition) -> None:
        self.key = key
        self.wish = wish
        self.told_watermark = self.told_start = -2


class Session:
    __slots__ = ("epoch", "partitions", "session_id", "uses_ids")

    def __init__(self, session_id: int, uses_ids: bool, partitions: "OrderedDict[Key, Wanted]") -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        self.partitions = partitions

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            for wish in topic.partitions:
                key = (topic.topic, topic.topic_id, wish.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = Wanted(key, wish)
                else:
                    known.wish = wish
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, partition), None)

    def served(self, keys: Iterable[Key]) -> None:
        """Partitions that got bytes go to the back, so that a full answer starves nobody."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchSessions:
    def __init__(self, slots: int, dice: Random) -> None:
        self._slots = slots
        self._dice = dice
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, uses_ids: bool) -> Session | None:
        """The session this fetch runs in; None if the request itself says all it wants."""
        if request.session_epoch in (FINAL_EPOCH, FULL_FETCH):
            self._forget(self._sessions.pop(request.session_id, None))
            return None if request.session_epoch == FINAL_EPOCH else self._create(request, uses_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(f"no fetch session {request.session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(
                f"fetch session epoch {request.session_epoch}, expected {session.epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.uses_ids != uses_ids:
            raise KafkaError(
                "a fetch session cannot change between names and ids", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            )
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        self._sessions.move_to_end(session.session_id)
        before = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - before
        self._make_room()
        return session

    def _create(self, request: FetchRequest, uses_ids: bool) -> Session | None:
        wanted = OrderedDict((each.key, each) for each in _wanted(request.topics))
        if self._slots == 0 or not 0 < len(wanted) <= PARTITIONS_MAX:
            return None
        session_id = self._dice.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._dice.randrange(1, 2**31)
        session = self._sessions[session_id] = Session(session_id, uses_ids, wanted)
        self._partitions += len(wanted)
        self._make_room()
        return session

    def _make_room(self) -> None:
        while len(self._sessions) > self._slots or self._partitions > PARTITIONS_MAX:
            self._forget(self._sessions.popitem(last=False)[1])  # the longest unused; its client opens a new one

    def _forget(self, session: Session | None) -> None:
        if session is not None:
            self._partitions -= len(session.partitions)


def _wanted(topics: Iterable[FetchTopic]) -> Iterator[Wanted]:
    for topic in topics:
        name, topic_id = topic.topic, topic.topic_id
        for wish in topic.partitions:
            yield Wanted((name, topic_id, wish.partition), wish)
