"""A few replicas in one process with nothing between them: messages wait until the test lets them through."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from random import Random

from tidelog.consensus.control import decode_voters, encode_voters
from tidelog.consensus.driver import Driver
from tidelog.consensus.entries import DATA, VOTERS, Entry, HardState, SnapshotId
from tidelog.consensus.messages import AnyMessage, decode_message, encode_message
from tidelog.consensus.raft import Raft
from tidelog.consensus.ready import ReadGrant, Restored, Sync, Write
from tidelog.consensus.replica import LEADER
from tidelog.consensus.settings import DEFAULTS, Settings
from tidelog.consensus.voters import ReplicaKey, Voter, VoterSet


def key_of(node_id: int, disk: int = 0) -> ReplicaKey:
    raw = node_id.to_bytes(8, "big") + disk.to_bytes(8, "big")
    return ReplicaKey(node_id, urlsafe_b64encode(raw).rstrip(b"=").decode("ascii"))


def voters_of(*node_ids: int) -> VoterSet:
    return VoterSet(Voter(*key_of(node_id)) for node_id in node_ids)


class MemorySync:
    def __init__(self, number: int) -> None:
        self.number = number

    def run(self) -> None:
        pass


class MemoryStore:
    """Forgets everything with the process."""

    def __init__(self, key: ReplicaKey, voters: VoterSet | None = None) -> None:
        self.key = key
        self.hard_state = HardState()
        self.entries: list[Entry] = []
        self.snapshots: dict[SnapshotId, tuple[VoterSet, bytes]] = {}
        self.start = 0
        self._number = self._synced = 0
        self._arriving = bytearray()
        if voters is not None:
            self.entries.append(Entry(0, 0, VOTERS, 1, encode_voters(voters)))

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else self.start

    def restore(self) -> Restored:
        epochs: dict[int, int] = {}
        for entry in self.entries:
            epochs.setdefault(entry.epoch, entry.offset)
        changes = [(entry.end, decode_voters(entry.data)) for entry in self.entries if entry.kind == VOTERS]
        newest = max(self.snapshots, default=None)
        voters = VoterSet() if newest is None else self.snapshots[newest][0]
        return Restored(self.hard_state, newest, voters, self.start, self.end, tuple(epochs.items()), tuple(changes))

    def read(self, offset: int, max_bytes: int) -> Sequence[Entry]:
        return [entry for entry in self.entries if entry.offset >= offset]

    def write(self, write: Write) -> None:
        self._number = write.number
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.piece is not None:
            self._arriving[write.piece.position :] = write.piece.data
            if write.piece.last:
                self.snapshots[write.piece.snapshot] = (VoterSet(), bytes(self._arriving))
                self.entries = []
                self.start = write.piece.snapshot.end_offset
        if write.truncate_to is not None:
            self.entries = [entry for entry in self.entries if entry.offset < write.truncate_to]
        self.entries += write.entries

    def begin_sync(self) -> Sync | None:
        return None if self._number == self._synced else MemorySync(self._number)

    def complete_sync(self, sync: Sync) -> int:
        self._synced = sync.number
        return sync.number

    def snapshot_size(self, snapshot: SnapshotId) -> int:
        return len(self.snapshots[snapshot][1])

    def read_snapshot(self, snapshot: SnapshotId, position: int, length: int) -> bytes:
        return self.snapshots[snapshot][1][position : position + length]

    def save_snapshot(self, snapshot: SnapshotId, voters: VoterSet, data: bytes) -> None:
        self.snapshots[snapshot] = (voters, data)

    def load_snapshot(self, snapshot: SnapshotId) -> bytes:
        return self.snapshots[snapshot][1]

    def forget_before(self, snapshot: SnapshotId) -> int:
        self.entries = [entry for entry in self.entries if entry.offset >= snapshot.end_offset]
        self.start = snapshot.end_offset
        return self.start


class Values:
    """A state machine that is the list of what was proposed."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, entry: Entry) -> None:
        if entry.kind == DATA:
            self.values.append(entry.data)

    def snapshot(self) -> bytes:
        return b"\n".join(self.values)

    def load(self, data: bytes) -> None:
        self.values = data.split(b"\n") if data else []


class Member:
    def __init__(self, store: MemoryStore, settings: Settings, now_ms: int, snapshot_bytes: int) -> None:
        dice = Random(store.key.id)
        self.store = store
        self.machine = Values()
        self.raft = Raft(store.key, store.restore(), store, settings=settings, dice=dice, now_ms=now_ms)
        self.driver = Driver(self.raft, store, self.machine, snapshot_bytes=snapshot_bytes)
        self.reads: list[ReadGrant] = []
        self.refused: list[object] = []


class Cluster:
    def __init__(
        self, *voters: int, others: Sequence[int] = (), settings: Settings = DEFAULTS, snapshot_bytes: int = 1 << 40
    ) -> None:
        self.now = 0
        self.settings = settings
        self.snapshot_bytes = snapshot_bytes
        self.members: dict[int, Member] = {}
        self.inbox: list[AnyMessage] = []
        self.sent: list[AnyMessage] = []
        self.filter: Callable[[AnyMessage], bool] = lambda message: True
        """Which messages get through."""
        for node_id in voters:
            self.boot(MemoryStore(key_of(node_id), voters_of(*voters)))
        for node_id in others:
            self.boot(MemoryStore(key_of(node_id)))

    def boot(self, store: MemoryStore) -> Member:
        member = Member(store, self.settings, self.now, self.snapshot_bytes)
        self.members[store.key.id] = member
        for each in self.members.values():
            each.raft.follow_peers(self.members)
        self.turn(member)
        return member

    def __getitem__(self, node_id: int) -> Raft:
        return self.members[node_id].raft

    def turn(self, member: Member, *, syncs: bool = True) -> None:
        while True:
            turn = member.driver.turn()
            self.inbox += turn.messages
            member.reads += turn.reads
            member.refused += turn.refused_reads
            if turn.snapshot is not None:
                turn.snapshot.run()
                member.driver.snapshot_saved(turn.snapshot)
            if turn.sync is None or not syncs:
                return
            turn.sync.run()
            member.driver.synced(turn.sync, self.now)

    def settle(self) -> None:
        """Deliver until nobody has anything to say."""
        while self.inbox:
            message = self.inbox.pop(0)
            self.sent.append(message)
            member = self.members.get(message.to.id)
            if member is not None and self.filter(message):
                member.raft.receive(decode_message(encode_message(message)), self.now)
                self.turn(member)

    def elapse(self, ms: int, step: int = 20) -> None:
        for _ in range(0, ms, step):
            self.now += step
            for member in self.members.values():
                member.raft.tick(self.now)
                self.turn(member)
            self.settle()

    def elect(self, node_id: int) -> Raft:
        """Make this one the leader, whatever its dice say."""
        member = self.members[node_id]
        member.raft._on_election_timeout()
        self.turn(member)
        self.settle()
        assert member.raft.role == LEADER
        return member.raft

    def propose(self, node_id: int, data: bytes, count: int = 1) -> None:
        self[node_id].propose(data, count)
        self.turn(self.members[node_id])
        self.settle()

    def isolate(self, *node_ids: int) -> None:
        self.filter = lambda message: message.sender.id not in node_ids and message.to.id not in node_ids

    def heal(self) -> None:
        self.filter = lambda message: True

    def leader(self) -> Raft:
        leading = [member.raft for member in self.members.values() if member.raft.role == LEADER]
        return max(leading, key=lambda raft: raft.epoch)
