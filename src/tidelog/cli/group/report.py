"""What `group describe`, `members` and `lag` know, and how it looks: lag in records, in seconds, and where it goes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final

import msgspec

from tidelog.cli.connecting import Cluster
from tidelog.cli.group.problems import existing
from tidelog.cli.output import count, print_table
from tidelog.cli.render import shown
from tidelog.groups.diagnosis_facts import GroupFacts, Lag, group_lag, partition_lag
from tidelog.observe.group import GroupView, list_groups
from tidelog.observe.observer import Observer

GROUPS_AT_ONCE: Final = 8


class PartitionReport(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    committed: int | None
    start_offset: int
    end_offset: int
    lag_records: int
    """Unread records. All of them while nothing is committed: where the client would begin is its own secret."""
    lag_seconds: float | None
    arrival_per_s: float | None
    processed_per_s: float | None
    trend_per_s: float | None
    """Growth of the lag: positive is falling behind."""
    member_id: str | None
    client_id: str | None
    host: str | None


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[tuple[str, int], ...]
    lag_records: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    members: int
    lag_records: int
    lag_seconds: float | None
    trend_per_s: float | None
    catch_up_seconds: float | None


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    lag: Summary
    members: tuple[MemberReport, ...]
    partitions: tuple[PartitionReport, ...]


def gather(cluster: Cluster, group: str, seconds: float) -> GroupReport:
    """Measures for `seconds` unless the coordinator's samples tell the pace already."""
    observer = Observer(cluster, group)
    with existing(group):
        view = observer.look()
    if seconds and not observer.knows_pace():
        observer.watch(seconds)
    return report(observer.view or view, observer.facts())


def report(view: GroupView, facts: GroupFacts) -> GroupReport:
    behind: dict[str, int] = defaultdict(int)
    for one in facts.partitions:
        behind[one.owner] += one.lag
    return GroupReport(
        group=view.group_id,
        type=view.type,
        state=view.state,
        assignor=view.assignor,
        coordinator=f"{view.coordinator.host}:{view.coordinator.port} (node {view.coordinator.node_id})",
        lag=summary(view, facts),
        members=tuple(
            MemberReport(
                member_id=one.member_id,
                client_id=one.client_id,
                host=one.host,
                instance_id=one.instance_id,
                partitions=one.partitions,
                lag_records=behind[one.member_id],
            )
            for one in view.members
        ),
        partitions=tuple(partitions(view, facts)),
    )


def summary(view: GroupView, facts: GroupFacts) -> Summary:
    lag = group_lag(facts)
    return Summary(
        group=view.group_id,
        state=view.state,
        members=len(view.members),
        lag_records=lag.records,
        lag_seconds=_tenths(lag.seconds),
        trend_per_s=_tenths(lag.trend_per_s),
        catch_up_seconds=_tenths(lag.catch_up_s),
    )


def partitions(view: GroupView, facts: GroupFacts) -> list[PartitionReport]:
    members = {one.member_id: one for one in view.members}
    reports = []
    for one in facts.partitions:
        lag: Lag = partition_lag(one, facts.now_ms)
        owner = members.get(one.owner)
        reports.append(
            PartitionReport(
                topic=one.partition.topic,
                partition=one.partition.partition,
                committed=one.committed if one.is_committed else None,
                start_offset=one.start_offset,
                end_offset=one.end,
                lag_records=lag.records,
                lag_seconds=_tenths(lag.seconds),
                arrival_per_s=_tenths(lag.arrival_per_s),
                processed_per_s=_tenths(lag.processed_per_s),
                trend_per_s=_tenths(lag.trend_per_s),
                member_id=owner.member_id if owner else None,
                client_id=owner.client_id if owner else None,
                host=owner.host if owner else None,
            )
        )
    return reports


class LagTables:
    """`group lag`, look after look: what was seen before makes the trend."""

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        self.group = group
        self._cluster = cluster
        self._observers: dict[str, Observer] = {} if group is None else {group: Observer(cluster, group)}

    def look(self) -> list[PartitionReport] | list[Summary]:
        if self.group is not None:
            with existing(self.group):
                view = self._observers[self.group].look()
            return partitions(view, self._observers[self.group].facts())
        names = [each.group for each in list_groups(self._cluster)]
        self._observers = {name: self._observers.get(name) or Observer(self._cluster, name) for name in names}
        with ThreadPoolExecutor(GROUPS_AT_ONCE) as pool:
            return [each for each in pool.map(_summary_of, self._observers.values()) if each is not None]

    def show(self, rows: Sequence[Any]) -> None:
        if self.group is None:
            print_summaries(rows)
        else:
            print_partitions(rows)


def _summary_of(observer: Observer) -> Summary | None:
    from tidelog.observe.group import GroupIdNotFound

    try:
        return summary(observer.look(), observer.facts())
    except GroupIdNotFound:  # deleted since it was listed
        return None


def print_report(told: GroupReport) -> None:
    print(f"{told.group}: {told.state}, {told.type}{f' ({told.assignor})' if told.assignor else ''}, ", end="")
    print(f"{count(len(told.members), 'member')}, coordinator {told.coordinator}")
    print_lag(told.lag)
    if told.partitions:
        print()
        print_partitions(told.partitions)


def print_lag(lag: Summary) -> None:
    late = seconds(lag.lag_seconds) or "unknown time"
    print(f"lag: {count(lag.lag_records, 'record')}, {late}; {trend_words(lag)}")


def print_partitions(rows: Iterable[PartitionReport]) -> None:
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "TREND", "CLIENT", "HOST")
    cells = [
        (
            one.topic,
            one.partition,
            one.committed,
            one.end_offset,
            one.lag_records,
            seconds(one.lag_seconds),
            trend(one.trend_per_s),
            one.client_id and shown(one.client_id),
            one.host,
        )
        for one in rows
    ]
    print_table(columns, cells, right=frozenset(columns) - {"TOPIC", "CLIENT", "HOST"})


def print_summaries(rows: Iterable[Summary]) -> None:
    columns = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "TREND")
    cells = [
        (shown(one.group), one.state, one.members, one.lag_records, seconds(one.lag_seconds), trend(one.trend_per_s))
        for one in rows
    ]
    print_table(columns, cells, right=frozenset(columns) - {"GROUP", "STATE"})


def seconds(value: float | None) -> str | None:
    """As people say it: 0.4 s, 12 s, 3 min, 2.5 h, 3.1 d."""
    if value is None:
        return None
    if value < 10:
        return f"{value:.1f} s"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if value < limit:
            return f"{value / divisor:.0f} {unit}" if divisor < 3600 else f"{value / divisor:.1f} {unit}"
    return f"{value / 86_400:.1f} d"


def trend(per_s: float | None) -> str | None:
    return None if per_s is None else "steady" if per_s == 0 else f"{per_s:+,.1f}/s"


def trend_words(lag: Summary) -> str:
    if lag.trend_per_s is None:
        return "too early to tell the trend"
    if lag.lag_records == 0:
        return "nothing unread"
    if lag.trend_per_s > 0:
        return f"falling behind by {lag.trend_per_s:,.1f} records/s"
    if lag.catch_up_seconds is not None:
        return f"catching up, done in about {seconds(lag.catch_up_seconds)}"
    return "neither growing nor shrinking"


def short_partitions(owned: Iterable[tuple[str, int]]) -> str:
    """orders[0-3,7] audit[1]"""
    words = []
    for topic, group in groupby(sorted(owned), key=lambda one: one[0]):
        numbers = [partition for _, partition in group]
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        words.append(f"{topic}[{','.join(str(r[0]) if len(r) == 1 else f'{r[0]}-{r[-1]}' for r in runs)}]")
    return " ".join(words)


def _tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1) + 0.0  # + 0.0: no negative zero
