"""What is written to `__transaction_state`: Kafka's own records, byte for byte.

A key is a record type (i16) and the transactional id; a value is a version (i16) and its fields; a missing value
deletes. Values are written in version 1, which has the fields of KIP-890, and read in both.
"""

import struct
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.wire.primitives import i8, i16, i32, i64
from tidelog.wire.schema import IGNORABLE, NEVER, Message, Tag, Versions, decode, encode, stored


@stored(versions=(0, 0), flexible=NEVER)
class TransactionLogKey(Message, kw_only=True):
    transactional_id: str


class TransactionPartitions(Message, kw_only=True):
    topic: str
    partition_ids: tuple[i32, ...]


@stored(versions=(0, 1), flexible=1)
class TransactionLogValue(Message, kw_only=True):
    producer_id: i64
    previous_producer_id: Annotated[i64, Versions(1), Tag(0), IGNORABLE] = -1
    next_producer_id: Annotated[i64, Versions(1), Tag(1), IGNORABLE] = -1
    producer_epoch: i16
    transaction_timeout_ms: i32
    transaction_status: i8
    transaction_partitions: tuple[TransactionPartitions, ...] | None
    """None while nothing was ever added."""
    transaction_last_update_timestamp_ms: i64
    transaction_start_timestamp_ms: i64
    client_transaction_version: Annotated[i16, Versions(1), Tag(2), IGNORABLE] = 0
    ends: Annotated[tuple[i64, ...], Versions(1), Tag(10_000), IGNORABLE] = ()
    """Tidelog's own, skipped by Kafka: where the log of each partition ended when the end of the transaction was
    decided, in the order of `transaction_partitions`. See `transactions.ahead`."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: TransactionLogValue | None
    """None forgets the transactional id."""


_TRANSACTION_LOG: Final = 0
_VALUE_VERSION: Final = 1
_I16: Final = struct.Struct(">h")
_KEY_TYPE: Final = _I16.pack(_TRANSACTION_LOG)
_VALUE_PREFIX: Final = _I16.pack(_VALUE_VERSION)


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = _key_of(record.transactional_id)
    if record.value is None:
        return key, None
    return key, _VALUE_PREFIX + encode(record.value, _VALUE_VERSION)


@lru_cache(maxsize=1024)
def _key_of(transactional_id: str) -> bytes:
    return _KEY_TYPE + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for a record of a type from the future, which is skipped, as Kafka does. Raises MalformedMessage."""
    if len(key) < _I16.size:
        raise MalformedMessage("a transaction record without a type")
    if _I16.unpack_from(key)[0] != _TRANSACTION_LOG:
        return None
    transactional_id = decode(TransactionLogKey, 0, key, _I16.size).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    if len(value) < _I16.size:
        raise MalformedMessage("TransactionLogValue without a version")
    version = _I16.unpack_from(value)[0]
    return TransactionRecord(transactional_id, decode(TransactionLogValue, version, value, _I16.size))
