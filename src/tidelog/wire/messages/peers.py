"""What brokers of one cluster say to each other about themselves and the metadata. Tidelog's own, never advertised.

Everything else between brokers is Kafka's: Fetch, WriteTxnMarkers, AddPartitionsToTxn.
"""

from typing import Final
from uuid import UUID

from tidelog.wire.messages.insight import FIRST_OWN_KEY
from tidelog.wire.primitives import Bytes, i16, i32, i64
from tidelog.wire.schema import Message, answers, api

QUORUM: Final = FIRST_OWN_KEY + 1
REGISTER: Final = FIRST_OWN_KEY + 2
HEARTBEAT: Final = FIRST_OWN_KEY + 3
PROPOSE: Final = FIRST_OWN_KEY + 4
QUORUM_STATE: Final = FIRST_OWN_KEY + 5


@api(key=QUORUM, versions=(0, 0), flexible=0)
class QuorumRequest(Message, kw_only=True):
    """Messages of `tidelog.consensus`, one way. They may be lost."""

    cluster_id: str
    node_id: i32
    host: str
    port: i32
    """Where the sender listens for brokers: whoever has just joined is not known from anywhere else."""
    messages: tuple[Bytes, ...]


@answers(QuorumRequest)
class QuorumResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None


@api(key=QUORUM_STATE, versions=(0, 0), flexible=0)
class QuorumStateRequest(Message, kw_only=True):
    """Asked before a new cluster is formed."""

    cluster_id: str
    node_id: i32


@answers(QuorumStateRequest)
class QuorumStateResponse(Message, kw_only=True):
    cluster_id: str
    is_new: bool
    """It belongs to no quorum and has never heard of one."""


class PeerEndpoint(Message, kw_only=True):
    listener: str
    host: str
    port: i32


@api(key=REGISTER, versions=(0, 0), flexible=0)
class RegisterRequest(Message, kw_only=True):
    cluster_id: str
    node_id: i32
    incarnation: UUID
    directory_id: str
    endpoints: tuple[PeerEndpoint, ...]
    rack: str | None = None


@answers(RegisterRequest)
class RegisterResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    leader_id: i32 = -1
    """Whom to ask, if it is not the one who answers."""
    broker_epoch: i64 = -1


@api(key=HEARTBEAT, versions=(0, 0), flexible=0)
class HeartbeatRequest(Message, kw_only=True):
    node_id: i32
    broker_epoch: i64
    metadata_offset: i64
    """How far it has followed the metadata."""
    wants_stop: bool = False


@answers(HeartbeatRequest)
class HeartbeatResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    leader_id: i32 = -1
    is_fenced: bool = True
    may_stop: bool = False


@api(key=PROPOSE, versions=(0, 0), flexible=0)
class ProposeRequest(Message, kw_only=True):
    """Metadata records that a broker decided on its picture of the cluster; taken only if that is still the newest."""

    node_id: i32
    broker_epoch: i64
    metadata_offset: i64
    """Of the picture they were decided on."""
    records: tuple[Bytes, ...]


@answers(ProposeRequest)
class ProposeResponse(Message, kw_only=True):
    error_code: i16 = 0
    error_message: str | None = None
    leader_id: i32 = -1
    metadata_offset: i64 = -1
    """Up to where to follow the metadata: to see the records, or to decide again."""
