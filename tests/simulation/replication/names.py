"""The one partition that all of it is about."""

from uuid import UUID

from tidelog.ids import TopicPartition

TOPIC = "orders"
PARTITION = 0
PLACE = TopicPartition(TOPIC, PARTITION)
TOPIC_ID = UUID(int=1)
