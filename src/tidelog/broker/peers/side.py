"""Everything a broker has because it is one of several: its replica of the quorum, its membership, its followers, and
the listener for brokers. A broker alone has none of it."""

import asyncio
import secrets
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final
from uuid import uuid4

from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.handlers.peers import PeersHandler
from tidelog.broker.listener import Listeners
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.bootstrap import form_if_new
from tidelog.broker.peers.isr import IsrKeeper, SilenceWatch
from tidelog.broker.peers.links import FETCHES, PROBES, Address, PeerLink
from tidelog.broker.peers.membership import Membership
from tidelog.broker.peers.office import Office
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.broker.peers.replication import WAIT_MS, Replication
from tidelog.broker.requests import Endpoint
from tidelog.clock import Clock
from tidelog.cluster.image import MetadataImage, PartitionImage
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION
from tidelog.cluster.metadata_machine import MetadataMachine
from tidelog.cluster.quorum_store import QuorumStore, open_log
from tidelog.cluster.records import BrokerEndpoint
from tidelog.cluster.replica import Replica
from tidelog.cluster.throttle import Throttle
from tidelog.config import BrokerConfig
from tidelog.consensus.settings import Settings
from tidelog.storage.checkpoints import encode_uuid
from tidelog.storage.log_dir import LogDir

CONTROLLER: Final = "CONTROLLER"
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
HEARTBEATS_PER_TIMEOUT: Final = 5
HAND_OVER_SECONDS: Final = 1.0
ABANDON_SECONDS: Final = 1.0


class ClusterSide:
    def __init__(
        self,
        config: BrokerConfig,
        directory: LogDir,
        partitions: Partitions,
        clock: Clock,
        loop: AbstractEventLoop,
        on_failure: Callable[[str], None],
    ) -> None:
        address = config.controller_address
        assert address is not None
        self._config = config
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._address: Address = address
        self._incarnation = uuid4()
        self._links: dict[tuple[str, int], PeerLink] = {}
        self._forming: asyncio.Task[None] | None = None
        self._store = self._open_store()
        self.quorum = Quorum(
            self._store,
            MetadataMachine(directory.cluster_id),
            cluster_id=directory.cluster_id,
            own_address=address,
            voters=config.voters,
            settings=Settings(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                heartbeat_ms=max(config.controller_quorum_election_timeout_ms // HEARTBEATS_PER_TIMEOUT, 1),
            ),
            snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            dice=Random(secrets.randbits(64)),
            clock=clock,
            loop=loop,
            on_failure=on_failure,
        )
        self.metadata = QuorumMetadata(self.quorum)
        self.office = Office(self.quorum, self.metadata, config, partitions.topic_config, self.links_for(PROBES), clock)
        self.isr = IsrKeeper(config.node_id, partitions, self.metadata, config.replica_lag_time_max_ms, clock)
        self.silence = SilenceWatch(
            partitions,
            lambda: self.quorum.leader_id >= 0,
            # A follower that has everything asks, and waits so long for something new.
            config.broker_session_timeout_ms + WAIT_MS,
            clock,
        )
        now_ms = clock.monotonic_ms()
        self.leader_throttle = Throttle(
            config.node_id,
            lambda: partitions.broker_config.leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
            now_ms,
        )
        follower_throttle = Throttle(
            config.node_id,
            lambda: partitions.broker_config.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
            now_ms,
        )
        self.replication = Replication(
            config.node_id,
            loop,
            clock,
            self.links_for(FETCHES),
            lambda: self.metadata.broker_epoch,
            partitions.checkpoint,
            on_failure,
            follower_throttle,
            self._is_in_sync,
        )
        self.membership: Membership | None = None
        self.listeners: Listeners | None = None

    def _open_store(self) -> QuorumStore:
        directory = f"{self._directory.path}/{METADATA_PARTITION}"
        stored = open_log(
            self._directory.disk, directory, METADATA_PARTITION, METADATA_CONFIG, now_ms=self._clock.now_ms()
        )
        # An id of its own: a node that lost only its metadata must not vote as if it still knew what it promised.
        return QuorumStore.open(stored, self._config.node_id, new_directory_id=encode_uuid(uuid4()))

    def is_registered_in(self, image: MetadataImage) -> bool:
        """Whether this image knows of this process, and not only of one that was this broker before."""
        broker = image.brokers.get(self._config.node_id)
        return broker is not None and broker.incarnation == self._incarnation

    def _is_in_sync(self, replica: Replica) -> bool:
        """Whether this broker counts for that partition."""
        placed = self._placed(replica)
        return placed is not None and self._config.node_id in placed.isr

    # -- other brokers ----------------------------------------------------------------------------------------------

    def links_for(self, purpose: str) -> Callable[[int], PeerLink]:
        """One to each broker for each purpose: answers come in order. The end of a transaction is answered when its
        followers have it, and one of them may be this broker, by the answer to a fetch that must not wait behind."""
        return partial(self._link, purpose)

    def _link(self, purpose: str, node_id: int) -> PeerLink:
        link = self._links.get((purpose, node_id))
        if link is None:
            client_id = f"tidelog-{self._config.node_id}"
            link = PeerLink(self._loop, lambda: self._address_of(node_id), client_id)
            self._links[purpose, node_id] = link
        return link

    def _address_of(self, node_id: int) -> Address | None:
        broker = self.metadata.image.brokers.get(node_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == CONTROLLER:
                return endpoint.host, endpoint.port
        return self.quorum.addresses.get(node_id)

    def closest(self, replica: Replica, offset: int, rack: str) -> int | None:
        """An in-sync follower in that rack that has the offset, unless this broker stands there itself."""
        followers = replica.followers
        if followers is None or rack == self._config.broker_rack:
            return None
        brokers = self.metadata.image.brokers
        for node_id in sorted(followers.isr):
            broker = brokers.get(node_id)
            if broker is None or broker.rack != rack or node_id == self._config.node_id:
                continue
            if offset <= followers.end_offset_of(node_id) and self.metadata.image.is_available(node_id):
                return node_id
        return None

    def has_heir(self, replica: Replica) -> bool:
        """Whether another broker could lead it at once."""
        placed = self._placed(replica)
        isr = placed.isr if placed is not None else ()
        return any(node != self._config.node_id and self.metadata.image.is_available(node) for node in isr)

    def _placed(self, replica: Replica) -> PartitionImage | None:
        topic = self.metadata.image.topics.get(replica.partition.topic)
        number = replica.partition.partition
        if topic is None or topic.topic_id != replica.topic_id or number >= len(topic.partitions):
            return None
        return topic.partitions[number]

    # -- start and stop ---------------------------------------------------------------------------------------------

    def bind(self, endpoints: list[Endpoint]) -> None:
        own = PeersHandler(self.quorum, self.office, self._directory.cluster_id).endpoints()
        dispatcher = Dispatcher([*endpoints, *own], self._loop)
        self.listeners = Listeners(self._loop, self._config, dispatcher)
        self.listeners.bind([self._address])

    async def join(self, addresses: list[Address]) -> None:
        """Take part in the quorum and register. Returns when this broker may lead."""
        assert self.listeners is not None
        self.listeners.start()
        self.quorum.start()
        self.metadata.start()
        self.office.start()
        self._forming = self._loop.create_task(
            form_if_new(self.quorum, self._directory.cluster_id, self._config.voters)
        )
        self.membership = Membership(
            self.quorum,
            self.metadata,
            self.office,
            self._config,
            cluster_id=self._directory.cluster_id,
            directory_id=self._directory.directory_id,
            incarnation=self._incarnation,
            endpoints=self._endpoints(addresses),
        )
        self.membership.start()
        self.isr.start()
        self.silence.start()
        await self.membership.serving()
        for topic_id, name in self.quorum.machine.removed_topics.items():
            self._directory.delete_leftovers(name, topic_id)

    def _endpoints(self, addresses: list[Address]) -> list[BrokerEndpoint]:
        advertised = self._config.advertised_addresses
        if advertised:
            told = [BrokerEndpoint(each.name, each.host, each.port) for each in advertised]
        else:
            name = self._config.listener_addresses[0].name
            told = [BrokerEndpoint(name, _reachable(host), port) for host, port in addresses[:1]]
        host, port = self._address
        return [*told, BrokerEndpoint(CONTROLLER, _reachable(host), port)]

    async def leave(self) -> None:
        """Others take over what this broker leads, the quorum included."""
        if self.membership is not None:
            await self.membership.leave()
        await self.isr.stop()
        await self.silence.stop()
        raft = self.quorum.raft
        successor = raft.best_successor() if self.quorum.leads else None
        if successor is not None:
            self.quorum.hand_over(successor)
            deadline = self._loop.time() + HAND_OVER_SECONDS
            while self.quorum.leads and self._loop.time() < deadline:
                await asyncio.sleep(0.01)

    async def abandon(self) -> None:
        """This broker's disk is gone: the others take over at once, if they can be told."""
        if self.membership is not None and not self.quorum.leads:
            await self.membership.leave(ABANDON_SECONDS)

    async def stop(self) -> None:
        if self._forming is not None:
            self._forming.cancel()
            await asyncio.gather(self._forming, return_exceptions=True)
        await self.replication.stop()
        await self.office.stop()
        await self.metadata.stop()
        await self.quorum.stop()
        self._store.log.close()
        for link in self._links.values():
            link.close()
        if self.listeners is not None:
            self.listeners.stop_accepting()
            self.listeners.close_connections("the broker stops")


def _reachable(host: str) -> str:
    return socket.getfqdn() if host in WILDCARDS else host
