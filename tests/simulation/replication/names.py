"""The topics that all of it is about, and their partitions."""

from uuid import UUID

from tidelog.broker.coordinators.groups import OFFSETS_TOPIC
from tidelog.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from tidelog.ids import TopicPartition

TOPIC = "orders"
TOPIC_IDS = {TOPIC: UUID(int=1), TRANSACTIONS_TOPIC: UUID(int=2), OFFSETS_TOPIC: UUID(int=3)}


def places(partitions: int, *, transactions: bool, groups: bool) -> list[TopicPartition]:
    """Of data first, so that their numbers are their places here."""
    data = [TopicPartition(TOPIC, number) for number in range(partitions)]
    internal = [TRANSACTIONS_TOPIC] * transactions + [OFFSETS_TOPIC] * groups
    return data + [TopicPartition(name, 0) for name in internal]
