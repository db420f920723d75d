"""The topics that all of it is about, and their partitions."""

from uuid import UUID

from tidelog.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from tidelog.ids import TopicPartition

TOPIC = "orders"
TOPIC_IDS = {TOPIC: UUID(int=1), TRANSACTIONS_TOPIC: UUID(int=2)}


def places(partitions: int, *, transactions: bool) -> list[TopicPartition]:
    """Of data first, so that their numbers are their places here."""
    data = [TopicPartition(TOPIC, number) for number in range(partitions)]
    return [*data, TopicPartition(TRANSACTIONS_TOPIC, 0)] if transactions else data
