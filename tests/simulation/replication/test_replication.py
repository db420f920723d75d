"""Worlds that every change must survive, some that nobody has seen, and the bugs that must not."""

import logging
from collections.abc import Iterator
from random import SystemRandom
from typing import Any

import pytest
from tests.simulation.replication.__main__ import options_of
from tests.simulation.replication.checks import Violation
from tests.simulation.replication.mutations import MUTATIONS, caught
from tests.simulation.replication.storm import Storm

from tidelog.broker import logs

FIXED = 300
FRESH = 50
RETRIED = 50
TRANSACTED = 50
GROUPED = 25
ROTTEN = 50
COMPACTED = 50
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
    "what-follows-a-refused-batch-is-out-of-order",
    "ends-are-told-before-they-are-safe",
    "new-coordinators-write-no-markers",
    "new-coordinators-set-no-timers",
    "transactions-complete-before-their-markers-are-safe",
    "followers-forget-what-was-aborted",
    "writes-are-not-verified",
    "timers-run-by-the-wall-clock",
    "commits-are-told-before-they-are-safe",
    "assignments-are-told-before-they-are-safe",
    "members-get-what-others-still-have",
    "damaged-replicas-lead",
    "what-cannot-be-read-is-cut-off",
    "tombstones-go-at-once",
    "compaction-goes-up-to-the-end",
    "gaps-between-segments",
)
"""Those that show within a few worlds; `python -m tests.simulation.replication.mutations` plants them all."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Coordinators warn of what the storm does to them."""
    logs.show(logging.CRITICAL)
    yield
    logs.show(logging.WARNING)


def survive(seed: int, **how: Any) -> None:
    try:
        Storm(seed, **how).run()
    except Exception as error:
        told = f"python -m tests.simulation.replication --seed {seed} {options_of(how)}"
        raise Violation(f"{told}: {error}") from error


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


@pytest.mark.parametrize("first", range(0, TRANSACTED, GROUP))
def test_worlds_of_transactions(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed, partitions=2, transactions=True)
    for _ in range(GROUP // 2):
        survive(SystemRandom().randrange(1 << 40), partitions=2, transactions=True)


@pytest.mark.parametrize("first", range(0, GROUPED, GROUP))
def test_worlds_of_groups(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed, partitions=3, groups=True)
    for _ in range(GROUP // 2):
        survive(SystemRandom().randrange(1 << 40), partitions=2, groups=True, transactions=True, clocks=True)


@pytest.mark.parametrize("first", range(0, ROTTEN, GROUP))
def test_worlds_of_disks_that_go_bad(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed, rot=True)
    for _ in range(GROUP // 2):
        survive(SystemRandom().randrange(1 << 40), partitions=2, rot=True, retries=True)


@pytest.mark.parametrize("first", range(0, COMPACTED, GROUP))
def test_worlds_of_compacted_topics(first: int) -> None:
    for seed in range(first, first + GROUP):
        survive(seed, compaction=True)
    for _ in range(GROUP // 2):
        survive(SystemRandom().randrange(1 << 40), partitions=2, compaction=True, retries=True, transactions=True)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"partitions": 2, "transactions": True},
        {"partitions": 3, "groups": True},
        {"rot": True},
        {"compaction": True},
    ],
    ids=["plain", "transactions", "groups", "rot", "compaction"],
)
def test_a_world_is_the_same_each_time(how: dict[str, Any]) -> None:
    lines: list[list[str]] = [[], []]
    for told in lines:
        Storm(3, told.append, **how).run()
    assert lines[0] == lines[1]


@pytest.mark.parametrize("name", IMPORTANT)
def test_a_planted_bug_is_caught(name: str) -> None:
    # Mostly within ten worlds; but whatever the code asks of its disks moves the dice, and the bug to another one.
    assert caught(MUTATIONS[name], range(500)) is not None
