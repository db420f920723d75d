"""What consumer groups know about topics: a picture that is replaced as a whole, and answers derived from it."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec

from tidelog.groups.regex import TopicPattern
from tidelog.ids import TopicId

ANSWERS_MAX: Final = 1000  # remembered per kind; more than that are computed again


class Topic(NamedTuple):
    topic_id: TopicId
    partitions: int


class Topics(Protocol):
    """A picture of the cluster's topics at one moment. Never changes; a newer one takes its place."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""
        ...

    def find(self, name: str) -> Topic | None: ...

    def name_of(self, topic_id: TopicId) -> str | None: ...

    def names(self) -> Iterable[str]:
        """What a pattern may match: every topic but internal ones."""
        ...


class TopicTable(msgspec.Struct, frozen=True):
    """`Topics` from a plain table."""

    table: Mapping[str, Topic] = MappingProxyType({})
    version: int = 0

    def find(self, name: str) -> Topic | None:
        return self.table.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((name for name, topic in self.table.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.table


class TopicAnswers:
    """Questions that every heartbeat asks about one picture of the topics, each answered once."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._matching: dict[str, frozenset[str]] = {}
        self._hashes: dict[frozenset[str], int] = {}

    def matching(self, pattern: str) -> frozenset[str]:
        """Raises InvalidRegularExpression."""
        if pattern not in self._matching:
            if len(self._matching) >= ANSWERS_MAX:
                self._matching.clear()
            self._matching[pattern] = TopicPattern(pattern).select(self.topics.names())
        return self._matching[pattern]

    def hash_of(self, names: frozenset[str]) -> int:
        """Differs when one of these topics came, went, was created anew or got more partitions. 0 if none exists."""
        if names not in self._hashes:
            if len(self._hashes) >= ANSWERS_MAX:
                self._hashes.clear()
            self._hashes[names] = self._hash(names)
        return self._hashes[names]

    def _hash(self, names: frozenset[str]) -> int:
        digest = blake2b(digest_size=8)
        known = 0
        for name in sorted(names):
            topic = self.topics.find(name)
            if topic is not None:
                digest.update(topic.topic_id.bytes + topic.partitions.to_bytes(4, "big"))
                known += 1
        return int.from_bytes(digest.digest(), "big", signed=True) if known else 0

    def partition_counts(self, names: Iterable[str]) -> dict[TopicId, int]:
        found = (self.topics.find(name) for name in names)
        return {topic.topic_id: topic.partitions for topic in found if topic is not None}
