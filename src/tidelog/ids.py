"""Integers that must not be mixed up, and the name of a partition."""

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
BrokerId = NewType("BrokerId", int)
TopicId = NewType("TopicId", UUID)

NO_TOPIC_ID = TopicId(UUID(int=0))
NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        """The directory name Kafka uses for this partition."""
        return f"{self.topic}-{self.partition}"
