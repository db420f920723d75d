"""Records of groups, pinned to bytes that Apache Kafka 4.3.1 wrote to its own `__consumer_offsets`."""

from uuid import UUID

import pytest

from tidelog.errors import MalformedMessage
from tidelog.groups import records as r
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.embedded import assigned_partitions
from tidelog.ids import TopicId, TopicPartition

TOPIC_ID = TopicId(UUID("eb5abc83-c7b1-41ff-ae1c-af9a2b5d0f4e"))
MEMBER = "85H9IdA4Rqeu8gtHAYKtUg"
CLASSIC_MEMBER = "cl-7adec798-c54d-4d9a-a7d4-f34392e16124"

SUBSCRIPTION = "00030000000100066f72646572730000000000000000ffffffff0000"
ASSIGNMENT = "00000000000100066f72646572730000000300000000000000010000000200000000"


def key(number: int, *parts: str) -> bytes:
    return number.to_bytes(2, "big") + b"".join(len(part).to_bytes(2, "big") + part.encode() for part in parts)


GOLDEN = [
    pytest.param(
        key(1, "simple", "orders") + b"\0\0\0\1",
        "00040000000000000007ffffffff036d00000001a1e1c5b535010010eb5abc83c7b141ffae1caf9a2b5d0f4e",
        r.GroupRecord(
            r.OffsetCommitKey(group="simple", topic="orders", partition=1),
            r.OffsetCommitValue(
                offset=7, metadata="m\0", commit_timestamp=1794789193013, topic_id=TOPIC_ID, leader_epoch=-1
            ),
        ),
        id="commit",
    ),
    pytest.param(
        key(2, "classic"),
        "00030008636f6e73756d657200000002ffffffff000001a1e1c59e6600000000",
        r.GroupRecord(
            r.GroupMetadataKey(group="classic"),
            r.GroupMetadataValue(
                protocol_type="consumer",
                generation=2,
                protocol=None,
                leader=None,
                current_state_timestamp=1794789187174,
                members=(),
            ),
        ),
        id="empty group",
    ),
    pytest.param(
        key(2, "classic"),
        "00030008636f6e73756d657200000001000572616e67650027636c2d37616465633739382d633534642d346439612d613764342d66333433"
        "3932653136313234000001a1e1c59d92000000010027636c2d37616465633739382d633534642d346439612d613764342d66333433393265"
        "3136313234ffff0002636c000a2f3132372e302e302e31000493e00000afc80000001c"
        + SUBSCRIPTION
        + "00000022"
        + ASSIGNMENT,
        r.GroupRecord(
            r.GroupMetadataKey(group="classic"),
            r.GroupMetadataValue(
                protocol_type="consumer",
                generation=1,
                protocol="range",
                leader=CLASSIC_MEMBER,
                current_state_timestamp=1794789186962,
                members=(
                    r.MemberMetadata(
                        member_id=CLASSIC_MEMBER,
                        client_id="cl",
                        client_host="/127.0.0.1",
                        rebalance_timeout=300_000,
                        session_timeout=45_000,
                        subscription=bytes.fromhex(SUBSCRIPTION),
                        assignment=bytes.fromhex(ASSIGNMENT),
                    ),
                ),
            ),
        ),
        id="stable group",
    ),
    pytest.param(
        key(3, "modern"),
        "000000000002010008cc34a613d537aa67",
        r.GroupRecord(
            r.ConsumerGroupMetadataKey(group_id="modern"),
            r.ConsumerGroupMetadataValue(epoch=2, metadata_hash=-3732175587071514009),
        ),
        id="consumer group",
    ),
    pytest.param(
        key(5, "modern", MEMBER),
        "000000000872646b61666b610b2f3132372e302e302e3102076f726465727301000493e00001000100",
        r.GroupRecord(
            r.ConsumerGroupMemberMetadataKey(group_id="modern", member_id=MEMBER),
            r.ConsumerGroupMemberMetadataValue(
                client_id="rdkafka",
                client_host="/127.0.0.1",
                subscribed_topic_names=("orders",),
                subscribed_topic_regex="",
                rebalance_timeout_ms=300_000,
                classic_member_metadata=None,
            ),
        ),
        id="consumer member",
    ),
    pytest.param(
        key(6, "modern"),
        "000000000002010008000001a1e1c59f71",
        r.GroupRecord(
            r.ConsumerGroupTargetAssignmentMetadataKey(group_id="modern"),
            r.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=1794789187441),
        ),
        id="target epoch",
    ),
    pytest.param(
        key(7, "modern", MEMBER),
        "000002eb5abc83c7b141ffae1caf9a2b5d0f4e040000000000000001000000020000",
        r.GroupRecord(
            r.ConsumerGroupTargetAssignmentMemberKey(group_id="modern", member_id=MEMBER),
            r.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=(r.TargetTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 1, 2)),)
            ),
        ),
        id="target assignment",
    ),
    pytest.param(
        key(8, "modern", MEMBER),
        "000000000002000000000002eb5abc83c7b141ffae1caf9a2b5d0f4e040000000000000001000000020100"
        "0d040000000200000002000000020100",
        r.GroupRecord(
            r.ConsumerGroupCurrentMemberAssignmentKey(group_id="modern", member_id=MEMBER),
            r.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=(
                    r.CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 1, 2), assignment_epochs=(2, 2, 2)),
                ),
                partitions_pending_revocation=(),
            ),
        ),
        id="current assignment",
    ),
    pytest.param(
        key(16, "modern-re", "(^ord.*)"),
        "000002076f72646572730000000000000024000001a1e1c5a0f300",
        r.GroupRecord(
            r.ConsumerGroupRegularExpressionKey(group_id="modern-re", regular_expression="(^ord.*)"),
            r.ConsumerGroupRegularExpressionValue(topics=("orders",), version=36, timestamp=1794789187827),
        ),
        id="regular expression",
    ),
    pytest.param(
        key(8, "modern", MEMBER),
        None,
        r.GroupRecord(r.ConsumerGroupCurrentMemberAssignmentKey(group_id="modern", member_id=MEMBER), None),
        id="tombstone",
    ),
]


@pytest.mark.parametrize(("key_bytes", "value_hex", "record"), GOLDEN)
def test_bytes_are_kafkas(key_bytes: bytes, value_hex: str | None, record: r.GroupRecord) -> None:
    value = None if value_hex is None else bytes.fromhex(value_hex)
    assert r.decode_record(key_bytes, value) == record
    assert r.encode_record(record) == (key_bytes, value)


def test_classic_group_is_found_again_in_kafkas_record() -> None:
    param = next(param for param in GOLDEN if param.id == "stable group")
    record = r.decode_record(param.values[0], bytes.fromhex(param.values[1]))
    assert record is not None
    group = ClassicGroup.restored("classic", record.value)  # type: ignore[arg-type]
    assert (group.state, group.generation, group.leader) == (State.STABLE, 1, CLASSIC_MEMBER)
    assert group.subscribed == {"orders"}
    assert assigned_partitions(group.members[CLASSIC_MEMBER].assignment) == {
        TopicPartition("orders", number) for number in range(3)
    }
    assert r.encode_record(group.record()) == (param.values[0], bytes.fromhex(param.values[1]))


COMMIT = key(1, "g", "t") + b"\0\0\0\0"


@pytest.mark.parametrize(
    ("value", "leader_epoch", "expires"),
    [
        ("0000" + "0000000000000007" + "0001" + "6d" + "0000000000000009", -1, -1),
        ("0001" + "0000000000000007" + "0001" + "6d" + "0000000000000009" + "000000000000000b", -1, 11),
        ("0002" + "0000000000000007" + "0001" + "6d" + "0000000000000009", -1, -1),
        ("0003" + "0000000000000007" + "00000003" + "0001" + "6d" + "0000000000000009", 3, -1),
        ("0004" + "0000000000000007" + "00000003" + "02" + "6d" + "0000000000000009" + "00", 3, -1),
    ],
)
def test_commits_of_every_kafka_so_far_are_read(value: str, leader_epoch: int, expires: int) -> None:
    record = r.decode_record(COMMIT, bytes.fromhex(value))
    assert record is not None
    assert record.value == r.OffsetCommitValue(
        offset=7, leader_epoch=leader_epoch, metadata="m", commit_timestamp=9, expire_timestamp=expires
    )


def test_commit_with_an_expiry_of_its_own_is_written_in_the_version_that_has_one() -> None:
    value = r.OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9, expire_timestamp=11)
    record = r.GroupRecord(r.OffsetCommitKey(group="g", topic="t", partition=0), value)
    encoded = r.encode_record(record)[1]
    assert encoded == bytes.fromhex(
        "0001" + "0000000000000007" + "0001" + "6d" + "0000000000000009" + "000000000000000b"
    )


def test_group_record_of_the_first_version() -> None:
    member = "0001" + "6d" + "0001" + "63" + "0001" + "68" + "00001388" + "00000000" + "00000000"
    value = "0000" + "0001" + "70" + "00000003" + "0001" + "72" + "0001" + "6d" + "00000001" + member
    record = r.decode_record(key(2, "g"), bytes.fromhex(value))
    assert record is not None
    group = ClassicGroup.restored("g", record.value)  # type: ignore[arg-type]
    assert group.members["m"].rebalance_timeout_ms == group.members["m"].session_timeout_ms == 5_000


def test_upgraded_classic_member_is_written_inside_its_tag() -> None:
    classic = r.ClassicMemberMetadata(
        session_timeout_ms=5, supported_protocols=(r.ClassicProtocol(name="range", metadata=b"x"),)
    )
    value = r.ConsumerGroupMemberMetadataValue(
        client_id="c", client_host="h", subscribed_topic_names=(), classic_member_metadata=classic
    )
    record = r.GroupRecord(r.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), value)
    key_bytes, encoded = r.encode_record(record)
    assert encoded is not None
    assert encoded.endswith(bytes.fromhex("010010" + "01" + "00000005" + "02" + "0672616e6765" + "0278" + "00" + "00"))
    assert r.decode_record(key_bytes, encoded) == record


def test_record_from_the_future_is_skipped() -> None:
    assert r.decode_record(key(99, "g"), b"\0\0") is None


@pytest.mark.parametrize(
    ("key_bytes", "value"),
    [(b"", None), (b"\0", None), (b"\0\1", None), (COMMIT, b""), (COMMIT, b"\0\4\0"), (COMMIT[:-1], None)],
)
def test_bytes_that_are_no_record(key_bytes: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        r.decode_record(key_bytes, value)
