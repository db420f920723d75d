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
    isr: tuple[int, ...]


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


AnyRecord = ImageReset | TopicRecord | PartitionRecord | TopicRemoved | ConfigRecord | ProducerIdsRecord

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)


def encode_record(record: MetadataRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> AnyRecord:
    return _decoder.decode(data)
