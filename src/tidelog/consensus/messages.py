"""What replicas say to each other, and its bytes.

Every message names its sender and its addressee with their disks. A replica ignores what was meant for another disk.
"""

from typing import Final

import msgspec

from tidelog.consensus.entries import Entry, SnapshotId
from tidelog.consensus.voters import NOBODY, ReplicaKey
from tidelog.errors import MalformedMessage


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="type", gc=False):
    """Base of the tagged union."""

    epoch: int
    sender: ReplicaKey
    to: ReplicaKey


class VoteRequest(Message, frozen=True, array_like=True, tag=1, gc=False):
    """`pre_vote`: would you, if I began `epoch`? Nobody's epoch changes by that question or its answer."""

    end_offset: int
    last_epoch: int
    pre_vote: bool
    transferred: bool = False
    """The leader itself asked for this election, so its being alive is no reason to refuse."""


class VoteResponse(Message, frozen=True, array_like=True, tag=2, gc=False):
    pre_vote: bool
    granted: bool
    leader_id: int = NOBODY


class AppendRequest(Message, frozen=True, array_like=True, tag=3, gc=False):
    """Entries after `prev_offset`, before which the leader's last entry has `prev_epoch`. None: a heartbeat."""

    prev_offset: int
    prev_epoch: int
    commit: int
    round: int
    """Echoed, so that the leader knows it was still followed when it sent this."""
    entries: tuple[Entry, ...] = ()


class AppendResponse(Message, frozen=True, array_like=True, tag=4, gc=False):
    """`match`: up to here the log is the leader's and on disk. A rejection says instead where to look for agreement:
    the largest epoch not above the asked one, and where it ends."""

    match: int
    end_offset: int
    round: int
    rejected: int = NOBODY
    """The `prev_offset` that was not there."""
    hint_epoch: int = 0
    hint_offset: int = 0


class SnapshotRequest(Message, frozen=True, array_like=True, tag=5, gc=False):
    """A piece of a snapshot file, for a replica that needs entries the leader no longer has."""

    snapshot: SnapshotId
    voters: bytes
    position: int
    total: int
    round: int
    data: bytes


class SnapshotResponse(Message, frozen=True, array_like=True, tag=6, gc=False):
    """`position`: what is wanted next; `total` of the file when the snapshot is installed and on disk."""

    snapshot: SnapshotId
    position: int
    round: int


class TimeoutNow(Message, frozen=True, array_like=True, tag=7, gc=False):
    """Stand for election at once: the leader hands over."""


class ObserveRequest(Message, frozen=True, array_like=True, tag=8, gc=False):
    """From a replica that no leader replicates to. A leader begins to; others say whom they follow."""

    end_offset: int


class LeaderHint(Message, frozen=True, array_like=True, tag=9, gc=False):
    leader: ReplicaKey


AnyMessage = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | SnapshotRequest
    | SnapshotResponse
    | TimeoutNow
    | ObserveRequest
    | LeaderHint
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: AnyMessage) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | bytearray | memoryview) -> AnyMessage:
    """Raises MalformedMessage for anything that is not one."""
    try:
        message = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"not a message of the quorum: {error}") from error
    if isinstance(message, AppendRequest):
        _check_entries(message)
    return message


def _check_entries(message: AppendRequest) -> None:
    offset, epoch = message.prev_offset, message.prev_epoch
    for entry in message.entries:
        if entry.offset != offset or entry.count < 1 or not epoch <= entry.epoch <= message.epoch:
            raise MalformedMessage(f"entry {entry.offset} of epoch {entry.epoch} does not follow {offset}")
        offset, epoch = entry.end, entry.epoch
