"""Each finding where it holds and where it nearly does; lag in records and in seconds."""

from collections.abc import Callable

import msgspec
import pytest

from tidelog.groups.diagnosis import (
    GroupFacts,
    Kind,
    MemberFacts,
    PartitionFacts,
    Sample,
    Severity,
    diagnose,
)
from tidelog.groups.diagnosis_facts import group_lag, partition_lag
from tidelog.groups.history import EventKind, GroupEvent
from tidelog.ids import TopicPartition

NOW = 1_700_000_000_000
HOUR = 3_600_000


def series(
    number: int = 0,
    *,
    arrival: float = 100.0,
    processed: float | None = None,
    behind: int = 0,
    seconds: int = 120,
    owner: str = "a",
    topic: str = "orders",
    **facts: int | float,
) -> PartitionFacts:
    """A partition seen every ten seconds, `behind` records behind at the first look. By default the group keeps up."""
    done = arrival if processed is None else processed
    samples = tuple(
        Sample(NOW - (seconds - t) * 1000, 10_000 + round(done * t), 10_000 + behind + round(arrival * t))
        for t in range(0, seconds + 1, 10)
    )
    return PartitionFacts(partition=TopicPartition(topic, number), samples=samples, owner=owner, **facts)  # type: ignore[arg-type]


def group(*partitions: PartitionFacts, members: str = "a", events: tuple[GroupEvent, ...] = ()) -> GroupFacts:
    return GroupFacts(
        group_id="readers",
        now_ms=NOW,
        members=tuple(MemberFacts(member_id=one, client_id=f"app-{one}", host="/10.0.0.1") for one in members),
        partitions=partitions,
        events=events,
    )


def event(kind: EventKind, ago_s: float, client: str = "app-a", reason: str = "", stopped_ms: int = -1) -> GroupEvent:
    return GroupEvent(
        group_id="readers", at_ms=NOW - round(ago_s * 1000), kind=kind, generation=1, member_id=f"{client}-1",
        client_id=client, reason=reason, stopped_ms=stopped_ms,
    )  # fmt: skip


def rebalances(count: int, every_s: float, stopped_ms: int) -> tuple[GroupEvent, ...]:
    return tuple(
        one
        for n in reversed(range(count))
        for one in (
            event(EventKind.JOINED, n * every_s + 2, "app-b"),
            event(EventKind.REBALANCE, n * every_s + 2),
            event(EventKind.STABLE, n * every_s + 1, stopped_ms=stopped_ms),
        )
    )


POLL = "did not rejoin within the rebalance timeout (max.poll.interval.ms)"
SESSION = "no heartbeat within session.timeout.ms=45000"

CASES: list[tuple[str, Kind, GroupFacts, GroupFacts]] = [
    (
        "processes less than arrives",
        Kind.SLOW_CONSUMER,
        group(series(processed=60)),
        group(series(processed=100)),
    ),
    (
        "a lag that only waits for the next commit is not slowness",
        Kind.SLOW_CONSUMER,
        group(series(processed=90, behind=10_000)),
        group(series(processed=96, behind=50)),
    ),
    (
        "catching up",
        Kind.CATCHING_UP,
        group(series(processed=150, behind=9_000)),
        group(series(processed=150, behind=6_010)),
    ),
    (
        "one partition takes most",
        Kind.HOT_PARTITION,
        group(series(0, arrival=90), series(1, arrival=10), series(2, arrival=10)),
        group(series(0, arrival=40), series(1, arrival=30), series(2, arrival=30)),
    ),
    (
        "of two, one takes nearly all",
        Kind.HOT_PARTITION,
        group(series(0, arrival=90), series(1, arrival=10)),
        group(series(0, arrival=70), series(1, arrival=30)),
    ),
    (
        "a trickle is not a hot partition",
        Kind.HOT_PARTITION,
        group(series(0, arrival=30), series(1, arrival=0)),
        group(series(0, arrival=0.5), series(1, arrival=0)),
    ),
    (
        "three and one",
        Kind.LOPSIDED_ASSIGNMENT,
        group(*(series(n, owner="aaab"[n]) for n in range(4)), members="ab"),
        group(*(series(n, owner="aabb"[n]) for n in range(4)), members="ab"),
    ),
    (
        "more members than partitions",
        Kind.LOPSIDED_ASSIGNMENT,
        group(series(0), members="ab"),
        group(series(0), members="a"),
    ),
    (
        "rebalance after rebalance",
        Kind.REBALANCE_STORM,
        group(series(), events=rebalances(6, 60, 500)),
        group(series(), events=rebalances(4, 60, 500)),
    ),
    (
        "rebalances of yesterday",
        Kind.REBALANCE_STORM,
        group(series(), events=rebalances(20, 25, 500)),
        group(series(), events=rebalances(20, 300, 500)),
    ),
    (
        "commits nothing",
        Kind.STUCK_MEMBER,
        group(series(processed=0, behind=5)),
        group(series(processed=1, behind=5)),
    ),
    (
        "has nothing to commit",
        Kind.STUCK_MEMBER,
        group(series(arrival=0, processed=0, behind=1)),
        group(series(arrival=0, processed=0)),
    ),
    (
        "too soon to tell",
        Kind.STUCK_MEMBER,
        group(series(processed=0, seconds=40, behind=1)),
        group(series(processed=0, seconds=20, behind=1)),
    ),
    (
        "did not poll",
        Kind.EVICTED_MAX_POLL,
        group(series(), events=(event(EventKind.EVICTED, 60, reason=POLL),)),
        group(series(), events=(event(EventKind.EVICTED, 60, reason=SESSION),)),
    ),
    (
        "noticed by itself that it did not poll",
        Kind.EVICTED_MAX_POLL,
        group(series(), events=(event(EventKind.LEFT, 60, reason="consumer poll timeout has expired."),)),
        group(series(), events=(event(EventKind.LEFT, 60, reason="the consumer is being closed"),)),
    ),
    (
        "fell silent",
        Kind.EVICTED_SESSION,
        group(series(), events=(event(EventKind.EVICTED, 60, reason=SESSION),)),
        group(series(), events=(event(EventKind.EVICTED, 7_200, reason=SESSION),)),
    ),
    (
        "records are unread and nobody is there",
        Kind.NOBODY_READS,
        group(series(processed=0, owner=""), members=""),
        group(series(arrival=0, processed=0, owner=""), members=""),
    ),
    (
        "read too late",
        Kind.OFFSETS_OUT_OF_RANGE,
        group(series(processed=0, start_offset=10_001)),
        group(series(processed=0, start_offset=10_000)),
    ),
    (
        "deleted in three hours",
        Kind.RETENTION_OVERTAKES,
        group(series(processed=0, retention_ms=24 * HOUR, unread_timestamp_ms=NOW - 21 * HOUR)),
        group(series(processed=0, retention_ms=72 * HOUR, unread_timestamp_ms=NOW - 21 * HOUR)),
    ),
    (
        "the group runs away from retention",
        Kind.RETENTION_OVERTAKES,
        group(series(processed=50, behind=99_999, retention_ms=24 * HOUR, unread_timestamp_ms=NOW - 21 * HOUR)),
        group(series(processed=101, behind=99_999, retention_ms=24 * HOUR, unread_timestamp_ms=NOW - 21 * HOUR)),
    ),
    (
        "no room left in bytes",
        Kind.RETENTION_OVERTAKES,
        group(series(processed=0, retention_bytes=10**9, unread_bytes=9 * 10**8, bytes_per_s=10_000.0)),
        group(series(processed=0, retention_bytes=10**10, unread_bytes=9 * 10**8, bytes_per_s=10_000.0)),
    ),
]


@pytest.mark.parametrize(("kind", "yes", "no"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_finding_holds_or_not(kind: Kind, yes: GroupFacts, no: GroupFacts) -> None:
    found = [finding for finding in diagnose(yes).findings if finding.kind is kind]
    assert len(found) == 1
    assert found[0].summary
    assert found[0].evidence
    assert found[0].advice
    assert kind not in [finding.kind for finding in diagnose(no).findings]


def only(facts: GroupFacts, kind: Kind) -> Callable[[str], object]:
    (finding,) = (one for one in diagnose(facts).findings if one.kind is kind)
    return lambda name: finding.evidence[name]


def test_evidence_of_a_slow_consumer() -> None:
    facts = group(*(series(n, processed=25, owner="ab"[n % 2]) for n in range(12)), members="ab")
    slow = [one for one in diagnose(facts).findings if one.kind is Kind.SLOW_CONSUMER]
    assert [one.subject for one in slow] == ["app-a@10.0.0.1", "app-b@10.0.0.1"]
    assert slow[0].evidence["processed_per_s"] == 150
    assert slow[0].evidence["arrival_per_s"] == 600
    assert slow[0].evidence["members_needed"] == 8
    assert "8 members" in slow[0].advice
    few = group(*(series(n, processed=25) for n in range(2)))
    assert "do not help" in next(one for one in diagnose(few).findings if one.kind is Kind.SLOW_CONSUMER).advice


def test_evidence_of_catching_up() -> None:
    evidence = only(group(series(processed=150, behind=9_000)), Kind.CATCHING_UP)
    assert evidence("lag_records") == 3_000
    assert evidence("catch_up_s") == 60


def test_a_hot_partition_is_worth_a_warning_only_if_the_lag_is_there() -> None:
    calm = group(series(0, arrival=90, processed=90), series(1, arrival=10, processed=10), series(2, arrival=0))
    assert diagnose(calm).findings[0].kind is Kind.NOTHING_WRONG
    late = group(series(0, arrival=90, processed=50), series(1, arrival=10, processed=10), series(2, arrival=0))
    hot = next(one for one in diagnose(late).findings if one.kind is Kind.HOT_PARTITION)
    assert hot.severity is Severity.WARNING
    assert hot.evidence["share"] == 0.9


def test_evidence_of_a_storm() -> None:
    facts = group(series(), events=rebalances(10, 30, 9_000))
    storm = diagnose(facts).findings[0]
    assert storm.kind is Kind.REBALANCE_STORM
    assert storm.severity is Severity.CRITICAL
    assert storm.subject == "app-b"
    assert storm.evidence["rebalances"] == 10
    assert storm.evidence["stopped_s"] == 90
    assert storm.evidence["members_joined"] == 10


def test_evidence_of_a_stuck_member() -> None:
    facts = group(series(0, processed=0, behind=7), series(1), members="a")
    stuck = diagnose(facts).findings[0]
    assert stuck.kind is Kind.STUCK_MEMBER
    assert stuck.evidence["stuck_at"] == "orders-0@10000"
    assert stuck.evidence["partitions_moving"] == 1
    assert "offset 10000" in stuck.advice
    assert stuck.evidence["no_commit_for_s"] == 120
    idle = diagnose(group(series(0, processed=0, behind=7), series(1, arrival=0), members="a")).findings[0]
    assert idle.evidence["partitions_moving"] == 0
    assert "stack dump" in idle.advice


def test_a_member_that_never_committed_is_stuck() -> None:
    samples = tuple(Sample(NOW - ago, -1, 50) for ago in (60_000, 30_000, 0))
    facts = group(PartitionFacts(partition=TopicPartition("orders", 0), samples=samples, owner="a"))
    assert diagnose(facts).findings[0].kind is Kind.STUCK_MEMBER
    assert group_lag(facts).records == 50


def test_a_record_that_just_arrived_makes_nobody_stuck() -> None:
    samples = (*(Sample(NOW - ago, 50, 50) for ago in (90_000, 60_000, 30_000)), Sample(NOW, 50, 51))
    facts = group(PartitionFacts(partition=TopicPartition("orders", 0), samples=samples, owner="a"))
    assert diagnose(facts).findings[0].kind is Kind.NOTHING_WRONG


def test_a_reset_is_seen_and_does_not_spoil_the_rates() -> None:
    went_back = (
        Sample(NOW - 40_000, 9_000, 10_000), Sample(NOW - 30_000, 9_500, 10_000), Sample(NOW - 20_000, 100, 10_000),
        Sample(NOW - 10_000, 1_100, 10_000), Sample(NOW, 2_100, 10_000),
    )  # fmt: skip
    one = PartitionFacts(partition=TopicPartition("orders", 0), samples=went_back, owner="a")
    evidence = only(group(one), Kind.OFFSETS_RESET)
    assert (evidence("from_offset"), evidence("to_offset"), evidence("records_again")) == (9_500, 100, 9_400)
    assert one.processed_per_s == 100
    onwards = PartitionFacts(partition=one.partition, samples=went_back[:2], owner="a")
    assert Kind.OFFSETS_RESET not in [finding.kind for finding in diagnose(group(onwards)).findings]


def test_a_reset_of_many_partitions_is_told_once_per_topic() -> None:
    def back(number: int, by: int, topic: str = "orders") -> PartitionFacts:
        samples = (Sample(NOW - 60_000, 500, 500), Sample(NOW - 30_000, 500 - by, 500), Sample(NOW, 500 - by, 500))
        return PartitionFacts(partition=TopicPartition(topic, number), samples=samples, owner="a")

    found = [
        one
        for one in diagnose(group(back(0, 10), back(1, 200), back(2, 1, "audit"))).findings
        if one.kind is Kind.OFFSETS_RESET
    ]
    assert {one.subject: (one.evidence["partitions"], one.evidence["records_again"]) for one in found} == {
        "orders": (2, 210),
        "audit-2": (1, 1),
    }
    assert "2 partitions of orders went back, farthest where orders-1 went back from 500 to 300" in found[-1].summary
    assert found[0].advice.endswith("1 record is processed twice")


def test_slow_work_on_few_records_is_slow_too() -> None:
    """Their own timestamps prove it; rates of so few records would not."""
    few = {"arrival": 0.1, "processed": 0.05, "behind": 20}
    old = group(series(**few, unread_timestamp_ms=NOW - 200_000))
    assert diagnose(old).findings[0].kind is Kind.SLOW_CONSUMER
    assert diagnose(group(series(**few))).findings[0].kind is Kind.NOTHING_WRONG


def test_a_topic_that_was_created_again() -> None:
    one = PartitionFacts(partition=TopicPartition("orders", 0), samples=(Sample(NOW, 900, 10),), owner="a")
    finding = diagnose(group(one)).findings[0]
    assert finding.kind is Kind.OFFSETS_OUT_OF_RANGE
    assert "created again" in finding.advice


def test_hours_left() -> None:
    facts = group(series(processed=50, behind=99_999, retention_ms=24 * HOUR, unread_timestamp_ms=NOW - 21 * HOUR))
    assert only(facts, Kind.RETENTION_OVERTAKES)("hours_left") == 6, "half as fast as the log: twice the three hours"
    gone = group(series(processed=0, retention_ms=HOUR, unread_timestamp_ms=NOW - 2 * HOUR))
    assert only(gone, Kind.RETENTION_OVERTAKES)("hours_left") == 0
    assert diagnose(gone).findings[0].severity is Severity.CRITICAL


def test_lag_in_seconds_comes_from_the_record_or_from_rates() -> None:
    by_rate = partition_lag(series(processed=90, behind=0), NOW)
    assert (by_rate.records, by_rate.seconds, by_rate.exact) == (1_200, 12.0, False)
    assert by_rate.trend_per_s == 10
    by_record = partition_lag(series(processed=90, unread_timestamp_ms=NOW - 9_500), NOW)
    assert (by_record.seconds, by_record.exact) == (9.5, True)
    nothing = partition_lag(series(), NOW)
    assert (nothing.records, nothing.seconds, nothing.exact, nothing.catch_up_s) == (0, 0.0, True, 0.0)
    silent = partition_lag(series(arrival=0, processed=0, behind=5), NOW)
    assert (silent.records, silent.seconds, silent.catch_up_s) == (5, None, None)


def test_a_group_is_as_late_as_its_latest_partition() -> None:
    lag = group_lag(
        group(series(0, processed=90, unread_timestamp_ms=NOW - 60_000), series(1, processed=90), series(2))
    )
    assert (lag.records, lag.seconds, lag.exact) == (2_400, 60.0, True)
    assert group_lag(group()).seconds == 0.0


def test_one_look_is_not_enough_for_rates() -> None:
    facts = group(PartitionFacts(partition=TopicPartition("orders", 0), samples=(Sample(NOW, 10, 500),), owner="a"))
    result = diagnose(facts)
    assert [finding.kind for finding in result.findings] == [Kind.TOO_EARLY]
    assert "ask again in 30 s" in result.findings[0].advice
    assert (result.lag.trend_per_s, result.healthy) == (None, None)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            group(series(processed=0, behind=1_000, seconds=10)),
            Kind.SLOW_CONSUMER,
        ),  # no pause between commits is so long
        (group(series(processed=50, behind=1_000, seconds=10)), Kind.TOO_EARLY),  # is it slow?
        (group(series(arrival=0, behind=50, seconds=10)), Kind.TOO_EARLY),  # will it begin?
        (group(series(behind=500, seconds=20)), Kind.NOTHING_WRONG),  # as much as arrives between two commits
        (group(series(behind=0, seconds=10)), Kind.NOTHING_WRONG),
        (group(series(processed=200, behind=5_000, seconds=10)), Kind.NOTHING_WRONG),  # and catching up
        (group(series(arrival=0, processed=0, behind=50, seconds=30)), Kind.STUCK_MEMBER),  # now it can be told
        (group(series(arrival=0, behind=50, seconds=10), members=""), Kind.NOBODY_READS),
    ],
)
def test_nothing_wrong_is_said_only_when_it_is_known(facts: GroupFacts, expected: Kind) -> None:
    assert diagnose(facts).findings[0].kind is expected


def test_too_early_tells_what_is_known_and_when_to_ask_again() -> None:
    facts = group(series(processed=50, behind=1_000, seconds=10))
    told = only(facts, Kind.TOO_EARLY)
    assert (told("lag_records"), told("known_for_s"), told("ask_again_in_s")) == (1_500, 10.0, 20.0)
    assert (told("arrival_per_s"), told("processed_per_s")) == (100.0, 50.0)
    assert diagnose(facts).healthy is None
    assert diagnose(group(series(behind=0))).healthy is True
    assert diagnose(group(series(processed=50))).healthy is False


def test_a_group_of_nothing_is_fine() -> None:
    result = diagnose(group(members=""))
    assert [finding.kind for finding in result.findings] == [Kind.NOTHING_WRONG]


def test_worst_first_and_as_json() -> None:
    facts = group(
        series(0, processed=0, behind=5), series(1, processed=50), events=(event(EventKind.EVICTED, 9, reason=SESSION),)
    )
    findings = diagnose(facts).findings
    assert [one.severity for one in findings] == sorted((one.severity for one in findings), reverse=True)
    assert msgspec.json.decode(msgspec.json.encode(diagnose(facts)))["findings"][0]["kind"] == "stuck_member"
