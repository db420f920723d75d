"""The wiring: every part of a broker is made and handed its neighbours here, and nowhere else."""

import asyncio
import shutil
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from tidelog.broker.advertised import Advertised
from tidelog.broker.background import Background
from tidelog.broker.busy_poll import BusyPoll, Threads
from tidelog.broker.cleaner import Cleaner
from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.groups import GroupRoom
from tidelog.broker.coordinators.markers import MarkerWriter
from tidelog.broker.coordinators.producer_ids import ProducerIds
from tidelog.broker.coordinators.transactions import TransactionRoom
from tidelog.broker.coordinators.verification import Remote, TransactionVerifier
from tidelog.broker.deep_work import DeepWork
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.flusher import Flusher
from tidelog.broker.handlers.cluster import ClusterHandler
from tidelog.broker.handlers.configs import ConfigsHandler
from tidelog.broker.handlers.coordinators import GROUP, TRANSACTION, CoordinatorsHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.follower_fetch import FollowerFetches
from tidelog.broker.handlers.group_insight import GroupInsightHandler
from tidelog.broker.handlers.group_offsets import GroupOffsetsHandler
from tidelog.broker.handlers.groups import GroupRequests, GroupsHandler
from tidelog.broker.handlers.inspection import InspectionHandler
from tidelog.broker.handlers.offsets import OffsetsHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.handlers.producer_ids import ProducerIdsHandler
from tidelog.broker.handlers.reassignments import ReassignmentsHandler
from tidelog.broker.handlers.topics import TopicsHandler
from tidelog.broker.handlers.transactional_offsets import TransactionalOffsetsHandler
from tidelog.broker.handlers.transactions import TransactionRequests, TransactionsHandler
from tidelog.broker.listener import Listeners
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import LocalMetadata, Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.links import MARKERS, VERIFICATIONS
from tidelog.broker.peers.marker_sender import MarkerSender, WritesMarkers
from tidelog.broker.recovery_points import RecoveryPoints
from tidelog.broker.requests import Endpoint
from tidelog.broker.waiting import Waiting
from tidelog.clock import Clock, SystemClock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION, MetadataLog
from tidelog.cluster.replica import Replica
from tidelog.config import BrokerConfig
from tidelog.errors import StorageOffline
from tidelog.ids import NO_TOPIC_ID
from tidelog.storage.checkpoints import encode_uuid
from tidelog.storage.disk import OUT_OF_DESCRIPTORS, RealDisk
from tidelog.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tidelog.broker.peers.side import ClusterSide

DRAIN_SECONDS: Final = 5.0

log = get_logger("broker")


class Node:
    """One broker process: started, serving, stopped."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, *, owns_process: bool = False) -> None:
        """`owns_process`: no thread needs the interpreter but this broker's own."""
        self.config = config
        self._owns_process = owns_process
        self.clock = clock or SystemClock()
        self.addresses: list[tuple[str, int]] = []
        self._leaving: asyncio.Task[None] | None = None
        self.endpoints: list[Endpoint] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[str] = loop.create_future()
        """Done when this broker is of no use to its cluster any more: the reason."""
        self.directory = LogDir.open(
            RealDisk(),
            self.config.log_dirs[0],
            cluster_id=self.config.cluster_id,
            new_cluster_id=_id_of_new_cluster(self.config),
            new_id=_new_uuid,
            node_id=self.config.node_id,
        )
        all_open = False
        try:
            self.partitions = Partitions(self.directory, self.config, self.clock)
            self.waiting = Waiting(loop)
            self.flusher = Flusher(loop, self._on_sync_error)
            self.deep_work = DeepWork(loop)
            self.cluster = self._make_cluster_side(loop)
            self.metadata: Metadata = self._load_metadata() if self.cluster is None else self.cluster.metadata
            self.metadata.subscribe(self.partitions.follow)
            self.groups = GroupRoom(
                self.config,
                self.partitions,
                self.metadata,
                self.flusher,
                self.clock,
                loop,
                Random(),
            )
            self.metadata.subscribe(self.groups.follow)
            self.producer_ids = ProducerIds(self.metadata)
            self.markers = MarkerWriter(
                self.partitions, self.groups.coordinator, self.waiting, self.flusher, self.clock
            )
            self.transactions = TransactionRoom(
                self.config,
                self.partitions,
                self.metadata,
                self.flusher,
                self.clock,
                loop,
                groups=self.groups,
                producer_ids=self.producer_ids,
                markers=self._markers_to_all(loop),
                alone=self.cluster is None,
            )
            await self._host_everything()
            all_open = True
            self.cleaner = Cleaner(self.partitions, self.deep_work, self.clock)
            self.partitions.on_removed = self._let_go
            if self.cluster is None:
                self._forget_absent()
            busy_poll = self._make_busy_poll(loop)
            self.dispatcher = Dispatcher(self._make_endpoints(busy_poll), loop)
            handle = self.dispatcher if busy_poll is None else busy_poll.around(self.dispatcher)
            self.listeners = Listeners(loop, self.config, handle)
            self.background = Background(
                self.metadata,
                self.partitions,
                self.listeners,
                RecoveryPoints(self.partitions, self.flusher),
                self.cleaner,
                self.groups,
                self.transactions,
                self.clock,
            )
            self.addresses = self.listeners.bind((each.host, each.port) for each in self.config.listener_addresses)
            if self.cluster is not None:
                self.cluster.bind(self._endpoints_for_brokers(self.cluster))
        except BaseException as error:
            # That a port is taken is no reason to scan every log at the next start.
            self.directory.close(clean=all_open and isinstance(error, OSError))
            raise
        if self.cluster is not None:
            await self._join(self.cluster)
            self._forget_absent()
        self.listeners.start()
        self.background.start()

    async def _join(self, cluster: "ClusterSide") -> None:
        """Takes until there is a majority, unless the disk is given up before: then this broker never will be one."""
        joining = asyncio.get_running_loop().create_task(cluster.join(self.addresses))
        try:
            await asyncio.wait((joining, self.failed), return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                raise StorageOffline(self.failed.result())
            await joining
        finally:
            joining.cancel()

    def _make_cluster_side(self, loop: asyncio.AbstractEventLoop) -> "ClusterSide | None":
        if self.config.controller_quorum_voters is None:
            return None
        # Not before: a broker that is alone starts without the rooms that only a cluster needs.
        from tidelog.broker.peers.side import ClusterSide

        side = ClusterSide(self.config, self.directory, self.partitions, self.clock, loop, self._give_up_directory)
        self.partitions.may_act = side.is_registered_in
        self.partitions.is_removed = lambda topic_id: topic_id in side.quorum.machine.removed_topics
        self.partitions.may_miss_removals = True
        return side

    def _make_busy_poll(self, loop: asyncio.AbstractEventLoop) -> BusyPoll | None:
        if not self._owns_process or self.config.busy_poll_max_us == 0:
            return None
        threads, flusher = Threads(), self.flusher
        loop.set_default_executor(threads)
        return BusyPoll(loop, self.config.busy_poll_max_us, lambda: threads.idle and not flusher.working)

    def _markers_to_all(self, loop: asyncio.AbstractEventLoop) -> WritesMarkers:
        if self.cluster is None:
            return self.markers
        return MarkerSender(self.config.node_id, self.markers, self.metadata, self.cluster.links_for(MARKERS), loop)

    def _load_metadata(self) -> Metadata:
        now_ms = self.clock.now_ms()
        place, config = METADATA_PARTITION, METADATA_CONFIG
        if self.directory.has_log(place):
            stored = self.directory.open_log(place, NO_TOPIC_ID, config, now_ms=now_ms)
        else:
            stored = self.directory.create_log(place, NO_TOPIC_ID, config, now_ms=now_ms)
        metadata_log = MetadataLog(stored)
        image = metadata_log.replay(MetadataImage(self.directory.cluster_id))
        for topic_id, name in metadata_log.removed_topics.items():
            self.directory.delete_leftovers(name, topic_id)
        self.partitions.is_removed = lambda topic_id: topic_id in metadata_log.removed_topics
        metadata_log.snapshot_if_worthwhile(image, now_ms=now_ms)
        return LocalMetadata(metadata_log, image, self.clock, self._give_up_directory)

    async def _host_everything(self) -> None:
        self.partitions.on_created = self._adopt
        self.partitions.on_role = self._on_role
        self.partitions.on_short = self.waiting.on_failure
        await self.partitions.follow(MetadataImage(self.metadata.image.cluster_id), self.metadata.image)

    def _forget_absent(self) -> None:
        """A crash may have come before what is said of removed partitions was forgotten. Of those that the disk did not
        let this broker open yet it must be remembered what was deleted from them, and what readers saw."""
        if self.partitions.is_complete:
            self.directory.forget_absent()
            self.cleaner.forget_absent()

    def _adopt(self, replica: Replica) -> None:
        replica.on_watermark = self.waiting.on_watermark
        replica.on_append = self.waiting.on_append
        replica.on_refused = self._on_refused
        for coordinator in self._coordinators.values():
            if replica.partition.topic == coordinator.topic.name:
                replica.on_watermark = partial(self._on_coordinator_watermark, coordinator)

    def _on_role(self, replica: Replica) -> None:
        """It leads or follows in a new epoch. Who waits for what the last one promised is told."""
        if not replica.is_leader:
            self.waiting.on_failure(replica)
        if self.cluster is not None:
            self.cluster.replication.follow(replica)
        for coordinator in self._coordinators.values():
            if replica.partition.topic == coordinator.topic.name:
                (coordinator.adopt if replica.is_leader else coordinator.resign)(replica)

    def _on_coordinator_watermark(self, coordinator: Coordinator[Any, Any], replica: Replica) -> None:
        self.waiting.on_watermark(replica)
        coordinator.on_watermark(replica)

    @property
    def _coordinators(self) -> dict[int, Coordinator[Any, Any]]:
        """By FindCoordinator's key type."""
        return {GROUP: self.groups.coordinator, TRANSACTION: self.transactions.coordinator}

    def _let_go(self, replicas: list[Replica]) -> None:
        self.waiting.forget_replicas(replicas)
        self.cleaner.forget(replicas)
        if self.cluster is not None:
            self.cluster.replication.forget(replicas)

    def _make_endpoints(self, busy_poll: BusyPoll | None) -> list[Endpoint]:
        config = self.config
        expect = busy_poll.expect if busy_poll is not None else lambda: None
        topics = TopicsHandler(self.metadata, self.partitions, uuid4, config.node_id)
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, Random())
        advertised = Advertised(config)
        group_requests = GroupRequests(self.groups.coordinator)
        transaction_requests = TransactionRequests(self.transactions.coordinator, self.producer_ids, expect)
        remote: Remote | None = None
        if self.cluster is not None:
            remote = Remote(config.node_id, self.transactions.coordinator, self.cluster.links_for(VERIFICATIONS))
        verifier = TransactionVerifier(self.transactions.coordinator, remote)
        handlers = (
            ProduceHandler(self.partitions, self.waiting, self.flusher, self.deep_work, verifier, self.clock, expect),
            FetchHandler(
                self.partitions,
                self.waiting,
                self.flusher,
                sessions,
                config.fetch_max_bytes,
                closest=self.cluster.closest if self.cluster and config.replica_selector_class else None,
            ),
            OffsetsHandler(self.partitions),
            ClusterHandler(
                self.metadata,
                advertised,
                config.node_id,
                topics.auto_create if config.auto_create_topics_enable else None,
                lambda: self.endpoints,
            ),
            topics,
            ConfigsHandler(self.metadata, self.partitions),
            InspectionHandler(self.partitions, _disk_space),
            ProducerIdsHandler(self.producer_ids, transaction_requests),
            CoordinatorsHandler(self._coordinators, self.metadata, advertised, config.node_id),
            GroupsHandler(group_requests),
            GroupOffsetsHandler(group_requests, self.metadata),
            TransactionalOffsetsHandler(group_requests, self.metadata, verifier),
            TransactionsHandler(transaction_requests, self.groups.coordinator, self.metadata, self.markers),
            GroupInsightHandler(self.groups),
        )
        self.endpoints = [endpoint for handler in handlers for endpoint in handler.endpoints()]
        if self.cluster is not None:
            self.endpoints += ReassignmentsHandler(self.metadata).endpoints()
            self.endpoints += self._quorum_endpoints(self.cluster)
        return self.endpoints

    def _quorum_endpoints(self, cluster: "ClusterSide", *, for_brokers: bool = False) -> list[Endpoint]:
        from tidelog.broker.handlers.quorum import QuorumHandler
        from tidelog.broker.handlers.voters import VotersHandler

        quorum = QuorumHandler(cluster.quorum, cluster.metadata, self.clock, for_brokers=for_brokers)
        voters = VotersHandler(cluster.quorum, cluster.metadata, self.clock, for_brokers=for_brokers)
        return [*quorum.endpoints(), *voters.endpoints()]

    def _endpoints_for_brokers(self, cluster: "ClusterSide") -> list[Endpoint]:
        """What other brokers may ask besides what is only theirs to ask."""
        sessions = FetchSessions(0, Random(0))
        requests = TransactionRequests(self.transactions.coordinator, self.producer_ids)
        handlers = (
            FetchHandler(
                self.partitions,
                self.waiting,
                self.flusher,
                sessions,
                self.config.fetch_max_bytes,
                followers=FollowerFetches(self.partitions, cluster.leader_throttle, self.clock),
            ),
            OffsetsHandler(self.partitions, for_brokers=True),
            TransactionsHandler(requests, self.groups.coordinator, self.metadata, self.markers),
        )
        endpoints = [endpoint for handler in handlers for endpoint in handler.endpoints()]
        return endpoints + self._quorum_endpoints(cluster, for_brokers=True)

    def _on_refused(self, replica: Replica, error: StorageOffline) -> None:
        """The disk took nothing of a write, most likely because it is full. Alone, that is told to whoever writes until
        there is space. In a cluster another broker leads instead, if there is one that could."""
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno in OUT_OF_DESCRIPTORS:
            return
        if self.cluster is not None and self.cluster.has_heir(replica):
            self._give_up_directory(str(error))

    def _on_sync_error(self, replica: Replica, error: OSError) -> None:
        self._give_up_directory(str(error))

    def _give_up_directory(self, reason: str) -> None:
        """The kernel reports a lost write once and forgets it, so the whole directory is given up for good."""
        log.critical("log directory offline", directory=self.directory.path, reason=reason)
        self.directory.fail(reason)
        for coordinator in self._coordinators.values():
            coordinator.fail(StorageOffline(reason))
        for each in self.partitions:
            self.waiting.on_failure(each)
        if self.cluster is not None and not self._leaving:
            # Alone, it can still tell its clients why. In a cluster others have everything, and it would only be in
            # the way.
            self._leaving = asyncio.get_running_loop().create_task(self._leave_for_good(self.cluster, reason))

    async def _leave_for_good(self, cluster: "ClusterSide", reason: str) -> None:
        await cluster.abandon()
        self.failed.set_result(reason)

    async def stop(self) -> None:
        """Answer what is in flight, make everything durable, leave the mark of a clean shutdown."""
        if self.cluster is not None:
            await self.cluster.leave()
        self.listeners.stop_accepting()
        self.waiting.release_all()
        await self.background.stop()
        deadline = asyncio.get_running_loop().time() + DRAIN_SECONDS
        while not self._drained() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        self.listeners.close_connections("the broker stops")
        if self.cluster is not None:
            await self.cluster.stop()
        self.flusher.stop()
        self.deep_work.stop()
        self.directory.close(clean=True)

    def _drained(self) -> bool:
        return self.flusher.idle and not any(connection.busy for connection in self.listeners.connections)


def _id_of_new_cluster(config: BrokerConfig) -> str | None:
    """The same for all brokers that are started with the same voters, so that nobody has to make one up."""
    if config.controller_quorum_voters is None:
        return None
    return encode_uuid(uuid5(NAMESPACE_URL, "tidelog:" + ",".join(sorted(config.controller_quorum_voters))))


def _new_uuid() -> UUID:
    return uuid4()


def _disk_space(path: str) -> tuple[int, int]:
    usage = shutil.disk_usage(path)
    return usage.total, usage.free
