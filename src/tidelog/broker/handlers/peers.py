"""What brokers ask each other, on the listener for brokers: messages of the quorum, registration, heartbeats, changes.

Nothing of it is advertised, and no other listener has it.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.office import Office
from tidelog.broker.peers.quorum import Conflict, Quorum
from tidelog.broker.requests import Context, Endpoint
from tidelog.cluster.records import AnyRecord, decode_record
from tidelog.consensus.errors import NotLeader
from tidelog.errors import ErrorCode, KafkaError, MalformedMessage
from tidelog.wire.messages import peers
from tidelog.wire.messages.peers import (
    HeartbeatRequest,
    HeartbeatResponse,
    ProposeRequest,
    ProposeResponse,
    QuorumRequest,
    QuorumResponse,
    QuorumStateRequest,
    QuorumStateResponse,
    RegisterRequest,
    RegisterResponse,
)

log = get_logger("peers")


class PeersHandler:
    def __init__(self, quorum: Quorum, office: Office, cluster_id: str) -> None:
        self._quorum = quorum
        self._office = office
        self._cluster_id = cluster_id

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(peers.QUORUM, 0, 0, self.quorum, advertised=False),
            Endpoint(peers.QUORUM_STATE, 0, 0, self.quorum_state, advertised=False),
            Endpoint(peers.REGISTER, 0, 0, self.register, advertised=False),
            Endpoint(peers.HEARTBEAT, 0, 0, self.heartbeat, advertised=False),
            Endpoint(peers.PROPOSE, 0, 0, self.propose, advertised=False),
        ]

    def quorum(self, context: Context, request: QuorumRequest) -> QuorumResponse:
        if request.cluster_id != self._cluster_id:
            text = (
                f"broker {request.node_id} belongs to cluster {request.cluster_id}, this is {self._cluster_id}: "
                f"start it with --set cluster.id={self._cluster_id} on an empty directory"
            )
            log.error("a broker of another cluster", peer=context.connection.peer, error=text)
            return QuorumResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=text)
        if self not in context.connection.parked:
            context.connection.parked[self] = partial(self._quorum.hung_up, request.node_id)
        self._quorum.receive(request.node_id, (request.host, request.port), request.messages)
        return QuorumResponse()

    def quorum_state(self, context: Context, request: QuorumStateRequest) -> QuorumStateResponse:
        return QuorumStateResponse(cluster_id=self._cluster_id, is_new=self._quorum.is_new)

    async def register(self, context: Context, request: RegisterRequest) -> RegisterResponse:
        try:
            return RegisterResponse(broker_epoch=await self._office.register(request))
        except NotLeader as error:
            return RegisterResponse(error_code=error.code, error_message=str(error), leader_id=error.leader_id)
        except KafkaError as error:
            return RegisterResponse(error_code=error.code, error_message=str(error))

    async def heartbeat(self, context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
        try:
            return await self._office.heartbeat(request, context)
        except NotLeader as error:
            return HeartbeatResponse(error_code=error.code, error_message=str(error), leader_id=error.leader_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code, error_message=str(error))

    async def propose(self, context: Context, request: ProposeRequest) -> ProposeResponse:
        try:
            records = _decoded(request.records)
            end = await self._office.propose(request.node_id, request.broker_epoch, request.metadata_offset, records)
        except Conflict as conflict:
            return ProposeResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=str(conflict),
                metadata_offset=conflict.offset,
            )
        except NotLeader as error:
            return ProposeResponse(error_code=error.code, error_message=str(error), leader_id=error.leader_id)
        except KafkaError as error:
            return ProposeResponse(error_code=error.code, error_message=str(error))
        return ProposeResponse(metadata_offset=end)


def _decoded(records: Sequence[bytes | bytearray | memoryview]) -> list[AnyRecord]:
    try:
        return [decode_record(bytes(record)) for record in records]
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"not a metadata record: {error}") from error
