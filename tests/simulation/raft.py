"""The quorum under simulation.

python -m tests.simulation.raft --seed 7        replay one world, step by step
python -m tests.simulation.raft --seeds 2000    new worlds from a random seed on; --from N begins at N
"""

import argparse
import sys
from collections.abc import Callable
from random import SystemRandom
from time import process_time
from typing import NamedTuple

from rich.progress import track
from tests.simulation.checks import Violation
from tests.simulation.planted import MUTATIONS, Mutation
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

from tidelog.errors import InvariantViolated, KafkaError

SOUND = Mutation("none")


class Tally(NamedTuple):
    """What happened in many worlds. A world is big: none is kept."""

    steps: int = 0
    acked: int = 0
    reads: int = 0
    leaders: int = 0

    def plus(self, world: World) -> "Tally":
        return Tally(
            self.steps + world.steps,
            self.acked + world.acked,
            self.reads + world.checks.reads,
            self.leaders + len(world.checks.leaders),
        )

    def __str__(self) -> str:
        return f"{self.steps:,} steps, {self.acked:,} acknowledged, {self.reads:,} reads, {self.leaders:,} leaders"


def run(seed: int, mutation: Mutation = SOUND, log: Callable[[str], None] | None = None) -> World:
    """Raises Violation."""
    world = World(seed, mutation.raft, mutation.store, mutation.process, log)
    try:
        return Scenario(world).run()
    except (InvariantViolated, KafkaError) as error:
        raise Violation(f"{type(error).__name__}: {error}") from error


def replay(seed: int, mutation: Mutation) -> int:
    print(f"seed {seed}, planted: {mutation.name}")
    try:
        world = run(seed, mutation, print)
    except Violation as violation:
        print(f"seed {seed}: {violation}")
        return 1
    print(f"seed {seed}: {Tally().plus(world)}")
    return 0


def run_many(first: int, count: int, mutation: Mutation) -> int:
    print(f"seeds {first} to {first + count - 1}, planted: {mutation.name}", flush=True)
    begin = process_time()
    failed: list[int] = []
    tally = Tally()
    for seed in track(range(first, first + count), description="worlds", disable=not sys.stdout.isatty()):
        try:
            tally = tally.plus(run(seed, mutation))
        except Violation as violation:
            failed.append(seed)
            print(f"seed {seed}: {violation}", flush=True)
    seconds = process_time() - begin
    print(f"{count} worlds in {seconds:.1f} s of CPU: {count / seconds * 3600:,.0f} an hour and core; {tally}")
    if failed:
        print(f"{len(failed)} failed; replay with: python -m tests.simulation.raft --seed {failed[0]}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.raft")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--from", type=int, dest="first")
    parser.add_argument("--planted", choices=[each.name for each in MUTATIONS])
    arguments = parser.parse_args()
    mutation = next((each for each in MUTATIONS if each.name == arguments.planted), SOUND)
    if arguments.seed is not None:
        return replay(arguments.seed, mutation)
    first = SystemRandom().randrange(2**32) if arguments.first is None else arguments.first
    return run_many(first, arguments.seeds or 200, mutation)


if __name__ == "__main__":
    sys.exit(main())
