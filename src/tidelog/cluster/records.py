"""The facts the metadata log is made of.

Each is a small tagged struct, stored as JSON in the value of a record of `__cluster_metadata-0`. They are upserts and
removals, so replaying a prefix twice gives the same image.
"""

from uuid import UUID

import msgspec


class MetadataRecord(msgspec.Struct, frozen=True, tag_field="type"):
    """Base of the tagged union."""


class ImageReset(MetadataRecord, frozen=True, tag="reset"):
    """Forget everything before: what follows in this batch is the whole image."""

    cluster_id: str


class TopicRecord(MetadataRecord, frozen=True, tag="topic"):
    name: str
    topic_id: UUID


class PartitionRecord(MetadataRecord, frozen=True, tag="partition"):
    topic_id: UUID
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    """In order of preference: the first leads when it can."""
    isr: tuple[int, ...]
    partition_epoch: int = 0
    """Counts every change of this partition, so that a change that was asked for on an old picture is refused."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """Of a reassignment under way: those that catch up, and those that go when they have."""


class TopicRemoved(MetadataRecord, frozen=True, tag="topic-removed"):
    name: str
    topic_id: UUID


class ConfigRecord(MetadataRecord, frozen=True, tag="config"):
    """`value=None` removes the override."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


class ProducerIdsRecord(MetadataRecord, frozen=True, tag="producer-ids"):
    """Ids below `next_producer_id` may have been handed out and never are again."""

    next_producer_id: int


class BrokerEndpoint(msgspec.Struct, frozen=True):
    """Where clients and other brokers reach it."""

    listener: str
    host: str
    port: int


class BrokerRecord(MetadataRecord, frozen=True, tag="broker"):
    """A broker as it registered, and whether it may lead. `fenced`: it was not heard of; `stopping`: it asked to go."""

    node_id: int
    incarnation: UUID
    """Of the process: one that was replaced can no longer speak for the broker."""
    broker_epoch: int
    directory_id: str
    """Of its disk: on another one it has none of what it had."""
    endpoints: tuple[BrokerEndpoint, ...] = ()
    rack: str | None = None
    fenced: bool = True
    stopping: bool = False


class BrokerRemoved(MetadataRecord, frozen=True, tag="broker-removed"):
    node_id: int


class VoterRecord(MetadataRecord, frozen=True, tag="voter"):
    """Whether this broker should have a vote in the quorum, whatever the list that brokers were started with says."""

    node_id: int
    votes: bool


AnyRecord = (
    ImageReset
    | TopicRecord
    | PartitionRecord
    | TopicRemoved
    | ConfigRecord
    | ProducerIdsRecord
    | BrokerRecord
    | BrokerRemoved
    | VoterRecord
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


def encode_record(record: MetadataRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> AnyRecord:
    return _decoder.decode(data)
