"""The store on a disk that can lose power: what it gives back, and what it refuses."""

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from raft_cluster import key_of, voters_of
from sim_disk import PowerLost, SimDisk

from tidelog.cluster.image import MetadataImage
from tidelog.cluster.metadata_log import METADATA_PARTITION, MetadataLog
from tidelog.cluster.quorum_store import QuorumStore, open_log
from tidelog.cluster.records import ProducerIdsRecord, decode_record
from tidelog.config import TopicConfig
from tidelog.consensus.control import decode_leader_change, encode_leader_change, encode_voters
from tidelog.consensus.entries import DATA, LEADER_CHANGE, VOTERS, Entry, HardState, SnapshotId
from tidelog.consensus.ready import SnapshotPiece, Write
from tidelog.consensus.snapshot_file import encode_snapshot
from tidelog.consensus.voters import Endpoint, Voter, VoterSet
from tidelog.errors import CorruptMessage
from tidelog.storage.recovery import verify
from tidelog.wire.record_batch import Record, build_batch, iter_records

DIRECTORY = "/data/__cluster_metadata-0"
CONFIG = TopicConfig(segment_bytes=2000, retention_ms=-1)


def batch(text: bytes, count: int = 1) -> bytes:
    return build_batch([Record(i, 0, None, text) for i in range(count)])


def open_store(disk: SimDisk, new_directory_id: str = "") -> QuorumStore:
    log = open_log(disk, DIRECTORY, METADATA_PARTITION, CONFIG, now_ms=0)
    return QuorumStore.open(log, 1, new_directory_id=new_directory_id or key_of(1).directory_id)


def sync(store: QuorumStore) -> None:
    job = store.begin_sync()
    if job is not None:
        job.run()
        store.complete_sync(job)


def write(store: QuorumStore, *entries: Entry, durable: bool = True, **fields: object) -> None:
    store.write(Write(store._number + 1, entries=entries, **fields))  # type: ignore[arg-type]
    if durable:
        sync(store)


def some_entries(count: int, *, start: int = 0, epoch: int = 1) -> list[Entry]:
    entries = []
    for number in range(count):
        size = 1 + number % 3
        entries.append(Entry(start, epoch, DATA, size, batch(b"%d of %d" % (number, epoch), size)))
        start += size
    return entries


def read_all(store: QuorumStore) -> list[Entry]:
    found: list[Entry] = []
    while (offset := found[-1].end if found else store.log.start_offset) < store.log.end_offset:
        found += store.read(offset, 500)
    return found


def test_entries_come_back_as_they_were() -> None:
    disk = SimDisk()
    store = open_store(disk)
    voters = VoterSet([Voter(*key_of(1), (Endpoint("CONTROLLER", "127.0.0.1", 9192),)), Voter(*key_of(2))])
    entries = [
        Entry(0, 0, VOTERS, 1, encode_voters(voters)),
        Entry(1, 3, LEADER_CHANGE, 1, encode_leader_change(1, voters, [key_of(1)])),
        *some_entries(40, start=2, epoch=3),
    ]
    write(store, *entries, hard_state=HardState(3, key_of(2)))
    again = open_store(disk, "another")
    assert again.key == key_of(1)
    restored = again.restore()
    assert restored.hard_state == HardState(3, key_of(2))
    assert restored.epochs == ((0, 0), (3, 1))
    assert restored.voters == ((1, voters),)
    assert (restored.start_offset, restored.end_offset) == (0, entries[-1].end)
    found = read_all(again)
    assert found == entries
    assert decode_leader_change(found[1].data) == 1
    assert len(again.log.segments) > 1
    assert verify(disk, DIRECTORY).problems == []


def test_a_metadata_log_of_a_single_node_is_opened_as_it_is() -> None:
    disk = SimDisk()
    log = open_log(disk, DIRECTORY, METADATA_PARTITION, CONFIG, now_ms=0)
    old = MetadataLog(log)
    old.append([ProducerIdsRecord(1000), ProducerIdsRecord(2000)], now_ms=5)
    old.append([ProducerIdsRecord(3000)], now_ms=6)
    log.close()
    store = open_store(disk)
    restored = store.restore()
    assert (restored.end_offset, restored.epochs, restored.voters) == (3, ((0, 0),), ())
    first, second = store.read(0, 1 << 20)
    assert (first.offset, first.count, second.offset, second.count) == (0, 2, 2, 1)
    write(store, Entry(3, 0, VOTERS, 1, encode_voters(voters_of(1))), *some_entries(3, start=4))
    image = MetadataImage("c")
    for entry in open_store(disk).read(0, 1 << 20)[:2]:
        image = image.apply([decode_record(record.value or b"") for record in iter_records(entry.data)])
    assert image.next_producer_id == 3000


def test_a_conflicting_tail_is_replaced_for_good() -> None:
    disk = SimDisk()
    store = open_store(disk)
    entries = some_entries(30)
    write(store, *entries)
    cut = entries[10].offset
    write(store, *some_entries(3, start=cut, epoch=2), truncate_to=cut, hard_state=HardState(2))
    disk.crash(Random(1))
    restored = open_store(disk).restore()
    assert restored.epochs == ((1, 0), (2, cut))
    assert restored.end_offset == cut + 6


@pytest.mark.parametrize("seed", range(60))
def test_power_lost_anywhere_leaves_all_that_was_synced_and_nothing_else(seed: int) -> None:
    dice = Random(seed)
    disk = SimDisk()
    store = open_store(disk)
    synced: list[Entry] = []
    written: list[Entry] = []
    epoch = promised = 0
    disk.crash_after = dice.randrange(400)
    try:
        while True:
            epoch += 1
            start = written[-1].end if written else 0
            cut = None
            if synced and dice.random() < 0.2:
                start = cut = dice.choice(synced).offset
                synced = [entry for entry in synced if entry.offset < cut]
                written = [entry for entry in written if entry.offset < cut]
            entries = some_entries(dice.randint(1, 6), start=start, epoch=epoch)
            written += entries
            write(store, *entries, durable=False, truncate_to=cut, hard_state=HardState(epoch))
            if dice.random() < 0.5:
                sync(store)
                synced = list(written)
                promised = epoch
    except PowerLost:
        disk.crash(dice)
    store = open_store(disk)
    assert store.restore().hard_state.epoch >= promised
    found = read_all(store)
    assert found[: len(synced)] == synced
    assert verify(disk, DIRECTORY).problems == []


def test_a_snapshot_takes_the_place_of_what_was_before_it() -> None:
    disk = SimDisk()
    store = open_store(disk)
    entries = some_entries(60)
    write(store, *entries)
    for slot in (20, 40, 50):
        snapshot = SnapshotId(entries[slot].offset, 1)
        store.save_snapshot(snapshot, voters_of(1, 2), batch(b"state %d" % slot))
        start = store.forget_before(snapshot)
    assert start == entries[40].offset
    again = open_store(disk)
    restored = again.restore()
    assert restored.snapshot == SnapshotId(entries[50].offset, 1)
    assert restored.snapshot_voters == voters_of(1, 2)
    assert restored.start_offset <= entries[40].offset
    (record,) = iter_records(again.load_snapshot(restored.snapshot))
    assert record.value == b"state 50"
    assert len([name for name in disk.listdir(DIRECTORY) if name.endswith(".checkpoint")]) == 2


def test_a_damaged_snapshot_is_not_believed() -> None:
    disk = SimDisk()
    store = open_store(disk)
    entries = some_entries(60)
    write(store, *entries)
    for slot in (20, 40):
        store.save_snapshot(SnapshotId(entries[slot].offset, 1), voters_of(1), batch(b"state %d" % slot))
        store.forget_before(SnapshotId(entries[slot].offset, 1))
    newest, older = sorted((name for name in disk.listdir(DIRECTORY) if name.endswith(".checkpoint")), reverse=True)
    disk.names[f"{DIRECTORY}/{newest}"].cache[150] ^= 1
    assert open_store(disk).restore().snapshot == SnapshotId(entries[20].offset, 1)
    disk.names[f"{DIRECTORY}/{older}"].cache[150] ^= 1
    store = open_store(disk)  # the whole history is still there
    assert store.restore().snapshot is None
    assert store.log.start_offset == 0


def pieces(snapshot: SnapshotId, content: bytes, size: int) -> list[SnapshotPiece]:
    return [
        SnapshotPiece(snapshot, at, content[at : at + size], at + size >= len(content))
        for at in range(0, len(content), size)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_an_installation_interrupted_anywhere_leaves_the_old_log_or_the_new_snapshot(seed: int) -> None:
    snapshot = SnapshotId(500, 7)
    content = encode_snapshot(voters_of(1, 2, 3), batch(b"state"))
    step = 0
    finished = False
    while not finished:
        disk = SimDisk()
        store = open_store(disk)
        write(store, *some_entries(30))
        end = store.log.end_offset
        disk.crash_after = step
        try:
            for piece in pieces(snapshot, content, 100):
                write(store, piece=piece)
            write(store, *some_entries(2, start=500, epoch=8), hard_state=HardState(8))
            finished = True
        except PowerLost:
            step += 1
        disk.crash(Random(seed))
        restored = open_store(disk).restore()
        if restored.snapshot is None:
            assert (restored.start_offset, restored.end_offset) == (0, end)
        else:
            assert restored.snapshot == snapshot
            assert restored.snapshot_voters == voters_of(1, 2, 3)
            assert restored.start_offset == 500
            assert restored.hard_state.epoch >= 7
    assert step > 20


def test_a_lost_vote_is_not_guessed() -> None:
    disk = SimDisk()
    store = open_store(disk)
    write(store, *some_entries(3), hard_state=HardState(1, key_of(2)))
    state = f"{DIRECTORY}/quorum-state"
    good = bytes(disk.names[state].cache)
    disk.names[state].cache[20] ^= 1
    with pytest.raises(CorruptMessage, match="joins anew"):
        open_store(disk)
    disk.names[state].cache[:] = good
    open_store(disk)
    disk.remove(state)
    with pytest.raises(CorruptMessage, match="voted"):
        open_store(disk)


def test_a_log_that_lost_what_was_committed_is_refused() -> None:
    disk = SimDisk()
    store = open_store(disk)
    entries = some_entries(20)
    write(store, *entries, hard_state=HardState(1))
    write(store, hard_state=HardState(2), commit=entries[-1].end)
    files = [name for name in disk.names if name.endswith(".log")]
    inode = disk.names[files[0]]
    inode.cache[len(inode.cache) // 2] ^= 1
    with pytest.raises(CorruptMessage, match="but was"):
        open_store(disk)


def test_a_flipped_bit_is_never_served() -> None:
    disk = SimDisk()
    store = open_store(disk)
    write(store, *some_entries(5))
    inode = next(inode for name, inode in disk.names.items() if name.endswith(".log"))
    inode.cache[70] ^= 1
    with pytest.raises(CorruptMessage, match="damaged at offset 0"):
        store.read(0, 1 << 20)
