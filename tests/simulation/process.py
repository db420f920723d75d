"""One replica as a process: it can crash, be paused, lose its disk. All of its code is the production code."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from random import Random

from sim_disk import SimDisk
from tests.simulation.state import FoldMachine

from tidelog.cluster.metadata_log import METADATA_PARTITION
from tidelog.cluster.quorum_store import DurableSync, QuorumStore, open_log
from tidelog.config import TopicConfig
from tidelog.consensus.control import encode_voters
from tidelog.consensus.driver import Driver
from tidelog.consensus.entries import VOTERS, Entry, HardState
from tidelog.consensus.raft import Raft
from tidelog.consensus.ready import Restored, Sync, Write
from tidelog.consensus.settings import Settings
from tidelog.consensus.voters import ReplicaKey, Voter, VoterSet

DIRECTORY = "/data/__cluster_metadata-0"
LOG_CONFIG = TopicConfig(segment_bytes=6000, retention_ms=-1, index_interval_bytes=1024)


def directory_id(node_id: int, generation: int) -> str:
    """Of the disk that a node has after `generation` replacements."""
    raw = node_id.to_bytes(8, "big") + generation.to_bytes(8, "big")
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


class WatchedStore(QuorumStore):
    """Says what is really on the disk."""

    durable_state = HardState()
    _syncing_state = HardState()

    @property
    def durable_end(self) -> int:
        return self.log.flushed_offset

    def restore(self) -> Restored:
        restored = super().restore()
        self.durable_state = restored.hard_state
        return restored

    def begin_sync(self) -> DurableSync | None:
        self._syncing_state = self._hard_state
        return super().begin_sync()

    def complete_sync(self, sync: Sync) -> int:
        self.durable_state = self._syncing_state
        return super().complete_sync(sync)


class Process:
    def __init__(self, node_id: int, dice: Random, settings: Settings, snapshot_bytes: int) -> None:
        self.id = node_id
        self.dice = dice
        self.settings = settings
        self.snapshot_bytes = snapshot_bytes
        self.generation = 0
        self.disk = SimDisk()
        self.up = False
        self.paused = False
        self.boots = 0
        self.clock_ahead = 0
        self.driver: Driver | None = None
        self.last_tick_scheduled = -1
        self.heard: dict[int, int] = {}
        self.commit = 0
        self.told = ""
        self.parked: list[Callable[[], None]] = []
        """What waits for the end of a pause."""
        self.acknowledged = (0, 0)
        """The newest epoch it answered a leader in, and how much of that one's log it said it has."""
        self.led_epoch = -1
        self.lost: list[tuple[ReplicaKey, int, Raft]] = []
        """Disks that this node had before: what they acknowledged may still be on its way."""
        self.undisturbed_since = 0

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, directory_id(self.id, self.generation))

    @property
    def raft(self) -> Raft:
        assert self.driver is not None
        return self.driver.raft

    @property
    def machine(self) -> FoldMachine:
        assert self.driver is not None
        assert isinstance(self.driver.machine, FoldMachine)
        return self.driver.machine

    @property
    def store(self) -> WatchedStore:
        assert self.driver is not None
        assert isinstance(self.driver.store, WatchedStore)
        return self.driver.store

    @property
    def alive(self) -> bool:
        return self.up and not self.paused

    def format(self, voters: VoterSet) -> None:
        """A disk on which these voters were written down before its first start."""
        log = open_log(self.disk, DIRECTORY, METADATA_PARTITION, LOG_CONFIG, now_ms=0)
        store = QuorumStore.open(log, self.id, new_directory_id=self.key.directory_id)
        store.write(Write(1, entries=(Entry(0, 0, VOTERS, 1, encode_voters(voters)),)))
        sync = store.begin_sync()
        assert sync is not None
        sync.run()
        store.complete_sync(sync)
        log.abandon("formatted")

    def start(self, now_ms: int, raft_class: type[Raft], store_class: type[WatchedStore]) -> None:
        log = open_log(self.disk, DIRECTORY, METADATA_PARTITION, LOG_CONFIG, now_ms=0)
        store = store_class.open(log, self.id, new_directory_id=self.key.directory_id)
        assert isinstance(store, WatchedStore)
        assert store.key == self.key
        raft = raft_class(
            store.key, store.restore(), store, settings=self.settings, dice=self.dice, now_ms=now_ms + self.clock_ahead
        )
        self.driver = Driver(raft, store, FoldMachine(), snapshot_bytes=self.snapshot_bytes)
        self.up = True
        self.paused = False
        self.parked.clear()
        self.boots += 1
        self.last_tick_scheduled = -1
        self.heard.clear()
        self.commit = 0

    def crash(self) -> None:
        """The power goes; what was not synced may be gone."""
        self.up = False
        if self.driver is not None:
            self.store.log.abandon("crashed")
        self.disk.crash(self.dice)

    def replace_disk(self) -> None:
        self.up = False
        if self.driver is not None:
            self.lost.append((self.key, self.store.durable_end, self.raft))
            self.driver = None
        self.acknowledged = (0, 0)
        self.generation += 1
        self.disk = SimDisk()

    def voter(self) -> Voter:
        return Voter(self.id, self.key.directory_id)
