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
| `too_early_to_tell` | none of the above, but there is lag that has not been watched for long enough |
| `nothing_wrong` | none of the above |
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tidelog.groups import diagnosis_pace, diagnosis_trouble
from tidelog.groups.diagnosis_facts import GroupFacts, Lag, MemberFacts, PartitionFacts, Sample, group_lag
from tidelog.groups.diagnosis_findings import Finding, Kind, Limits, Severity
from tidelog.groups.diagnosis_verdict import verdict

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


VERDICTS: Final = (Kind.TOO_EARLY, Kind.NOTHING_WRONG)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    lag: Lag
    findings: tuple[Finding, ...]
    """Worst first; never empty."""

    @property
    def healthy(self) -> bool | None:
        """None while it is too early to tell."""
        worst = self.findings[0]
        return None if worst.kind is Kind.TOO_EARLY else worst.severity is Severity.INFO


def diagnose(facts: GroupFacts, limits: Limits | None = None) -> Diagnosis:
    bounds = limits or Limits()
    found = [finding for rule in RULES for finding in rule(facts, bounds)]
    # What is only a matter of time, or of taste, does not make a group ill.
    if all(finding.severity is Severity.INFO for finding in found):
        shrinks = any(finding.kind is Kind.CATCHING_UP for finding in found)
        found.append(verdict(facts, bounds, catching_up=shrinks))
    found.sort(key=lambda one: (-one.severity, one.kind not in VERDICTS, one.kind, one.subject))
    return Diagnosis(group_id=facts.group_id, lag=group_lag(facts), findings=tuple(found))
