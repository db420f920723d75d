"""End-of-transaction markers: control batches of one record, by which a coordinator closes a transaction in a log.

    key    version i16 (0), type i16 (0 abort, 1 commit)
    value  version i16 (0), coordinator_epoch i32

Readers of other versions may know more; the first fields of each stay what they are.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from tidelog.errors import CorruptMessage
from tidelog.wire.record_batch import CONTROL, TRANSACTIONAL, Buffer, batch_of, iter_records
from tidelog.wire.records import encode_pairs

ABORT: Final = 0
COMMIT: Final = 1
_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class Marker(NamedTuple):
    committed: bool
    coordinator_epoch: int


def build_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """A batch without a place: offset and leader epoch are the log's to assign."""
    key = _KEY.pack(_VERSION, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return batch_of(
        encode_pairs([(key, value)]),
        1,
        timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def read_marker(batch: Buffer) -> Marker | None:
    """What a control batch says of its producer's transaction; None if it ends none: compaction emptied it, or its kind
    is another."""
    for record in iter_records(batch):
        try:
            version, kind = _KEY.unpack_from(record.key or b"")
            if version < 0 or kind not in (ABORT, COMMIT):
                return None
            version, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        except StructError as error:
            raise CorruptMessage(f"the control record {record.offset} is cut short: {error}") from None
        if version < 0:
            raise CorruptMessage(f"the control record {record.offset} has a value of version {version}")
        return Marker(kind == COMMIT, coordinator_epoch)
    return None
