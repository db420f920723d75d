"""Consumers that behave like real ones, badly treated: they crash, hang, restart, lose their coordinator. All dice come
from one seed. What must always hold is checked at every answer."""

from random import Random
from typing import Any

from sim import Sim, assignment, commit, committed, heartbeat, join, leave, subscription, sync

from tidelog.coordination import NOBODY
from tidelog.errors import ErrorCode, KafkaError
from tidelog.groups.classic_group import State
from tidelog.groups.embedded import assigned_partitions
from tidelog.groups.group import GroupSettings
from tidelog.ids import TopicPartition

GROUP = "g"
PARTITIONS = 7
SESSION_MS = 10_000
REBALANCE_MS = 20_000
LOST = KafkaError("the coordinator moved", ErrorCode.NOT_COORDINATOR)

SILENT, JOINING, SYNCING, WORKING, GONE = "silent", "joining", "syncing", "working", "gone"


class Client:
    """One consumer process. Everything it believes about the group it was told."""

    def __init__(self, world: "World", number: int, instance_id: str | None, version: int) -> None:
        self.world = world
        self.name = f"c{number}"
        self.instance_id = instance_id
        self.version = version
        self.topics = ("t",)
        self.state = SILENT
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()
        self.waiter = NOBODY
        self.heard_ms = 0

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    def tick(self) -> None:
        """Do the next thing a consumer does."""
        if self.waiter != NOBODY:
            answer = self.world.sim.answers.pop(self.waiter, None)
            if answer is None:
                return
            self.waiter = NOBODY
            self.heard_ms = self.world.sim.now_ms
            if self.state == JOINING:
                self._on_joined(answer)
            else:
                self._on_synced(answer)
        elif self.state == SILENT:
            self.join()
        elif self.state == SYNCING:
            self.sync()
        elif self.state == WORKING:
            self.heartbeat()

    def join(self) -> None:
        request = join(
            self.member_id,
            instance_id=self.instance_id,
            metadata=subscription(*self.topics),
            protocols=("range", "sticky") if self.version % 2 else ("sticky", "range"),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.state, self.owned = JOINING, frozenset()
        self.waiter = self.world.sim.submit(request, self.version, self.name)

    def _on_joined(self, answer: Any) -> None:
        code = code_of(answer)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.state = answer.member_id, SILENT
        elif code == ErrorCode.NONE:
            self.world.on_generation(answer.generation_id)
            self.member_id, self.generation, self.state = answer.member_id, answer.generation_id, SYNCING
            self.shares: dict[str, bytes] = {}
            if answer.leader == self.member_id and not answer.skip_assignment:
                members = [member.member_id for member in answer.members]
                self.shares = self.world.share(members)
        else:
            self._on_error(code)

    def sync(self) -> None:
        request = sync(self.member_id, self.generation, self.shares, instance_id=self.instance_id)
        self.waiter = self.world.sim.submit(request, 5 if self.version >= 5 else 0, self.name)

    def _on_synced(self, answer: Any) -> None:
        code = code_of(answer)
        if code == ErrorCode.NONE:
            self.state = WORKING
            self.owned = assigned_partitions(bytes(answer.assignment)) or frozenset()
            self.world.on_assigned(self)
        else:
            self._on_error(code)

    def heartbeat(self) -> None:
        request = heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
        answer = self.world.answer_of(request, 4)
        if answer is None:
            return
        self.heard_ms = self.world.sim.now_ms
        code = code_of(answer)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif code:
            self._on_error(code)

    def commit(self, generation: int | None = None, member_id: str | None = None) -> None:
        offsets = {partition: self.world.next_offset() for partition in self.owned}
        if not offsets:
            return
        request = commit(
            offsets,  # type: ignore[arg-type]
            member_id=self.member_id if member_id is None else member_id,
            generation=self.generation if generation is None else generation,
            instance_id=self.instance_id,
        )
        self.world.commit(request, offsets)

    def leave(self) -> None:
        if self.member_id:
            self.world.answer_of(leave(self.member_id), 5)
        self.die()

    def die(self) -> None:
        self.state, self.owned = GONE, frozenset()

    def _on_error(self, code: int) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.die()
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id = ""
        self.state, self.generation, self.owned = SILENT, -1, frozenset()


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(seed)
        delay_ms = self.dice.choice((0, 0, 3_000))
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=delay_ms, group_max_size=self.dice.choice((5, 1_000))
        )
        self.sim = Sim(self.settings, seed=seed)
        self.clients: list[Client] = []
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.newest_generation = -1
        self.acknowledged: dict[TopicPartition, int] = {}
        self._offset = 0
        self._uncommitted: list[tuple[int, dict[TopicPartition, int]]] = []
        self._committed_end = 0

    # -- what clients use ---------------------------------------------------------------------------------------------

    def next_offset(self) -> int:
        self._offset += 1
        return self._offset

    def share(self, members: list[str]) -> dict[str, bytes]:
        by_member: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(PARTITIONS):
            by_member[self.dice.choice(members)].append(partition)
        return {member: assignment("t", *numbers) for member, numbers in by_member.items()}

    def answer_of(self, request: Any, version: int) -> Any:
        """None if the watermark stands still and the client gave up."""
        return self.sim.answers.pop(self.sim.submit(request, version), None)

    def commit(self, request: Any, offsets: dict[TopicPartition, int]) -> None:
        stale = 0 <= request.generation_id_or_member_epoch < self.newest_generation
        waiter = self.sim.submit(request, 9)
        self._uncommitted.append((waiter, offsets))
        answer = self.sim.answers.get(waiter)
        if answer is not None and not isinstance(answer, KafkaError):
            code = answer.topics[0].partitions[0].error_code
            assert code or not stale, f"seed {self.seed}: a commit of a stale generation was accepted"
        self.collect_acks()

    def collect_acks(self) -> None:
        waiting = []
        for waiter, offsets in self._uncommitted:
            answer = self.sim.answers.pop(waiter, None)
            if answer is None:
                waiting.append((waiter, offsets))
            elif not isinstance(answer, KafkaError) and not answer.topics[0].partitions[0].error_code:
                self.acknowledged |= offsets
        self._uncommitted = waiting

    # -- what must hold -----------------------------------------------------------------------------------------------

    def on_generation(self, generation: int) -> None:
        self.newest_generation = max(self.newest_generation, generation)

    def on_assigned(self, client: Client) -> None:
        for partition in client.owned:
            owner = self.owners.setdefault((client.generation, partition), client.identity)
            assert owner == client.identity, (
                f"seed {self.seed}: in generation {client.generation} {owner} and {client.identity} own {partition}"
            )

    def check_offsets(self) -> None:
        self.collect_acks()
        if self.sim.holding:
            return
        found = committed(self.sim)
        for partition, offset in self.acknowledged.items():
            assert found.get(tuple(partition), -1) >= offset, f"seed {self.seed}: {partition} went back below {offset}"

    def check_replay(self) -> None:
        """The log alone brings back every settled group and every offset; so does what compaction leaves of it."""
        live = self.sim.shard.dump()
        for copy in (self.sim.reloaded(), self.sim.compacted()):
            restored = copy.shard.dump()
            settled = {name: restored["classic"].get(name) for name in live["classic"]}  # type: ignore[attr-defined]
            assert settled == live["classic"], f"seed {self.seed}: groups differ after a reload"
            assert committed(copy) == {
                tuple(partition): entry.offset for partition, entry in self.sim.shard.offsets.of(GROUP).items()
            }, f"seed {self.seed}: offsets differ after a reload"

    # -- what happens -------------------------------------------------------------------------------------------------

    def fail_over(self) -> None:
        """The coordinator dies; another has what was committed. Clients retry."""
        self.sim.runtime.fail(LOST)
        log = self.sim.log if not self.sim.holding else self.sim.log[: self._committed_end]
        now_ms = self.sim.now_ms
        self.sim = Sim(self.settings, seed=self.dice.randrange(2**32), log=log)
        self.sim.advance(max(now_ms - self.sim.now_ms, 0))
        self.newest_generation = -1
        self._uncommitted.clear()
        for client in self.clients:
            if client.waiter != NOBODY:
                client.waiter = NOBODY
                client.state = SILENT

    def chaos(self) -> None:
        dice = self.dice
        alive = [client for client in self.clients if client.state != GONE]
        what = dice.random()
        if what < 0.06 and len(alive) < 8:
            self.start()
        elif what < 0.08 and alive:
            dice.choice(alive).leave()
        elif what < 0.10 and alive:
            dice.choice(alive).die()
        elif what < 0.12 and alive:
            self.restart_static(dice.choice(alive))
        elif what < 0.14 and alive:
            client = dice.choice(alive)
            client.topics = ("t", f"u{dice.randrange(3)}")
            if client.waiter == NOBODY:
                client.join()
        elif what < 0.15:
            self.sim.advance(dice.choice((SESSION_MS, REBALANCE_MS)))
        elif what < 0.16:
            self.fail_over()
        elif what < 0.18:
            self._committed_end = len(self.sim.log)
            self.sim.holding = True
        elif what < 0.22:
            self.sim.release()
        elif what < 0.23:
            self.refuse_one()
        elif what < 0.30 and alive:
            dice.choice(alive).commit()
        elif what < 0.33 and alive:
            client = dice.choice(alive)
            client.commit(generation=client.generation - 1)
        elif what < 0.37:
            self.sim.advance(dice.randrange(1, 3_000))
        elif alive:
            dice.choice(alive).tick()

    def start(self, instance_id: str | None = None) -> Client:
        number = len(self.clients)
        if instance_id is None and self.dice.random() < 0.3:
            instance_id = f"i{number}"
        version = self.dice.randrange(5, 10) if instance_id else self.dice.randrange(10)
        client = Client(self, number, instance_id, version)
        self.clients.append(client)
        return client

    def restart_static(self, client: Client) -> None:
        """A new process takes over; the old one may not have noticed yet that it is dead."""
        if client.instance_id is None:
            return
        if self.dice.random() < 0.5:
            client.die()
        self.start(client.instance_id)

    def refuse_one(self) -> None:
        """The log takes nothing for a moment."""
        self.sim.refusal = KafkaError("not now", ErrorCode.NOT_ENOUGH_REPLICAS)
        alive = [client for client in self.clients if client.state != GONE]
        if alive:
            self.dice.choice(alive).tick()
        self.sim.refusal = None

    def calm_down(self) -> None:
        """Faults stop, consumers go on: how long until everybody works again?"""
        self.sim.release()
        for _ in range(400):
            for client in self.clients:
                if client.state != GONE:
                    client.tick()
            self.sim.advance(500)
            if self.is_settled():
                return
        states = {client.name: client.state for client in self.clients if client.state != GONE}
        raise AssertionError(f"seed {self.seed}: not settled after 200 s: {states}")

    def is_settled(self) -> bool:
        alive = [client for client in self.clients if client.state != GONE]
        group = self.sim.shard.classic(GROUP)
        if not alive:
            return group is None or group.state is State.EMPTY
        if group is None or group.state is not State.STABLE:
            return False
        return set(group.members) == {client.member_id for client in alive} and all(
            client.state == WORKING and client.generation == group.generation for client in alive
        )


def code_of(answer: Any) -> int:
    code = answer.code if isinstance(answer, KafkaError) else answer.error_code
    return int(code)
