"""The topic that all of it is about, and its partitions."""

from uuid import UUID

from tidelog.ids import TopicPartition

TOPIC = "orders"
TOPIC_ID = UUID(int=1)


def place(number: int) -> TopicPartition:
    return TopicPartition(TOPIC, number)
