"""Control records of the metadata log, in Kafka's numbers and formats: leader changes, voters, a snapshot's ends.

Their key is a version and a type, as of transaction markers, which have the types 0 and 1.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final
from uuid import UUID

from tidelog.consensus.entries import LEADER_CHANGE, VOTERS
from tidelog.consensus.voters import Endpoint, ReplicaKey, Voter, VoterSet
from tidelog.errors import CorruptMessage, MalformedMessage
from tidelog.wire.primitives import i16, i32, i64, u16
from tidelog.wire.record_batch import CONTROL, Buffer, Record, build_batch, iter_records
from tidelog.wire.schema import Message, decode, encode, stored

LEADER_CHANGE_TYPE: Final = 2
SNAPSHOT_HEADER_TYPE: Final = 3
SNAPSHOT_FOOTER_TYPE: Final = 4
VOTERS_TYPE: Final = 6

TYPE_OF_KIND: Final = {LEADER_CHANGE: LEADER_CHANGE_TYPE, VOTERS: VOTERS_TYPE}
KIND_OF_TYPE: Final = {number: kind for kind, number in TYPE_OF_KIND.items()}

_KEY: Final = Struct(">hh")


class LeaderChangeVoter(Message, kw_only=True):
    voter_id: i32


@stored(versions=(0, 0), flexible=0)
class LeaderChangeMessage(Message, kw_only=True):
    version: i16 = 0
    leader_id: i32
    voters: tuple[LeaderChangeVoter, ...]
    granting_voters: tuple[LeaderChangeVoter, ...]


class VotersEndpoint(Message, kw_only=True):
    name: str
    host: str
    port: u16


class KRaftVersionFeature(Message, kw_only=True):
    min_supported_version: i16 = 0
    max_supported_version: i16 = 1


class VotersVoter(Message, kw_only=True):
    voter_id: i32
    voter_directory_id: UUID
    endpoints: tuple[VotersEndpoint, ...]
    kraft_version_feature: KRaftVersionFeature


@stored(versions=(0, 0), flexible=0)
class VotersRecord(Message, kw_only=True):
    version: i16 = 0
    voters: tuple[VotersVoter, ...]


@stored(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message, kw_only=True):
    version: i16 = 0
    last_contained_log_timestamp: i64


@stored(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message, kw_only=True):
    version: i16 = 0


def encode_leader_change(leader_id: int, voters: VoterSet, granting: Iterable[ReplicaKey]) -> bytes:
    return encode(
        LeaderChangeMessage(
            leader_id=leader_id,
            voters=tuple(LeaderChangeVoter(voter_id=voter.id) for voter in voters),
            granting_voters=tuple(LeaderChangeVoter(voter_id=key.id) for key in sorted(granting)),
        ),
        0,
    )


def decode_leader_change(value: bytes) -> int:
    """The leader's id."""
    return decode(LeaderChangeMessage, 0, value).leader_id


def encode_voters(voters: VoterSet) -> bytes:
    return encode(
        VotersRecord(
            voters=tuple(
                VotersVoter(
                    voter_id=voter.id,
                    voter_directory_id=_uuid_of(voter.directory_id),
                    endpoints=tuple(VotersEndpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints),
                    kraft_version_feature=KRaftVersionFeature(),
                )
                for voter in voters
            )
        ),
        0,
    )


def decode_voters(value: bytes) -> VoterSet:
    """Raises MalformedMessage."""
    return VoterSet(
        Voter(
            voter.voter_id,
            _text_of(voter.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
        )
        for voter in decode(VotersRecord, 0, value).voters
    )


def build_control(kind: int, value: bytes, timestamp: int) -> bytearray:
    """A control batch of one record, without a place in a log."""
    return bytearray(build_batch([Record(0, timestamp, _KEY.pack(0, kind), value)], attributes=CONTROL))


def read_control(batch: Buffer) -> tuple[int, bytes]:
    """Type and value of a control batch's record."""
    for record in iter_records(batch):
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
        except StructError as error:
            raise CorruptMessage(f"the control record {record.offset} is cut short: {error}") from None
        return kind, record.value or b""
    raise CorruptMessage("a control batch without a record")


def _uuid_of(text: str) -> UUID:
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except (Base64Error, ValueError) as error:
        raise MalformedMessage(f"{text!r} is not a directory id: {error}") from error


def _text_of(directory_id: UUID) -> str:
    return urlsafe_b64encode(directory_id.bytes).rstrip(b"=").decode("ascii")
