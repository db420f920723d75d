"""Numbered records for groups to read, and which of them were read."""

from collections.abc import Iterable, Sequence

from confluent_kafka import Producer

from .group_members import Member


def send(bootstrap: str, topic: str, partitions: int, values: Iterable[int]) -> None:
    """Number n goes to partition n mod `partitions`."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % partitions)
    assert producer.flush(20) == 0


def numbers(members: Sequence[Member]) -> list[int]:
    return sorted(int(value) for member in members for value in member.values)
