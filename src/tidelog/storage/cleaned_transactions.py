"""What compaction must know of transactions.

Below the last stable offset all are decided. The records of aborted ones go; those of committed ones count like any
others. A marker outlives every batch of its transaction, or a replay would take the transaction for open; when a
compaction meets it without any, its own `delete.retention.ms` begins, and after that it goes.
"""

from bisect import bisect_right
from collections.abc import Iterable

from tidelog.errors import CorruptMessage
from tidelog.storage.disk import Disk
from tidelog.storage.index import IndexCorrupt
from tidelog.storage.naming import TXN_INDEX, parse_offset_name
from tidelog.storage.transaction_index import AbortedTransaction, TransactionIndex
from tidelog.wire.record_batch import TRANSACTIONAL, BatchHeader


def read_aborted(disk: Disk, directory: str) -> list[AbortedTransaction]:
    """All that any segment knows: the marker of a transaction may be in a later one than its records."""
    aborted: list[AbortedTransaction] = []
    for name in sorted(disk.listdir(directory)):
        parsed = parse_offset_name(name)
        if parsed and parsed[1] == TXN_INDEX:
            try:
                aborted += TransactionIndex.load(disk, f"{directory}/{name}", parsed[0])
            except IndexCorrupt as error:
                raise CorruptMessage(str(error)) from error
    return aborted


class Decisions:
    """Which batches belong to aborted transactions, for any batch at any time."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self.by_marker: dict[int, AbortedTransaction] = {}
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        for each in aborted:  # in the order of their markers, and one producer's do not overlap
            self.by_marker[each.last_offset] = each
            self._firsts.setdefault(each.producer_id, []).append(each.first_offset)
            self._lasts.setdefault(each.producer_id, []).append(each.last_offset)

    def aborted(self, header: BatchHeader) -> bool:
        if not header.attributes & TRANSACTIONAL:
            return False
        firsts = self._firsts.get(header.producer_id)
        if not firsts:
            return False
        slot = bisect_right(firsts, header.base_offset) - 1
        return slot >= 0 and header.base_offset < self._lasts[header.producer_id][slot]


class MarkersInUse:
    """One pass over a log from its start: which markers still end something that is there."""

    def __init__(self) -> None:
        self._with_batches: set[int] = set()

    def met_batch(self, header: BatchHeader) -> None:
        """Also one that is emptied or dropped now: it may come back as a bare header at the end of its segment."""
        if header.attributes & TRANSACTIONAL:
            self._with_batches.add(header.producer_id)

    def met_marker(self, header: BatchHeader) -> bool:
        """Whether batches of its transaction came before it."""
        if header.producer_id in self._with_batches:
            self._with_batches.discard(header.producer_id)
            return True
        return False
