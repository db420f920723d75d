"""Topics come, go, come back, and survive whatever happens to the broker."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.server import Server

from tidelog.client.connection import Connection
from tidelog.cluster.metadata_log import METADATA_PARTITION
from tidelog.errors import ErrorCode
from tidelog.ids import NO_TOPIC_ID, TopicId
from tidelog.testing import Broker
from tidelog.wire.messages.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
    MetadataRequestTopic,
)
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

from . import kit


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.parametrize("ending", ["clean stop", "kill -9"])
def test_topics_settings_and_ids_survive(tmp_path: Path, ending: str) -> None:
    with Server(tmp_path) as server:
        with server.connect() as connection:
            kept = kit.create_topic(connection, "kept", 3, retention_ms=123_456, cleanup_policy="compact,delete")
            kit.create_topic(connection, "gone", 2)
            kit.store(connection, "kept", (b"k", b"v"), partition=2)
            assert kit.alter_config(connection, kit.TOPIC, "kept", {"max.message.bytes": "4321"}).error_code == 0
            assert kit.alter_config(connection, kit.BROKER, "1", {"log.retention.bytes": "99"}).error_code == 0
            kit.delete_topic(connection, "gone")
            producer_id = kit.new_producer_id(connection)
        if ending == "clean stop":
            assert server.stop() == 0
        else:
            server.kill()
        server.start()
        with server.connect() as connection:
            (topic,) = connection.call(MetadataRequest(topics=None)).topics
            assert (topic.name, topic.topic_id, len(topic.partitions)) == ("kept", kept, 3)
            config = kit.config_of(connection, kit.TOPIC, "kept")
            found = [config[name].value for name in ("retention.ms", "max.message.bytes", "retention.bytes")]
            assert found == ["123456", "4321", "99"]
            assert set(config["cleanup.policy"].value.split(",")) == {"compact", "delete"}
            assert kit.values(kit.read_all(connection, "kept", 2)) == [b"v"]
            assert kit.new_producer_id(connection) > producer_id, "a producer id was handed out twice"
            assert not list(tmp_path.glob("gone-*"))


def test_a_crash_between_deciding_and_removing_leaves_nothing_behind(tmp_path: Path) -> None:
    """The removal is in the metadata log, the directories are still there: what a crash at that moment leaves."""
    with kit.broker_at(tmp_path / "data") as connection:
        kit.create_topic(connection, "doomed", 2)
        kit.create_topic(connection, "other")
        kit.store(connection, "doomed", b"old")
        kit.store(connection, "other", b"kept")
    shutil.copytree(tmp_path / "data", tmp_path / "before")
    with kit.broker_at(tmp_path / "data") as connection:
        kit.delete_topic(connection, "doomed")
    metadata = str(METADATA_PARTITION)
    shutil.rmtree(tmp_path / "before" / metadata)
    shutil.copytree(tmp_path / "data" / metadata, tmp_path / "before" / metadata)
    (tmp_path / "before" / ".kafka_cleanshutdown").unlink()
    with kit.broker_at(tmp_path / "before") as connection:
        assert not list((tmp_path / "before").glob("doomed-*"))
        kit.create_topic(connection, "doomed", 2)
        assert kit.read_all(connection, "doomed") == []
        assert kit.values(kit.read_all(connection, "other")) == [b"kept"]


def test_a_recreated_topic_is_another_topic(broker: Broker) -> None:
    with kit.connect(broker) as connection:
        old = kit.create_topic(connection, "again")
        kit.store(connection, "again", b"old")
        kit.delete_topic(connection, "again")
        for topic in ("again", old):
            expected = ErrorCode.UNKNOWN_TOPIC_ID if topic is old else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert kit.produce(connection, topic, kit.batch_of(b"lost")).error_code == expected
            assert kit.fetch(connection, topic, 0).error_code == expected
        new = kit.create_topic(connection, "again")
        assert new != old
        assert kit.read_all(connection, "again") == []
        assert kit.store(connection, "again", b"new") == 0
        assert kit.produce(connection, old, kit.batch_of(b"stray")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert kit.fetch(connection, old, 0).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert kit.values(kit.records_in(kit.fetch(connection, new, 0).records)) == [b"new"]
        asked = MetadataRequestTopic(topic_id=TopicId(old), name=None)
        (answer,) = connection.call(MetadataRequest(topics=(asked,))).topics
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("checkpoint_survives", [False, True])
def test_a_recreated_topic_inherits_no_offsets_through_a_crash(tmp_path: Path, checkpoint_survives: bool) -> None:
    """With the old topic's checkpoint as if the broker had died before rewriting it, too."""
    with Server(tmp_path) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "again")
            kit.store(connection, "again", *[b"old"] * 100)
            assert kit.delete_records(connection, "again", 90).low_watermark == 90
        assert server.stop() == 0
        checkpoints = {path: path.read_bytes() for path in tmp_path.glob("*-checkpoint")}
        server.start()
        with server.connect() as connection:
            kit.delete_topic(connection, "again")
        if checkpoint_survives:
            server.kill()
            for path, content in checkpoints.items():
                path.write_bytes(content)
            server.start()
        with server.connect() as connection:
            kit.create_topic(connection, "again")
            for value in (b"1", b"2", b"3"):
                kit.store(connection, "again", value)
        server.kill()
        server.start()
        with server.connect() as connection:
            assert kit.values(kit.read_all(connection, "again")) == [b"1", b"2", b"3"]


def test_a_recreated_topic_inherits_no_committed_offsets_through_a_crash(tmp_path: Path) -> None:
    """The topic's deletion is durable, and what was to delete the groups' offsets with it is not."""
    with Server(tmp_path) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "again")
            kit.store(connection, "again", *[b"old"] * 9)
            connection.call(FindCoordinatorRequest(key="readers"), 0)
            assert commit(connection, 9) == ErrorCode.NONE
        assert server.stop() == 0
        logs = list(tmp_path.glob("__consumer_offsets-*"))
        for path in logs:
            shutil.copytree(path, tmp_path.parent / "kept" / path.name)
        server.start()
        with server.connect() as connection:
            assert committed(connection) == 9
            kit.delete_topic(connection, "again")
        server.kill()
        for path in logs:
            shutil.rmtree(path)
            shutil.copytree(tmp_path.parent / "kept" / path.name, path)
        server.start()
        with server.connect() as connection:
            kit.create_topic(connection, "again")
            kit.store(connection, "again", *[b"new"] * 20)
            # Its readers would have begun in the middle, without a word.
            assert committed(connection) == -1


def commit(connection: Connection, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="again", partitions=(partition,))
    answer = connection.call(OffsetCommitRequest(group_id="readers", member_id="", topics=(topic,)), 8)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def committed(connection: Connection) -> int:
    topic = OffsetFetchRequestTopic(name="again", partition_indexes=(0,))
    answer = connection.call(OffsetFetchRequest(group_id="readers", topics=(topic,)), 7)
    while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        answer = connection.call(OffsetFetchRequest(group_id="readers", topics=(topic,)), 7)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def test_deleting_topics_that_are_being_written_to_harms_nobody(broker: Broker) -> None:
    """Their syncs fail because the files are gone. That is no fault of the disk, and must not stop other topics."""
    with kit.connect(broker) as admin, kit.connect(broker) as writer:
        for turn in range(12):
            kit.create_topic(admin, f"brief-{turn}", 4)
            for partition in range(4):
                writer.send(kit.produce_request(f"brief-{turn}", kit.batch_of(b"x" * 1000), partition), kit.NAMES)
            kit.delete_topic(admin, f"brief-{turn}")
            for _ in range(4):
                writer.receive()
        kit.create_topic(admin, "lasting", 8)
        for partition in range(8):
            kit.store(admin, "lasting", b"x", partition=partition)


def test_a_parked_fetch_learns_that_its_topic_is_gone(broker: Broker) -> None:
    with kit.connect(broker) as admin, kit.connect(broker) as reader:
        kit.create_topic(admin, "leaving")
        reader.send(kit.fetch_request("leaving", kit.wish(0), max_wait_ms=30_000, min_bytes=1), kit.NAMES)
        kit.delete_topic(admin, "leaving")
        (topic,) = reader.receive().responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_by_id_never_hits_a_newer_topic_of_that_name(broker: Broker) -> None:
    """Pipelined on two connections, so that the deletions wait for each other."""
    with kit.connect(broker) as one, kit.connect(broker) as two:
        old = kit.create_topic(one, "twin")
        by_id = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=TopicId(old)),), timeout_ms=10_000)
        new = CreatableTopic(name="twin", num_partitions=1, replication_factor=1, assignments=(), configs=())
        one.send(by_id)
        one.send(CreateTopicsRequest(topics=(new,)))
        two.send(by_id)
        first, created, second = one.receive().responses[0], one.receive().topics[0], two.receive().responses[0]
        assert sorted([first.error_code, second.error_code]) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
        assert created.error_code == 0
        assert kit.read_all(one, "twin") == []


def test_what_cannot_be_created_is_refused_and_leaves_nothing(broker: Broker) -> None:
    with kit.connect(broker) as connection:
        kit.create_topic(connection, "a.b")
        refused = {
            ("..", 1, 1): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("", 1, 1): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("x" * 250, 1, 1): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("up/../down", 1, 1): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("a_b", 1, 1): ErrorCode.INVALID_TOPIC_EXCEPTION,
            ("a.b", 1, 1): ErrorCode.TOPIC_ALREADY_EXISTS,
            ("none", 0, 1): ErrorCode.INVALID_PARTITIONS,
            ("lonely", 1, 2): ErrorCode.INVALID_REPLICATION_FACTOR,
        }
        before = set(os.listdir(broker.data_dir))
        for (name, partitions, replicas), code in refused.items():
            topic = CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
            )
            (result,) = connection.call(CreateTopicsRequest(topics=(topic,))).topics
            assert result.error_code == code, name
        assert set(os.listdir(broker.data_dir)) == before
        longest = "x" * 249
        kit.create_topic(connection, longest)
        kit.delete_topic(connection, longest)
        wanted = DeleteTopicState(name="never", topic_id=NO_TOPIC_ID)
        (answer,) = connection.call(DeleteTopicsRequest(topics=(wanted,), timeout_ms=1)).responses
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_that_quotes_a_very_long_wish_can_be_said_to_every_client(broker: Broker) -> None:
    """Old versions have no room for strings over 32,767 bytes, and in the newer ones Java's client refuses them: the
    connection was closed instead of an answer."""
    scattered = tuple(CreatableReplicaAssignment(partition_index=2 * n, broker_ids=(1,)) for n in range(9000))
    with kit.connect(broker) as connection:
        for version in (2, 7):
            wish = CreatableTopic(
                name="scattered", num_partitions=-1, replication_factor=-1, assignments=scattered, configs=()
            )
            (answer,) = connection.call(CreateTopicsRequest(topics=(wish,)), version).topics
            assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert answer.error_message.endswith("are not consecutive from 0")
            assert len(answer.error_message) < 32_767
        answer = connection.call(kit.produce_request("x" * 32_767, kit.batch_of(b"x")), 8)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_named_twice_in_one_request_is_refused_once(broker: Broker) -> None:
    """As Kafka does it: librdkafka takes a second answer about a topic for a broken frame, and loses all the others."""
    with kit.connect(broker) as connection:
        new = CreatableTopic(name="doubled", num_partitions=1, replication_factor=1, assignments=(), configs=())
        (created,) = connection.call(CreateTopicsRequest(topics=(new, new))).topics
        assert created.error_code == ErrorCode.INVALID_REQUEST
        kit.create_topic(connection, "doubled")
        more = CreatePartitionsTopic(name="doubled", count=2, assignments=None)
        (grown,) = connection.call(
            CreatePartitionsRequest(topics=(more, more), timeout_ms=1000, validate_only=False)
        ).results
        assert grown.error_code == ErrorCode.INVALID_REQUEST
        gone = DeleteTopicState(name="doubled", topic_id=NO_TOPIC_ID)
        (deleted,) = connection.call(DeleteTopicsRequest(topics=(gone, gone), timeout_ms=1000)).responses
        assert deleted.error_code == ErrorCode.INVALID_REQUEST
        assert kit.read_all(connection, "doubled") == []
