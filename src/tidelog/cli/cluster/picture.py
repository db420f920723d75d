"""A whole cluster at one moment: its brokers, its quorum, its partitions. The keys of `-o json`."""

from collections import Counter
from typing import Final

import msgspec

NOBODY: Final = -1
QUORUM_LAG_MAX: Final = 100
"""Entries of metadata that a voter may be behind and still be called up to date."""


class BrokerSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    host: str
    port: int
    rack: str | None = None
    leaders: int = 0
    preferred: int = 0
    """Partitions whose first replica it is, and which it leads when all is well."""
    replicas: int = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class QuorumMember(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    log_end_offset: int
    lag: int
    caught_up_ms_ago: int | None
    """Since it last had everything; None where the leader does not say."""
    address: str | None = None
    """Where it listens for brokers, of a voter."""
    directory_id: str | None = None
    """Of the disk that it votes from. A node whose disk was replaced has another one, and votes from it when it has
    caught up."""


class QuorumSeen(msgspec.Struct, frozen=True, kw_only=True):
    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...]


class PartitionSeen(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_offline(self) -> bool:
        return self.leader == NOBODY

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str | None
    controller: int
    """Who leads the quorum; where nobody can be asked, the broker that clients are told of."""
    brokers: tuple[BrokerSeen, ...]
    absent: tuple[int, ...]
    """Those that hold replicas or vote, and are not there."""
    quorum: QuorumSeen | None
    topics: int
    partitions: tuple[PartitionSeen, ...]
    reassigning: int = 0

    @property
    def offline(self) -> list[PartitionSeen]:
        return [each for each in self.partitions if each.is_offline]

    @property
    def under_replicated(self) -> list[PartitionSeen]:
        return [each for each in self.partitions if each.is_under_replicated and not each.is_offline]

    @property
    def led_elsewhere(self) -> list[PartitionSeen]:
        """By another broker than the first of its replicas."""
        return [each for each in self.partitions if not each.is_offline and each.leader != each.replicas[0]]

    @property
    def is_healthy(self) -> bool:
        return not (self.absent or self.offline or self.under_replicated)

    def to_json(self) -> dict[str, object]:
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "healthy": self.is_healthy,
            "brokers": self.brokers,
            "absent_brokers": self.absent,
            "quorum": self.quorum,
            "topics": self.topics,
            "partitions": len(self.partitions),
            "reassigning_partitions": self.reassigning,
            "not_led_by_preferred": len(self.led_elsewhere),
            "under_replicated": self.under_replicated,
            "offline": self.offline,
        }


def picture(
    *,
    cluster_id: str | None,
    controller: int,
    brokers: list[BrokerSeen],
    partitions: list[PartitionSeen],
    quorum: QuorumSeen | None,
    reassigning: int = 0,
) -> Picture:
    """With what can be counted counted."""
    leaders = Counter(each.leader for each in partitions)
    preferred = Counter(each.replicas[0] for each in partitions if each.replicas)
    replicas = Counter(node for each in partitions for node in each.replicas)
    here = {each.id for each in brokers}
    voters = {each.id for each in quorum.voters} if quorum is not None else set()
    counted = tuple(
        msgspec.structs.replace(
            each, leaders=leaders[each.id], preferred=preferred[each.id], replicas=replicas[each.id]
        )
        for each in sorted(brokers, key=lambda each: each.id)
    )
    return Picture(
        cluster_id=cluster_id,
        controller=quorum.leader if quorum is not None else controller,
        brokers=counted,
        absent=tuple(sorted((set(replicas) | voters) - here)),
        quorum=quorum,
        topics=len({each.topic for each in partitions}),
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
        reassigning=reassigning,
    )


def news(before: Picture, after: Picture) -> list[str]:
    """What somebody who watches should hear of, in one line each."""
    told = []
    gone, come = set(after.absent) - set(before.absent), set(before.absent) - set(after.absent)
    moved = sum(1 for old, new in _pairs(before, after) if new.leader not in (old.leader, NOBODY))
    told += [f"node {node} is not there any more" for node in sorted(gone)]
    told += [f"node {node} is back" for node in sorted(come)]
    if after.controller not in (before.controller, NOBODY):
        told.append(f"node {after.controller} is the controller now")
    if moved:
        told.append(f"{moved} of {len(after.partitions)} partitions have another leader")
    if len(after.offline) != len(before.offline):
        told.append(f"{_partitions(len(after.offline))} without a leader")
    short, was_short = len(after.under_replicated), len(before.under_replicated)
    if short > was_short:
        told.append(f"{_partitions(short)} with replicas that are not in sync")
    elif was_short and not short and not after.offline:
        told.append("every replica is in sync again")
    return told


def _pairs(before: Picture, after: Picture) -> list[tuple[PartitionSeen, PartitionSeen]]:
    old = {each.place: each for each in before.partitions}
    return [(old[each.place], each) for each in after.partitions if each.place in old]


def _partitions(number: int) -> str:
    return f"{number:,} partition{'s' * (number != 1)}"
