"""This broker as a member of its cluster: it registers, says that it is there, and asks before it goes."""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.links import Unreachable
from tidelog.broker.peers.office import Office
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import HEARTBEATS, QuorumMetadata
from tidelog.cluster.records import BrokerEndpoint
from tidelog.config import BrokerConfig
from tidelog.consensus.errors import NotLeader
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.peers import HeartbeatRequest, HeartbeatResponse, PeerEndpoint, RegisterRequest

PAUSE_SECONDS: Final = 0.03
ANSWER_SECONDS: Final = 1.0
REGISTER_SECONDS: Final = 5.0
STOP_SECONDS: Final = 5.0
"""Given to a controlled shutdown to move leaders away."""
ELECTIONS_LOST: Final = 2
"""Election timeouts without a leader of the quorum, after which a broker that stops expects none: all are stopping."""
UNREGISTERED: Final = -1
DUPLICATE_SESSIONS: Final = 3
"""Sessions for which another process of this id is waited for to fall silent: it was probably killed just now."""

_REGISTER_AGAIN: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})

log = get_logger("membership")


class Membership:
    def __init__(
        self,
        quorum: Quorum,
        metadata: QuorumMetadata,
        office: Office,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: str,
        incarnation: UUID,
        endpoints: Sequence[BrokerEndpoint],
    ) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._office = office
        self._config = config
        self._registration = RegisterRequest(
            cluster_id=cluster_id,
            node_id=config.node_id,
            incarnation=incarnation,
            directory_id=directory_id,
            endpoints=tuple(PeerEndpoint(listener=e.listener, host=e.host, port=e.port) for e in endpoints),
            rack=config.broker_rack,
        )
        self._stopping = False
        self._may_stop = asyncio.Event()
        self._serving = asyncio.Event()
        self._refused_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.failure: KafkaError | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def serving(self) -> None:
        """Until this broker may lead. Raises KafkaError if the cluster does not want it."""
        await self._serving.wait()
        if self.failure is not None:
            raise self.failure

    async def leave(self, patience_s: float = STOP_SECONDS) -> None:
        """Move leaders away, if anybody is there to take them; then go."""
        self._stopping = True
        try:
            async with asyncio.timeout(patience_s):
                await self._others_took_over()
        except TimeoutError:
            log.warning("stopped before others had taken over")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _others_took_over(self) -> None:
        """Or nobody is left who could."""
        patience = ELECTIONS_LOST * self._config.controller_quorum_election_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        led_at = loop.time()
        while not self._may_stop.is_set() and loop.time() - led_at < patience:
            if self._quorum.leader_id >= 0:
                led_at = loop.time()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _run(self) -> None:
        while True:
            pause = self._config.broker_heartbeat_interval_ms / 1000
            try:
                if self._metadata.broker_epoch == UNREGISTERED:
                    await self._register()
                    pause = 0.0
                elif await self._beat():
                    pause = PAUSE_SECONDS
            except (Unreachable, NotLeader):
                pause = PAUSE_SECONDS
            except KafkaError as error:
                if error.code in _REGISTER_AGAIN:
                    self._metadata.broker_epoch = UNREGISTERED
                    pause = PAUSE_SECONDS
                elif error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and not self._refused_for_good():
                    pause = PAUSE_SECONDS
                elif error.code in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.DUPLICATE_BROKER_REGISTRATION):
                    log.error("the cluster does not take this broker", error=str(error))
                    self.failure = error
                    self._serving.set()
                    pause = 1.0
                else:
                    log.warning("heartbeat refused", error=str(error))
            await asyncio.sleep(pause)

    def _refused_for_good(self) -> bool:
        """Whether the other process of this id goes on after whole sessions: then it is not a dead one remembered."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since > DUPLICATE_SESSIONS * self._config.broker_session_timeout_ms / 1000

    async def _register(self) -> None:
        if self._quorum.leads:
            epoch = await self._office.register(self._registration)
        else:
            answer = await self._metadata.link_to_leader(HEARTBEATS).call(self._registration, timeout=REGISTER_SECONDS)
            _check(answer)
            epoch = answer.broker_epoch
        self._metadata.broker_epoch = epoch
        self._refused_since = None

    async def _beat(self) -> bool:
        """True if the next should come soon."""
        request = HeartbeatRequest(
            node_id=self._config.node_id,
            broker_epoch=self._metadata.broker_epoch,
            metadata_offset=self._metadata.offset,
            wants_stop=self._stopping,
        )
        if self._quorum.leads:
            answer = await self._office.heartbeat(request, None)
        else:
            answer = await self._metadata.link_to_leader(HEARTBEATS).call(request, timeout=ANSWER_SECONDS)
            _check(answer)
        if not answer.is_fenced and not self._stopping:
            self._serving.set()
        if self._stopping and answer.may_stop:
            self._may_stop.set()
        return bool(answer.is_fenced) or self._stopping


def _check(answer: HeartbeatResponse) -> None:
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        raise NotLeader(answer.leader_id)
    if answer.error_code:
        raise KafkaError(answer.error_message or "refused by the controller", ErrorCode(answer.error_code))
