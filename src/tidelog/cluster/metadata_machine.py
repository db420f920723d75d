"""The state that the quorum replicates: the metadata image, and how far it has been built."""

from uuid import UUID

from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord, TopicRemoved, decode_record, encode_record
from tidelog.consensus.entries import DATA, Entry
from tidelog.wire.record_batch import Record, build_batch, iter_batches, iter_records


class MetadataMachine:
    """Implements `consensus.driver.StateMachine`."""

    def __init__(self, cluster_id: str) -> None:
        self.image = MetadataImage(cluster_id)
        self.offset = 0
        """Everything before it is in the image."""
        self.removed_topics: dict[UUID, str] = {}
        """Since this process began: their directories may still be here from before."""

    def apply(self, entry: Entry) -> None:
        if entry.kind == DATA:
            records = decode_records(entry.data)
            self.image = self.image.apply(records)
            for record in records:
                if isinstance(record, TopicRemoved):
                    self.removed_topics[record.topic_id] = record.name
        self.offset = entry.end

    def snapshot(self) -> bytes:
        return encode_records(self.image.as_records(), 0)

    def load(self, data: bytes) -> None:
        self.image = MetadataImage(self.image.cluster_id, self.image.version).apply(decode_records(data))


def encode_records(records: list[AnyRecord], now_ms: int) -> bytes:
    return bytes(
        build_batch(Record(offset, now_ms, None, encode_record(record), ()) for offset, record in enumerate(records))
    )


def decode_records(data: bytes) -> list[AnyRecord]:
    return [
        decode_record(bytes(record.value or b"")) for _, batch in iter_batches(data) for record in iter_records(batch)
    ]
