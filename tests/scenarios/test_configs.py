"""Settings of topics and of the broker: changed while it runs, kept through restarts, never in the way of a start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.admin import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)

from . import kit

SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 4, 5


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.bytes": 5_000_000, "node.id": 7}) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected


def test_a_topic_inherits_from_the_broker_and_says_from_where(connection: Connection) -> None:
    kit.create_topic(connection, "heir", retention_ms=1000)
    config = kit.config_of(connection, kit.TOPIC, "heir")
    assert (config["retention.ms"].value, config["retention.ms"].config_source) == ("1000", DYNAMIC_TOPIC)
    assert (config["retention.bytes"].value, config["retention.bytes"].config_source) == ("5000000", STATIC_BROKER)
    assert config["segment.bytes"].config_source == DEFAULT
    synonyms = [(each.name, each.value, each.source) for each in config["retention.ms"].synonyms]
    assert synonyms[0] == ("retention.ms", "1000", DYNAMIC_TOPIC)
    assert synonyms[-1] == ("log.retention.hours", "168", DEFAULT)


def test_a_broker_setting_changes_every_topic_that_has_none_of_its_own(connection: Connection) -> None:
    kit.create_topic(connection, "follows")
    kit.create_topic(connection, "insists", retention_ms=42)
    assert kit.alter_config(connection, kit.BROKER, "7", {"log.retention.ms": "777"}).error_code == 0
    followed = kit.config_of(connection, kit.TOPIC, "follows")["retention.ms"]
    assert (followed.value, followed.config_source) == ("777", DYNAMIC_BROKER)
    assert kit.config_of(connection, kit.TOPIC, "insists")["retention.ms"].value == "42"
    assert kit.alter_config(connection, kit.BROKER, "7", {"log.retention.ms": None}).error_code == 0
    assert kit.config_of(connection, kit.TOPIC, "follows")["retention.ms"].value == "604800000"


def test_a_broker_setting_survives_a_restart(tmp_path: Path) -> None:
    with kit.broker_at(tmp_path) as connection:
        kit.create_topic(connection, "follows")
        assert kit.alter_config(connection, kit.BROKER, "1", {"log.retention.ms": "777"}).error_code == 0
        assert kit.alter_config(connection, kit.BROKER, "", {"log.segment.bytes": "12345"}).error_code == 0
    with kit.broker_at(tmp_path) as connection:
        config = kit.config_of(connection, kit.TOPIC, "follows")
        assert [config[name].value for name in ("retention.ms", "segment.bytes")] == ["777", "12345"]
        assert set(kit.config_of(connection, kit.BROKER, "")) == {"log.segment.bytes"}


def test_what_must_not_be_set(connection: Connection) -> None:
    kit.create_topic(connection, "strict")
    refused = [
        (kit.TOPIC, "strict", {"retention.mss": "1"}, ErrorCode.INVALID_CONFIG, "retention.ms"),
        (kit.TOPIC, "strict", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG, "retention.ms"),
        (kit.TOPIC, "strict", {"cleanup.policy": "shred"}, ErrorCode.INVALID_CONFIG, "compact"),
        (kit.TOPIC, "absent", {"retention.ms": "1"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "absent"),
        (kit.BROKER, "7", {"node.id": "8"}, ErrorCode.INVALID_CONFIG, "restart"),
        (kit.BROKER, "8", {"log.retention.ms": "1"}, ErrorCode.INVALID_REQUEST, "broker 7"),
        (32, "group", {"x": "1"}, ErrorCode.INVALID_CONFIG, "unknown group setting x"),
        (16, "metrics", {"x": "1"}, ErrorCode.INVALID_REQUEST, "type 16"),
    ]
    for kind, name, changes, code, says in refused:
        answer = kit.alter_config(connection, kind, name, changes)
        assert answer.error_code == code, (name, changes)
        assert says in answer.error_message
    assert {each.config_source for each in kit.config_of(connection, kit.TOPIC, "strict").values()} <= {4, 5}


def test_validate_only_changes_nothing(connection: Connection) -> None:
    kit.create_topic(connection, "dry")
    assert kit.alter_config(connection, kit.TOPIC, "dry", {"retention.ms": "1"}, validate_only=True).error_code == 0
    wrong = kit.alter_config(connection, kit.TOPIC, "dry", {"retention.ms": "x"}, validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_CONFIG
    assert kit.config_of(connection, kit.TOPIC, "dry")["retention.ms"].value == "604800000"


def test_append_and_subtract(connection: Connection) -> None:
    kit.create_topic(connection, "lists")

    def change(operation: int, value: str) -> int:
        config = IncrementalAlterableConfig(name="cleanup.policy", config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="lists", configs=(config,))
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        code: int = connection.call(request).responses[0].error_code
        return code

    def policy() -> set[str]:
        return set(kit.config_of(connection, kit.TOPIC, "lists")["cleanup.policy"].value.split(","))

    assert change(APPEND, "compact") == 0
    assert policy() == {"compact", "delete"}
    assert change(SUBTRACT, "delete") == 0
    assert policy() == {"compact"}
    assert change(17, "delete") == ErrorCode.INVALID_REQUEST


def test_the_old_alter_configs_replaces_everything(connection: Connection) -> None:
    kit.create_topic(connection, "old-way", retention_ms=1, max_message_bytes=1000)
    configs = (AlterableConfig(name="retention.ms", value="2"),)
    resource = AlterConfigsResource(resource_type=kit.TOPIC, resource_name="old-way", configs=configs)
    for version in (0, 2):
        request = AlterConfigsRequest(resources=(resource,), validate_only=False)
        assert connection.call(request, version).responses[0].error_code == 0
    config = kit.config_of(connection, kit.TOPIC, "old-way")
    assert config["retention.ms"].value == "2"
    assert config["max.message.bytes"].config_source == DEFAULT


def test_list_config_resources(connection: Connection) -> None:
    kit.create_topic(connection, "listed")
    found = connection.call(ListConfigResourcesRequest(resource_types=(kit.TOPIC,)), 1).config_resources
    assert "listed" in {each.resource_name for each in found if each.resource_type == kit.TOPIC}
    everything = connection.call(ListConfigResourcesRequest(), 1).config_resources
    assert (kit.BROKER, "7") in {(each.resource_type, each.resource_name) for each in everything}
    assert connection.call(ListConfigResourcesRequest(), 0).config_resources == ()


def test_settings_that_exclude_each_other_are_refused_before_they_are_stored(tmp_path: Path) -> None:
    """Each alone is valid. Stored together they would keep the broker from starting ever again."""
    lag_min, lag_max = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    with Server(tmp_path, settings={lag_max: "1000"}) as server:
        with server.connect() as connection:
            config = CreatableTopicConfig(name="min.compaction.lag.ms", value="5000")
            topic = CreatableTopic(
                name="bad", num_partitions=1, replication_factor=1, assignments=(), configs=(config,)
            )
            (created,) = connection.call(CreateTopicsRequest(topics=(topic,))).topics
            assert created.error_code == ErrorCode.INVALID_CONFIG
            kit.create_topic(connection, "good", min_compaction_lag_ms=500)
            for kind, name, changes in (
                (kit.TOPIC, "good", {"min.compaction.lag.ms": "5000"}),
                (kit.BROKER, "1", {lag_min: "5000"}),
                (kit.BROKER, "1", {lag_max: "100"}),
                (kit.BROKER, "", {lag_max: "100"}),
            ):
                assert kit.alter_config(connection, kind, name, changes).error_code == ErrorCode.INVALID_CONFIG
        server.kill()
        server.start()
        with server.connect() as connection:
            assert kit.config_of(connection, kit.TOPIC, "good")["min.compaction.lag.ms"].value == "500"


def test_a_new_server_properties_may_contradict_a_topic_and_still_starts(tmp_path: Path) -> None:
    with kit.broker_at(tmp_path) as connection:
        kit.create_topic(connection, "slow", min_compaction_lag_ms=5000)
        kit.store(connection, "slow", b"kept")
    with kit.broker_at(tmp_path, log_cleaner_max_compaction_lag_ms=1000) as connection:
        assert kit.values(kit.read_all(connection, "slow")) == [b"kept"]
