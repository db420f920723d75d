"""`quorum-state`: epoch and vote, in Kafka's field names, the id of this disk, and how far its log must reach.

The id lives beside the log it vouches for: whoever removes the one removes the other, and comes back as a stranger.
"""

from typing import Final, NamedTuple

import msgspec

from tidelog.consensus.entries import HardState
from tidelog.consensus.voters import NOBODY, ReplicaKey
from tidelog.errors import CorruptMessage
from tidelog.wire.checksum import crc32c

QUORUM_STATE: Final = "quorum-state"


class QuorumState(msgspec.Struct, rename="camel", kw_only=True):
    leader_epoch: int
    voted_id: int = NOBODY
    voted_directory_id: str = ""
    directory_id: str
    recovery_point: int
    data_version: int = msgspec.field(name="data_version", default=1)
    checksum: int = 0


class StoredState(NamedTuple):
    directory_id: str
    hard_state: HardState
    recovery_point: int
    """Durable and committed when this was written: a log that ends before it is not what it was."""


def encode_state(state: StoredState) -> bytes:
    voted = state.hard_state.voted_for or ReplicaKey(NOBODY, "")
    content = QuorumState(
        leader_epoch=state.hard_state.epoch,
        voted_id=voted.id,
        voted_directory_id=voted.directory_id,
        directory_id=state.directory_id,
        recovery_point=state.recovery_point,
    )
    content.checksum = _checksum(content)
    return msgspec.json.encode(content)


def decode_state(data: bytes, path: str) -> StoredState:
    """Raises CorruptMessage: a replica that guesses whom it voted for may vote twice."""
    try:
        content = msgspec.json.decode(data, type=QuorumState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptMessage(f"{path} is damaged: {error}. {HOW_TO_REJOIN}") from error
    if content.checksum != _checksum(content):
        raise CorruptMessage(f"{path} does not match its checksum. {HOW_TO_REJOIN}")
    voted = None if content.voted_id == NOBODY else ReplicaKey(content.voted_id, content.voted_directory_id)
    return StoredState(content.directory_id, HardState(content.leader_epoch, voted), content.recovery_point)


HOW_TO_REJOIN: Final = (
    "If other voters are alive, remove the metadata log's directory: this node then joins anew and gets it from them"
)


def _checksum(content: QuorumState) -> int:
    everything_else = msgspec.structs.replace(content, checksum=0)
    return crc32c(msgspec.json.encode(everything_else))
