"""Rules about speed: who is too slow, who does nothing, and whether the work is spread fairly."""

from collections import defaultdict
from collections.abc import Iterator
from math import ceil

from tidelog.groups.diagnosis_facts import GroupFacts, MemberFacts, PartitionFacts, group_lag
from tidelog.groups.diagnosis_findings import Finding, Kind, Limits, Severity
from tidelog.groups.history import counted


def nobody_reads(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    lag = group_lag(facts)
    if facts.members or lag.records == 0:
        return
    yield Finding(
        kind=Kind.NOBODY_READS,
        severity=Severity.WARNING,
        subject=facts.group_id,
        summary=f"{counted(lag.records, 'record')} {'is' if lag.records == 1 else 'are'} unread and the group has no "
        "members",
        evidence={"lag_records": lag.records, "arrival_per_s": round(lag.arrival_per_s or 0.0, 2)},
        advice="start a consumer of this group, or delete the group if nobody needs it any more",
    )


def stuck_members(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    for member in facts.members:
        owned = facts.owned_by(member.member_id)
        stuck = [one for one in owned if _is_stuck(one, limits)]
        if not stuck:
            continue
        worst = max(stuck, key=lambda one: one.lag)
        silent_s = max(one.stalled_ms for one in stuck) / 1000
        # A partition without anything to read is not stuck, but it does not move either.
        moving = sum(bool(one.processed_per_s) for one in owned if not _is_stuck(one, limits))
        yield Finding(
            kind=Kind.STUCK_MEMBER,
            severity=Severity.CRITICAL,
            subject=member.name,
            summary=f"{member.name} is in the group but has committed nothing on {_names(stuck)} for {silent_s:.0f} s",
            evidence={
                "member_id": member.member_id,
                "partitions_stuck": len(stuck),
                "partitions_moving": moving,
                "no_commit_for_s": round(silent_s, 1),
                "lag_records": sum(one.lag for one in stuck),
                "stuck_at": f"{worst.partition}@{max(worst.committed, worst.start_offset)}",
            },
            advice=(
                f"look at the record at {worst.partition} offset {max(worst.committed, worst.start_offset)}: one that "
                "always fails is retried for ever"
                if moving
                else "take a stack dump of this process: it heartbeats in the background while its application hangs, "
                "or it never commits"
            ),
        )


def _is_stuck(facts: PartitionFacts, limits: Limits) -> bool:
    return facts.lag > 0 and facts.stalled_ms >= limits.stuck_after_ms


def slow_consumers(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    for member in facts.members:
        # A stuck partition says nothing about how fast the member is.
        owned = [one for one in facts.owned_by(member.member_id) if not _is_stuck(one, limits)]
        finding = _slow(facts, member, owned, limits)
        if finding is not None:
            yield finding


def _slow(facts: GroupFacts, member: MemberFacts, owned: list[PartitionFacts], limits: Limits) -> Finding | None:
    mine = group_lag(GroupFacts(group_id=facts.group_id, now_ms=facts.now_ms, partitions=tuple(owned)))
    arrival, processed = mine.arrival_per_s, mine.processed_per_s
    if not arrival or processed is None or processed >= arrival * limits.falling_behind_ratio:
        return None
    grown_s = (arrival - processed) / arrival * min(one.window_ms for one in owned) / 1000
    if grown_s < limits.commit_pause_s and mine.records / arrival < limits.lag_seconds_large:
        return None  # no more than a group that keeps up shows between two commits
    proven = mine.exact and (mine.seconds or 0.0) >= limits.lag_seconds_large
    if mine.records < limits.lag_records_min and not proven:
        return None
    others = len(facts.members)
    needed = ceil(others * arrival / processed) if processed else None
    partitions = len(facts.partitions)
    evidence: dict[str, float | int | str] = {
        "member_id": member.member_id,
        "processed_per_s": round(processed, 2),
        "arrival_per_s": round(arrival, 2),
        "falling_behind_per_s": round(arrival - processed, 2),
        "lag_records": mine.records,
    }
    if mine.seconds is not None:
        evidence["lag_seconds"] = round(mine.seconds, 1)
    advice = "make processing faster, or process in batches"
    if needed is not None:
        evidence["members_needed"] = needed
        if needed <= partitions:
            advice = f"{advice}; {needed} members of this speed instead of {others} would keep up"
        else:
            advice = f"{advice}; more members alone do not help: {needed} would be needed for {partitions} partitions"
    return Finding(
        kind=Kind.SLOW_CONSUMER,
        severity=Severity.WARNING,
        subject=member.name,
        summary=f"{member.name} processes {processed:.1f} records/s while {arrival:.1f}/s arrive: it never catches up",
        evidence=evidence,
        advice=advice,
    )


def catching_up(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    lag = group_lag(facts)
    if lag.records < limits.lag_records_min or lag.catch_up_s is None or lag.processed_per_s is None:
        return
    yield Finding(
        kind=Kind.CATCHING_UP,
        severity=Severity.INFO,
        subject=facts.group_id,
        summary=f"{lag.records} records behind and catching up: done in about {lag.catch_up_s:.0f} s",
        evidence={
            "lag_records": lag.records,
            "processed_per_s": round(lag.processed_per_s, 2),
            "arrival_per_s": round(lag.arrival_per_s or 0.0, 2),
            "catch_up_s": round(lag.catch_up_s, 1),
        },
        advice="wait",
    )


def hot_partitions(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    topics: dict[str, list[PartitionFacts]] = defaultdict(list)
    for one in facts.partitions:
        topics[one.partition.topic].append(one)
    for topic, partitions in sorted(topics.items()):
        total = sum(one.arrival_per_s or 0.0 for one in partitions)
        if len(partitions) < 2 or total < limits.hot_rate_min:
            continue
        hottest = max(partitions, key=lambda one: one.arrival_per_s or 0.0)
        rate, mean = hottest.arrival_per_s or 0.0, total / len(partitions)
        # With two partitions, twice the mean would be everything.
        if rate / mean < min(limits.hot_ratio, 1 + (len(partitions) - 1) * 0.6):
            continue
        lag = sum(one.lag for one in partitions)
        matters = hottest.lag >= limits.lag_records_min and hottest.lag * 2 >= lag
        yield Finding(
            kind=Kind.HOT_PARTITION,
            severity=Severity.WARNING if matters else Severity.INFO,
            subject=str(hottest.partition),
            summary=f"{hottest.partition} receives {rate / total:.0%} of {topic}: {rate / mean:.1f} times the mean",
            evidence={
                "arrival_per_s": round(rate, 2),
                "mean_per_s": round(mean, 2),
                "skew": round(rate / mean, 2),
                "share": round(rate / total, 3),
                "lag_records": hottest.lag,
                "lag_records_of_topic": lag,
            },
            advice="find the key that dominates it and spread that key (a suffix, or a custom partitioner): neither "
            "more members nor more partitions help one hot key",
        )


def lopsided_assignment(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    counts = {member.member_id: len(facts.owned_by(member.member_id)) for member in facts.members}
    if len(counts) < 2 or not facts.partitions:
        return
    most, least = max(counts.values()), min(counts.values())
    idle = sum(count == 0 for count in counts.values())
    if most - least >= limits.lopsided_difference:
        loaded = max(facts.members, key=lambda one: (counts[one.member_id], one.member_id))
        yield Finding(
            kind=Kind.LOPSIDED_ASSIGNMENT,
            severity=Severity.WARNING,
            subject=loaded.name,
            summary=f"one member holds {most} partitions and another {least}",
            evidence={"most": most, "least": least, "members_idle": idle, "members": len(counts)},
            advice="use an assignor that balances over all topics (cooperative-sticky, or group.protocol=consumer with "
            "uniform) instead of range, and let all members subscribe to the same topics",
        )
    elif idle:
        yield Finding(
            kind=Kind.LOPSIDED_ASSIGNMENT,
            severity=Severity.INFO,
            subject=facts.group_id,
            summary=f"{idle} of {len(counts)} members have nothing to do: there "
            f"{'is' if len(facts.partitions) == 1 else 'are'} only {counted(len(facts.partitions), 'partition')}",
            evidence={"most": most, "least": least, "members_idle": idle, "members": len(counts)},
            advice="add partitions, or run fewer members",
        )


def _names(partitions: list[PartitionFacts]) -> str:
    names = sorted(str(one.partition) for one in partitions)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
