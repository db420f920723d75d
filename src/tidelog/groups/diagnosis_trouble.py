"""Rules about what happened and what is about to: rebalances, evictions, moved offsets, records that will be lost."""

from collections import Counter
from collections.abc import Iterator

from tidelog.groups.diagnosis_facts import UNKNOWN, GroupFacts, PartitionFacts, Sample
from tidelog.groups.diagnosis_findings import Finding, Kind, Limits, Severity
from tidelog.groups.history import EventKind, GroupEvent, counted

COMES_AND_GOES = frozenset({EventKind.JOINED, EventKind.LEFT, EventKind.EVICTED, EventKind.REPLACED})
HOUR_S = 3600.0


def rebalance_storm(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    recent = [event for event in facts.events if event.at_ms > facts.now_ms - limits.storm_window_ms]
    rebalances = [event for event in recent if event.kind is EventKind.REBALANCE]
    if len(rebalances) < limits.storm_rebalances:
        return
    lasted_s = max((facts.now_ms - rebalances[0].at_ms) / 1000, 1.0)
    stopped_s = sum(max(event.stopped_ms, 0) for event in recent) / 1000
    moved = sum(max(event.partitions_moved, 0) for event in recent)
    causes = Counter(_name(event) for event in recent if event.kind in COMES_AND_GOES)
    left = Counter(event.kind.value for event in recent if event.kind in COMES_AND_GOES)
    culprit, times = causes.most_common(1)[0] if causes else ("nobody: topics or subscriptions change", 0)
    evicted = any(event.kind is EventKind.EVICTED for event in recent)
    yield Finding(
        kind=Kind.REBALANCE_STORM,
        severity=Severity.CRITICAL if stopped_s >= lasted_s * limits.storm_stopped_share else Severity.WARNING,
        subject=culprit,
        summary=f"{len(rebalances)} rebalances in {lasted_s:.0f} s, during which the group stood still for "
        f"{stopped_s:.1f} s; most often because of {culprit}",
        evidence={
            "rebalances": len(rebalances),
            "window_s": round(lasted_s, 1),
            "stopped_s": round(stopped_s, 1),
            "partitions_moved": moved,
            "caused_by_subject": times,
            **{f"members_{word}": count for word, count in sorted(left.items())},
        },
        advice="members are evicted again and again: raise session.timeout.ms or max.poll.interval.ms above their "
        "longest pause"
        if evicted
        else "find out why these processes restart; give each a fixed group.instance.id so that a restart is no "
        "rebalance, and use cooperative-sticky or group.protocol=consumer so that a rebalance stops nobody",
    )


def evictions(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    recent = [event for event in facts.events if event.at_ms > facts.now_ms - limits.eviction_window_ms]
    for kind, events in (
        (Kind.EVICTED_MAX_POLL, [event for event in recent if _missed_poll(event)]),
        (
            Kind.EVICTED_SESSION,
            [event for event in recent if event.kind is EventKind.EVICTED and not _missed_poll(event)],
        ),
    ):
        for name, times in sorted(Counter(_name(event) for event in events).items()):
            last = max((event for event in events if _name(event) == name), key=lambda event: event.at_ms)
            yield _eviction(kind, name, times, last, facts.now_ms)


def _eviction(kind: Kind, name: str, times: int, last: GroupEvent, now_ms: int) -> Finding:
    ago_s = max(now_ms - last.at_ms, 0) / 1000
    polls = kind is Kind.EVICTED_MAX_POLL
    what = "did not poll within max.poll.interval.ms" if polls else "was not heard of for its whole session.timeout.ms"
    return Finding(
        kind=kind,
        severity=Severity.WARNING,
        subject=name,
        summary=f"{name} {what}: evicted {times} time{'s' if times > 1 else ''}, last {ago_s:.0f} s ago",
        evidence={"times": times, "last_ago_s": round(ago_s, 1), "member_id": last.member_id, "reason": last.reason},
        advice="process fewer records per poll (max.poll.records), move long work to another thread while pausing the "
        "partitions, or raise max.poll.interval.ms"
        if polls
        else "look for a crash, an out-of-memory kill, a long garbage collection or a network cut on that host; raise "
        "session.timeout.ms only if such pauses are normal",
    )


def _missed_poll(event: GroupEvent) -> bool:
    """Evicted by us, or gone by itself: clients notice first and say so when they leave."""
    reason = event.reason.lower()
    if event.kind is EventKind.LEFT:
        return "poll timeout" in reason or "max.poll.interval.ms" in reason
    return event.kind is EventKind.EVICTED and "max.poll.interval.ms" in reason


def offsets_reset(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    """Once per topic: whoever resets a group resets all of its partitions."""
    topics: dict[str, list[tuple[PartitionFacts, Sample, Sample]]] = {}
    for one in facts.partitions:
        if one.reset is not None:
            topics.setdefault(one.partition.topic, []).append((one, *one.reset))
    for topic, resets in topics.items():
        one, before, after = max(resets, key=lambda reset: reset[1].committed - reset[2].committed)
        again = sum(before.committed - after.committed for _, before, after in resets)
        farthest = f"{one.partition} went back from {before.committed} to {after.committed}"
        alone = len(resets) == 1
        yield Finding(
            kind=Kind.OFFSETS_RESET,
            severity=Severity.WARNING,
            subject=str(one.partition) if alone else topic,
            summary=f"the offset of {farthest}"
            if alone
            else f"the offsets of {len(resets)} partitions of {topic} went back, farthest where {farthest}",
            evidence={
                "from_offset": before.committed,
                "to_offset": after.committed,
                "partitions": len(resets),
                "records_again": again,
                "ago_s": round((facts.now_ms - max(after.at_ms for _, _, after in resets)) / 1000, 1),
            },
            advice="if nobody reset the group on purpose, look for a consumer that seeks or commits older positions: "
            f"{counted(again, 'record')} {'is' if again == 1 else 'are'} processed twice",
        )


def offsets_out_of_range(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    for one in facts.partitions:
        if not one.is_committed or one.start_offset <= one.committed <= one.end:
            continue
        lost = one.start_offset - one.committed
        evidence: dict[str, float | int | str] = {
            "committed": one.committed,
            "start_offset": one.start_offset,
            "end_offset": one.end,
        }
        if lost > 0:
            were = "was" if lost == 1 else "were"
            summary = f"{counted(lost, 'record')} of {one.partition} {were} deleted before the group read them"
            evidence["records_lost"] = lost
            advice = "what happens next is up to auto.offset.reset; raise retention if these records mattered"
        else:
            summary = f"the group committed {one.committed} on {one.partition}, which ends at {one.end}"
            advice = "the topic was deleted and created again, or truncated: reset the group to a position that exists"
        yield Finding(
            kind=Kind.OFFSETS_OUT_OF_RANGE,
            severity=Severity.CRITICAL,
            subject=str(one.partition),
            summary=summary,
            evidence=evidence,
            advice=advice,
        )


def retention_overtakes(facts: GroupFacts, limits: Limits) -> Iterator[Finding]:
    for one in facts.partitions:
        if one.lag == 0 or (one.is_committed and one.committed < one.start_offset):
            continue  # nothing to lose, or lost already
        times = [(hours, by) for hours, by in _hours_left(one, facts.now_ms) if hours <= limits.retention_warning_hours]
        if not times:
            continue
        hours, by = min(times)
        critical = hours <= limits.retention_critical_hours
        yield Finding(
            kind=Kind.RETENTION_OVERTAKES,
            severity=Severity.CRITICAL if critical else Severity.WARNING,
            subject=str(one.partition),
            summary=f"unread records of {one.partition} will be deleted in {hours:.1f} hours by {by}",
            evidence={
                "hours_left": round(hours, 2),
                "limit": by,
                "lag_records": one.lag,
                "speed": round(_speed(one), 3),
                "retention_ms": one.retention_ms,
                "retention_bytes": one.retention_bytes,
            },
            advice=f"raise {by} of {one.partition.topic} now, then make the group faster: it moves at "
            f"{_speed(one):.0%} of the speed at which records arrive",
        )


def _hours_left(one: PartitionFacts, now_ms: int) -> Iterator[tuple[float, str]]:
    """Until the record at the committed offset may go, if the group goes on at its speed.

    Retention takes away one second of the log per second, or one byte per byte that arrives. The group moves away from
    it at its own speed, so what shrinks the distance is the difference.
    """
    closing = 1.0 - _speed(one)
    if closing <= 0:
        return
    if one.retention_ms >= 0 and one.unread_timestamp_ms != UNKNOWN:
        room_s = (one.unread_timestamp_ms + one.retention_ms - now_ms) / 1000
        yield max(room_s, 0.0) / closing / HOUR_S, "retention.ms"
    if one.retention_bytes >= 0 and one.unread_bytes != UNKNOWN and one.bytes_per_s > 0:
        room_bytes = one.retention_bytes - one.unread_bytes
        yield max(room_bytes, 0) / (one.bytes_per_s * closing) / HOUR_S, "retention.bytes"


def _speed(one: PartitionFacts) -> float:
    """Of the group through the log, as a share of the log's own growth."""
    if not one.processed_per_s:
        return 0.0
    return one.processed_per_s / one.arrival_per_s if one.arrival_per_s else float("inf")


def _name(event: GroupEvent) -> str:
    """Member ids change with every restart; people know processes by their client id."""
    return event.client_id or event.member_id
