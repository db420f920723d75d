"""Where partitions begin and end, and which offset a time is at; many partitions in one question."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.ids import TopicPartition
from tidelog.observe.clients import TIMEOUT_SECONDS, Kafka


def start_offsets(kafka: Kafka, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Partitions that are not there (any more), or without a leader, are left out."""
    return _ask(kafka, dict.fromkeys(partitions, _spec("earliest")))


def end_offsets(kafka: Kafka, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _ask(kafka, dict.fromkeys(partitions, _spec("latest")))


def offsets_at(kafka: Kafka, partitions: Iterable[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
    """Of the first record at that time or later; partitions that have none are left out."""
    return _ask(kafka, dict.fromkeys(partitions, _spec("for_timestamp", at_ms)))


def _spec(which: str, *arguments: int) -> Any:
    from confluent_kafka import admin as kafka

    return getattr(kafka.OffsetSpec, which)(*arguments)  # type: ignore[attr-defined]


def _ask(kafka: Kafka, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Theirs

    if not specs:
        return {}
    found = {}
    # A partition may be gone since it was listed, or be without a leader for now.
    absent = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "LEADER_NOT_AVAILABLE")
    answers = kafka.admin.list_offsets({Theirs(*partition): spec for partition, spec in specs.items()})
    for where, answer in answers.items():
        try:
            offset = answer.result(TIMEOUT_SECONDS).offset
        except KafkaException as refused:
            if refused.args[0].name() in absent:
                continue
            raise
        if offset >= 0:
            found[TopicPartition(where.topic, where.partition)] = offset
    return found
