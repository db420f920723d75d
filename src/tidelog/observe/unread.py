"""When the first record that a group has not done was written: lag in seconds, told by the record itself."""

import time
from collections.abc import Mapping
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.observe.clients import Kafka

WAIT_SECONDS: Final = 3.0
_SETTINGS: Final = {
    # One batch of each partition is all that is wanted.
    "fetch.message.max.bytes": 1,
    "queued.max.messages.kbytes": 1,
    "fetch.wait.max.ms": 50,
    "auto.offset.reset": "earliest",  # retention was faster than the group: the oldest that is left
    "isolation.level": "read_uncommitted",
}


def unread_timestamps(
    kafka: Kafka, positions: Mapping[TopicPartition, int], wait_seconds: float = WAIT_SECONDS
) -> dict[TopicPartition, int]:
    """Milliseconds since 1970 of the record at each position, or of the next there is. What is not told in time is
    left out."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
    from confluent_kafka import TopicPartition as Theirs

    if not positions:
        return {}
    found: dict[TopicPartition, int] = {}
    waiting = set(positions)
    consumer = kafka.consumer(**_SETTINGS)
    try:
        consumer.assign([Theirs(*partition, offset) for partition, offset in positions.items()])
        deadline = time.monotonic() + wait_seconds
        while waiting and (left := deadline - time.monotonic()) > 0:
            for message in consumer.consume(len(waiting), min(left, 0.1)):
                if message.error() is not None:
                    continue
                partition = TopicPartition(message.topic(), message.partition())
                if partition in waiting:
                    waiting.remove(partition)
                    consumer.incremental_unassign([Theirs(*partition)])
                    kind, at_ms = message.timestamp()
                    if kind != TIMESTAMP_NOT_AVAILABLE:
                        found[partition] = at_ms
    finally:
        consumer.close()
    return found
