"""The controller: the broker that leads the quorum decides who is there and who leads what.

Every broker has an office; it works while its broker leads. It hears the others' heartbeats, fences those that fall
silent, takes changes that other brokers decided, and brings leaders back to where they belong. The decisions are
`cluster.brokers` and `cluster.elections`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.broker.requests import Context
from tidelog.clock import Clock
from tidelog.cluster import brokers, elections
from tidelog.cluster.brokers import Liveness
from tidelog.cluster.image import NO_LEADER, MetadataImage
from tidelog.cluster.records import AnyRecord, BrokerEndpoint
from tidelog.config import BrokerConfig, TopicConfig
from tidelog.consensus.errors import NotLeader
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.peers import HeartbeatRequest, HeartbeatResponse, QuorumStateRequest, RegisterRequest

LOOK_SECONDS: Final = 0.05
SUSPECT_MS: Final = 500
"""Left to a broker that hung up and does not answer, to come back before it is fenced."""
PROBE_SECONDS: Final = 0.25

log = get_logger("controller")


class Office:
    def __init__(
        self,
        quorum: Quorum,
        metadata: QuorumMetadata,
        config: BrokerConfig,
        topic_config: Callable[[MetadataImage, str], TopicConfig],
        link_to: Callable[[int], PeerLink],
        clock: Clock,
    ) -> None:
        self._link_to = link_to
        self._wake = asyncio.Event()
        self._probing: set[asyncio.Task[None]] = set()
        self._quorum = quorum
        self._metadata = metadata
        self._config = config
        self._topic_config = topic_config
        self._clock = clock
        self._liveness = Liveness(config.broker_session_timeout_ms, SUSPECT_MS)
        self._last_leader = NO_LEADER
        self._heard_by: dict[int, object] = {}
        """The connection by which each broker was last heard."""
        self._balance_at = 0
        self._task: asyncio.Task[None] | None = None
        quorum.on_leader = self._on_leader

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_leader(self, leader_id: int) -> None:
        before, self._last_leader = self._last_leader, leader_id if leader_id >= 0 else self._last_leader
        if leader_id == self._quorum.node_id:
            image = self._quorum.machine.image
            here = [node for node, broker in image.brokers.items() if not broker.fenced]
            self._liveness.take_office(here, [], self._clock.monotonic_ms())
            for node in here:
                if node != leader_id:
                    # The last one was silent long enough for an election: it has had its time. Any of the others may
                    # have died while there was no controller.
                    self._suspect(node, only_if_gone=node != before, waited_ms=SUSPECT_MS if node == before else 0)
            self._balance_at = self._clock.monotonic_ms() + 1000 * self._config.leader_imbalance_check_interval_seconds

    # -- what is asked of it ----------------------------------------------------------------------------------------

    def _check_leads(self) -> None:
        if not self._quorum.leads:
            raise NotLeader(self._quorum.leader_id)

    async def register(self, request: RegisterRequest) -> int:
        """The broker's epoch."""
        self._check_leads()
        if request.cluster_id != self._quorum.machine.image.cluster_id:
            raise KafkaError(
                f"this cluster is {self._quorum.machine.image.cluster_id}, the broker belongs to {request.cluster_id}",
                ErrorCode.INCONSISTENT_CLUSTER_ID,
            )
        endpoints = tuple(BrokerEndpoint(each.listener, each.host, each.port) for each in request.endpoints)

        def decide(image: MetadataImage) -> list[AnyRecord]:
            return brokers.register(
                image,
                request.node_id,
                incarnation=request.incarnation,
                broker_epoch=self._quorum.machine.offset,
                directory_id=request.directory_id,
                endpoints=endpoints,
                rack=request.rack,
                # Of this broker there cannot be two: the other would hold the directory that this one leads from.
                is_alive=request.node_id != self._quorum.node_id
                and self._liveness.is_alive(request.node_id, self._clock.monotonic_ms()),
            )

        image = await self._metadata.change(decide)
        self._liveness.heard(request.node_id, self._clock.monotonic_ms())
        log.info("broker registered", node=request.node_id, epoch=image.brokers[request.node_id].broker_epoch)
        return image.brokers[request.node_id].broker_epoch

    async def heartbeat(self, request: HeartbeatRequest, context: Context | None) -> HeartbeatResponse:
        self._check_leads()
        node_id = request.node_id
        broker = brokers.check_epoch(self._quorum.machine.image, node_id, request.broker_epoch)
        self._liveness.heard(node_id, self._clock.monotonic_ms())
        if context is not None:
            self._watch(node_id, context)
        if request.wants_stop and not broker.stopping:
            await self._metadata.change(lambda image: brokers.begin_stop(image, node_id))
            log.info("broker stops", node=node_id)
        elif broker.fenced and not request.wants_stop and request.metadata_offset > request.broker_epoch:
            await self._metadata.change(lambda image: self._or_unclean(image, brokers.unfence(image, node_id)))
            log.info("broker is back", node=node_id)
        image = self._quorum.machine.image
        fenced = image.brokers[node_id].fenced if node_id in image.brokers else True
        return HeartbeatResponse(is_fenced=fenced, may_stop=fenced or brokers.may_stop(image, node_id))

    def _watch(self, node_id: int, context: Context) -> None:
        """A process that dies hangs up, long before its session ends."""
        connection = context.connection
        if self._heard_by.get(node_id) is connection:
            return
        self._heard_by[node_id] = connection

        def hung_up() -> None:
            if self._heard_by.get(node_id) is connection:
                del self._heard_by[node_id]
                self._suspect(node_id)

        connection.parked[self] = hung_up

    def _suspect(self, node_id: int, *, only_if_gone: bool = False, waited_ms: int = 0) -> None:
        task = asyncio.get_running_loop().create_task(self._probe(node_id, only_if_gone, waited_ms))
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)

    async def _probe(self, node_id: int, only_if_gone: bool, waited_ms: int) -> None:
        """Where nothing listens any more, nobody has to be waited for."""
        request = QuorumStateRequest(cluster_id=self._quorum.machine.image.cluster_id, node_id=self._quorum.node_id)
        heard_by = self._heard_by.get(node_id)
        try:
            await self._link_to(node_id).call(request, timeout=PROBE_SECONDS)
        except Unreachable as error:
            # Not if it was heard of by another connection meanwhile.
            if self._heard_by.get(node_id) is heard_by and (error.refused or not only_if_gone):
                now_ms = self._clock.monotonic_ms()
                self._liveness.suspect(node_id, now_ms - (SUSPECT_MS if error.refused else waited_ms))
                self._wake.set()

    async def propose(self, node_id: int, broker_epoch: int, expected: int, records: Sequence[AnyRecord]) -> int:
        """A change that a registered broker decided. The end of the metadata with it."""
        self._check_leads()
        brokers.check_epoch(self._quorum.machine.image, node_id, broker_epoch)
        return await self._quorum.propose(records, expected)

    # -- what it does by itself -------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
            self._wake.clear()
            if not self._quorum.leads:
                continue
            try:
                await self._look()
            except KafkaError as error:
                log.warning("the controller could not act", error=str(error))

    async def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._liveness.heard(self._quorum.node_id, now_ms)
        image = self._quorum.machine.image
        self._liveness.expect(
            (node_id for node_id, broker in image.brokers.items() if not broker.fenced),
            now_ms + self._config.broker_session_timeout_ms,
        )
        for node_id in self._liveness.silent(now_ms):
            log.warning("broker is silent", node=node_id)
            await self._fence(node_id, now_ms)
        if self._config.auto_leader_rebalance_enable and now_ms >= self._balance_at:
            self._balance_at = now_ms + 1000 * self._config.leader_imbalance_check_interval_seconds
            await self._metadata.change(elections.preferred_where_possible)

    async def _fence(self, node_id: int, now_ms: int) -> None:
        try:
            await self._metadata.change(lambda image: self._or_unclean(image, brokers.fence(image, node_id)))
        except KafkaError as error:
            log.warning("broker not fenced yet", node=node_id, error=str(error))
            self._liveness.expect([node_id], now_ms)  # else nobody would ever miss it again

    def _or_unclean(self, image: MetadataImage, records: list[AnyRecord]) -> list[AnyRecord]:
        """Brokers come and go, and what has no leader then gets one at any price where that is wanted."""
        return [*records, *self._unclean(image.apply(records))] if records else []

    def _unclean(self, image: MetadataImage) -> list[AnyRecord]:
        """Where the owner of a topic prefers any leader to none."""
        records: list[AnyRecord] = []
        for topic in image.topics.values():
            lost = [partition for partition in topic.partitions if partition.leader == NO_LEADER]
            if lost and self._topic_config(image, topic.name).unclean_leader_election_enable:
                for partition in lost:
                    try:
                        records += elections.elect_unclean(image, topic.topic_id, partition.partition)
                    except KafkaError:
                        continue  # nobody is there at all
        return records
