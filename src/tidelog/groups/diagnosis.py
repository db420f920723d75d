"""Why a group lags: `diagnose(facts)` tries every rule and returns what holds, worst first, with evidence and advice.

| finding | holds when |
|---|---|
| `slow_consumer` | a member processes less than arrives for it, and its lag is not small |
| `catching_up` | there is lag, and it shrinks: when it will be gone |
| `hot_partition` | one partition of a topic receives far more than the mean |
| `lopsided_assignment` | members of one group hold very different numbers of partitions, or none |
| `rebalance_storm` | many rebalances in a short time: who caused them, how long the group stood still |
| `stuck_member` | is in the group, has unread records, and commits nothing |
| `evicted_max_poll` | a member did not poll within `max.poll.interval.ms` |
| `evicted_session` | a member fell silent for a whole `session.timeout.ms` |
| `offsets_reset` | a committed offset went back |
| `offsets_out_of_range` | a committed offset is not in the log any more, or not yet |
| `retention_overtakes` | records will be deleted before the group reads them: hours left |
| `nobody_reads` | records are unread and the group has no members |
| `nothing_wrong` | none of the above |
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidelog.groups import diagnosis_pace, diagnosis_trouble
from tidelog.groups.diagnosis_facts import GroupFacts, Lag, MemberFacts, PartitionFacts, Sample, group_lag
from tidelog.groups.diagnosis_findings import Finding, Kind, Limits, Severity

__all__ = [
    "Diagnosis",
    "Finding",
    "GroupFacts",
    "Kind",
    "Lag",
    "Limits",
    "MemberFacts",
    "PartitionFacts",
    "Sample",
    "Severity",
    "diagnose",
]

Rule = Callable[[GroupFacts, Limits], Iterable[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    diagnosis_pace.nobody_reads,
    diagnosis_pace.stuck_members,
    diagnosis_pace.slow_consumers,
    diagnosis_pace.catching_up,
    diagnosis_pace.hot_partitions,
    diagnosis_pace.lopsided_assignment,
    diagnosis_trouble.rebalance_storm,
    diagnosis_trouble.evictions,
    diagnosis_trouble.offsets_reset,
    diagnosis_trouble.offsets_out_of_range,
    diagnosis_trouble.retention_overtakes,
)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    lag: Lag
    findings: tuple[Finding, ...]
    """Worst first; never empty."""


def diagnose(facts: GroupFacts, limits: Limits | None = None) -> Diagnosis:
    bounds = limits or Limits()
    found = [finding for rule in RULES for finding in rule(facts, bounds)]
    # What is only a matter of time, or of taste, does not make a group ill.
    if all(finding.severity is Severity.INFO for finding in found):
        found.append(_nothing_wrong(facts))
    found.sort(key=lambda one: (-one.severity, one.kind is not Kind.NOTHING_WRONG, one.kind, one.subject))
    return Diagnosis(group_id=facts.group_id, lag=group_lag(facts), findings=tuple(found))


def _nothing_wrong(facts: GroupFacts) -> Finding:
    lag = group_lag(facts)
    evidence: dict[str, float | int | str] = {
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
