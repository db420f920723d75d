"""Bugs in what is done about disks that go bad, and in compaction: for `mutations`, with the worlds that show each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.replication.planted import Plant

from tidelog.broker.cleaner import Cleaner
from tidelog.cluster.replica import Replica
from tidelog.storage import compaction
from tidelog.storage import log as log_module
from tidelog.storage.cleaned_transactions import Decisions
from tidelog.storage.cleaning import RecordFilter
from tidelog.storage.disk import storage_errors
from tidelog.storage.durable_log import DurableLog
from tidelog.storage.log import Log
from tidelog.storage.scan import BatchReader
from tidelog.wire.record_batch import BatchHeader

ROT = {"rot": True}
COMPACTION = {"compaction": True}
COMPACTED_TRANSACTIONS = {"partitions": 2, "compaction": True, "transactions": True}


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def followers_copy_damage() -> Iterator[None]:
    """They do not look at checksums, and a bit that flipped at the leader is everybody's."""
    with patch.object(log_module, "crc32c", lambda *_: _Anything()):
        yield


@contextmanager
def damaged_replicas_lead() -> Iterator[None]:
    """With what a recovery left of the log: who has everything cuts it off to be like them."""
    with patch.object(Replica, "is_damaged", property(lambda self: False)):
        yield


@contextmanager
def damage_is_forgotten_with_the_next_checkpoint() -> Iterator[None]:
    """And then a replica leads that had known that it must not."""
    with patch.object(Replica, "known_watermark", property(lambda self: self.high_watermark)):
        yield


@contextmanager
def what_cannot_be_read_is_cut_off() -> Iterator[None]:
    """A recovery that takes an error of the disk for the end of the log."""
    check = BatchReader.check

    def careless(self: BatchReader, position: int) -> BatchHeader | str:
        try:
            return check(self, position)
        except OSError as error:
            return str(error)

    with patch.object(BatchReader, "check", careless):
        yield


@contextmanager
def logs_go_on_after_half_a_cut() -> Iterator[None]:
    """Files are gone, and memory still has what was in them."""
    with patch.object(DurableLog, "_all_or_offline", lambda self, what: storage_errors(what)):
        yield


@contextmanager
def compaction_goes_up_to_the_end() -> Iterator[None]:
    """Beyond what is safe: what it takes for the last record of a key may be cut off, and the one before is gone."""
    assess = Cleaner._assess

    def hasty(self: Cleaner, replica: Replica) -> Any:
        stable = replica.last_stable_offset
        replica.last_stable_offset = replica.log.end_offset
        try:
            return assess(self, replica)
        finally:
            replica.last_stable_offset = stable

    with patch.object(Cleaner, "_assess", hasty):
        yield


@contextmanager
def tombstones_go_at_once() -> Iterator[None]:
    """Who comes later finds what was deleted, or nothing of it."""
    survivors = RecordFilter._survivors

    def hasty(self: RecordFilter, header: BatchHeader, spans: Any) -> Any:
        kept, _ = survivors(self, header, spans)
        return [span for span in kept if span[-1]], False

    with patch.object(RecordFilter, "_survivors", hasty):
        yield


@contextmanager
def compaction_drops_the_last() -> Iterator[None]:
    """Record of every key, as if another had come after it."""
    honest = compaction.map_keys

    def wrong(disk: Any, request: Any, decisions: Any) -> Any:
        keys = honest(disk, request, decisions)
        return keys._replace(offsets={key: offset + 1 for key, offset in keys.offsets.items()})

    with patch.object(compaction, "map_keys", wrong):
        yield


@contextmanager
def aborted_records_are_last_words() -> Iterator[None]:
    """What nobody may read makes compaction drop what everybody should."""
    honest = compaction.map_keys

    def careless(disk: Any, request: Any, decisions: Any) -> Any:
        return honest(disk, request, Decisions(()))

    with patch.object(compaction, "map_keys", careless):
        yield


@contextmanager
def gaps_between_segments() -> Iterator[None]:
    """A follower names a segment by its first batch, and not by where the last one ended: a recovery takes what its
    leader compacted in between for the lost end of a segment, and cuts off all that follows."""
    with patch.object(log_module, "MAX_RELATIVE_OFFSET", -1):
        yield


@contextmanager
def epochs_begin_where_their_first_record_is_left() -> Iterator[None]:
    """A follower takes what its leader compacted for records of the epoch before: another one, that has something else
    of that epoch there, is not told to cut it off."""
    place, assign = Log._place, Log._assign_epoch

    def careless(self: Log, batch: Any, base: int, *rest: Any) -> None:
        with patch.object(Log, "_assign_epoch", lambda self, epoch, start: assign(self, epoch, base)):
            place(self, batch, base, *rest)

    with patch.object(Log, "_place", careless):
        yield


BUGS: dict[Plant, dict[str, Any]] = {
    followers_copy_damage: ROT,
    damaged_replicas_lead: ROT,
    damage_is_forgotten_with_the_next_checkpoint: ROT,
    what_cannot_be_read_is_cut_off: ROT,
    logs_go_on_after_half_a_cut: ROT,
    compaction_goes_up_to_the_end: COMPACTION,
    tombstones_go_at_once: COMPACTION,
    compaction_drops_the_last: COMPACTION,
    aborted_records_are_last_words: COMPACTED_TRANSACTIONS,
    gaps_between_segments: COMPACTION,
    epochs_begin_where_their_first_record_is_left: COMPACTION,
}
"""With how to run the worlds that show it."""
