"""What is said when no rule found anything to warn of: that nothing is wrong, or that it is too early to tell.

Lag that grows and lag that nobody touches look the same in the first seconds as lag that is just about to be worked
off. Until the samples reach as far back as the slowest rule needs (`Limits.stuck_after_ms`), such lag is a question and
no answer.
"""

from tidelog.groups.diagnosis_facts import GroupFacts, PartitionFacts, group_lag
from tidelog.groups.diagnosis_findings import Finding, Kind, Limits, Severity
from tidelog.groups.history import counted

Evidence = dict[str, float | int | str]


def verdict(facts: GroupFacts, limits: Limits, *, catching_up: bool) -> Finding:
    # Without members there is nobody to be judged, and a lag that shrinks is no riddle.
    undecided = [one for one in facts.partitions if _is_undecided(one, limits)] if facts.members else []
    return _too_early(facts, undecided, limits) if undecided and not catching_up else _nothing_wrong(facts)


def _is_undecided(one: PartitionFacts, limits: Limits) -> bool:
    if one.lag == 0 or one.span_ms >= limits.stuck_after_ms:
        return False
    arrival, processed = one.arrival_per_s, one.processed_per_s
    if arrival is None or processed is None:
        return True
    between_commits = one.lag <= arrival * limits.commit_pause_s and one.stalled_ms <= limits.commit_pause_s * 1000
    untouched = one.stalled_ms >= one.span_ms
    growing = processed < arrival * limits.falling_behind_ratio
    return not between_commits and (untouched or growing)


def _too_early(facts: GroupFacts, undecided: list[PartitionFacts], limits: Limits) -> Finding:
    known_s = min(one.span_ms for one in undecided) / 1000
    wait_s = limits.stuck_after_ms / 1000 - known_s
    lag = group_lag(facts)
    records = sum(one.lag for one in undecided)
    evidence: Evidence = {
        "lag_records": records,
        "partitions": len(undecided),
        "known_for_s": round(known_s, 1),
        "ask_again_in_s": round(wait_s, 1),
    }
    if lag.arrival_per_s is not None and lag.processed_per_s is not None:
        evidence["arrival_per_s"] = round(lag.arrival_per_s, 2)
        evidence["processed_per_s"] = round(lag.processed_per_s, 2)
    since = f"after {known_s:.0f} s" if known_s >= 1 else "at the first look"
    return Finding(
        kind=Kind.TOO_EARLY,
        severity=Severity.INFO,
        subject=facts.group_id,
        summary=f"{counted(records, 'record')} on {counted(len(undecided), 'partition')} may be the lag of a member "
        f"that is slow or stuck, or of one that has only just begun: {since} nobody can tell",
        evidence=evidence,
        advice=f"ask again in {wait_s:.0f} s, or watch that long with --seconds {wait_s:.0f}",
    )


def _nothing_wrong(facts: GroupFacts) -> Finding:
    lag = group_lag(facts)
    evidence: Evidence = {
        "lag_records": lag.records,
        "members": len(facts.members),
        "partitions": len(facts.partitions),
        "events_seen": len(facts.events),
    }
    if lag.seconds is not None:
        evidence["lag_seconds"] = round(lag.seconds, 1)
    measured = lag.arrival_per_s is not None
    return Finding(
        kind=Kind.NOTHING_WRONG,
        severity=Severity.INFO,
        subject=facts.group_id,
        summary="the group keeps up" if measured else "nothing wrong in what is known so far",
        evidence=evidence,
        advice="" if measured else "rates need two looks at least a second apart: ask again",
    )
