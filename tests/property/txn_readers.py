"""Consumers that never forget what they saw, and what must hold of it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txn_client import Place

from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, iter_batches, iter_records

if TYPE_CHECKING:
    from txn_world_whole import World

FETCH = 12


@dataclass
class Reader:
    """A consumer of one partition that never forgets: it looks at everything visible, committed or not."""

    at: int = 0
    committed_at: int = 0
    stable: int = 0
    open: dict[int, int] = field(default_factory=dict)  # by producer id, the first offset
    seen: dict[int, bytes] = field(default_factory=dict)  # by offset, of what is committed


class Readers:
    def __init__(self, world: "World", places: tuple[Place, ...], names: tuple[str, ...]) -> None:
        self.world = world
        self.readers = {place: Reader() for place in places}
        self.names = names

    def observe(self) -> None:
        for place, reader in self.readers.items():
            if not (self._look(place, reader) and self._read_committed(place, reader)):
                return
        self._read_offsets()

    def _fetch(self, place: Place, offset: int, isolation: int) -> Any:
        wish = FetchPartition(
            partition=place[1], fetch_offset=offset, partition_max_bytes=self.world.dice.choice((300, 5000))
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=50_000,
            isolation_level=isolation,
            topics=(FetchTopic(topic=place[0], partitions=(wish,)),),
        )
        answer = self.world.ask(request, FETCH)
        if answer is None:
            return None
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            return None
        assert found.error_code == 0, f"{place} at {offset}: {ErrorCode(found.error_code).name}"
        return found

    def _look(self, place: Place, reader: Reader) -> bool:
        """Go through what is new, and hold the last stable offset against it. False if the broker went down."""
        while True:
            found = self._fetch(place, reader.at, 0)
            if found is None:
                return False
            assert found.high_watermark >= reader.at, f"{place}: what was visible is gone"
            batches = list(iter_batches(found.records or b""))
            for header, _ in batches:
                if header.last_offset < reader.at:
                    continue
                if header.attributes & CONTROL:
                    reader.open.pop(header.producer_id, None)
                elif header.attributes & TRANSACTIONAL:
                    reader.open.setdefault(header.producer_id, header.base_offset)
            if batches:
                reader.at = batches[-1][0].last_offset + 1
            elif reader.at < found.high_watermark:
                reader.at = found.high_watermark  # compaction left nothing behind this offset
            else:
                break
        expected = min([*reader.open.values(), found.high_watermark])
        assert found.last_stable_offset == expected, (
            f"{place}: the last stable offset is {found.last_stable_offset}, the log says {expected} ({reader.open})"
        )
        assert found.last_stable_offset >= reader.stable, f"{place}: the last stable offset went back"
        reader.stable = found.last_stable_offset
        return True

    def _read_committed(self, place: Place, reader: Reader) -> bool:
        while True:
            read = self._read_once(place, reader.committed_at)
            if read is None:
                return False
            after, records = read
            for offset, value in records:
                self._check_value(place, value)
                assert value not in reader.seen.values(), f"{place}: {value!r} is there twice"
                reader.seen[offset] = value
            if after == reader.committed_at:
                return True
            reader.committed_at = after

    def _read_once(self, place: Place, at: int) -> tuple[int, list[tuple[int, bytes]]] | None:
        found = self._fetch(place, at, 1)
        if found is None:
            return None
        waiting = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        ignored: set[int] = set()
        records: list[tuple[int, bytes]] = []
        after = at
        for header, batch in iter_batches(found.records or b""):
            after = header.last_offset + 1
            while waiting and waiting[0][0] <= header.last_offset:
                ignored.add(waiting.pop(0)[1])
            if header.attributes & CONTROL:
                # Compaction leaves a marker without its record, to keep the producer's epoch.
                if any((marker.key or b"")[2:4] == b"\x00\x00" for marker in iter_records(batch)):
                    ignored.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in ignored):
                records += [
                    (each.offset, bytes(each.value or b"")) for each in iter_records(batch) if each.offset >= at
                ]
        if after == at:
            after = max(at, found.last_stable_offset)  # compaction left nothing
        return after, records

    def _check_value(self, place: Place, value: bytes) -> None:
        txn = self.world.txns[int(value.split(b":")[0])]
        assert txn.asked_commit, f"{value!r} in {place} is visible, but {txn} never asked for a commit"
        assert txn.told is not False, f"{value!r} in {place} is visible, but {txn} was aborted"

    def _read_offsets(self) -> None:
        for group in [f"of-{name}" for name in self.names]:
            committed = self._offset_of(group, require_stable=False)
            if committed is None:
                return
            if committed >= 0:
                txn = self.world.txns[committed]
                assert txn.asked_commit, f"{group} is at {txn}, which never asked for a commit"
                assert txn.told is not False, f"{group} is at {txn}, which was aborted"

    def _offset_of(self, group: str, *, require_stable: bool) -> int | None:
        topics = (OffsetFetchRequestTopics(name="t", partition_indexes=(0,)),)
        groups = (OffsetFetchRequestGroup(group_id=group, topics=topics),)
        answer = self.world.ask(OffsetFetchRequest(groups=groups, require_stable=require_stable), 9)
        if answer is None or answer.groups[0].error_code:
            return None
        (found,) = answer.groups[0].topics[0].partitions
        assert not found.error_code, f"{group}: {ErrorCode(found.error_code).name}"
        offset: int = found.committed_offset
        return offset

    # -- in the end ----------------------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        assert self.world.machine is not None
        for place, reader in self.readers.items():
            assert not reader.open, f"{place}: {reader.open} never ended"
        for host in self.world.machine.transactions.coordinator.hosts:
            for each in host.shard.all():
                assert not each.state.is_running, f"{each} never ended"
        seen = {place: set(reader.seen.values()) for place, reader in self.readers.items()}
        for txn in self.world.txns:
            there = {value for value, place in txn.writes.items() if value in seen[place]}
            offset = self._offset_of(f"only-{txn.number}", require_stable=True) if txn.with_offsets else None
            parts = [len(there) == len(txn.writes)] * bool(txn.writes) + [offset == txn.number] * txn.with_offsets
            whole, none = all(parts), not there and offset in (None, -1)
            if txn.told is True:
                assert whole, f"{txn} was committed, but there is only {there}, {offset}"
            elif txn.told is False or not txn.asked_commit:
                assert none, f"{txn} was not committed, but there is {there}, {offset}"
            assert whole or none, f"{txn} is there in part: {there}, {offset}"
        self._check_order()

    def _check_order(self) -> None:
        for reader in self.readers.values():
            last: dict[int, int] = {}
            for offset in sorted(reader.seen):
                number, index = map(int, reader.seen[offset].split(b":"))
                assert last.get(number, -1) < index, "a transaction's records are not in the order of their writing"
                last[number] = index

    def check_again(self) -> None:
        """A reader that begins anew sees the same in the same places."""
        for place, reader in self.readers.items():
            at, records = 0, []
            while True:
                read = self._read_once(place, at)
                assert read is not None
                records += read[1]
                if read[0] == at:
                    break
                at = read[0]
            assert dict(records) == reader.seen, f"{place}: read again, it is different"
