"""One partition's log: an unbroken run of segments that batches are appended to and read from as bytes.

The broker's loop owns it; only `Flush.run`, `RestartPoint.run` and `delete_segments` run in threads. After a failed
sync the log is failed for good. After a failed write it goes on only if the file could be cut back to what it was.
"""

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage, ErrorCode, FencedLeaderEpoch, KafkaError, OffsetOutOfRange, StorageOffline
from tidelog.storage.chain import Slice
from tidelog.storage.disk import Buffer, storage_errors
from tidelog.storage.durable_log import DurableLog
from tidelog.storage.epochs import LeaderEpochs
from tidelog.storage.flush import Flush
from tidelog.storage.index import MAX_RELATIVE_OFFSET
from tidelog.storage.open_transactions import Verification
from tidelog.storage.producer_state import ProducerStates
from tidelog.storage.replay import load_producers, replay_batch
from tidelog.storage.retention import count_expired
from tidelog.storage.segment import Segment
from tidelog.storage.swap import delete_segments
from tidelog.storage.timestamps import Search, find_by_time, find_newest
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.validation import check_batch, needs_preparation, prepare_batch
from tidelog.wire.checksum import crc32c
from tidelog.wire.control import Marker, build_marker, read_marker
from tidelog.wire.record_batch import (
    ATTRIBUTES_POSITION,
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    iter_batches,
    patch,
    read_header,
)

__all__ = ["AbortedTransaction", "Appended", "Flush", "Log", "Slice", "Verification", "delete_segments"]

_PLACE: Final = Struct(">qii")  # base offset, length, leader epoch: the fields before the checksum's range


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the topic uses LogAppendTime
    duplicate: bool


class Log(DurableLog):
    """Open one with `Log.open`, make one with `Log.create`."""

    # -- append ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        prepared: bool = False,
        from_coordinator: bool = False,
        verification: Verification | None = None,
    ) -> Appended:
        """One batch from a client, checked, numbered and written; or nothing of it. Not durable before a flush.

        A batch that `needs_verification` is refused without the `verification` that was begun for it. A coordinator's
        own batches carry no sequence.
        """
        if self.failure is not None:
            self._check_online()
        config = self.config
        if from_coordinator:
            header = check_batch(records, config, now_ms, sequenced=False)
        else:
            header = check_batch(records, config, now_ms)
        if not prepared and needs_preparation(header, config):
            records = prepare_batch(records, config)
            header = read_header(records)
        producer_id = header.producer_id
        if producer_id >= 0:
            producers = self.producers
            if header.base_sequence < 0:
                producers.check_epoch(producer_id, header.producer_epoch)
            else:
                original = producers.check(
                    producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta
                )
                if original is not None:
                    append_time = original.timestamp if config.message_timestamp_type == "LogAppendTime" else -1
                    return Appended(original.base_offset, original.last_offset, append_time, True)
            if header.attributes & TRANSACTIONAL:
                producers.check_transactional(header, verification)
            elif producers.transactions.open:
                producers.check_plain(producer_id)
        base = self.end_offset
        last = base + header.last_offset_delta
        batch = _writable(records)
        # Outside the CRC's range, so the producer's checksum stays valid.
        _PLACE.pack_into(batch, 0, base, header.batch_length, leader_epoch)
        timestamp = header.max_timestamp
        append_time = -1
        if config.message_timestamp_type == "LogAppendTime":
            timestamp = append_time = now_ms
            patch(batch, append_time_ms=now_ms)
        self._place(batch, base, last, timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            self.producers.update(header, base, timestamp, now_ms)
        return Appended(base, last, append_time, False)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = 1,
    ) -> Appended:
        """The end of a producer's transaction, written also where none is open: that a retry comes late is no error.

        From `transaction_version` 2 on the coordinator raises the epoch before it writes markers, so one that is not
        newer than an open transaction belongs to an earlier one and is refused.
        """
        self._check_online()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        marker = Marker(committed, coordinator_epoch)
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms)
        offset = self.end_offset
        append_time = now_ms if self.config.message_timestamp_type == "LogAppendTime" else None
        patch(batch, base_offset=offset, leader_epoch=leader_epoch, append_time_ms=append_time)
        aborted = self.producers.aborted_by(producer_id, marker, offset)
        self._place(batch, offset, offset, now_ms, leader_epoch, now_ms, aborted)
        self.producers.end_transaction(producer_id, producer_epoch, marker, offset, now_ms, now_ms)
        return Appended(offset, offset, -1 if append_time is None else append_time, False)

    def needs_verification(self, header: BatchHeader) -> bool:
        """Whether an append of this batch would begin a transaction here, so that its coordinator must be asked."""
        return self.producers.needs_verification(header)

    def begin_verification(self, header: BatchHeader, *, every_epoch_is_new: bool = False) -> Verification:
        """Before the coordinator is asked; pass it to `append` when the answer is yes. `every_epoch_is_new`: the
        producer gets a new epoch with each transaction (Produce 12 and later), and so begins each at sequence 0."""
        return self.producers.verifications.begin(header, every_epoch_is_new=every_epoch_is_new)

    def append_as_follower(self, records: Buffer, *, now_ms: int = 0) -> int:
        """Batches as a leader numbered them. Returns the new end offset. A partial last batch is left out."""
        self._check_online()
        if self._cut:
            self._settle_cut()
        for header, batch in iter_batches(records):
            if crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
                raise CorruptMessage(f"{self.partition}: batch {header.base_offset} does not match its checksum")
            if header.base_offset < self.end_offset or header.last_offset_delta < 0:
                raise CorruptMessage(f"{self.partition}: batch {header.base_offset} comes after {self.end_offset - 1}")
            if header.partition_leader_epoch < self.epochs.latest:
                self._forget_empty_epochs(header.base_offset)
            marker = read_marker(batch) if header.attributes & CONTROL else None
            self._place(
                batch,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.partition_leader_epoch,
                now_ms,
                self.producers.aborted_by(header.producer_id, marker, header.base_offset),
            )
            replay_batch(self.producers, header, marker, now_ms)
        return self.end_offset

    def _place(
        self,
        batch: Buffer,
        base: int,
        last: int,
        timestamp: int,
        leader_epoch: int,
        now_ms: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """`aborted` is what this batch, a marker, aborts."""
        config = self.config
        segment = self._chain.active
        size = len(batch)
        if size > config.segment_bytes:
            raise KafkaError(
                f"batch of {size} bytes exceeds segment.bytes={config.segment_bytes}", ErrorCode.RECORD_LIST_TOO_LARGE
            )
        try:
            if segment.needs_roll(size, last, timestamp, now_ms, config):
                # Where the last ends, whatever a leader compacted then: a recovery takes a gap here for a lost end.
                near = last - self.end_offset <= MAX_RELATIVE_OFFSET
                segment = self._roll(self.end_offset if near else base, now_ms)
            if leader_epoch != self.epochs.latest:
                # Not at `base`: what a leader compacted before it is of an unknown epoch, and not of the last one here.
                self._assign_epoch(leader_epoch, self.end_offset)
            if aborted is not None:
                self._chain.append_aborted(aborted)
            segment.append(batch, base, last, timestamp)
        except OSError as error:
            if aborted is not None:
                segment.transactions.truncate(base)
            if segment.write_failed:
                self.fail(f"a failed write to {segment.path} could not be undone: {error}")
            raise StorageOffline(f"{self.partition}: {error}") from error
        self.end_offset = last + 1
        self._dirty = self._touched = True

    def _assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        if leader_epoch < self.epochs.latest:
            raise FencedLeaderEpoch(f"{self.partition}: epoch {leader_epoch} ended; {self.epochs.latest} is current")
        if self._cut:
            self._settle_cut()
        epochs = self.epochs.copy()
        epochs.assign(leader_epoch, start_offset)
        self._note_epochs(epochs)

    def _settle_cut(self) -> None:
        """Before anything is written behind a cut it must be durable. Else a power loss could bring back what was cut
        off and keep what was written in a later segment: a history that never was, and that its epochs don't betray.
        """
        with storage_errors(str(self.partition)):
            self.flush()

    def _forget_empty_epochs(self, offset: int) -> None:
        """Epochs that this broker began at the end of the log, and wrote nothing in: another's history goes on here."""
        epochs = self.epochs.copy()
        epochs.truncate_from_end(offset)
        with storage_errors(str(self.partition)):
            self._note_epochs(epochs)

    def _note_epochs(self, epochs: LeaderEpochs) -> None:
        # Known to a recovery before any batch of the epoch is; the next flush makes it durable. On disk before in
        # memory, or after an error the next batch would be written without.
        self._write_epochs(epochs.encode())
        epochs.dirty = True
        self.epochs = epochs

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader begins here: earlier epochs end at this offset, also if it never writes anything."""
        self._check_online()
        with storage_errors(str(self.partition)):
            self._assign_epoch(leader_epoch, self.end_offset)

    def _roll(self, base: int, now_ms: int) -> Segment:
        segment = self._chain.roll(base, self.config.index_interval_bytes, now_ms)
        self._names_changed()
        with suppress(OSError):  # a missing snapshot is a longer replay, not a failed append
            self._snapshots.take(base, self.producers)
        self._snapshot_at = 0
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment unless the active one is empty."""
        self._check_online()
        if self.active_segment.size:
            with storage_errors(str(self.partition)):
                self._roll(self.end_offset, now_ms)

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper: int, min_one: bool = True) -> Slice:
        """Batches from the one that holds `offset`, none reaching `upper`. May cut inside a batch at `max_bytes`."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset >= upper:
            return Slice(self.active_segment.file, self.active_segment.size, 0)
        return self._chain.read(offset, max_bytes, upper, min_one)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and the decision visible to readers up to `high_watermark`."""
        transactions = self.producers.transactions
        if not (transactions.open or transactions.ended):
            return high_watermark
        first = transactions.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, self.start_offset))

    def aborted_transactions(self, fetch_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of all that a reader of `[fetch_offset, upper_offset)` must leave out.

        Raises CorruptMessage if that can't be known.
        """
        return [(each.producer_id, each.first_offset) for each in self._chain.aborted(fetch_offset, upper_offset)]

    def aborted_in(self, fetch_offset: int, records: Slice) -> list[tuple[int, int]]:
        """The same for what `read` returned for `fetch_offset`."""
        if not self._chain.any_aborted:
            return []
        return self.aborted_transactions(fetch_offset, self._chain.upper_bound(fetch_offset, records))

    def find_by_time(self, timestamp: int, upper: int) -> Search:
        """The first record not older than `timestamp`, also inside a batch and where timestamps are out of order."""
        return find_by_time(lambda: self.segments, timestamp, self.start_offset, upper)

    def find_newest(self, upper: int) -> Search:
        return find_newest(lambda: self.segments, self.start_offset, upper)

    # -- what makes a log shorter ----------------------------------------------------------------------------------

    def advance_start_offset(self, offset: int) -> None:
        """DeleteRecords: nothing before `offset` is readable any more; `expire` frees the space."""
        self._check_online()
        if offset > self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset > self.start_offset:
            self.start_offset = offset
            self._touched = True

    def expire(self, now_ms: int, upper: int) -> list[Segment]:
        """Let go of segments that retention no longer keeps; the caller unlinks them with `delete_segments`."""
        self._check_online()
        stable = self.last_stable_offset(upper)  # what is undecided stays, however old it is
        count = count_expired(self.segments, self.config, start_offset=self.start_offset, upper=stable, now_ms=now_ms)
        if count == 0:
            return []
        with storage_errors(str(self.partition)):
            if count == len(self.segments):
                self._roll(self.end_offset, now_ms)
            gone = self._chain.drop_first(count)
        first = self.segments[0].base_offset
        self.advance_start_offset(first)
        # By segment, not by start offset: a recovery checks the epoch of every batch that is still in a file.
        self.epochs.truncate_from_start(first)
        for segment in gone:
            self._snapshots.remove(segment.base_offset)
        self._names_changed()
        return gone

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        return self.producers.expire(now_ms - expiration_ms)

    def truncate_to(self, offset: int) -> None:
        """Forget everything at or behind `offset`, and any batch that reaches it. Write a checkpoint before the next
        append: a recovery believes everything before the recovery point, and that may lie behind `offset`."""
        self._check_online()
        if offset >= self.end_offset:
            return
        with self._all_or_offline("cutting it"):
            end, gone = self._chain.truncate_to(max(offset, self.segments[0].base_offset))
            self._generation += 1
            self._lowest_cut = end if self._lowest_cut is None else min(self._lowest_cut, end)
            self._cut = True
            self.end_offset = end
            self.flushed_offset = min(self.flushed_offset, end)
            self.start_offset = min(self.start_offset, end)
            self.epochs.truncate_from_end(end)
            self._snapshots.remove_above(end)
            seen, self.producers = self.producers, load_producers(self._snapshots, self.segments, end)
            self.producers.seen_as_in(seen)
            delete_segments(gone)
            self._snapshot_at = 0
            self._dirty = True
            self._names_changed()
            with suppress(OSError):  # the next flush writes it
                # What comes here next may be of an earlier epoch, which a recovery must not take for damage.
                self._note_epochs(self.epochs)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Forget everything and go on at `offset`: a follower so far behind that its leader has nothing to join on to
        any more."""
        self._check_online()
        self.truncate_to(self.segments[0].base_offset)
        with self._all_or_offline("beginning it anew"):
            # A transaction that was open here may have ended before `offset`, where no marker can come from any more.
            self.producers = ProducerStates()
            self._roll(offset, now_ms)
            gone = self._chain.drop_first(len(self.segments) - 1)
            for segment in gone:
                self._snapshots.remove(segment.base_offset)
            self._generation += 1
            # Not flushed: that nothing is missing before `offset` must be durable before anybody is told so.
            self.start_offset = self.end_offset = offset
            self.flushed_offset = min(self.flushed_offset, offset)
            self.epochs.truncate_from_end(0)
            delete_segments(gone)
        self._dirty = self._cut = True
        self._names_changed()

    def swap_segments(self, old: Sequence[Segment], cleaned: Sequence[str]) -> list[Segment]:
        """Compaction's result takes the place of `old`, which is returned to be unlinked by `delete_segments`."""
        self._check_online()
        self._names_changed()
        with storage_errors(str(self.partition)):
            # They may know a transaction whose marker is now gone, and would never see it end.
            self._snapshots.remove_below(old[-1].next_offset)
        with self._all_or_offline("swapping segments"):
            gone = self._chain.swap(old, cleaned, self.config.index_interval_bytes)
        with storage_errors(str(self.partition)):
            # Those of segments that were merged into others begin nowhere any more.
            self._snapshots.prune([segment.base_offset for segment in self.segments])
        return gone


def _writable(records: Buffer) -> bytearray | memoryview:
    """Patched in place if the caller's buffer allows it: the bytes then go from the socket to the file uncopied."""
    if isinstance(records, memoryview):
        return bytearray(records) if records.readonly else records
    return records if isinstance(records, bytearray) else bytearray(records)
