"""Where the replicas of new partitions go: round the brokers, over as many racks as there are, on those that are up.

A broker that is registered and away gets a replica only where too few are up, as in Kafka: it catches up when it is
back. Each partition has at least one broker that is up, which leads.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidelog.cluster.image import MetadataImage
from tidelog.errors import InvalidReplicaAssignment, InvalidReplicationFactor

Placed = dict[int, tuple[int, ...]]
Racks = Mapping[int, str | None]


def place_replicas(
    image: MetadataImage, up: Sequence[int], replication_factor: int, partitions: Iterable[int]
) -> Placed:
    """`up`: the brokers that may lead. The first replica of each partition is the one that leads when all are up."""
    away = sorted(image.brokers.keys() - set(up))
    if replication_factor < 1:
        raise InvalidReplicationFactor("replication factor must be at least 1")
    if not up:
        raise InvalidReplicationFactor(f"none of the {len(away)} brokers is up")
    if replication_factor > len(up) + len(away):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is larger than the {len(up) + len(away)} registered brokers"
        )
    racks = {node: broker.rack for node, broker in image.brokers.items()}
    missing = replication_factor - len(up)
    if missing <= 0:
        ring = _ring(up, racks)
        return {number: _spread(_from(ring, number), replication_factor, racks) for number in partitions}
    ring = _ring([*up, *away], racks)
    placed = {}
    for number in partitions:
        chosen = {*up, *_from(away, number)[:missing]}
        placed[number] = tuple(node for node in _from(ring, number) if node in chosen)
    return placed


def _from(ring: Sequence[int], number: int) -> list[int]:
    begin = number % len(ring)
    return [*ring[begin:], *ring[:begin]]


def _ring(brokers: Iterable[int], racks: Racks) -> list[int]:
    """Neighbours are in different racks, as far as possible."""
    position: Counter[str] = Counter()
    places = []
    for node in sorted(brokers):
        rack = racks.get(node) or ""
        places.append((position[rack], rack, node))
        position[rack] += 1
    return [node for _, _, node in sorted(places)]


def _spread(ring: Sequence[int], count: int, racks: Racks) -> tuple[int, ...]:
    """The first of the ring and whom it comes to next, each time from a rack that has the fewest so far."""
    if len({racks.get(node) for node in ring}) == 1:
        return tuple(ring[:count])
    used: Counter[str | None] = Counter()
    chosen: list[int] = []
    left = list(ring)
    while len(chosen) < count:
        node = min(left, key=lambda each: used[racks.get(each)])  # the first of several
        left.remove(node)
        chosen.append(node)
        used[racks.get(node)] += 1
    return tuple(chosen)


def checked_assignments(
    image: MetadataImage, up: Collection[int], assignments: Mapping[int, Sequence[int]], *, first: int
) -> Placed:
    """What somebody decided by hand."""
    expected = range(first, first + len(assignments))
    if sorted(assignments) != list(expected):
        raise InvalidReplicaAssignment(f"partitions {sorted(assignments)} are not consecutive from {first}")
    factor = len(assignments[first])
    for partition, replicas in assignments.items():
        if not replicas or len(set(replicas)) != len(replicas) or len(replicas) != factor:
            raise InvalidReplicaAssignment(
                f"partition {partition}: replicas {list(replicas)} are empty, doubled or uneven"
            )
        unknown = sorted(set(replicas) - set(up) - image.brokers.keys())
        if unknown:
            raise InvalidReplicaAssignment(f"partition {partition}: no broker {unknown}")
        if not set(replicas) & set(up):
            raise InvalidReplicaAssignment(f"partition {partition}: none of brokers {list(replicas)} is up")
    return {partition: tuple(assignments[partition]) for partition in expected}
