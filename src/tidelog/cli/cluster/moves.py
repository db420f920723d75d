"""Which replicas go where: emptying a broker, filling a new one, spreading a topic. Plans only; nothing is asked here.

A plan moves as little as it can, keeps replicas of a partition on different brokers and, where brokers say where they
stand, in different racks, and gives every broker its share of preferred leaders.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tidelog.cli.problems import Problem
from tidelog.ids import TopicPartition

Placement = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas of each partition, the preferred leader first."""
Plan = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]
"""Every broker that may hold replicas, and where it stands."""


def emptied(placement: Placement, racks: Racks, leaving: int, *, may_shrink: bool = False) -> Plan:
    """Everything off one broker. Each replica goes to the broker with the fewest that has none of its partition."""
    load = Counter(node for replicas in placement.values() for node in replicas)
    plan: Plan = {}
    stuck: list[TopicPartition] = []
    for place, replicas in sorted(placement.items()):
        if leaving not in replicas:
            continue
        others = [node for node in replicas if node != leaving]
        heir = _heir(others, racks, load, leaving)
        if heir is not None:
            load[heir] += 1
            plan[place] = tuple(heir if node == leaving else node for node in replicas)
        elif may_shrink and others:
            plan[place] = tuple(others)
        else:
            stuck.append(place)
    if stuck:
        topics = sorted({place.topic for place in stuck})
        shown = ", ".join(topics[:3]) + (", ..." if len(topics) > 3 else "")
        raise Problem(
            f"there is no other broker for {len(stuck)} replicas on broker {leaving} (of {shown})",
            "add a broker first, or accept fewer replicas of these topics with --shrink"
            if all(len(placement[place]) > 1 for place in stuck)
            else "add a broker first",
        )
    return _leaders_spread({**placement, **plan}, plan, plan.keys())


def _heir(others: Sequence[int], racks: Racks, load: Counter[int], leaving: int) -> int | None:
    taken = {racks.get(node) for node in others} - {None}
    candidates = [node for node in racks if node != leaving and node not in others]
    return min(candidates, key=lambda node: (racks[node] in taken, load[node], node), default=None)


def balanced(placement: Placement, racks: Racks) -> Plan:
    """Every broker with about as many replicas and preferred leaders as any other. Only moves from the fullest to the
    emptiest broker are made, and only while they help."""
    now: Plan = dict(placement)
    load = Counter(dict.fromkeys(racks, 0))
    holds: dict[int, set[TopicPartition]] = {node: set() for node in racks}
    for place, replicas in now.items():
        for node in replicas:
            load[node] += 1
            holds.setdefault(node, set()).add(place)
    while step := _step(now, racks, load, holds):
        place, giver, taker = step
        now[place] = tuple(taker if node == giver else node for node in now[place])
        load[giver] -= 1
        load[taker] += 1
        holds[giver].discard(place)
        holds[taker].add(place)
    plan = {place: replicas for place, replicas in now.items() if replicas != placement[place]}
    return _leaders_spread(now, plan, now.keys())


def _step(
    now: Placement, racks: Racks, load: Counter[int], holds: Mapping[int, Collection[TopicPartition]]
) -> tuple[TopicPartition, int, int] | None:
    for taker in sorted(racks, key=lambda node: (load[node], node)):
        for giver in sorted(racks, key=lambda node: (-load[node], node)):
            if load[giver] - load[taker] < 2:
                break
            fitting = [place for place in holds[giver] if taker not in now[place]]
            kept = [place for place in fitting if not _worse_spread(now[place], racks, giver, taker)]
            if kept:
                return min(kept), giver, taker
    return None


def _worse_spread(replicas: Sequence[int], racks: Racks, giver: int, taker: int) -> bool:
    before = {racks.get(node) for node in replicas}
    after = {racks.get(taker if node == giver else node) for node in replicas}
    return len(after) < len(before)


def _leaders_spread(now: Placement, plan: Plan, may_change: Collection[TopicPartition]) -> Plan:
    """The plan with another replica first where one broker would lead more than its share. Costs no copying."""
    order = dict(now)
    leads = Counter(replicas[0] for replicas in order.values())
    spread = dict(plan)
    changed = True
    while changed:
        changed = False
        for place in sorted(may_change):
            replicas = order[place]
            best = min(replicas, key=lambda node: (leads[node], node))
            if leads[replicas[0]] - leads[best] >= 2:
                leads[replicas[0]] -= 1
                leads[best] += 1
                order[place] = spread[place] = (best, *(node for node in replicas if node != best))
                changed = True
    return spread


def spread_over(topic: str, partitions: Sequence[int], brokers: Sequence[int]) -> Plan:
    """A topic on exactly these brokers, each in turn the preferred leader."""
    turns = len(brokers)
    return {
        TopicPartition(topic, number): tuple(brokers[(index + shift) % turns] for shift in range(turns))
        for index, number in enumerate(sorted(partitions))
    }


def plan_from_json(text: str) -> Plan:
    """The file of Kafka's own kafka-reassign-partitions: {"version": 1, "partitions": [{"topic", "partition",
    "replicas"}]}."""
    import msgspec

    class Row(msgspec.Struct):
        topic: str
        partition: int
        replicas: list[int]

    class File(msgspec.Struct):
        partitions: list[Row]
        version: int = 1

    try:
        read = msgspec.json.decode(text, type=File)
    except msgspec.DecodeError as wrong:
        raise Problem(
            f"the plan cannot be read: {wrong}",
            'it is {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}',
        ) from None
    plan: Plan = {}
    for row in read.partitions:
        place = TopicPartition(row.topic, row.partition)
        if place in plan:
            raise Problem(f"the plan names {place} twice", "every partition has one line")
        if not row.replicas or len(set(row.replicas)) != len(row.replicas):
            raise Problem(f"the plan gives {place} the replicas {row.replicas}", "name each broker once, at least one")
        plan[place] = tuple(row.replicas)
    if not plan:
        raise Problem("the plan names no partition", "every partition to move has a line in it")
    return plan


def plan_to_json(plan: Plan) -> dict[str, object]:
    rows = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
        for place, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": rows}
