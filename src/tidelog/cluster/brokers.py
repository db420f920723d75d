"""Brokers as the controller knows them: registered, heard of, fenced, stopping, gone."""

from collections.abc import Iterable
from uuid import UUID

import msgspec

from tidelog.cluster import elections
from tidelog.cluster.image import BrokerImage, MetadataImage
from tidelog.cluster.records import AnyRecord, BrokerEndpoint, BrokerRecord, BrokerRemoved
from tidelog.errors import BrokerIdNotRegistered, DuplicateBrokerRegistration, InvalidRequest, StaleBrokerEpoch


def register(
    image: MetadataImage,
    node_id: int,
    *,
    incarnation: UUID,
    broker_epoch: int,
    directory_id: str,
    endpoints: tuple[BrokerEndpoint, ...],
    rack: str | None,
    is_alive: bool,
) -> list[AnyRecord]:
    """A process wants to be this broker. It is fenced until its heartbeat says that it has caught up.

    `is_alive`: another process of that id was heard of just now, so two of them are running.
    """
    known = image.brokers.get(node_id)
    if known is not None and known.incarnation == incarnation:
        return []  # it asks again because it never heard the answer
    if known is not None and is_alive and not known.fenced and not known.stopping:
        raise DuplicateBrokerRegistration(f"broker {node_id} is running already, in another process")
    disk_lost = known is not None and known.directory_id != directory_id
    registered = BrokerRecord(node_id, incarnation, broker_epoch, directory_id, endpoints, rack)
    return [registered, *elections.without(image, node_id, disk_lost=disk_lost)]


def check_epoch(image: MetadataImage, node_id: int, broker_epoch: int) -> BrokerImage:
    """Whoever speaks for a broker must be its last registration."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"broker {node_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(f"broker {node_id}: epoch {broker_epoch}, registered with {broker.broker_epoch}")
    return broker


def fence(image: MetadataImage, node_id: int) -> list[AnyRecord]:
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return []
    return [msgspec.structs.replace(broker, fenced=True), *elections.without(image, node_id)]


def unfence(image: MetadataImage, node_id: int) -> list[AnyRecord]:
    broker = image.brokers.get(node_id)
    if broker is None or not broker.fenced:
        return []
    return [msgspec.structs.replace(broker, fenced=False, stopping=False), *elections.with_back(image, node_id)]


def begin_stop(image: MetadataImage, node_id: int) -> list[AnyRecord]:
    """Controlled shutdown: leaders move away while it still answers."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.stopping or broker.fenced:
        return []
    return [msgspec.structs.replace(broker, stopping=True), *elections.without(image, node_id)]


def may_stop(image: MetadataImage, node_id: int) -> bool:
    """Whether it leads nothing any more that another could lead. Where all stop at once, none waits for the others."""
    return not any(
        partition.leader == node_id and any(node != node_id and image.is_available(node) for node in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def unregister(image: MetadataImage, node_id: int) -> list[AnyRecord]:
    """It never comes back. Refused while it holds something: its replicas must be moved first."""
    if node_id not in image.brokers:
        raise BrokerIdNotRegistered(f"broker {node_id} is not registered")
    held = [
        f"{topic.name}-{partition.partition}"
        for topic in image.topics.values()
        for partition in topic.partitions
        if node_id in partition.replicas
    ]
    if held:
        raise InvalidRequest(f"broker {node_id} still has replicas of {len(held)} partitions, such as {held[0]}")
    return [BrokerRemoved(node_id)]


class Liveness:
    """Who was heard of when, on the controller's own monotonic clock. Not in the log: a new controller begins anew, and
    gives everyone the whole time, except the one whose silence made it controller."""

    def __init__(self, session_ms: int, suspect_ms: int) -> None:
        self._session_ms = session_ms
        self._suspect_ms = suspect_ms
        self._deadlines: dict[int, int] = {}
        self._presumed: set[int] = set()
        """Nobody has heard of them since this controller took office: perhaps they died together with the last one."""

    def take_office(self, nodes: Iterable[int], suspects: Iterable[int], monotonic_ms: int) -> None:
        self._deadlines = dict.fromkeys(nodes, monotonic_ms + self._session_ms)
        self._presumed = set(self._deadlines)
        for node in suspects:
            self.suspect(node, monotonic_ms)

    def expect(self, nodes: Iterable[int], deadline_ms: int) -> None:
        """Those that nobody listens for yet: a new controller learns of some only when what the last one decided is
        committed."""
        for node in nodes:
            if node not in self._deadlines:
                self._deadlines[node] = deadline_ms
                self._presumed.add(node)

    def heard(self, node_id: int, monotonic_ms: int) -> None:
        self._deadlines[node_id] = monotonic_ms + self._session_ms
        self._presumed.discard(node_id)

    def suspect(self, node_id: int, monotonic_ms: int) -> None:
        """Its connections broke: it is probably dead, and has a moment to prove otherwise."""
        deadline = monotonic_ms + self._suspect_ms
        if node_id in self._deadlines:
            self._deadlines[node_id] = min(self._deadlines[node_id], deadline)

    def is_alive(self, node_id: int, monotonic_ms: int) -> bool:
        """Whether it was heard of just now, and not only might be there."""
        return node_id not in self._presumed and self._deadlines.get(node_id, monotonic_ms) > monotonic_ms

    def silent(self, monotonic_ms: int) -> list[int]:
        """Those whose time is up; each is named once."""
        over = [node for node, deadline in self._deadlines.items() if deadline <= monotonic_ms]
        for node in over:
            del self._deadlines[node]
        return over

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self._deadlines.values(), default=None)
