"""`<end offset>-<epoch>.checkpoint`: a snapshot as record batches between a header and a footer, as Kafka has it.

The voters follow the header. Every batch has its checksum and the footer comes last: half a file is not taken for one.
"""

import re
from typing import Final

from tidelog.consensus.control import (
    SNAPSHOT_FOOTER_TYPE,
    SNAPSHOT_HEADER_TYPE,
    VOTERS_TYPE,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    build_control,
    decode_voters,
    encode_voters,
    read_control,
)
from tidelog.consensus.entries import SnapshotId
from tidelog.consensus.voters import VoterSet
from tidelog.errors import CorruptMessage, MalformedMessage
from tidelog.wire.record_batch import CONTROL, crc_of, iter_batches
from tidelog.wire.schema import encode

NO_TIMESTAMP: Final = -1
_NAME: Final = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")


def file_name(snapshot: SnapshotId) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_file_name(name: str) -> SnapshotId | None:
    match = _NAME.match(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def encode_snapshot(voters: VoterSet, data: bytes) -> bytes:
    """`data` is what the state machine made of itself: whole record batches, none of them control batches."""
    header = encode(SnapshotHeaderRecord(last_contained_log_timestamp=NO_TIMESTAMP), 0)
    return b"".join(
        (
            build_control(SNAPSHOT_HEADER_TYPE, header, NO_TIMESTAMP),
            build_control(VOTERS_TYPE, encode_voters(voters), NO_TIMESTAMP),
            data,
            build_control(SNAPSHOT_FOOTER_TYPE, encode(SnapshotFooterRecord(), 0), NO_TIMESTAMP),
        )
    )


def decode_snapshot(content: bytes) -> tuple[VoterSet, bytes]:
    """Voters and data. Raises CorruptMessage unless every byte is accounted for."""
    types: list[int] = []
    voters = VoterSet()
    begin = end = position = 0
    for header, batch in iter_batches(content):
        if crc_of(batch) != header.crc:
            raise CorruptMessage(f"the snapshot's batch at byte {position} does not match its checksum")
        if header.attributes & CONTROL:
            kind, value = read_control(batch)
            types.append(kind)
            if kind == VOTERS_TYPE:
                try:
                    voters = decode_voters(value)
                except MalformedMessage as error:
                    raise CorruptMessage(str(error)) from error
                begin = position + header.size
            end = position
        position += header.size
    if types != [SNAPSHOT_HEADER_TYPE, VOTERS_TYPE, SNAPSHOT_FOOTER_TYPE] or position != len(content):
        raise CorruptMessage(f"the snapshot is not whole: control records {types}, {position} of {len(content)} bytes")
    return voters, content[begin:end]
