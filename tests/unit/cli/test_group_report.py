"""How lag is told: numbers as people say them, partitions in few words, totals that add up."""

import pytest

from tidelog.cli.group.report import report, seconds, short_partitions, trend, trend_words
from tidelog.groups.diagnosis_facts import GroupFacts, MemberFacts, PartitionFacts, Sample
from tidelog.ids import TopicPartition
from tidelog.observe.group import Coordinator, GroupView, Member


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, None),
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7200, "2.0 h"),
        (200_000, "2.3 d"),
    ],
)
def test_seconds(value: float | None, words: str | None) -> None:
    assert seconds(value) == words


def test_trends() -> None:
    assert [trend(each) for each in (None, 0.0, 12.34, -1500.0)] == [None, "steady", "+12.3/s", "-1,500.0/s"]


def test_partitions_in_few_words() -> None:
    owned = [("orders", 3), ("orders", 0), ("orders", 1), ("audit", 7), ("orders", 5)]
    assert short_partitions(owned) == "audit[7] orders[0-1,3,5]"
    assert short_partitions([]) == ""


def facts(*lags: tuple[int, int]) -> GroupFacts:
    """A group that reads 10 records a second of partitions that get and have as many as given."""
    return GroupFacts(
        group_id="g",
        now_ms=1_010_000,
        members=(MemberFacts(member_id="m1", client_id="till"),),
        partitions=tuple(
            PartitionFacts(
                partition=TopicPartition("t", number),
                samples=(Sample(1_000_000, 0, lag), Sample(1_010_000, 100, lag + rate * 10)),
                owner="m1",
                unread_timestamp_ms=1_000_000,
            )
            for number, (rate, lag) in enumerate(lags)
        ),
    )


VIEW = GroupView(
    group_id="g",
    type="classic",
    state="Stable",
    assignor="range",
    coordinator=Coordinator(1, "localhost", 9092),
    members=(Member(member_id="m1", client_id="till", host="h", instance_id=None, partitions=()),),
)


def test_a_group_that_falls_behind() -> None:
    told = report(VIEW, facts((30, 500), (10, 100)))
    assert [each.lag_records for each in told.partitions] == [700, 100]
    assert [each.trend_per_s for each in told.partitions] == [20.0, 0.0]
    assert (told.lag.lag_records, told.lag.lag_seconds, told.lag.trend_per_s) == (800, 10.0, 20.0)
    assert told.members[0].lag_records == 800
    assert trend_words(told.lag) == "falling behind by 20.0 records/s"


def test_a_group_that_catches_up() -> None:
    told = report(VIEW, facts((0, 200)))
    assert (told.lag.lag_records, told.lag.catch_up_seconds) == (100, 10.0)
    assert trend_words(told.lag) == "catching up, done in about 10 s"
