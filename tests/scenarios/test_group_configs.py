"""Settings of one group (KIP-848): told, stored, and obeyed by its coordinator from the next heartbeat on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.configs import ListConfigResourcesRequest
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
)

from . import kit

GROUP, TOPIC, BROKER = 32, 2, 4
DYNAMIC_GROUP, STATIC_BROKER, DEFAULT = 8, 4, 5
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SETTINGS = {
    "group.consumer.min.session.timeout.ms": 300,
    "group.consumer.heartbeat.interval.ms": 250,
    "offsets.topic.num.partitions": 2,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected


def heartbeat(connection: Connection, group: str, member_epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    connection.call(FindCoordinatorRequest(key=group), 2)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m" * 22,
        member_epoch=member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("t",),
        topic_partitions=(),
    )
    answer = connection.call(request, 1)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer  # type: ignore[no-any-return]


def members(connection: Connection, group: str) -> int:
    (described,) = connection.call(
        ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False), 1
    ).groups
    return len(described.members)


def test_a_group_inherits_and_says_from_where(connection: Connection) -> None:
    config = kit.config_of(connection, GROUP, "g")
    assert (config[SESSION].value, config[SESSION].config_source) == ("45000", DEFAULT)
    assert (config[HEARTBEAT].value, config[HEARTBEAT].config_source) == ("250", STATIC_BROKER)
    assert kit.alter_config(connection, GROUP, "g", {SESSION: "50000"}).error_code == ErrorCode.NONE
    config = kit.config_of(connection, GROUP, "g")
    assert (config[SESSION].value, config[SESSION].config_source) == ("50000", DYNAMIC_GROUP)
    assert [(each.name, each.value, each.source) for each in config[SESSION].synonyms] == [
        (SESSION, "50000", DYNAMIC_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert kit.config_of(connection, GROUP, "other")[SESSION].value == "45000"
    listed = connection.call(ListConfigResourcesRequest(resource_types=(GROUP,)), 1).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == [(GROUP, "g")]
    assert kit.alter_config(connection, GROUP, "g", {SESSION: None}).error_code == ErrorCode.NONE
    assert kit.config_of(connection, GROUP, "g")[SESSION].value == "45000"
    assert connection.call(ListConfigResourcesRequest(resource_types=(GROUP,)), 1).config_resources == ()


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("g", {SESSION: "299"}, ErrorCode.INVALID_CONFIG),
        ("g", {SESSION: "1800001"}, ErrorCode.INVALID_CONFIG),
        ("g", {HEARTBEAT: "99"}, ErrorCode.INVALID_CONFIG),
        ("g", {SESSION: "1000", HEARTBEAT: "1000"}, ErrorCode.INVALID_CONFIG),
        ("g", {SESSION: "soon"}, ErrorCode.INVALID_CONFIG),
        ("g", {"consumer.nonsense": "1"}, ErrorCode.INVALID_CONFIG),
        ("", {SESSION: "50000"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_no_group_may_have(
    connection: Connection, name: str, changes: dict[str, str | None], code: ErrorCode
) -> None:
    """The codes are Apache Kafka's."""
    assert kit.alter_config(connection, GROUP, name, changes).error_code == code
    assert kit.alter_config(connection, GROUP, name, changes, validate_only=True).error_code == code
    assert kit.config_of(connection, GROUP, "g")[SESSION].config_source == DEFAULT


def test_members_are_judged_by_their_own_groups_settings(connection: Connection) -> None:
    kit.create_topic(connection, "t")
    kit.alter_config(connection, GROUP, "strict", {SESSION: "400", HEARTBEAT: "100"})
    assert heartbeat(connection, "strict").heartbeat_interval_ms == 100
    assert heartbeat(connection, "easy").heartbeat_interval_ms > 100
    kit.eventually(lambda: members(connection, "strict") == 0, "the silent member of the strict group is gone")
    assert members(connection, "easy") == 1

    # A group that is there already obeys from its next heartbeat on.
    kit.alter_config(connection, GROUP, "easy", {SESSION: "400", HEARTBEAT: "120"})
    answer = heartbeat(connection, "easy", 0)
    assert answer.heartbeat_interval_ms == 120
    kit.eventually(lambda: members(connection, "easy") == 0, "so is the other")


def test_settings_outlive_the_broker(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=tmp_path) as first, kit.connect(first) as connection:
        kit.alter_config(connection, GROUP, "g", {HEARTBEAT: "150"})
    with Broker(SETTINGS, data_dir=tmp_path) as second, kit.connect(second) as connection:
        kit.create_topic(connection, "t")
        assert heartbeat(connection, "g").heartbeat_interval_ms == 150
    # Stricter bounds than before: the group falls back to the broker's settings, and nobody is kept out.
    stricter = {**SETTINGS, "group.consumer.min.heartbeat.interval.ms": 1_000}
    with Broker(stricter, data_dir=tmp_path) as third, kit.connect(third) as connection:
        assert heartbeat(connection, "g").heartbeat_interval_ms > 150
        assert kit.alter_config(connection, GROUP, "g", {HEARTBEAT: None}).error_code == ErrorCode.NONE
