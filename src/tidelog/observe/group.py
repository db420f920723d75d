"""A group as any Kafka describes it: members with what they own, and committed offsets."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.observe.clients import TIMEOUT_SECONDS, Kafka

STATES: Final[Mapping[str, str]] = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
"""librdkafka's words to Kafka's."""

BETWEEN_STATES: Final = "Assigning/Reconciling"
"""The two states of a consumer group that librdkafka has no words for."""


class GroupIdNotFound(KafkaError):
    code = ErrorCode.GROUP_ID_NOT_FOUND

    def __init__(self, group_id: str) -> None:
        super().__init__(f"there is no group {group_id}")


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    type: str
    state: str


class Member(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class Coordinator(msgspec.Struct, frozen=True):
    node_id: int
    host: str
    port: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    type: str
    state: str
    assignor: str
    coordinator: Coordinator
    members: tuple[Member, ...]

    @property
    def is_live(self) -> bool:
        return bool(self.members) or self.state not in ("Empty", "Dead")


def list_groups(kafka: Kafka, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[Listing]:
    """Consumer groups by name; of these states and types only, if any are named."""
    answer = kafka.admin.list_consumer_groups().result(TIMEOUT_SECONDS)
    if answer.errors and not answer.valid:
        raise answer.errors[0]
    found = [
        Listing(group=each.group_id, type=_type(each.type), state=state_name(each.state, each.type))
        for each in answer.valid
    ]
    wanted_states, wanted_types = {each.lower() for each in states}, {each.lower() for each in types}
    return sorted(
        (
            each
            for each in found
            if (not wanted_types or each.type.lower() in wanted_types)
            and (not wanted_states or wanted_states & set(each.state.lower().split("/")))
        ),
        key=lambda each: each.group,
    )


def describe_groups(kafka: Kafka, group_ids: Iterable[str]) -> dict[str, GroupView]:
    """One that does not exist is Dead and has no members."""
    futures = kafka.admin.describe_consumer_groups(list(group_ids))
    return {group_id: _view(future.result(TIMEOUT_SECONDS)) for group_id, future in futures.items()}


def describe_group(kafka: Kafka, group_id: str) -> GroupView:
    return describe_groups(kafka, [group_id])[group_id]


def committed_offsets(kafka: Kafka, group_id: str) -> dict[TopicPartition, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group_id)]
    answer = kafka.admin.list_consumer_group_offsets(asked)[group_id].result(TIMEOUT_SECONDS)
    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in answer.topic_partitions
        if each.error is None and each.offset >= 0
    }


def state_name(state: Any, kind: Any) -> str:
    if state.name == "UNKNOWN":
        return BETWEEN_STATES if kind.name == "CONSUMER" else "Unknown"
    return STATES.get(state.name, state.name.title())


def _type(kind: Any) -> str:
    return str(kind.name).lower()


def _view(described: Any) -> GroupView:
    node = described.coordinator
    return GroupView(
        group_id=described.group_id,
        type=_type(described.type),
        state=state_name(described.state, described.type),
        assignor=described.partition_assignor or "",
        coordinator=Coordinator(node.id, node.host, node.port) if node is not None else Coordinator(-1, "", -1),
        members=tuple(sorted(map(_member, described.members), key=lambda one: (one.client_id, one.member_id))),
    )


def _member(described: Any) -> Member:
    assigned = described.assignment.topic_partitions if described.assignment is not None else ()
    return Member(
        member_id=described.member_id,
        client_id=described.client_id,
        host=described.host.lstrip("/"),
        instance_id=described.group_instance_id,
        partitions=tuple(sorted(TopicPartition(each.topic, each.partition) for each in assigned)),
    )
