"""A world of replicas with one clock, one seed and one thing happening at a time."""

import heapq
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from sim_disk import PowerLost
from tests.simulation.checks import Checks, Violation, require
from tests.simulation.network import Network
from tests.simulation.process import Process, WatchedStore
from tests.simulation.state import value_batch

from tidelog.consensus.driver import SnapshotJob
from tidelog.consensus.entries import Entry
from tidelog.consensus.errors import HandingOver, NotLeader
from tidelog.consensus.messages import AnyMessage, decode_message, encode_message
from tidelog.consensus.raft import Proposed, Raft
from tidelog.consensus.ready import Sync, Write
from tidelog.consensus.replica import LEADER
from tidelog.consensus.settings import Settings
from tidelog.consensus.voters import VoterSet
from tidelog.errors import InvariantViolated, KafkaError

ELECTION_MS = 300
HEARTBEAT_MS = 100


class Plan(NamedTuple):
    """What a seed decides before anything happens."""

    voters: int
    observers: int
    sync_ms: int
    snapshot_bytes: int
    cache_bytes: int
    in_flight: int
    piece_bytes: int

    @classmethod
    def roll(cls, dice: Random) -> "Plan":
        return cls(
            voters=dice.choice([1, 2, 3, 3, 3, 3, 4, 5]),
            observers=dice.choice([0, 1, 1, 2]),
            sync_ms=dice.choice([0, 2, 5, 20]),
            snapshot_bytes=dice.choice([2_000, 5_000, 1 << 30]),
            cache_bytes=dice.choice([500, 1 << 20]),
            in_flight=dice.choice([1, 4, 32]),
            piece_bytes=dice.choice([150, 1 << 20]),
        )


class World:
    def __init__(
        self,
        seed: int,
        raft_class: type[Raft] = Raft,
        store_class: type[WatchedStore] = WatchedStore,
        process_class: type[Process] = Process,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.plan = Plan.roll(self.dice)
        self.now = 0
        self.steps = 0
        self.network = Network(Random(self.dice.random()))
        self._raft_class = raft_class
        self._store_class = store_class
        self._log = log
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        settings = Settings(
            election_timeout_ms=ELECTION_MS,
            heartbeat_ms=HEARTBEAT_MS,
            append_bytes_max=600,
            appends_in_flight_max=self.plan.in_flight,
            bytes_in_flight_max=4000,
            committed_bytes_max=1500,
            snapshot_piece_bytes=self.plan.piece_bytes,
            observer_timeout_ms=3000,
            cache_bytes=self.plan.cache_bytes,
        )
        self.processes = {
            node_id: process_class(node_id, Random(self.dice.random()), settings, self.plan.snapshot_bytes)
            for node_id in range(1, self.plan.voters + self.plan.observers + 1)
        }
        self.checks = Checks(self.processes)
        self.proposals: dict[tuple[int, int], int] = {}  # (offset, epoch) to the number proposed there
        self.proposed = 0
        self.acked = 0
        self.slow_disk = 0

    # -- time ------------------------------------------------------------------------------------------------------

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay, self._sequence, action))

    def run_until(self, end: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end:
            when, _, action = heapq.heappop(queue)
            self.now = when
            self.steps += 1
            action()
        self.now = end

    def say(self, text: str) -> None:
        if self._log is not None:
            self._log(f"{self.now:>7} {text}")

    # -- processes -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        voters = VoterSet(self.processes[node_id].voter() for node_id in range(1, self.plan.voters + 1))
        for process in self.processes.values():
            if process.id <= self.plan.voters:
                process.format(voters)
            self.start(process)

    def start(self, process: Process) -> None:
        try:
            process.start(self.now, self._raft_class, self._store_class)
        except (PowerLost, OSError) as error:
            self.say(f"{process.id} dies while it starts: {error!r}")
            self.crash(process)
            self.at(50, lambda: None if process.up else self.start(process))
            return
        except KafkaError as error:
            raise Violation(f"{process.id} refuses to start: {error}") from error
        process.raft.follow_peers(self.processes)
        self.say(
            f"{process.id} starts: epoch {process.raft.epoch}, log {process.raft.log.start}..{process.raft.log.end}"
        )
        self.step(process)
        self._schedule_tick(process)

    def crash(self, process: Process) -> None:
        self.say(f"{process.id} loses power")
        process.crash()

    def resume(self, process: Process) -> None:
        """After a pause, with all that arrived meanwhile."""
        process.paused = False
        process.undisturbed_since = self.now
        parked, process.parked = process.parked, []
        for action in parked:
            self.at(0, action)

    def local(self, process: Process) -> int:
        return self.now + process.clock_ahead

    def act(self, process: Process, action: Callable[[], None]) -> bool:
        """Whether the process survived it."""
        try:
            action()
        except (PowerLost, OSError) as error:
            self.say(f"{process.id} dies: {error!r}")
            self.crash(process)
            return False
        except InvariantViolated as error:
            raise Violation(f"invariant on {process.id}: {error}") from error
        return True

    def step(self, process: Process) -> None:
        """Let it do what it wants, look at it, and carry its messages."""
        if self.act(process, lambda: self._turn(process)):
            self._schedule_tick(process)

    def _turn(self, process: Process) -> None:
        driver = process.driver
        assert driver is not None
        writes = _Writes(process)
        process.store.write = writes  # type: ignore[method-assign]
        turn = driver.turn()
        for entries in writes.entries:
            self.checks.appended(process, entries)
        applied = list(process.machine.applied)
        self.checks.after(process)
        if self._log is not None:
            self._tell(process)
        self._answer(process, applied)
        for grant in turn.reads:
            self.checks.read(process, grant.context)  # type: ignore[arg-type]
        for message in turn.messages:
            self.checks.sent(process, message)
            self._carry(message)
        if turn.sync is not None:
            self._sync_later(process, turn.sync)
        if turn.snapshot is not None:
            self._snapshot_later(process, turn.snapshot)

    def _tell(self, process: Process) -> None:
        raft = process.raft
        line = f"{process.id} is {raft.role} in epoch {raft.epoch}, voters {sorted(v.id for v in raft.voters)}"
        if line != process.told:
            process.told = line
            self.say(f"{line}, log {raft.log.start}..{raft.log.end}, commit {raft.commit}")

    def _answer(self, process: Process, applied: list[Entry]) -> None:
        """A leader that applies what it proposed acknowledges it."""
        if process.raft.role != LEADER:
            return
        for entry in applied:
            if entry.epoch == process.raft.epoch and (entry.offset, entry.epoch) in self.proposals:
                self.checks.acknowledged(entry)
                self.acked += 1

    def _carry(self, message: AnyMessage) -> None:
        for delay in self.network.delays(message.sender.id, message.to.id):
            if self._sequence % 16 == 0:
                message = decode_message(encode_message(message))
            self.at(delay, lambda message=message: self._deliver(message))  # type: ignore[misc]

    def _deliver(self, message: AnyMessage) -> None:
        process = self.processes[message.to.id]
        if not process.up:
            return
        if process.paused:
            process.parked.append(lambda: self._deliver(message))  # waits in a socket
            return
        process.heard[message.sender.id] = self.now
        if self.act(process, lambda: process.raft.receive(message, self.local(process))):
            self.step(process)

    def _schedule_tick(self, process: Process) -> None:
        at = max(process.raft.next_tick_ms - process.clock_ahead, self.now)
        if process.up and (process.last_tick_scheduled <= self.now or at < process.last_tick_scheduled):
            process.last_tick_scheduled = at
            boots = process.boots
            self.at(at - self.now, lambda: self._tick(process, boots))

    def _tick(self, process: Process, boots: int) -> None:
        if not process.up or process.boots != boots:
            return
        if process.paused:
            process.parked.append(lambda: self._tick(process, boots))
            return
        process.last_tick_scheduled = -1
        if self.local(process) >= process.raft.next_tick_ms:
            if not self.act(process, lambda: process.raft.tick(self.local(process))):
                return
            self._check_quorum(process)
            self.step(process)
        else:
            self._schedule_tick(process)

    def _check_quorum(self, process: Process) -> None:
        """A leader that hears from no majority steps down; one that just woke up gets a moment to listen."""
        raft = process.raft
        if process.led_epoch != raft.epoch or raft.role != LEADER:
            process.led_epoch = raft.epoch
            process.undisturbed_since = self.now
        if raft.role == LEADER and self.now - process.undisturbed_since > 3 * ELECTION_MS:
            oldest = self.now - 3 * ELECTION_MS
            heard = [key for key in raft.voters.keys if key == raft.key or process.heard.get(key.id, 0) > oldest]
            require(raft.voters.is_quorum(heard), f"check quorum: {process.id} still leads, and hears only {heard}")

    def _sync_later(self, process: Process, sync: Sync) -> None:
        boots = process.boots

        def done() -> None:
            if not process.up or process.boots != boots:
                return
            if self.act(process, sync.run):
                self._synced(process, sync)

        delay = int(self.dice.random() * (self.plan.sync_ms + self.slow_disk + 1))
        self.at(delay, done)

    def _synced(self, process: Process, sync: Sync) -> None:
        if process.paused:
            boots = process.boots
            process.parked.append(
                lambda: self._synced(process, sync) if process.up and process.boots == boots else None
            )
            return
        driver = process.driver
        assert driver is not None
        if self.act(process, lambda: driver.synced(sync, self.local(process))):
            self.step(process)

    def _snapshot_later(self, process: Process, job: SnapshotJob) -> None:
        boots = process.boots

        def done() -> None:
            if not process.up or process.boots != boots:
                return
            driver = process.driver
            assert driver is not None
            if self.act(process, job.run) and self.act(process, lambda: driver.snapshot_saved(job)):
                self.say(f"{process.id} has a snapshot of {job.snapshot.end_offset}")
                self.step(process)

        self.at(1 + int(self.dice.random() * 30), done)

    # -- clients ---------------------------------------------------------------------------------------------------

    def leader(self) -> Process | None:
        leading = [p for p in self.processes.values() if p.up and p.raft.role == LEADER]
        return max(leading, key=lambda p: p.raft.epoch, default=None)

    def propose(self, process: Process) -> Proposed | None:
        self.proposed += 1
        count = self.dice.choice([1, 1, 2, 3])
        data = value_batch(self.proposed, count, self.dice.choice([0, 40, 300]))
        try:
            proposed = process.raft.propose(data, count)
        except (NotLeader, HandingOver):
            return None
        self.proposals[proposed] = self.proposed
        self.step(process)
        return proposed

    def read(self, process: Process) -> None:
        try:
            process.raft.read(self.checks.acked_end)
        except NotLeader:
            return
        self.step(process)


class _Writes:
    """Stands before a store's `write` and remembers what was appended."""

    def __init__(self, process: Process) -> None:
        self._store = process.store
        self.entries: list[tuple[Entry, ...]] = []

    def __call__(self, write: Write) -> None:
        type(self._store).write(self._store, write)
        if write.entries:
            self.entries.append(write.entries)
