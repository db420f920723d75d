"""Wishes that can be fulfilled become records; every other wish gets Kafka's error."""

from collections.abc import Callable
from uuid import UUID

import pytest

from tidelog.cluster import controller
from tidelog.cluster.config_changes import Change, Operation, altered
from tidelog.cluster.image import MetadataImage
from tidelog.config import TOPIC_SETTINGS
from tidelog.errors import ErrorCode, KafkaError

EMPTY = MetadataImage("test-cluster")


def create(image: MetadataImage = EMPTY, name: str = "orders", **wish: object) -> MetadataImage:
    given: dict[str, object] = {"topic_id": UUID(int=1), "brokers": [1, 2, 3], "partitions": 1, "replication_factor": 1}
    return image.apply(controller.create_topic(image, name, **{**given, **wish}))  # type: ignore[arg-type]


REFUSALS: list[tuple[ErrorCode, Callable[[], object]]] = [
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="..")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="../../etc/passwd")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="with space")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="line\n")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(name="x" * 250)),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: create(create(name="a.b"), name="a_b", topic_id=UUID(int=2))),
    (ErrorCode.TOPIC_ALREADY_EXISTS, lambda: create(create())),
    (ErrorCode.INVALID_PARTITIONS, lambda: create(partitions=0)),
    (ErrorCode.POLICY_VIOLATION, lambda: create(partitions=2**31 - 1)),
    (ErrorCode.INVALID_REPLICATION_FACTOR, lambda: create(replication_factor=4)),
    (ErrorCode.INVALID_REPLICATION_FACTOR, lambda: create(replication_factor=0)),
    (ErrorCode.INVALID_CONFIG, lambda: create(configs={"retention.msec": "1"})),
    (ErrorCode.INVALID_CONFIG, lambda: create(configs={"retention.ms": "soon"})),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, lambda: create(assignments={1: [1]})),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, lambda: create(assignments={0: [1, 1]})),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, lambda: create(assignments={0: [9]})),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, lambda: create(assignments={0: []})),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: controller.delete_topic(EMPTY, "nobody")),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: controller.alter_topic_config(EMPTY, "nobody", {})),
    (ErrorCode.INVALID_PARTITIONS, lambda: controller.create_partitions(create(), "orders", total=1, brokers=[1])),
    (
        ErrorCode.INVALID_REQUEST,
        lambda: controller.delete_topic(create(name="__consumer_offsets"), "__consumer_offsets"),
    ),
    (
        ErrorCode.INVALID_REQUEST,
        lambda: controller.create_partitions(
            create(name="__transaction_state"), "__transaction_state", total=9, brokers=[1]
        ),
    ),
]


@pytest.mark.parametrize(("code", "wish"), REFUSALS)
def test_refused_with_kafkas_error(code: ErrorCode, wish: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as refused:
        wish()
    assert refused.value.code is code
    assert str(refused.value)


def test_leaders_go_round_the_brokers() -> None:
    topic = create(partitions=6, replication_factor=2).topics["orders"]
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 3), (3, 1)] * 2
    assert all(partition.leader == partition.replicas[0] for partition in topic.partitions)


def test_producer_id_blocks_do_not_overlap() -> None:
    first, records = controller.allocate_producer_ids(EMPTY)
    second, _ = controller.allocate_producer_ids(EMPTY.apply(records))
    assert first.stop == second.start
    assert len(first) == controller.PRODUCER_ID_BLOCK


def test_replacing_settings_removes_what_is_not_named() -> None:
    image = create(configs={"retention.ms": "1000", "segment.bytes": "2000"})
    image = image.apply(controller.alter_topic_config(image, "orders", {"segment.bytes": "3000"}))
    assert image.topic_config("orders") == {"segment.bytes": "3000"}


def alter(present: dict[str, str], *changes: Change) -> dict[str, str]:
    return altered(present, changes, TOPIC_SETTINGS, lambda key: "delete" if key == "cleanup.policy" else None)


def test_incremental_operations() -> None:
    assert alter({"retention.ms": "1"}, Change("retention.ms", Operation.DELETE, None)) == {}
    assert alter({}, Change("retention.ms", Operation.SET, "5")) == {"retention.ms": "5"}
    assert alter({}, Change("cleanup.policy", Operation.APPEND, "compact")) == {"cleanup.policy": "delete,compact"}
    both = {"cleanup.policy": "delete,compact"}
    assert alter(both, Change("cleanup.policy", Operation.SUBTRACT, "delete")) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    "changes",
    [
        [Change("retention.ms", Operation.APPEND, "5")],
        [Change("retention.ms", Operation.SET, None)],
        [Change("retention.ms", 9, "5")],
        [Change("retention.ms", Operation.SET, "5"), Change("retention.ms", Operation.SET, "6")],
    ],
)
def test_impossible_incremental_operations_are_refused(changes: list[Change]) -> None:
    with pytest.raises(KafkaError):
        alter({}, *changes)
