"""Who leads each partition, and who is in sync with it: the controller's answers to brokers that come, go and fall
behind.

Pure functions from the image to records. Elections are clean: only a member of the in-sync set may lead, since only
it is known to have everything that was acknowledged. The set never becomes empty because somebody was not heard of:
the last member stays in it, leads nothing while it is away, and leads again when it is back. Only a member whose disk
was replaced leaves it for good.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

from tidelog.cluster.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from tidelog.cluster.records import AnyRecord, PartitionRecord
from tidelog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    PreferredLeaderNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

Available = Callable[[int], bool]


def choose_leader(partition: PartitionImage, isr: Sequence[int], available: Available) -> int:
    """The present leader if it can go on, else the first choice among those in sync."""
    if partition.leader in isr and available(partition.leader):
        return partition.leader
    return next((node for node in partition.replicas if node in isr and available(node)), NO_LEADER)


def led_by(partition: PartitionImage, topic_id: UUID, leader: int, isr: Sequence[int]) -> PartitionRecord | None:
    """None if nothing changes. A new leader, or none, begins a new epoch."""
    isr = tuple(isr)
    if leader == partition.leader and isr == partition.isr:
        return None
    epoch = partition.leader_epoch + (leader != partition.leader)
    return partition.changed(topic_id, leader=leader, leader_epoch=epoch, isr=isr)


# Brokers that go and come ---------------------------------------------------------------------------------------------


def without(image: MetadataImage, node_id: int, *, disk_lost: bool = False) -> list[AnyRecord]:
    """What must change so that nothing depends on this broker: it leads nothing and nobody waits for it."""

    def available(node: int) -> bool:
        return node != node_id and image.is_available(node)

    records: list[AnyRecord] = []
    for topic, partition in _of(image, node_id):
        isr = tuple(node for node in partition.isr if node != node_id)
        if not isr and not disk_lost:
            isr = partition.isr  # nobody else is known to have everything
        record = led_by(partition, topic.topic_id, choose_leader(partition, isr, available), isr)
        if record is not None:
            records.append(record)
    return records


def with_back(image: MetadataImage, node_id: int) -> list[AnyRecord]:
    """This broker can lead again: what waited for it has a leader."""

    def available(node: int) -> bool:
        return node == node_id or image.is_available(node)

    records: list[AnyRecord] = []
    for topic, partition in _of(image, node_id):
        if partition.leader == NO_LEADER and node_id in partition.isr:
            record = led_by(
                partition, topic.topic_id, choose_leader(partition, partition.isr, available), partition.isr
            )
            if record is not None:
                records.append(record)
    return records


def _of(image: MetadataImage, node_id: int) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics.values():
        for partition in topic.partitions:
            if node_id in partition.replicas:
                yield topic, partition


# What leaders report --------------------------------------------------------------------------------------------------


def alter_isr(
    image: MetadataImage,
    topic_id: UUID,
    number: int,
    *,
    leader: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[tuple[int, int]],
) -> list[AnyRecord]:
    """A leader's wish for its in-sync set: (node, broker epoch or -1 if it doesn't know) of each member.

    Decided only on the picture the leader had, so that two changes can't cross.
    """
    topic, partition = find(image, topic_id, number)
    where = f"{topic.name}-{number}"
    if leader_epoch > partition.leader_epoch or partition_epoch > partition.partition_epoch:
        raise KafkaError(f"{where}: epoch {leader_epoch} is newer than this controller's", ErrorCode.NOT_CONTROLLER)
    if leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"{where}: epoch {leader_epoch} is older than {partition.leader_epoch}")
    if partition.leader != leader:
        raise InvalidRequest(f"{where} is led by {partition.leader}, not by {leader}")
    if partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"{where}: version {partition_epoch} is older than {partition.partition_epoch}")
    members = tuple(node for node, _ in isr)
    if len(set(members)) != len(members) or leader not in members or not set(members) <= set(partition.replicas):
        raise InvalidRequest(f"{where}: {list(members)} cannot be in sync")
    for node, broker_epoch in isr:
        if node in partition.isr:
            continue
        known = image.brokers.get(node)
        if not image.is_available(node) or known is None or broker_epoch not in (-1, known.broker_epoch):
            raise IneligibleReplica(f"{where}: broker {node} was fenced or restarted meanwhile")
    changed = partition.changed(topic_id, isr=tuple(node for node in partition.replicas if node in members))
    return [finished(image, topic_id, changed) or changed]


# Reassignment ---------------------------------------------------------------------------------------------------------


def reassign(image: MetadataImage, topic_id: UUID, number: int, target: Sequence[int]) -> list[AnyRecord]:
    """Begin to move a partition to other brokers. The new ones catch up first; the old ones go when they have."""
    topic, partition = find(image, topic_id, number)
    wanted = tuple(target)
    where = f"{topic.name}-{number}"
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidReplicaAssignment(f"{where}: replicas {list(wanted)} are empty or doubled")
    unknown = sorted(node for node in wanted if node not in image.brokers)
    if unknown:
        raise InvalidReplicaAssignment(f"{where}: no broker {unknown}")
    now = stable_replicas(partition)
    adding = tuple(node for node in wanted if node not in now)
    removing = tuple(node for node in now if node not in wanted)
    record = _moved(image, topic_id, partition, (*wanted, *removing), adding, removing)
    return [finished(image, topic_id, record) or record]


def cancel_reassignment(image: MetadataImage, topic_id: UUID, number: int) -> list[AnyRecord]:
    """Back to the brokers it was on. One that was added may lead by now, and goes on only if nobody else is in sync."""
    _, partition = find(image, topic_id, number)
    if not (partition.adding or partition.removing):
        return []
    return [_moved(image, topic_id, partition, stable_replicas(partition), (), ())]


def _moved(
    image: MetadataImage,
    topic_id: UUID,
    partition: PartitionImage,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> PartitionRecord:
    """On other brokers. Those that an earlier reassignment had added and this one does not want are gone at once, from
    the in-sync set too; one of them may lead.

    Whenever somebody goes, a new epoch begins: were it to come back in the same one, with nothing, its leader might
    still believe that it has what it had.
    """
    isr = tuple(node for node in replicas if node in partition.isr)
    if partition.isr and not isr:
        raise InvalidRequest(f"none of brokers {list(replicas)} is in sync: the reassignment under way must go on")
    leader = partition.leader
    if leader != NO_LEADER and leader not in replicas:
        placed = PartitionImage(partition.partition, leader, partition.leader_epoch, replicas, isr)
        leader = choose_leader(placed, isr, image.is_available)
    gone = not set(partition.replicas) <= set(replicas)
    epoch = partition.leader_epoch + (leader != partition.leader or gone)
    return partition.changed(
        topic_id, leader=leader, leader_epoch=epoch, replicas=replicas, isr=isr, adding=adding, removing=removing
    )


def finished(image: MetadataImage, topic_id: UUID, record: PartitionRecord) -> PartitionRecord | None:
    """What ends a reassignment, once all that it adds is in sync. One that stays where it is may be away meanwhile."""
    if not (record.adding or record.removing):
        return None
    target = tuple(node for node in record.replicas if node not in record.removing)
    isr = tuple(node for node in target if node in record.isr)
    if not set(record.adding) <= set(isr):
        return None
    arrived = PartitionImage(record.partition, record.leader, record.leader_epoch, target, isr, record.partition_epoch)
    leader = choose_leader(arrived, isr, image.is_available)
    if leader == NO_LEADER:
        return None
    epoch = record.leader_epoch + (leader != record.leader or bool(record.removing))
    return PartitionRecord(topic_id, record.partition, leader, epoch, target, isr, record.partition_epoch)


def stable_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Where it is apart from a reassignment under way."""
    kept = tuple(node for node in partition.replicas if node not in partition.adding and node not in partition.removing)
    return (*kept, *partition.removing)


# Elections by request -------------------------------------------------------------------------------------------------


def elect_preferred(image: MetadataImage, topic_id: UUID, number: int) -> list[AnyRecord]:
    topic, partition = find(image, topic_id, number)
    first = partition.replicas[0]
    if partition.leader == first:
        raise ElectionNotNeeded(f"{topic.name}-{number} is led by {first} already")
    if first not in partition.isr or not image.is_available(first):
        raise PreferredLeaderNotAvailable(f"{topic.name}-{number}: broker {first} is not in sync or not available")
    record = led_by(partition, topic_id, first, partition.isr)
    return [record] if record is not None else []


def elect_unclean(image: MetadataImage, topic_id: UUID, number: int) -> list[AnyRecord]:
    """A leader at any price: whoever is there, with whatever it has. What it does not have is lost."""
    topic, partition = find(image, topic_id, number)
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded(f"{topic.name}-{number} is led by {partition.leader}")
    clean = choose_leader(partition, partition.isr, image.is_available)
    leader = clean if clean != NO_LEADER else next((n for n in partition.replicas if image.is_available(n)), NO_LEADER)
    if leader == NO_LEADER:
        raise EligibleLeadersNotAvailable(f"no replica of {topic.name}-{number} is available")
    isr = partition.isr if leader in partition.isr else (leader,)
    record = led_by(partition, topic_id, leader, isr)
    return [record] if record is not None else []


def preferred_where_possible(image: MetadataImage, topics: Iterable[TopicImage] | None = None) -> list[AnyRecord]:
    """Leaders back to where they belong, after brokers were away."""
    records: list[AnyRecord] = []
    for topic in image.topics.values() if topics is None else topics:
        for partition in topic.partitions:
            first = partition.replicas[0]
            if partition.leader != first and first in partition.isr and image.is_available(first):
                record = led_by(partition, topic.topic_id, first, partition.isr)
                if record is not None:
                    records.append(record)
    return records


def find(image: MetadataImage, topic_id: UUID, number: int) -> tuple[TopicImage, PartitionImage]:
    name = image.names_by_id.get(topic_id)
    if name is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}")
    topic = image.topics[name]
    if not 0 <= number < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {name}-{number}")
    return topic, topic.partitions[number]
