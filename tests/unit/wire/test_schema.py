"""What the tables promise: golden bytes, defaults, nulls, and what a version refuses to say."""

from uuid import UUID

import pytest

from tidelog.errors import ErrorCode, MalformedMessage
from tidelog.ids import TopicId
from tidelog.wire.decoder import ELEMENTS_MAX, STRING_MAX
from tidelog.wire.layout import fields_of, structs_within
from tidelog.wire.messages import API
from tidelog.wire.messages.admin import (
    ApiVersion,
    ApiVersionsResponse,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    SupportedFeatureKey,
)
from tidelog.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    ReplicaState,
    TopicProduceData,
)
from tidelog.wire.messages.groups import ListGroupsRequest
from tidelog.wire.primitives import uvarint
from tidelog.wire.schema import UnencodableMessage, UnsupportedVersion, decode, encode, spec_of

TOPIC_ID = TopicId(UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))


def produce(records=b"abc", **topic):
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=(TopicProduceData(partition_data=(partition,), **topic),)
    )


@pytest.mark.parametrize(
    ("message", "version", "golden"),
    [
        (produce(name="t"), 3, "ffff ffff 00007530 00000001 0001 74 00000001 00000001 00000003 616263"),
        (produce(name="t"), 9, "00 ffff 00007530 02 02 74 02 00000001 04 616263 00 00 00"),
        (produce(topic_id=TOPIC_ID), 13, "00 ffff 00007530 02" + TOPIC_ID.hex + "02 00000001 04 616263 00 00 00"),
        (produce(None, name="t"), 3, "ffff ffff 00007530 00000001 0001 74 00000001 00000001 ffffffff"),
        (produce(None, name="t"), 9, "00 ffff 00007530 02 02 74 02 00000001 00 00 00 00"),
        (MetadataRequest(topics=None), 1, "ffffffff"),
        (MetadataRequest(topics=()), 1, "00000000"),
        (MetadataRequest(topics=None), 12, "00 01 00 00"),
        (
            ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),)),
            0,
            "0000 00000001 0012 0000 0004",
        ),
        (
            ApiVersionsResponse(
                api_keys=(),
                supported_features=(SupportedFeatureKey(name="f", min_version=0, max_version=1),),
                finalized_features_epoch=7,
            ),
            3,
            "0000 01 00000000 02 00 08 02 02 66 0000 0001 00 01 08 0000000000000007",
        ),
        (DescribeTopicPartitionsRequest(topics=(), cursor=None), 0, "01 000007d0 ff 00"),
        (
            FetchRequest(max_wait_ms=1, min_bytes=2, topics=(), replica_state=ReplicaState(replica_id=3)),
            15,
            "00000001 00000002 7fffffff 00 00000000 ffffffff 01 01 01 01 01 0d 00000003 ffffffffffffffff 00",
        ),
    ],
)
def test_golden_bytes(message, version, golden):
    encoded = encode(message, version)
    assert encoded.hex(" ") == bytes.fromhex(golden).hex(" ")
    assert decode(type(message), version, encoded) == message


def test_record_sets_are_slices_of_the_input():
    encoded = bytearray(encode(produce(name="t"), 9))
    records = decode(ProduceRequest, 9, memoryview(encoded)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    encoded[encoded.index(b"abc")] = ord("z")
    assert records == b"zbc"


def test_decoding_starts_at_the_offset():
    for message, version in ((produce(name="t"), 9), (MetadataRequest(topics=None), 9)):
        framed = b"header" + encode(message, version)
        for buffer in (framed, bytearray(framed), memoryview(framed)):
            assert decode(type(message), version, buffer, 6) == message


def test_unknown_tags_are_skipped():
    encoded = bytes.fromhex("00 01 00 02 07 02 aaaa 9001 00")
    assert decode(MetadataRequest, 12, encoded) == MetadataRequest(topics=None)


@pytest.mark.parametrize(
    ("kind", "version", "encoded"),
    [
        (MetadataRequest, 0, "ffffffff"),  # null before version 1
        (MetadataRequest, 1, "fffffffe"),  # negative, but not null
        (MetadataRequest, 1, "7fffffff 0000"),
        (MetadataRequest, 9, "00"),  # cut before the flags
        (MetadataRequest, 9, "ffffffff07 00"),  # two billion topics
        (MetadataRequest, 9, "ffffffffffff01 00"),  # a varint without end
        (MetadataRequest, 9, "00 01 00 00 01 05 09 aa"),  # a tag beyond the end
        (MetadataRequest, 9, "00 01 00 00 02 05 00"),  # one tag fewer than announced
        (MetadataRequest, 1, "00000001 0002 fffe"),  # not UTF-8
        (MetadataRequest, 1, "00000001 ffff"),  # a null name before version 10
        (ApiVersionsResponse, 3, "0000 01 00000000 01 01 09 0000000000000007 00"),  # tag of the wrong size
        (ProduceRequest, 9, "00 ffff 00007530 02 02 74 02 00000001 80 00 00 00"),
    ],
)
def test_malformed(kind, version, encoded):
    with pytest.raises(MalformedMessage):
        decode(kind, version, bytes.fromhex(encoded))


def test_elements_are_limited_however_small_they_are():
    """A million empty strings are a megabyte, but a second of everybody's time."""
    most = ELEMENTS_MAX - 1
    allowed = uvarint(most + 1) + b"\1" * most + b"\1"
    assert len(decode(ListGroupsRequest, 5, allowed + b"\0").states_filter) == most
    for too_many in (
        uvarint(ELEMENTS_MAX + 2) + b"\1" * (ELEMENTS_MAX + 1) + b"\1\0",
        uvarint(most + 1) + b"\1" * most + b"\3\1\1\0",  # spread over two arrays
        allowed + uvarint(ELEMENTS_MAX) + b"\7\0" * ELEMENTS_MAX,  # tags
    ):
        with pytest.raises(MalformedMessage, match="elements"):
            decode(ListGroupsRequest, 5, too_many)


def test_strings_are_as_short_where_the_encoding_has_room_for_more():
    """Kafka's limit in every version. A name becomes a key, which is hashed byte by byte and kept."""
    longest = "x" * STRING_MAX
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=longest),))
    for version in (8, 12):
        assert decode(MetadataRequest, version, encode(asked, version)) == asked
    longer = MetadataRequest(topics=(MetadataRequestTopic(name=longest + "x"),))
    with pytest.raises(MalformedMessage, match="32,767 bytes"):
        decode(MetadataRequest, 12, encode(longer, 12))


def test_a_field_too_new_is_refused_unless_ignorable():
    ignorable = MetadataResponse(brokers=(), topics=(), cluster_id="c", controller_id=1)
    assert decode(MetadataResponse, 0, encode(ignorable, 0)) == MetadataResponse(brokers=(), topics=())
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1, producer_id=5)
    with pytest.raises(UnencodableMessage, match=r"InitProducerIdRequest\.producer_id .* version 2"):
        encode(request, 2)
    assert decode(InitProducerIdRequest, 3, encode(request, 3)) == request


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9),
        (MetadataResponse(brokers=(MetadataResponseBroker(node_id=2**31, host="h", port=1),), topics=()), 1),
        (MetadataResponse(brokers=(MetadataResponseBroker(node_id=1, host="h" * 40000, port=1),), topics=()), 1),
        (MetadataResponse(brokers=(MetadataResponseBroker(node_id=1, host="\ud800", port=1),), topics=()), 1),
    ],
)
def test_what_cannot_be_said(message, version):
    with pytest.raises(UnencodableMessage):
        encode(message, version)


def test_versions_outside_the_table():
    with pytest.raises(UnsupportedVersion) as refused:
        encode(produce(name="t"), 2)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(UnsupportedVersion):
        decode(ProduceRequest, 14, b"")


def test_lists_are_as_good_as_tuples():
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=2)
    listed = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])
    assert decode(FetchRequest, 12, encode(listed, 12)).topics == (FetchTopic(topic="t", partitions=(partition,)),)


def test_messages_are_values():
    message = MetadataRequest(topics=None)
    with pytest.raises(AttributeError):
        message.topics = ()
    assert message == MetadataRequest(topics=None)
    assert hash(message) == hash(MetadataRequest(topics=None))


@pytest.mark.parametrize("spec", API.values(), ids=lambda spec: spec.name)
def test_tables_are_consistent(spec):
    assert spec_of(spec.request) is spec
    assert spec_of(spec.response) is spec
    assert spec.request.__name__ == f"{spec.name}Request"
    assert spec.response.__name__ == f"{spec.name}Response"
    for message in (spec.request, spec.response):
        for struct in structs_within(message):
            tags = [field.tag for field in fields_of(struct) if field.tag is not None]
            assert len(tags) == len(set(tags))
            for field in fields_of(struct):
                first, last = field.versions
                assert first <= spec.max
                assert last >= spec.min
                assert field.tag is None or first >= spec.flexible
