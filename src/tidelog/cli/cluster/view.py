"""A cluster on a screen: one line a broker, with bars for what it leads and holds, then what is wrong."""

from typing import Final

from tidelog.cli.cluster.picture import NOBODY, QUORUM_LAG_MAX, BrokerSeen, PartitionSeen, Picture, QuorumMember
from tidelog.cli.output import count, print_table

BAR: Final = 20
SHOWN: Final = 10
"""Partitions named one by one; of more, how many there are."""


def print_picture(seen: Picture) -> None:
    voters = {each.id for each in seen.quorum.voters} if seen.quorum is not None else set()
    print(f"cluster {seen.cluster_id or '(no id)'}: {_summary(seen)}")
    print()
    most = max((each.replicas for each in seen.brokers), default=0)
    rows = [_broker_row(each, seen, voters, most) for each in seen.brokers]
    rows += [(node, "-", _role(node, seen, voters), "DOWN", "", "") for node in seen.absent]
    print_table(("NODE", "ADDRESS", "ROLE", "LEADS", "REPLICAS", ""), rows, right=frozenset({"NODE", "LEADS"}))
    if seen.quorum is not None:
        print()
        print(f"metadata quorum: {_quorum(seen)}")
        members = [*((each, "votes") for each in seen.quorum.voters), *((e, "follows") for e in seen.quorum.observers)]
        rows = [(each.id, does, each.log_end_offset, each.lag, _freshness(each)) for each, does in members]
        columns = ("NODE", "", "LOG END", "BEHIND", "UP TO DATE")
        print_table(columns, rows, right=frozenset({"NODE", "LOG END", "BEHIND"}))
    _print_troubles(seen)


def _summary(seen: Picture) -> str:
    parts = [
        count(len(seen.brokers), "broker"),
        count(seen.topics, "topic"),
        count(len(seen.partitions), "partition"),
    ]
    if seen.is_healthy:
        parts.append("all replicas in sync")
    if seen.absent:
        parts.append(f"{count(len(seen.absent), 'broker')} down")
    return ", ".join(parts)


def _broker_row(broker: BrokerSeen, seen: Picture, voters: set[int], most: int) -> tuple[object, ...]:
    rack = f"  rack {broker.rack}" if broker.rack else ""
    return (
        broker.id,
        broker.address + rack,
        _role(broker.id, seen, voters),
        broker.leaders,
        f"{bar(broker.leaders, broker.replicas, most)} {broker.replicas}",
        "" if broker.leaders == broker.preferred else f"leads {broker.preferred} when all is well",
    )


def _role(node: int, seen: Picture, voters: set[int]) -> str:
    if node == seen.controller:
        return "controller"
    return "voter" if node in voters else "broker"


def bar(leads: int, holds: int, most: int) -> str:
    """Of all that the fullest broker holds: what this one leads, what it follows, and what it has not."""
    if not most:
        return "·" * BAR
    led, held = round(BAR * leads / most), round(BAR * holds / most)
    return "█" * led + "▒" * (held - led) + "·" * (BAR - max(held, led))


def _quorum(seen: Picture) -> str:
    assert seen.quorum is not None
    voters = len(seen.quorum.voters)
    away = sum(1 for each in seen.quorum.voters if each.id in seen.absent)
    spare = max((voters - 1) // 2 - away, 0)
    led = f"node {seen.quorum.leader} leads, epoch {seen.quorum.epoch}"
    more = " more" * bool(away)
    bears = f"bears the loss of {spare}{more}" if spare else f"bears no{more} loss"
    return f"{led}; {count(voters, 'voter')}, {bears}"


def _freshness(member: QuorumMember) -> str:
    if member.caught_up_ms_ago is None:
        return "not known"
    if member.lag <= QUORUM_LAG_MAX and member.caught_up_ms_ago < 5000:
        return "yes"
    return f"{member.caught_up_ms_ago / 1000:.0f} s ago"


def _print_troubles(seen: Picture) -> None:
    troubles = (
        ("without a leader: nobody can write or read them", seen.offline),
        ("with replicas that are not in sync", seen.under_replicated),
    )
    for what, found in troubles:
        if found:
            print()
            print(f"{count(len(found), 'partition')} {what}")
            for each in found[:SHOWN]:
                print(f"  {_partition(each)}")
            if len(found) > SHOWN:
                print(f"  and {len(found) - SHOWN:,} more")
    if seen.led_elsewhere:
        print()
        print(f"{count(len(seen.led_elsewhere), 'partition')} not led by the preferred replica")
    if seen.reassigning:
        print()
        print(f"{count(seen.reassigning, 'partition')} being reassigned")


def _partition(one: PartitionSeen) -> str:
    missing = [node for node in one.replicas if node not in one.in_sync]
    leader = "no leader" if one.leader == NOBODY else f"leader {one.leader}"
    return f"{one.place}: {leader}, not in sync: {', '.join(map(str, missing)) or 'none'}"
