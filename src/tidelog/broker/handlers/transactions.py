"""Transactions: a producer's requests, the markers between brokers, and inspection.

AddPartitionsToTxn 0-5 (several transactions at a time from 4, which brokers send), AddOffsetsToTxn 0-4, EndTxn 0-5,
WriteTxnMarkers 1-2, DescribeTransactions 0, ListTransactions 0-2. Everything is decided by a
`transactions.TransactionShard`; this only carries. Not done: two-phase commit (KIP-939).
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec

from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.markers import Failures, MarkerWriter
from tidelog.broker.coordinators.producer_ids import ProducerIds
from tidelog.broker.coordinators.shard_host import TransactionEnd
from tidelog.broker.coordinators.shard_requests import Ask, ShardRequests
from tidelog.broker.coordinators.transactions import TransactionCoordinator
from tidelog.broker.metadata import Metadata
from tidelog.broker.requests import Context, Endpoint, Later, Reply, frame_of
from tidelog.broker.turns import in_turns
from tidelog.cluster.image import MetadataImage
from tidelog.coordination import coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.transactions.context import Context as Asking
from tidelog.transactions.records import TransactionRecord
from tidelog.transactions.refusals import BATCHED_SINCE, refuse, topic_results
from tidelog.transactions.shard import TransactionShard
from tidelog.wire.messages import transactions as messages
from tidelog.wire.schema import Message

MARKERS_AT_ONCE: Final = 100


class TransactionRequests(ShardRequests[TransactionShard, TransactionRecord]):
    def __init__(
        self,
        coordinator: TransactionCoordinator,
        producer_ids: ProducerIds,
        expect: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(coordinator, expect)
        self._producer_ids = producer_ids

    def decide(self, shard: TransactionShard, request: Message, context: Context, waiter: int, now_ms: int) -> Any:
        return shard.handle(request, Asking(context.version, waiter, context.connection.number), now_ms)

    def refuse(self, request: Message, error: KafkaError, version: int) -> Message:
        return refuse(request, coordinator_code(error), version)

    def answer_ahead(self, context: Context, request: messages.AddPartitionsToTxnRequest) -> Message | None:
        """At once, to a producer that goes ahead where nothing else is under way to the coordinator's log."""
        host = self.coordinator.find(request.v3_and_below_transactional_id)
        if host is None or not host.is_settled:
            return None
        answer = host.shard.add_ahead(request, Asking(context.version, connection=context.connection.number))
        if answer is not None:
            self._expect()
        return answer

    def when_ready(self, context: Context, transactional_id: str, request: Message) -> Reply:
        """With a producer id at hand, which the decision may need."""
        if self._producer_ids.at_hand:
            self.ask_one(context, transactional_id, request)
            return None
        return self._reserve_and_ask(context, transactional_id, request)

    async def _reserve_and_ask(self, context: Context, transactional_id: str, request: Message) -> Message:
        try:
            await self._producer_ids.reserve()
        except KafkaError as error:
            return self.refuse(request, error, context.version)
        return await self.asked(context, Ask(transactional_id, request))


class TransactionsHandler:
    def __init__(
        self,
        requests: TransactionRequests,
        groups: Coordinator[Any, Any],
        metadata: Metadata,
        markers: MarkerWriter,
    ) -> None:
        self._requests = requests
        self._groups = groups
        self._metadata = metadata
        self._markers = markers

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(24, 0, 5, self.add_partitions),
            Endpoint(25, 0, 4, self.add_offsets),
            Endpoint(26, 0, 5, self.end),
            Endpoint(27, 1, 2, self.write_markers),
            Endpoint(65, 0, 0, self.describe),
            Endpoint(66, 0, 2, self.list),
        ]

    # -- what belongs to a transaction ------------------------------------------------------------------------------

    def add_partitions(self, context: Context, request: messages.AddPartitionsToTxnRequest) -> Reply:
        image = self._metadata.image
        if context.version >= BATCHED_SINCE:
            return self._add_batched(context, request)
        missing = _missing(image, request.v3_and_below_topics)
        if missing:
            # All or nothing: the producer must not believe that some of them were added.
            return messages.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=_refused(request.v3_and_below_topics, missing)
            )
        answer = self._requests.answer_ahead(context, request)
        if answer is None:
            self._requests.ask_one(context, request.v3_and_below_transactional_id, request)
        return answer

    def _add_batched(self, context: Context, request: messages.AddPartitionsToTxnRequest) -> Reply:
        image = self._metadata.image
        refused: dict[str, messages.AddPartitionsToTxnResult] = {}
        asks = []
        for each in request.transactions:
            missing = _missing(image, each.topics)
            if missing:
                refused[each.transactional_id] = messages.AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id, topic_results=_refused(each.topics, missing)
                )
            else:
                asks.append(Ask(each.transactional_id, msgspec.structs.replace(request, transactions=(each,))))

        def combine(answers: list[Any]) -> messages.AddPartitionsToTxnResponse:
            results = [result for answer in answers for result in answer.results_by_transaction]
            return messages.AddPartitionsToTxnResponse(results_by_transaction=(*results, *refused.values()))

        return self._requests.ask(context, asks, combine)

    async def add_offsets(self, context: Context, request: messages.AddOffsetsToTxnRequest) -> Message:
        try:
            # The group's offsets will be written there, so there must be such a place.
            await self._groups.ensure_topic()
        except KafkaError as error:
            return self._requests.refuse(request, error, context.version)
        return await self._requests.asked(context, Ask(request.transactional_id, request))

    def end(self, context: Context, request: messages.EndTxnRequest) -> Reply:
        return self._requests.when_ready(context, request.transactional_id, request)

    # -- inspection -------------------------------------------------------------------------------------------------

    def describe(self, context: Context, request: messages.DescribeTransactionsRequest) -> Reply:
        asks = [
            Ask(each, msgspec.structs.replace(request, transactional_ids=(each,)))
            for each in dict.fromkeys(request.transactional_ids)
        ]
        return self._requests.ask(
            context,
            asks,
            lambda answers: messages.DescribeTransactionsResponse(
                transaction_states=tuple(state for answer in answers for state in answer.transaction_states)
            ),
        )

    def list(self, context: Context, request: messages.ListTransactionsRequest) -> Reply:
        """From every shard. One that cannot answer yet makes the whole list incomplete, so it is refused then."""
        asks = [Ask(host, request) for host in self._requests.coordinator.hosts]

        def combine(answers: list[Any]) -> messages.ListTransactionsResponse:
            code = max((answer.error_code for answer in answers), default=0)
            states = () if code else tuple(state for answer in answers for state in answer.transaction_states)
            unknown = dict.fromkeys(each for answer in answers for each in answer.unknown_state_filters)
            return messages.ListTransactionsResponse(
                error_code=code, unknown_state_filters=tuple(unknown), transaction_states=states
            )

        return self._requests.ask(context, asks, combine)

    # -- markers ----------------------------------------------------------------------------------------------------

    def write_markers(self, context: Context, request: messages.WriteTxnMarkersRequest) -> Reply:
        """From another broker's coordinator, or from somebody who ends a transaction that no coordinator knows."""
        if len(request.markers) > MARKERS_AT_ONCE:
            return self._write_in_turns(request)
        later = Later(context.connection)
        results: list[messages.WritableTxnMarkerResult | None] = [None] * len(request.markers)
        missing = len(request.markers)
        if not missing:
            later.fulfil([frame_of(context, messages.WriteTxnMarkersResponse(markers=()))])
            return None

        def written(position: int, result: messages.WritableTxnMarkerResult) -> None:
            nonlocal missing
            results[position] = result
            missing -= 1
            if missing == 0:
                answered = tuple(each for each in results if each is not None)
                later.fulfil([frame_of(context, messages.WriteTxnMarkersResponse(markers=answered))])

        for position, marker in enumerate(request.markers):
            self._write_marker(marker, partial(written, position))
        return None

    async def _write_in_turns(self, request: messages.WriteTxnMarkersRequest) -> messages.WriteTxnMarkersResponse:
        """So many that others would wait. No coordinator ends so many transactions at a time."""

        def begun(marker: messages.WritableTxnMarker) -> Future[messages.WritableTxnMarkerResult]:
            result: Future[messages.WritableTxnMarkerResult] = asyncio.get_running_loop().create_future()
            self._write_marker(marker, result.set_result)
            return result

        writing = await in_turns(begun, request.markers)
        return messages.WriteTxnMarkersResponse(markers=tuple([await result for result in writing]))

    def _write_marker(
        self, marker: messages.WritableTxnMarker, done: Callable[[messages.WritableTxnMarkerResult], None]
    ) -> None:
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        # Once each, however often they are named.
        partitions = dict.fromkeys(
            TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
        )
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            error = KafkaError("no producer has this id and epoch", ErrorCode.INVALID_REQUEST)
            done(_marked(marker, dict.fromkeys(partitions, error)))
            return
        self._markers.write(end, partitions, lambda failures: done(_marked(marker, failures)))


def _missing(image: MetadataImage, topics: Iterable[messages.AddPartitionsToTxnTopic]) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, number)
        for topic in topics
        for number in topic.partitions
        if not _exists(image, topic.name, number)
    }


def _exists(image: MetadataImage, topic: str, number: int) -> bool:
    found = image.topics.get(topic)
    return found is not None and 0 <= number < len(found.partitions)


def _refused(
    topics: tuple[messages.AddPartitionsToTxnTopic, ...], missing: set[TopicPartition]
) -> tuple[messages.AddPartitionsToTxnTopicResult, ...]:
    """Those that do not exist, and the others, which were not tried because of them."""
    return tuple(
        msgspec.structs.replace(
            result,
            results_by_partition=tuple(
                msgspec.structs.replace(each, partition_error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if TopicPartition(result.name, each.partition_index) in missing
                else each
                for each in result.results_by_partition
            ),
        )
        for result in topic_results(topics, ErrorCode.OPERATION_NOT_ATTEMPTED)
    )


def _marked(marker: messages.WritableTxnMarker, failures: Failures) -> messages.WritableTxnMarkerResult:
    def result(topic: str, number: int) -> messages.WritableTxnMarkerPartitionResult:
        error = failures.get(TopicPartition(topic, number))
        code = ErrorCode.NONE if error is None else error.code
        return messages.WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)

    return messages.WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=tuple(
            messages.WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(result(topic.name, number) for number in topic.partition_indexes),
            )
            for topic in marker.topics
        ),
    )
