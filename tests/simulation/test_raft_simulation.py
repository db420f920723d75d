"""The quorum in worlds from seeds that never change, and in a few that nobody has seen before."""

from random import SystemRandom

import pytest
from tests.simulation.raft import run

FIXED = (*range(200), 100_252, 200_102, 400_106)
"""The last ones: an epoch that only the log of a crashed replica knew of; logs that part before the leader's begins."""
GROUPS = 10
"""Seeds run in groups so that two workers share them."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_fixed_worlds(group: int) -> None:
    acknowledged = 0
    for seed in FIXED[group::GROUPS]:
        acknowledged += run(seed).acked
    assert acknowledged > 500


def test_new_worlds() -> None:
    for _ in range(10):
        seed = SystemRandom().randrange(2**32)
        print(f"python -m tests.simulation.raft --seed {seed}")  # shown with the failure
        run(seed)


def test_a_world_is_the_same_every_time() -> None:
    told: list[list[str]] = [[], []]
    for lines in told:
        run(7, log=lines.append)
    assert told[0] == told[1]
    assert len(told[0]) > 50
