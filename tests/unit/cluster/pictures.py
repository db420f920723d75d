"""Images to decide on: brokers 1 to 5, all available, and one topic on some of them."""

from uuid import UUID

import msgspec

from tidelog.cluster.elections import find
from tidelog.cluster.image import MetadataImage, PartitionImage
from tidelog.cluster.records import AnyRecord, BrokerRecord, PartitionRecord, TopicRecord

TOPIC_ID = UUID(int=7)


def picture(
    *replicas: int,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    away: tuple[int, ...] = (),
    epoch: int = 3,
    version: int = 10,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> MetadataImage:
    """`away`: fenced brokers. A broker's epoch is ten times its id."""
    records: list[AnyRecord] = [
        BrokerRecord(node, UUID(int=node), node * 10, f"disk-{node}", fenced=node in away) for node in range(1, 6)
    ]
    records.append(TopicRecord("orders", TOPIC_ID))
    leader = replicas[0] if leader is None else leader
    isr = replicas if isr is None else isr
    records.append(PartitionRecord(TOPIC_ID, 0, leader, epoch, replicas, isr, version, adding, removing))
    return MetadataImage("test-cluster").apply(records)


def only(image: MetadataImage) -> PartitionImage:
    return find(image, TOPIC_ID, 0)[1]


def stopping(image: MetadataImage, node: int) -> MetadataImage:
    return image.apply([msgspec.structs.replace(image.brokers[node], stopping=True)])
