"""The metadata log: metadata records in an ordinary `storage.Log`, replayed into an image.

A single node's quorum is itself, so "committed" means flushed. What replicates this log later changes nothing above it.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord, TopicRemoved, decode_record, encode_record
from tidelog.config import TopicConfig
from tidelog.errors import CorruptMessage, StorageOffline
from tidelog.ids import Offset, TopicPartition
from tidelog.storage.log import Log
from tidelog.wire.record_batch import Record, build_batch, crc_of, iter_batches, iter_records

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_CONFIG: Final = TopicConfig(
    retention_ms=-1, segment_bytes=64 * 1024 * 1024, max_message_bytes=256 * 1024 * 1024
)

_READ_BYTES: Final = 4 * 1024 * 1024
_SNAPSHOT_WORTHWHILE: Final = 1000
_QUARANTINED: Final = ".corrupt-"  # in the name of what a recovery cut off and kept


class MetadataLog:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.removed_topics: dict[UUID, str] = {}
        """Topics removed since the last snapshot: their directories may still wait for deletion after a crash."""
        self._records_since_reset = 0

    def replay(self, image: MetadataImage) -> MetadataImage:
        """Raises CorruptMessage where the history is not what was written: half a history would hide topics, and a
        wrong one would delete them.
        """
        self._refuse_cut_history()
        offset = self.log.start_offset
        end = self.log.end_offset
        while offset < end:
            piece = self.log.read(offset, _READ_BYTES, upper=end)
            data = piece.file.read(piece.position, piece.length)
            records: list[AnyRecord] = []
            for header, batch in iter_batches(data):
                if crc_of(batch) != header.crc:
                    raise self._damaged(offset, "does not match its checksum")
                if header.base_offset != offset:  # outside the checksum, and everything is here: nothing is compacted
                    raise self._damaged(offset, f"calls itself {header.base_offset}")
                try:
                    records.extend(decode_record(bytes(record.value or b"")) for record in iter_records(batch))
                except msgspec.MsgspecError as error:
                    raise self._damaged(offset, f"cannot be read by this version: {error}") from error
                offset = Offset(header.last_offset + 1)
            if not records:
                raise self._damaged(offset, "is not whole")
            image = image.apply(records)
            self._note(records)
        return image

    def _refuse_cut_history(self) -> None:
        """Recovery cuts a log at a broken batch and keeps the rest aside. Of records that is the best there is."""
        kept = [name for name in self.log.disk.listdir(self.log.directory) if _QUARANTINED in name]
        if kept:
            raise CorruptMessage(
                f"the metadata log {self.log.directory} was damaged: topics and settings after offset "
                f"{self.log.end_offset} are only in {kept[0]}. Restore the directory from a copy, or remove that file "
                f"to go on without them"
            )

    def _damaged(self, offset: int, what: str) -> CorruptMessage:
        return CorruptMessage(
            f"the metadata log {self.log.directory} is damaged: the batch at offset {offset} {what}. "
            f"Restore the directory from a copy"
        )

    def append(self, records: Sequence[AnyRecord], *, now_ms: int) -> None:
        batch = build_batch(
            Record(offset, now_ms, None, encode_record(record), ()) for offset, record in enumerate(records)
        )
        self.log.append(bytearray(batch), leader_epoch=0, now_ms=now_ms)
        self._note(records)

    def snapshot_if_worthwhile(self, image: MetadataImage, *, now_ms: int) -> bool:
        """Rewrite the history as one batch once most of it is overwritten facts. True if it did. Where the disk has no
        room for it the history stays as it is: a broker must start to have something deleted."""
        whole = image.as_records()
        if self._records_since_reset < _SNAPSHOT_WORTHWHILE + 4 * len(whole):
            return False
        start = self.log.end_offset
        try:
            self.append(whole, now_ms=now_ms)
        except StorageOffline:
            return False
        self._records_since_reset = 0
        self.removed_topics.clear()
        flush = self.log.begin_flush()
        if flush is not None:
            flush.run()
            self.log.complete_flush(flush)
        # Only now, with the snapshot on disk, may what it replaces be forgotten.
        self.log.advance_start_offset(start)
        return True

    def _note(self, records: Sequence[AnyRecord]) -> None:
        self._records_since_reset += len(records)
        for record in records:
            if isinstance(record, TopicRemoved):
                self.removed_topics[record.topic_id] = record.name
