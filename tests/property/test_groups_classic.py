"""Thousands of random histories of a classic group: whatever happens, no partition has two owners in one generation, no
stale commit is accepted, no acknowledged offset is lost, the log alone brings everything back, and peace returns.

A failure names its seed; `World(seed)` plays it again.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "groups"))

from classic_world import GONE, PARTITIONS, World

HISTORIES = 1_500
STEPS = 120
CHUNKS = 6


def play(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(world.dice.randrange(1, 4)):
        world.start()
    for step in range(steps):
        world.chaos()
        if step % 20 == 0:
            world.check_offsets()
    world.sim.release()
    world.check_offsets()
    world.check_replay()
    return world


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_histories(chunk: int) -> None:
    for seed in range(chunk, HISTORIES, CHUNKS):
        world = play(seed, STEPS)
        full = world.settings.group_max_size
        for client in [client for client in world.clients if client.state != GONE][full:]:
            client.die()
        world.calm_down()
        alive = [client for client in world.clients if client.state != GONE]
        if alive:
            owned = [partition for client in alive for partition in client.owned]
            assert sorted(partition.partition for partition in owned) == list(range(PARTITIONS)), f"seed {seed}"
        world.check_offsets()
        world.check_replay()


def test_storm_of_joins_and_leaves_converges() -> None:
    """A hundred joins and leaves a minute, for five minutes."""
    world = World(7)
    for _ in range(500):
        alive = [client for client in world.clients if client.state != GONE]
        if len(alive) < 3 or (world.dice.random() < 0.5 and len(alive) < world.settings.group_max_size - 1):
            world.start()
        else:
            world.dice.choice(alive).leave()
        for _ in range(3):
            for client in world.clients:
                if client.state != GONE:
                    client.tick()
            world.sim.advance(200)
    before_ms = world.sim.now_ms
    world.calm_down()
    assert world.sim.now_ms - before_ms < 30_000
    world.check_replay()
