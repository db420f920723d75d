"""`quorum-state`: epoch and vote, in Kafka's field names, and the id of this disk.

The id lives beside the log it vouches for: whoever removes the one removes the other, and comes back as a stranger.
"""

from typing import Final

import msgspec
from crc32c import crc32c

from tidelog.consensus.entries import HardState
from tidelog.consensus.voters import NOBODY, ReplicaKey
from tidelog.errors import CorruptMessage

QUORUM_STATE: Final = "quorum-state"


class QuorumState(msgspec.Struct, rename="camel", kw_only=True):
    leader_epoch: int
    voted_id: int = NOBODY
    voted_directory_id: str = ""
    directory_id: str
    data_version: int = msgspec.field(name="data_version", default=1)
    checksum: int = 0


def encode_state(directory_id: str, state: HardState) -> bytes:
    voted = state.voted_for or ReplicaKey(NOBODY, "")
    content = QuorumState(
        leader_epoch=state.epoch, voted_id=voted.id, voted_directory_id=voted.directory_id, directory_id=directory_id
    )
    content.checksum = _checksum(content)
    return msgspec.json.encode(content)


def decode_state(data: bytes, path: str) -> tuple[str, HardState]:
    """Directory id and state. Raises CorruptMessage: a replica that guesses whom it voted for may vote twice."""
    try:
        content = msgspec.json.decode(data, type=QuorumState)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptMessage(f"{path} is damaged: {error}. {HOW_TO_REJOIN}") from error
    if content.checksum != _checksum(content):
        raise CorruptMessage(f"{path} does not match its checksum. {HOW_TO_REJOIN}")
    voted = None if content.voted_id == NOBODY else ReplicaKey(content.voted_id, content.voted_directory_id)
    return content.directory_id, HardState(content.leader_epoch, voted)


HOW_TO_REJOIN: Final = (
    "If other voters are alive, remove the metadata log's directory: this node then joins anew and gets it from them"
)


def _checksum(content: QuorumState) -> int:
    fields = (content.leader_epoch, content.voted_id, content.voted_directory_id, content.directory_id)
    return crc32c(msgspec.json.encode(fields))
