"""This broker's replica of the metadata quorum, run: timers, syncs in threads, messages to the others.

What to do is decided by `consensus.Raft`, in what order by `consensus.Driver`.
"""

import asyncio
from asyncio import AbstractEventLoop, Future, Task, TimerHandle
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.links import Address, PeerLink, Unreachable
from tidelog.clock import Clock
from tidelog.cluster.metadata_machine import MetadataMachine, encode_records
from tidelog.cluster.records import AnyRecord
from tidelog.consensus.driver import Driver, SnapshotJob
from tidelog.consensus.entries import Entry, SnapshotId
from tidelog.consensus.errors import NotLeader
from tidelog.consensus.formation import newcomers, next_voter
from tidelog.consensus.messages import AnyMessage, decode_message, encode_message
from tidelog.consensus.raft import Raft
from tidelog.consensus.ready import Store, Sync
from tidelog.consensus.settings import Dice, Settings
from tidelog.consensus.voters import NOBODY, Endpoint, ReplicaKey, Voter
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.disk import OUT_OF_DESCRIPTORS
from tidelog.wire.messages.peers import QuorumRequest

SEND_SECONDS: Final = 2.0
UNSENT_MAX: Final = 64
"""Messages to one broker that wait to be sent. More are dropped: the quorum bears that, and will say it again."""
MESSAGES_AT_ONCE: Final = 16
RETRY_SECONDS: Final = 0.1
"""Until a sync that found no free descriptor is tried again."""

log = get_logger("quorum")


class Conflict(Exception):
    """Another change came first. Follow the metadata to `offset` and decide again."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"decided on an image older than {offset}")
        self.offset = offset


class Quorum:
    def __init__(
        self,
        store: Store,
        machine: MetadataMachine,
        *,
        cluster_id: str,
        own_address: Address,
        voters: dict[int, Address],
        settings: Settings,
        snapshot_bytes: int,
        dice: Dice,
        clock: Clock,
        loop: AbstractEventLoop,
        on_failure: Callable[[str], None],
    ) -> None:
        self.machine = machine
        self.node_id = store.key.id
        self.addresses = dict(voters)
        """Of every broker that was heard of, where it listens for brokers."""
        self.on_applied: Callable[[], None] = lambda: None
        self.on_leader: Callable[[int], None] = lambda leader_id: None
        """Told when another broker, or none, leads the quorum."""
        self._cluster_id = cluster_id
        self._own_address = own_address
        self._voters = voters
        self._clock = clock
        self._loop = loop
        self._on_failure = on_failure
        self._store = store
        self.raft = Raft(store.key, store.restore(), store, settings=settings, dice=dice, now_ms=clock.monotonic_ms())
        self.raft.follow_peers(voters)
        self._driver = Driver(self.raft, store, _Noting(self), snapshot_bytes=snapshot_bytes)
        self._links: dict[int, _Outbox] = {}
        self._tick: TimerHandle | None = None
        self._known_leader = NOBODY
        self._decided = 0
        """As leader: the end of the last change in the log, committed or not."""
        self._proposed: dict[int, tuple[int, Future[int]]] = {}
        self._waiting: list[tuple[int, Future[None]]] = []
        self._failed = False
        self._tasks: set[Task[None]] = set()

    # -- what can be asked ------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        return self.raft.leader_id

    @property
    def leads(self) -> bool:
        return self.raft.leader_id == self.node_id

    @property
    def is_new(self) -> bool:
        """Belongs to no quorum, and has never heard of one."""
        return len(self.raft.voters) == 0 and self.raft.leader_id == NOBODY and self.raft.epoch == 0

    def start(self) -> None:
        self._turn()

    def form(self) -> None:
        """Begin a quorum with this broker as its only voter. The others are added when they have caught up."""
        self.raft.form(self._voter(self.node_id, self.raft.key.directory_id), self._clock.monotonic_ms())
        self._turn()

    def receive(self, node_id: int, address: Address, messages: Sequence[bytes | bytearray | memoryview]) -> None:
        if self._failed:
            return
        self.addresses[node_id] = address
        now_ms = self._clock.monotonic_ms()
        for message in messages:
            self.raft.receive(decode_message(message), now_ms)
        self._turn()

    def hung_up(self, node_id: int) -> None:
        """A broker's connection ended: that of a leader most likely because its process did."""
        if not self._failed and node_id == self.raft.leader_id:
            self.raft.leader_gone(self._clock.monotonic_ms())
            self._turn()

    async def propose(self, records: Sequence[AnyRecord], expected: int) -> int:
        """Append a change that was decided on the image at `expected`. The end of the metadata with it, when it is
        committed. Raises NotLeader, Conflict, or KafkaError if what became of it is not known."""
        if not self.leads or self._failed:
            raise NotLeader(self.raft.leader_id)
        if expected < self._decided:
            await self.reached(self._decided)
            raise Conflict(self._decided)
        batch = encode_records(list(records), self._clock.now_ms())
        proposed = self.raft.propose(batch, len(records))
        self._decided = proposed.offset + len(records)
        committed: Future[int] = self._loop.create_future()
        self._proposed[proposed.offset] = (proposed.epoch, committed)
        self._turn()
        return await committed

    async def reached(self, offset: int) -> None:
        """Until the image has everything before `offset`."""
        if self.machine.offset >= offset:
            return
        waiting: Future[None] = self._loop.create_future()
        self._waiting.append((offset, waiting))
        await waiting

    def hand_over(self, successor: ReplicaKey) -> None:
        self.raft.transfer(successor, self._clock.monotonic_ms())
        self._turn()

    async def stop(self) -> None:
        """When it returns, nothing touches the log any more."""
        self._failed = True
        if self._tick is not None:
            self._tick.cancel()
        for outbox in self._links.values():
            outbox.close()
        self._give_up_waiting(KafkaError("the broker stops", ErrorCode.REQUEST_TIMED_OUT))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- turns ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._failed:
            return
        try:
            turn = self._driver.turn()
        except (OSError, KafkaError) as error:
            self._fail(f"the metadata log: {error}")
            return
        for message in turn.messages:
            self._send(message)
        if turn.sync is not None:
            self._spawn(self._sync(turn.sync))
        if turn.snapshot is not None:
            self._spawn(self._save(turn.snapshot))
        self._note_leader()
        self._maintain_voters()
        self._arm()

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task: Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sync(self, sync: Sync) -> None:
        try:
            await self._in_thread(sync.run)
            if not self._failed:
                self._driver.synced(sync, self._clock.monotonic_ms())
        except (OSError, KafkaError) as error:
            self._fail(f"the metadata log could not be synced: {error}")
            return
        self._turn()

    async def _save(self, job: SnapshotJob) -> None:
        try:
            await self._in_thread(job.run)
            if not self._failed:
                self._driver.snapshot_saved(job)
        except (OSError, KafkaError) as error:
            self._fail(f"a metadata snapshot could not be saved: {error}")
            return
        self._turn()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        """That no descriptor was free passes, and says nothing of the disk: then it is done again."""
        while True:
            try:
                return await self._loop.run_in_executor(None, work)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS or self._failed:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._give_up_waiting(KafkaError(reason, ErrorCode.KAFKA_STORAGE_ERROR))
        self._on_failure(reason)

    def _arm(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        delay = max(self.raft.next_tick_ms - self._clock.monotonic_ms(), 0) / 1000
        self._tick = self._loop.call_later(delay, self._on_tick)

    def _on_tick(self) -> None:
        if not self._failed:
            self.raft.tick(self._clock.monotonic_ms())
            self._turn()

    def _note_leader(self) -> None:
        leader_id = self.raft.leader_id
        if leader_id == self._known_leader:
            return
        log.info("quorum leader", leader=leader_id, epoch=self.raft.epoch)
        self._known_leader = leader_id
        if leader_id == self.node_id:
            self._decided = self.raft.log.end
        else:
            # They may still be committed by the next leader, or not. Whoever asked looks at the image and decides anew.
            for _, committed in self._proposed.values():
                if not committed.done():
                    committed.set_exception(NotLeader(leader_id))
            self._proposed.clear()
        self.on_leader(leader_id)

    def _maintain_voters(self) -> None:
        """Those that should vote and have caught up become voters, one at a time; a voter whose disk was replaced makes
        room for the new one."""
        if not self.leads:
            return
        wishes = self.machine.image.voters
        following = newcomers(self.raft)
        listed = {key.id: self._voter(*key) for key in following if wishes.get(key.id, key.id in self._voters)}
        gone, new = next_voter(self.raft, listed, [node_id for node_id, votes in wishes.items() if not votes])
        try:
            if gone is not None:
                self.raft.remove_voter(gone)
            elif new is not None:
                self.raft.add_voter(new)
            else:
                return
        except KafkaError:
            return  # not yet: it has not caught up, or another change is under way
        log.info("quorum changes", removed=gone and gone.id, added=new and new.id)
        self._loop.call_soon(self._turn)

    def _voter(self, node_id: int, directory_id: str) -> Voter:
        host, port = self.addresses.get(node_id, self._own_address)
        return Voter(node_id, directory_id, (Endpoint("CONTROLLER", host, port),))

    # -- messages ---------------------------------------------------------------------------------------------------

    def _send(self, message: AnyMessage) -> None:
        outbox = self._links.get(message.to.id)
        if outbox is None:
            outbox = self._links[message.to.id] = _Outbox(self, message.to.id)
        outbox.add(encode_message(message))

    def request(self, messages: Sequence[bytes]) -> QuorumRequest:
        host, port = self._own_address
        return QuorumRequest(
            cluster_id=self._cluster_id, node_id=self.node_id, host=host, port=port, messages=tuple(messages)
        )

    # -- what was committed -----------------------------------------------------------------------------------------

    def note_applied(self, entry: Entry | None) -> None:
        if entry is not None:
            epoch, committed = self._proposed.pop(entry.offset, (NOBODY, None))
            if committed is not None and not committed.done():
                if epoch == entry.epoch:
                    committed.set_result(entry.end)
                else:
                    committed.set_exception(NotLeader(self.raft.leader_id))
        arrived = [each for each in self._waiting if each[0] <= self.machine.offset]
        if arrived:
            self._waiting = [each for each in self._waiting if each[0] > self.machine.offset]
            for _, waiting in arrived:
                if not waiting.done():
                    waiting.set_result(None)
        self.on_applied()

    def _give_up_waiting(self, error: KafkaError) -> None:
        for _, committed in self._proposed.values():
            if not committed.done():
                committed.set_exception(error)
        self._proposed.clear()
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()

    def link(self, node_id: int) -> PeerLink:
        return PeerLink(self._loop, lambda: self._address_of(node_id), f"tidelog-{self.node_id}")

    def _address_of(self, node_id: int) -> Address | None:
        """As it was heard of or named when this broker was started; else as it was when it was given its vote."""
        if node_id in self.addresses:
            return self.addresses[node_id]
        endpoints = [each.endpoints[0] for each in self.raft.voters if each.id == node_id and each.endpoints]
        return (endpoints[0].host, endpoints[0].port) if endpoints else None

    def spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        self._spawn(work)


class _Noting:
    """The machine, with somebody who looks at what is applied."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    def apply(self, entry: Entry) -> None:
        self._quorum.machine.apply(entry)
        self._quorum.note_applied(entry)

    def snapshot(self) -> bytes:
        return self._quorum.machine.snapshot()

    def load(self, data: bytes) -> None:
        self._quorum.machine.load(data)
        snapshot: SnapshotId | None = self._quorum.raft.snapshot
        if snapshot is not None:
            self._quorum.machine.offset = snapshot.end_offset
        self._quorum.note_applied(None)


class _Outbox:
    """Messages to one broker, in order, as long as it takes them."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._link = quorum.link(node_id)
        self._unsent: list[bytes] = []
        self._sending = False

    def add(self, message: bytes) -> None:
        if len(self._unsent) < UNSENT_MAX:
            self._unsent.append(message)
        if not self._sending:
            self._sending = True
            self._quorum.spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._unsent:
                messages = self._unsent[:MESSAGES_AT_ONCE]
                del self._unsent[:MESSAGES_AT_ONCE]
                response = await self._link.call(self._quorum.request(messages), timeout=SEND_SECONDS)
                if response.error_code:
                    log.error("refused by another broker", error=response.error_message)
        except Unreachable:
            self._unsent.clear()
        finally:
            self._sending = False

    def close(self) -> None:
        self._link.close()
