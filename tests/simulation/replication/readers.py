"""Readers of committed records at every replica, that never forget what they saw: of a transaction all or nothing, the
same for everybody, and what its producer was told."""

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.simulation.replication.checks import require

from tidelog.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from tidelog.wire.control import read_marker
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, iter_batches, iter_records

if TYPE_CHECKING:
    from tests.simulation.replication.seat import Seat
    from tests.simulation.replication.world import World

READ_BYTES = 1 << 16


class Txn:
    """A transaction as its producer knows it, and as readers see it."""

    def __init__(self, number: int, whose: str) -> None:
        self.number = number
        self.name = f"transaction {number} of {whose}"
        self.written: dict[bytes, int] = {}
        """What was acknowledged, and in which partition."""
        self.asked_commit = False
        self.told: bool | None = None
        """Committed or not, if its producer knows."""
        self.shown: set[bytes] = set()
        self.hidden: set[bytes] = set()
        """What was seen as part of an aborted transaction."""

    def __str__(self) -> str:
        return self.name


class Readers:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.txns: list[Txn] = []
        self._by_value: dict[bytes, Txn] = {}
        self._seen: dict[int, dict[int, bool]] = defaultdict(dict)
        """By partition and offset: whether what is there is shown to readers of committed records."""

    def begin(self, whose: str) -> Txn:
        txn = Txn(len(self.txns), whose)
        self.txns.append(txn)
        return txn

    def value(self, txn: Txn) -> bytes:
        value = b"t%d:%d" % (txn.number, len(self._by_value))
        self._by_value[value] = txn
        return value

    def fate(self, number: int, offset: int) -> bool | None:
        """Whether what is there is shown, if that is decided."""
        return self._seen[number].get(offset)

    # -- at every step ---------------------------------------------------------------------------------------------

    def look(self, seat: "Seat") -> None:
        """At what is decided at this replica since the last time."""
        replica = seat.replica
        if replica is None or seat.number >= len(self._world.data):
            return
        log, stable = replica.log, replica.last_stable_offset
        at = max(seat.stable_checked, log.start_offset)
        while at < stable:
            piece = replica.read(at, READ_BYTES, min_one=True, committed=True)
            waiting = sorted((first, producer) for producer, first in log.aborted_in(at, piece))
            ignored: set[int] = set()
            before = at
            for header, batch in iter_batches(piece.file.read(piece.position, piece.length)):
                while waiting and waiting[0][0] <= header.last_offset:
                    ignored.add(waiting.pop(0)[1])
                if header.attributes & CONTROL:
                    marker = read_marker(batch)
                    if marker is not None and not marker.committed:
                        ignored.discard(header.producer_id)
                else:
                    hidden = bool(header.attributes & TRANSACTIONAL) and header.producer_id in ignored
                    for record in iter_records(batch):
                        if record.offset >= before:
                            self._sees(seat, record.offset, bytes(record.value or b""), shown=not hidden)
                at = header.last_offset + 1
            if at == before:
                break
        seat.stable_checked = at

    def _sees(self, seat: "Seat", offset: int, value: bytes, *, shown: bool) -> None:
        known = self._seen[seat.number].setdefault(offset, shown)
        who = f"{seat.id}: {value!r} at {seat.number}/{offset}"
        require(known == shown, f"{who} is {'shown' if shown else 'hidden'}, which it was not to others")
        txn = self._by_value.get(value)
        if txn is None:
            require(shown, f"{who} is hidden, but in no transaction")
        elif shown:
            require(txn.asked_commit, f"{who} is shown, but {txn} never asked for a commit")
            require(txn.told is not False, f"{who} is shown, but {txn} was told that it is aborted")
            require(not txn.hidden, f"{who} is shown, but of {txn} {txn.hidden} is hidden")
            txn.shown.add(value)
        else:
            require(txn.told is not True, f"{who} is hidden, but {txn} was told that it is committed")
            require(not txn.shown, f"{who} is hidden, but of {txn} {txn.shown} is shown")
            txn.hidden.add(value)

    # -- in the end ------------------------------------------------------------------------------------------------

    def undecided(self) -> str:
        """What still keeps readers waiting."""
        for checks in self._world.data:
            for seat in checks.brokers.values():
                replica = seat.replica
                if replica is not None and replica.last_stable_offset < replica.high_watermark:
                    return f"a transaction is open in {seat.place} at {seat.id}"
        number = self._world.number_of(TRANSACTIONS_TOPIC)
        leader = self._world.brokers[self._world.controller.partition(number).leader]
        assert leader.rooms is not None
        hosts = list(leader.rooms.transactions.coordinator.hosts)
        if not hosts:
            return f"{leader.id} leads the transactions, but has not loaded them"
        return next((f"{each} has not ended" for each in hosts[0].shard.all() if each.state.is_running), "")

    def in_the_end(self) -> None:
        """An acknowledged commit is there, and of no transaction a part."""
        offsets = {value: offset for checks in self._world.data for offset, value in checks.truth.items()}
        for txn in self.txns:
            kept = {
                value
                for value, number in txn.written.items()
                if offsets[value] >= self._world.checks[number].deleted_below
            }
            missing = kept - txn.shown
            if txn.told is True or (txn.shown and txn.asked_commit):
                require(not missing, f"of {txn} {missing} is missing")
