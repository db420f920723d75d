"""Bugs in what is done about disks that go bad: for `mutations`, with the worlds that show each."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.replication.planted import Plant

from tidelog.cluster.replica import Replica
from tidelog.storage import log as log_module
from tidelog.storage.disk import storage_errors
from tidelog.storage.durable_log import DurableLog
from tidelog.storage.scan import BatchReader
from tidelog.wire.record_batch import BatchHeader

ROT = {"rot": True}


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


BUGS: dict[Plant, dict[str, Any]] = {
    followers_copy_damage: ROT,
    damaged_replicas_lead: ROT,
    damage_is_forgotten_with_the_next_checkpoint: ROT,
    what_cannot_be_read_is_cut_off: ROT,
    logs_go_on_after_half_a_cut: ROT,
}
"""With how to run the worlds that show it."""
