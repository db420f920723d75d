"""A limit on copying: for whom, how much at once, and when again."""

import sys
from pathlib import Path
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import create_log
from sim_disk import SimDisk

from tidelog.cluster.replica import Replica
from tidelog.cluster.throttle import UNLIMITED, Throttle
from tidelog.config import TopicConfig


def throttle(rate: int = 1000) -> Throttle:
    return Throttle(2, lambda: rate, lambda topic: topic.follower_replication_throttled_replicas, 0)


def replica(*listed: str) -> Replica:
    log = create_log(SimDisk(), "/data/orders-0", TopicConfig(follower_replication_throttled_replicas=listed))
    return Replica(log, UUID(int=1), 0)


@pytest.mark.parametrize(
    ("listed", "concerned"),
    [((), False), (("0:2",), True), (("*",), True), (("0:1", "1:2", "0:22"), False), (("1:3", "0:2"), True)],
)
def test_whom_it_concerns(listed: tuple[str, ...], concerned: bool) -> None:
    assert throttle().concerns(replica(*listed)) is concerned
    assert not throttle(UNLIMITED).concerns(replica(*listed))


def test_a_second_s_worth_at_once_and_the_rest_at_the_rate() -> None:
    limit = throttle()
    assert limit.budget(0) == 0
    assert limit.budget(10_000) == 1000
    limit.spend(1500)
    assert limit.budget(10_000) == 0
    assert limit.wait_ms(5000, 10_000) == pytest.approx(502, abs=2)
    assert limit.wait_ms(100, 10_000) == 100, "no longer than asked"
    assert limit.budget(10_600) == 100
    assert limit.wait_ms(5000, 10_600) == 5000


def test_over_time_it_is_the_rate() -> None:
    limit, sent = throttle(rate=50_000), 0
    for now_ms in range(0, 20_000, 7):
        if limit.budget(now_ms):
            sent += 4000
            limit.spend(4000)
    assert 950_000 <= sent <= 1_010_000
