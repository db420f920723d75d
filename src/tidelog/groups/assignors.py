"""Server-side assignors: who should own which partition. Pure functions from members and topics to a target.

| name | keeps | balance |
|---|---|---|
| `uniform` | as much of the current target as balance allows | counts differ by at most one among equal subscriptions |
| `range` | nothing; only ids decide | per topic; equal topics land on equal members, so joins stay local |

Both give every partition of every subscribed topic to exactly one subscriber. The order of `members` and `topics` does
not matter: the same group always gets the same target, whichever coordinator computes it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from tidelog.ids import TopicId

Assignment = Mapping[TopicId, frozenset[int]]
Slot = tuple[TopicId, int]  # one partition of one topic

NOTHING: Final[Assignment] = MappingProxyType({})


class MemberSpec(msgspec.Struct, frozen=True):
    """What an assignor may know about a member."""

    topics: frozenset[TopicId]
    current: Assignment = NOTHING
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
PartitionCounts = Mapping[TopicId, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def uniform(members: Members, topics: PartitionCounts) -> dict[str, Assignment]:
    """Balanced over all topics together, and sticky: a partition moves only if balance demands it."""
    if not members:
        return {}
    if len({spec.topics for spec in members.values()}) == 1:
        owned = _uniform_homogeneous(members, topics)
    else:
        owned = _uniform_heterogeneous(members, topics)
    return {member_id: _grouped(slots) for member_id, slots in owned.items()}


def range_(members: Members, topics: PartitionCounts) -> dict[str, Assignment]:
    """Contiguous ranges per topic. Topics with as many partitions and the same subscribers are split alike."""
    ordered = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    target: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, count in topics.items():
        subscribers = [member_id for member_id in ordered if topic_id in members[member_id].topics]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + share + (index < extra)
            if end > start:
                target[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(target)


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({"uniform": uniform, "range": range_})
DEFAULT_ASSIGNOR: Final = "uniform"


def _range_order(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    # A static member keeps its place when it comes back under a new member id.
    return spec.instance_id is None, spec.instance_id or member_id


def _uniform_homogeneous(members: Members, topics: PartitionCounts) -> dict[str, set[Slot]]:
    subscribed = next(iter(members.values())).topics
    wanted = {(topic, n) for topic, count in topics.items() if topic in subscribed for n in range(count)}
    owned = _still_valid(members, wanted)
    share, extra = divmod(len(wanted), len(members))
    # Those who hold most may keep one more than the others: that is what costs the fewest moves.
    quotas: dict[str, int] = {}
    for index, member_id in enumerate(sorted(members, key=lambda one: (-len(owned[one]), one))):
        quotas[member_id] = share + (index < extra)
        surplus = len(owned[member_id]) - quotas[member_id]
        if surplus > 0:
            owned[member_id] -= set(_spread_out(owned[member_id])[-surplus:])
    free = sorted(wanted.difference(*owned.values()))
    hungry = deque(sorted(one for one in members if len(owned[one]) < quotas[one]))
    for slot in free:  # round robin, so that each topic is spread over the members and not only the total
        member_id = hungry.popleft()
        owned[member_id].add(slot)
        if len(owned[member_id]) < quotas[member_id]:
            hungry.append(member_id)
    return owned


def _uniform_heterogeneous(members: Members, topics: PartitionCounts) -> dict[str, set[Slot]]:
    subscribers = {
        topic: sorted(member_id for member_id, spec in members.items() if topic in spec.topics) for topic in topics
    }
    wanted = {(topic, n) for topic, count in topics.items() if subscribers[topic] for n in range(count)}
    owned = _still_valid(members, wanted)
    free = wanted.difference(*owned.values())
    # Topics with few takers first: the others have more ways to make up for it.
    for slot in sorted(free, key=lambda one: (len(subscribers[one[0]]), one)):
        owned[min(subscribers[slot[0]], key=lambda one: (len(owned[one]), one))].add(slot)
    return _balanced(owned, subscribers)


def _balanced(owned: dict[str, set[Slot]], subscribers: Mapping[TopicId, list[str]]) -> dict[str, set[Slot]]:
    """Moves partitions until no chain of moves could take one from a member to another that has two fewer.

    Always from the heaviest member on. If it finds nobody lighter, all it can reach have at most one less, so none of
    them can improve either, and no later chain can end among them: the whole set is settled at once.
    """
    held = {member_id: {t: {n for u, n in slots if u == t} for t, _ in slots} for member_id, slots in owned.items()}
    load = {member_id: len(slots) for member_id, slots in owned.items()}
    unsettled = set(owned)
    while unsettled:
        heaviest = max(unsettled, key=lambda one: (load[one], one))
        chain, reached = _search(heaviest, held, load, subscribers)
        for giver, topic, taker in chain:
            partition = max(held[giver][topic])
            held[giver][topic].discard(partition)
            held[taker].setdefault(topic, set()).add(partition)
        if chain:
            load[heaviest] -= 1
            load[chain[0][2]] += 1
        else:
            unsettled -= reached
    return {one: {(topic, n) for topic, numbers in topics.items() for n in numbers} for one, topics in held.items()}


def _search(
    start: str,
    held: Mapping[str, Mapping[TopicId, set[int]]],
    load: Mapping[str, int],
    subscribers: Mapping[TopicId, list[str]],
) -> tuple[list[tuple[str, TopicId, str]], set[str]]:
    """Breadth first, so that the chain found is one of the shortest: every link of it is a partition that moves.

    The chain is returned from its end, so that each taker has handed on before it takes.
    """
    came_from: dict[str, tuple[str, TopicId]] = {}
    reached = {start}
    topics_seen: set[TopicId] = set()
    level = [start]
    while level:
        following: list[str] = []
        for giver in level:
            for topic in sorted(
                topic for topic, numbers in held[giver].items() if numbers and topic not in topics_seen
            ):
                topics_seen.add(topic)
                for taker in subscribers[topic]:
                    if taker not in reached:
                        reached.add(taker)
                        came_from[taker] = (giver, topic)
                        following.append(taker)
        lightest = min(following, key=lambda one: (load[one], one), default=start)
        if load[lightest] <= load[start] - 2:
            return _chain(lightest, came_from), reached
        level = following
    return [], reached


def _chain(end: str, came_from: Mapping[str, tuple[str, TopicId]]) -> list[tuple[str, TopicId, str]]:
    links: list[tuple[str, TopicId, str]] = []
    while end in came_from:
        giver, topic = came_from[end]
        links.append((giver, topic, end))
        end = giver
    return links


def _still_valid(members: Members, wanted: set[Slot]) -> dict[str, set[Slot]]:
    """What each member holds that exists, is subscribed, and that nobody before it holds as well."""
    taken: set[Slot] = set()
    owned: dict[str, set[Slot]] = {}
    for member_id in sorted(members):
        spec = members[member_id]
        slots = {(topic, n) for topic, held in spec.current.items() if topic in spec.topics for n in held}
        owned[member_id] = (slots & wanted) - taken
        taken |= owned[member_id]
    return owned


def _spread_out(slots: Iterable[Slot]) -> list[Slot]:
    """In an order whose every prefix takes about equally from each topic."""
    seen: Counter[TopicId] = Counter()
    ranked: list[tuple[int, Slot]] = []
    for slot in sorted(slots):
        ranked.append((seen[slot[0]], slot))
        seen[slot[0]] += 1
    return [slot for _, slot in sorted(ranked)]


def _grouped(slots: Iterable[Slot]) -> Assignment:
    by_topic: dict[TopicId, set[int]] = {}
    for topic, partition in slots:
        by_topic.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in by_topic.items()}
