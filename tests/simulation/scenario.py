"""What happens to a world: traffic and faults first, then calm, in which everything must come right."""

from tests.simulation.checks import Violation, require
from tests.simulation.network import CLEAR, Weather
from tests.simulation.process import Process
from tests.simulation.world import ELECTION_MS, World

from tidelog.consensus.replica import LEADER
from tidelog.errors import KafkaError

STORM_MS = 7_000
CALM_MS = 40 * ELECTION_MS


class Scenario:
    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self._storm = True
        self._writing = True
        self._operating = True
        self._lost_keys: set[object] = set()

    def run(self) -> World:
        world = self.world
        world.say(f"seed {world.seed}: {world.plan}")
        world.begin()
        world.at(1, self._client)
        world.at(ELECTION_MS, self._fault)
        world.at(ELECTION_MS * 2, self._operator)
        world.run_until(STORM_MS)
        self._calm()
        self._come_right()
        if self.dice.random() < 0.4:
            self._nobody_is_disturbed()
        return world

    # -- traffic ---------------------------------------------------------------------------------------------------

    def _client(self) -> None:
        if not self._writing:
            return
        world = self.world
        alive = [process for process in world.processes.values() if process.alive]
        if alive:
            process = self.dice.choice(alive)
            leading = [each for each in alive if each.raft.role == LEADER]
            if leading and self.dice.random() < 0.8:
                process = self.dice.choice(leading)  # also one that does not know that it no longer leads
            if self.dice.random() < 0.25:
                world.read(process)
            else:
                # Bursts make long tails that a later leader has to cut.
                for _ in range(12 if self.dice.random() < 0.06 else 1):
                    if process.up:
                        world.propose(process)
        world.at(1 + int(self.dice.random() * 60), self._client)

    def _operator(self) -> None:
        """Adds, removes and replaces voters, and moves leadership."""
        if not self._operating:
            return
        world = self.world
        leader = world.leader()
        if leader is not None and leader.alive:
            for _ in range(self.dice.choice([1, 1, 2])):  # also by people who do not wait for each other
                world.act(leader, lambda: self._change_something(leader))
            if leader.up:
                world.step(leader)
        world.at(200 + int(self.dice.random() * 600), self._operator)

    def _change_something(self, leader: Process) -> None:
        raft, dice, world = leader.raft, self.dice, self.world
        try:
            lost = [key for key in sorted(raft.voters.keys) if key in self._lost_keys]
            candidates = [p for p in world.processes.values() if p.up and not raft.voters.has_id(p.id)]
            if lost:
                world.say(f"{leader.id} removes {lost[0]}")
                raft.remove_voter(lost[0])
            elif not self._storm and len(raft.voters) >= world.plan.voters:
                return
            elif candidates and (dice.random() < 0.5 or not self._storm):
                chosen = dice.choice(candidates)
                raft.add_voter(chosen.voter())
                world.say(f"{leader.id} adds {chosen.key}")
            elif dice.random() < 0.4 and len(raft.voters) > 3:
                chosen_key = dice.choice(sorted(raft.voters.keys))
                raft.remove_voter(chosen_key)
                world.say(f"{leader.id} removes {chosen_key}")
            elif len(raft.voters) > 1:
                target = dice.choice(sorted(raft.voters.keys))
                raft.transfer(target, world.local(leader))
                world.say(f"{leader.id} hands over to {target}")
        except KafkaError as error:
            world.say(f"{leader.id} refuses: {error}")

    # -- faults ----------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        if not self._storm:
            return
        faults = (
            self._crash, self._crash, self._crash_inside, self._pause, self._cut, self._cut, self._cut_one_way,
            self._heal, self._heal, self._weather, self._jump, self._slow_disk, self._sync_fails, self._replace,
            self._replace_one_of_two, self._crash_all,
        )  # fmt: skip
        self.dice.choice(faults)()
        self.world.at(30 + int(self.dice.random() * 500), self._fault)

    def _some(self) -> Process:
        leader = self.world.leader()
        if leader is not None and self.dice.random() < 0.4:
            return leader
        return self.dice.choice(list(self.world.processes.values()))

    def _restart_later(self, process: Process) -> None:
        self.world.at(20 + int(self.dice.random() * 1200), lambda: self._restart(process))

    def _restart(self, process: Process) -> None:
        if not process.up:
            self.world.start(process)

    def _crash(self) -> None:
        process = self._some()
        if process.up:
            self.world.crash(process)
        self._restart_later(process)

    def _crash_all(self) -> None:
        for process in self.world.processes.values():
            if process.up:
                self.world.crash(process)
            self.world.at(10 + int(self.dice.random() * 100), lambda process=process: self._restart(process))  # type: ignore[misc]

    def _crash_inside(self) -> None:
        """In the middle of whatever it writes next."""
        process = self._some()
        if process.up:
            process.disk.crash_after = self.dice.randrange(25)
        self._restart_later(process)

    def _sync_fails(self) -> None:
        process = self._some()
        process.disk.fail_on["sync"] = 5
        self._restart_later(process)

    def _pause(self) -> None:
        process = self._some()
        process.paused = True
        self.world.say(f"{process.id} is paused")
        self.world.at(int(self.dice.random() * 1500), lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        self.world.resume(process)
        if process.up:
            self.world.read(process)  # before it has heard what happened meanwhile

    def _jump(self) -> None:
        process = self._some()
        process.clock_ahead += int(self.dice.random() * 5000)
        process.undisturbed_since = self.world.now

    def _cut(self) -> None:
        ids = list(self.world.processes)
        side = self.dice.sample(ids, self.dice.randrange(1, len(ids) + 1))
        rest = [each for each in ids if each not in side]
        self.world.network.block(side, rest)
        self.world.network.block(rest, side)
        self.world.say(f"cut: {side} | {rest}")

    def _cut_one_way(self) -> None:
        ids = list(self.world.processes)
        senders = self.dice.sample(ids, self.dice.randrange(1, len(ids) + 1))
        receivers = self.dice.sample(ids, self.dice.randrange(1, len(ids) + 1))
        self.world.network.block(senders, receivers)
        self.world.say(f"cut: {senders} no longer reach {receivers}")

    def _heal(self) -> None:
        self.world.network.heal()
        self.world.say("network healed")

    def _weather(self) -> None:
        dice = self.dice
        self.world.network.weather = Weather(
            drop=dice.choice([0, 0.02, 0.2]), double=dice.choice([0, 0.1]), slow=dice.choice([0, 0.05, 0.3])
        )

    def _slow_disk(self) -> None:
        self.world.slow_disk = self.dice.choice([0, 0, 100, 400])

    def _replace(self) -> None:
        self._lose_disk(self._some(), 20 + int(self.dice.random() * 1200))

    def _replace_one_of_two(self) -> None:
        """A voter lags; of the two that go on without it, one is cut off and the other loses its disk."""
        world = self.world
        leader = world.leader()
        others = [p for p in world.processes.values() if p is not leader and p.key in world.checks.voters]
        if leader is None or len(others) < 2:
            return
        lags, loses = self.dice.sample(others, 2)
        self._cut_off(lags)

        def strike() -> None:
            world.network.heal()
            if self._storm and self._lose_disk(loses, 20):
                self._cut_off(leader)

        world.at(250, strike)

    def _cut_off(self, process: Process) -> None:
        rest = [node_id for node_id in self.world.processes if node_id != process.id]
        self.world.network.block([process.id], rest)
        self.world.network.block(rest, [process.id])
        self.world.say(f"cut: {process.id} | {rest}")

    def _lose_disk(self, process: Process, restart_after: int) -> bool:
        """A disk is gone for good; never one that a majority could not do without."""
        world = self.world
        configs = {each.raft.voters for each in world.processes.values() if each.driver is not None}
        if len(configs - {world.checks.voters}) or len(world.checks.voters) < 3:
            return False
        if any(key in self._lost_keys for key in world.checks.voters.keys):
            return False
        world.say(f"{process.id} gets a new disk")
        lost = process.key
        if process.up:
            world.crash(process)
        process.replace_disk()
        if process.key != lost:
            self._lost_keys.add(lost)
        world.at(restart_after, lambda: self._restart(process))
        return True

    # -- calm ------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        world = self.world
        world.say("calm")
        self._storm = False
        world.network.heal()
        world.network.weather = CLEAR
        world.slow_disk = 0
        for process in world.processes.values():
            world.resume(process)
            process.disk.crash_after = None
            process.disk.fail_on.clear()
            self._restart(process)

    def _come_right(self) -> None:
        world = self.world
        deadline = world.now + CALM_MS
        marker = None
        while world.now < deadline:
            world.run_until(world.now + ELECTION_MS)
            leader = world.leader()
            if leader is None:
                continue
            lost = any(key in self._lost_keys for key in leader.raft.voters.keys)
            if marker is None and not lost:
                marker = world.propose(leader)
            elif marker is not None and all(p.up and p.raft.applied > marker.offset for p in world.processes.values()):
                committed = {(entry.offset, entry.epoch) for entry in world.checks.history}
                if marker in committed:
                    return
                marker = None  # its leader was unseated
        positions = {p.id: (p.raft.role, p.raft.epoch, p.raft.applied) for p in world.processes.values()}
        raise Violation(f"liveness: no progress after {CALM_MS} ms of calm: {positions}")

    def _nobody_is_disturbed(self) -> None:
        """A voter that was cut off comes back and does not unseat the leader."""
        world = self.world
        leader = world.leader()
        if leader is None or len(leader.raft.voters) < 3:
            return
        self._operating = False
        self._writing = self.dice.random() < 0.5  # without writes its log is as good as the leader's
        world.run_until(world.now + 4 * ELECTION_MS)
        leader = world.leader()
        if leader is None or len(leader.raft.voters) < 3 or leader.raft._transfer is not None:
            return
        epoch = leader.raft.epoch
        other = next(p for p in world.processes.values() if p.key in leader.raft.voters and p is not leader)
        self._cut_off(other)
        world.run_until(world.now + 6 * ELECTION_MS)
        world.network.heal()
        world.run_until(world.now + 3 * ELECTION_MS)
        require(
            leader.raft.role == LEADER and leader.raft.epoch == epoch,
            f"disruption: {other.id} came back and unseated {leader.id} of epoch {epoch}",
        )
