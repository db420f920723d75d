"""TxnOffsetCommit 0-5: offsets that a group has consumed, committed as part of a producer's transaction.

They are records of `__consumer_offsets` like any commit, but written in the transaction: the log lets them in only with
the word of the transaction's coordinator, and the group counts them once the marker says so.
"""

from typing import Final

import msgspec

from tidelog.broker.coordinators.shard_requests import Ask
from tidelog.broker.coordinators.verification import TransactionVerifier, Writer
from tidelog.broker.handlers.groups import GroupRequests
from tidelog.broker.metadata import Metadata
from tidelog.broker.requests import Context, Endpoint
from tidelog.cluster.image import MetadataImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.groups.refusals import refuse
from tidelog.storage.log import Verification
from tidelog.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.wire.record_batch import TRANSACTIONAL, BatchHeader
from tidelog.wire.schema import Message

ADDS_SINCE: Final = 5
"""The first version whose producers add the group's offsets by committing them."""

NO_SEQUENCE: Final = -1

REMEMBERED_MAX: Final = 10_000
"""Producers whose connection is remembered; the longest silent are forgotten."""


class Lines:
    """By which connection a producer of the first protocol last committed offsets of a group.

    Its transactions all have the same epoch, and this request has no sequence. So this is all that tells one that its
    producer gave up, and sent again by a newer connection, from one of the transaction that is open by now.
    """

    def __init__(self, limit: int = REMEMBERED_MAX) -> None:
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}
        self._limit = limit

    def is_delayed(self, request: TxnOffsetCommitRequest, connection: int) -> bool:
        key = request.group_id, request.producer_id
        came = request.producer_epoch, connection
        newest = self._newest.pop(key, came)
        if len(self._newest) >= self._limit:
            del self._newest[next(iter(self._newest))]
        self._newest[key] = max(came, newest)
        # An older epoch is refused for what it is, by the log.
        return came[0] == newest[0] and came < newest


class TransactionalOffsetsHandler:
    def __init__(self, requests: GroupRequests, metadata: Metadata, verifier: TransactionVerifier) -> None:
        self._requests = requests
        self._metadata = metadata
        self._verifier = verifier
        self._lines = Lines()

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(28, 0, 5, self.commit)]

    async def commit(self, context: Context, request: TxnOffsetCommitRequest) -> Message:
        if context.version < ADDS_SINCE and self._lines.is_delayed(request, context.connection.number):
            return refuse(request, ErrorCode.INVALID_TXN_STATE, context.version)
        known, unknown = _split(self._metadata.image, request)
        verification: Verification | None = None
        if known.topics:
            try:
                verification = await self._verify(context, known)
            except KafkaError as error:
                return refuse(request, error.code, context.version)
        answer = self._requests.coordinator.loop.create_future()
        self._requests.submit(context, Ask(request.group_id, known, verification), answer.set_result)
        committed: TxnOffsetCommitResponse = await answer
        return msgspec.structs.replace(committed, topics=(*committed.topics, *unknown))

    async def _verify(self, context: Context, request: TxnOffsetCommitRequest) -> Verification | None:
        """The coordinator's word, if the log will ask for it."""
        replica = self._requests.coordinator.host_for(request.group_id).replica
        header = _header(request)
        if not replica.log.needs_verification(header):
            return None
        adds = context.version >= ADDS_SINCE
        verification = replica.log.begin_verification(header, every_epoch_is_new=adds)
        writer = Writer(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            adds=adds,
            knows_abortable=adds,
        )
        code = (await self._verifier.verify(writer, [replica.partition]))[replica.partition]
        if code:
            raise KafkaError("the group's offsets are not part of the transaction", _AS_COORDINATOR.get(code, code))
        return verification


_AS_COORDINATOR: Final = {ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What a producer's client takes for a reason to try again, in answer to this request."""


def _header(request: TxnOffsetCommitRequest) -> BatchHeader:
    """Of the batch that is to be written, as far as the log looks at it."""
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=0,
    )


def _split(
    image: MetadataImage, request: TxnOffsetCommitRequest
) -> tuple[TxnOffsetCommitRequest, list[TxnOffsetCommitResponseTopic]]:
    """The partitions that exist, and an answer for those that do not."""
    known: list[TxnOffsetCommitRequestTopic] = []
    unknown: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        found = image.topics.get(topic.name)
        count = len(found.partitions) if found is not None else 0
        here = tuple(each for each in topic.partitions if 0 <= each.partition_index < count)
        if here:
            known.append(msgspec.structs.replace(topic, partitions=here))
        missing = tuple(
            TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for each in topic.partitions
            if not 0 <= each.partition_index < count
        )
        if missing:
            unknown.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=missing))
    return msgspec.structs.replace(request, topics=tuple(known)), unknown
