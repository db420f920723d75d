"""The brokers that clients are told of."""

from typing import Final, NamedTuple

from tidelog.cluster.image import MetadataImage, PartitionImage

FOR_BROKERS: Final = "CONTROLLER"
"""The listener that no client should see."""


class Member(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def members(image: MetadataImage, node_id: int, host: str, port: int) -> list[Member]:
    """Those of a cluster as they registered; alone, this broker as the client reached it."""
    found = []
    for broker in image.brokers.values():
        for endpoint in broker.endpoints:
            if endpoint.listener != FOR_BROKERS and not broker.fenced:
                found.append(Member(broker.node_id, endpoint.host, endpoint.port, broker.rack))
                break
    return found or [Member(node_id, host, port)]


def offline(image: MetadataImage, partition: PartitionImage) -> tuple[int, ...]:
    if not image.brokers:
        return ()
    return tuple(node for node in partition.replicas if node not in image.brokers or image.brokers[node].fenced)
