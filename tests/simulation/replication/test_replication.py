"""Worlds that every change must survive, some that nobody has seen, and the bugs that must not."""

from random import SystemRandom

import pytest
from tests.simulation.replication.checks import Violation
from tests.simulation.replication.mutations import MUTATIONS, caught
from tests.simulation.replication.storm import Storm

FIXED = 300
FRESH = 50
RETRIED = 50
GROUP = 25

KEPT = (8, 101, 125, 289, 375, 1119, 1699, 1734)
"""Worlds in which something broke once."""

IMPORTANT = (
    "truncate-to-the-watermark",
    "followers-ask-before-flush",
    "leaders-count-before-flush",
    "watermark-ignores-what-was-asked-for",
    "joinable-before-the-watermark",
    "followers-believed-in-advance",
    "minimum-in-sync-is-ignored",
    "the-last-in-sync-leaves",
    "leaders-out-of-sync",
    "one-epoch-for-two-leaders",
    "late-answers-are-believed",
    "everything-is-visible-after-a-restart",
    "followers-forget-producers",
    "retries-are-new-batches",
)
"""Those that show within a few worlds; `python -m tests.simulation.replication.mutations` plants them all."""


def survive(seed: int, *, retries: bool = False, partitions: int = 1) -> None:
    try:
        Storm(seed, retries=retries, partitions=partitions).run()
    except Exception as error:
        how = f" --partitions {partitions}{' --retries' * retries}"
        raise Violation(f"python -m tests.simulation.replication --seed {seed}{how}: {error}") from error


@pytest.mark.parametrize("first", range(0, FIXED, GROUP))
def test_worlds_that_every_change_must_survive(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_worlds_in_which_something_broke_once(seed: int) -> None:
    survive(seed)


@pytest.mark.parametrize("group", range(FRESH // GROUP))
def test_worlds_that_nobody_has_seen(group: int) -> None:
    for _ in range(GROUP):
        survive(SystemRandom().randrange(1 << 40))


@pytest.mark.parametrize("first", range(0, RETRIED, GROUP))
def test_worlds_of_several_partitions_and_a_client_that_retries(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed, retries=True, partitions=2)
    for _ in range(GROUP // 2):
        survive(SystemRandom().randrange(1 << 40), retries=True, partitions=3)


def test_a_world_is_the_same_each_time() -> None:
    lines: list[list[str]] = [[], []]
    for told in lines:
        Storm(3, told.append).run()
    assert lines[0] == lines[1]


@pytest.mark.parametrize("name", IMPORTANT)
def test_a_planted_bug_is_caught(name: str) -> None:
    assert caught(MUTATIONS[name], range(60)) is not None
