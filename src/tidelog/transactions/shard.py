"""All transactional ids of one partition of `__transaction_state`: which request is decided where, and what follows."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from tidelog.coordination import Outcome, Timer, TimerKey, coordinator_code
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_ID, TopicPartition
from tidelog.transactions.ahead import EndsOf, caught_up, goes_ahead, is_graced, made_anew, nowhere
from tidelog.transactions.contents import add, verify
from tidelog.transactions.context import (
    OFFSETS_TOPIC,
    Context,
    Markers,
    Memory,
    NewProducerId,
    OffsetsPartition,
    Select,
    TransactionSettings,
    Verdict,
    refused,
)
from tidelog.transactions.draft import PARKED, TIMEOUT, Draft, Remember, TransactionOutcome, markers_of
from tidelog.transactions.ending import end, time_out
from tidelog.transactions.listing import describe, list_transactions
from tidelog.transactions.ownership import initialise
from tidelog.transactions.records import TransactionRecord
from tidelog.transactions.refusals import BATCHED_SINCE, refuse, topic_results
from tidelog.transactions.short_ways import ShortWays
from tidelog.transactions.state import NEXT, Event, State
from tidelog.transactions.transaction import FIRST_PROTOCOL, SECOND_PROTOCOL, Identity, Transaction
from tidelog.wire.messages import transactions as messages
from tidelog.wire.messages.data import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.schema import Message

_NO_MEMORY: Final = Memory()

EXPIRED_AT_ONCE: Final = 1_000
"""Transactional ids forgotten by one batch."""


def _no_patterns(pattern: str, names: Iterable[str]) -> list[str]:
    raise KafkaError("patterns are not supported here", ErrorCode.UNSUPPORTED_VERSION)


class TransactionShard:
    """Implements `coordination.Shard`. `handle` and `markers_written` decide; `replay` and `remember` change.

    `handle` takes InitProducerId (with a transactional id), AddPartitionsToTxn, AddOffsetsToTxn, EndTxn,
    DescribeTransactions and ListTransactions. `coordinator_epoch` is the leader epoch of the partition.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        new_producer_id: NewProducerId,
        offsets_partition: OffsetsPartition,
        *,
        coordinator_epoch: int = 0,
        select: Select = _no_patterns,
        ends_of: EndsOf = nowhere,
    ) -> None:
        self.settings = settings
        self.coordinator_epoch = coordinator_epoch
        self._new_producer_id = new_producer_id
        self._offsets_partition = offsets_partition
        self._select = select
        self._ends_of = ends_of
        self._transactions: dict[str, Transaction] = {}
        self._memories: dict[str, Memory] = {}
        self._handlers: Mapping[type[Message], Callable[[Draft, Any, Context, int], Message | None]] = {
            InitProducerIdRequest: self._init,
            messages.AddPartitionsToTxnRequest: self._add_partitions,
            messages.AddOffsetsToTxnRequest: self._add_offsets,
            messages.EndTxnRequest: self._end,
            messages.DescribeTransactionsRequest: self._describe,
            messages.ListTransactionsRequest: self._list,
        }
        self._short_ways = ShortWays(self._transactions, self._memories, ends_of, coordinator_epoch)

    def handle(self, request: Message, context: Context, now_ms: int) -> TransactionOutcome:
        outcome = self._short_ways.decide(request, context, now_ms)
        if outcome is not None:
            return outcome
        draft = self._draft()
        return draft.outcome(self._handlers[type(request)](draft, request, context, now_ms))

    def find(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def seen(self, transactional_id: str) -> Transaction | None:
        """As it is to whoever asks: also where it is known to be over and that is still to be written down."""
        transaction, memory = self.find(transactional_id), self._memories.get(transactional_id)
        if transaction is None or memory is None or not memory.safe:
            return transaction
        return caught_up(transaction, memory, transaction.update_ms).steps[-1]

    def all(self) -> Iterator[Transaction]:
        for name, transaction in self._transactions.items():
            yield self.seen(name) or transaction

    def dump(self) -> dict[str, Transaction]:
        """What a reload must bring back, for comparing."""
        return dict(self._transactions)

    def _draft(self) -> Draft:
        return Draft(self._transactions, self._memories, self.coordinator_epoch)

    # -- requests: an answer, or None if it comes later ---------------------------------------------------------------

    def _init(self, draft: Draft, request: InitProducerIdRequest, context: Context, now_ms: int) -> Message | None:
        name = request.transactional_id or ""
        self._catch_up(draft, name, now_ms)
        verdict = initialise(
            draft.transaction(name), draft.memory(name), request, self.settings, self._new_producer_id, now_ms
        )
        if not self._settle(draft, name, verdict, request, context):
            return None
        if verdict.identity is None:
            return _refusal(verdict, request, context)
        return InitProducerIdResponse(**verdict.identity._asdict())

    def _add_partitions(
        self, draft: Draft, request: messages.AddPartitionsToTxnRequest, context: Context, now_ms: int
    ) -> Message | None:
        if context.version >= BATCHED_SINCE:
            return self._add_batched(draft, request, context, now_ms)
        name = request.v3_and_below_transactional_id
        verdict = self._add(
            draft,
            name,
            Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            _partitions(request.v3_and_below_topics),
            FIRST_PROTOCOL,
            context,
            now_ms,
        )
        if not self._settle(draft, name, verdict, request, context):
            return None
        return _refusal(verdict, request, context)

    def _add_batched(
        self, draft: Draft, request: messages.AddPartitionsToTxnRequest, context: Context, now_ms: int
    ) -> Message | None:
        """From a broker on behalf of its producers. Writes of the second protocol add their partitions by this, so only
        verification is asked for clients of the first."""
        results = []
        for each in request.transactions:
            asked = Identity(each.producer_id, each.producer_epoch)
            if each.verify_only:
                topic_answers = self._verify(draft, each, asked, context)
            else:
                partitions = _partitions(each.topics)
                verdict = self._add(draft, each.transactional_id, asked, partitions, SECOND_PROTOCOL, context, now_ms)
                alone = len(request.transactions) == 1  # one that waits must not hold up the others' answer
                if not self._settle(draft, each.transactional_id, verdict, request, context, may_wait=alone):
                    return None
                topic_answers = topic_results(each.topics, _code(verdict))
            results.append(
                messages.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=topic_answers)
            )
        return messages.AddPartitionsToTxnResponse(results_by_transaction=tuple(results))

    def verify(
        self, transactional_id: str, asked: Identity, partitions: Collection[TopicPartition], version: int
    ) -> dict[TopicPartition, ErrorCode]:
        """May this producer write to these partitions now? As AddPartitionsToTxn of that version would answer."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        transaction, ahead = self.find(transactional_id), self._memories.get(transactional_id, _NO_MEMORY).ahead
        seen = transaction if ahead.issuperset(partitions) else self.seen(transactional_id)
        codes = verify(seen, ahead, asked, partitions, version)
        if ahead and transaction is not None:
            vouched = [each for each, code in codes.items() if code is ErrorCode.NONE]
            for each in made_anew(transaction, vouched, self._ends_of):
                # The topic is another one by now: what went ahead there has to be written down first.
                codes[each] = ErrorCode.CONCURRENT_TRANSACTIONS
        return codes

    def vouch(
        self, transactional_id: str, asked: Identity, partitions: Sequence[TopicPartition], version: int, now_ms: int
    ) -> Outcome[dict[TopicPartition, ErrorCode], TransactionRecord]:
        """The same for the log of this broker, which is about to open the transaction there."""
        transaction, memory = self.seen(transactional_id), self._memories.get(transactional_id)
        wanted = frozenset(partitions)
        if transaction is None or memory is None or not is_graced(transaction, memory, asked, wanted):
            return Outcome(self.verify(transactional_id, asked, partitions, version))
        draft = self._draft()
        self._catch_up(draft, transactional_id, now_ms)
        # In all that may have been announced, so that another restart does not forget the rest.
        added = transaction.added(memory.graced, transaction.client_version, now_ms)
        draft.take(transactional_id, Verdict(steps=(added,)))
        return draft.outcome(dict.fromkeys(partitions, ErrorCode.NONE))

    def go_ahead(self, transactional_id: str, asked: Identity, partitions: Iterable[TopicPartition]) -> bool:
        """A producer of the second protocol is about to write to these partitions, of a log of this broker. True if it
        may, and nothing has to be written down for that now; else it takes an AddPartitionsToTxn."""
        memory = self._short_ways.go_ahead(transactional_id, asked, frozenset(partitions))
        if memory is not None:
            self._memories[transactional_id] = memory
        return memory is not None

    def add_ahead(self, request: messages.AddPartitionsToTxnRequest, context: Context) -> Message | None:
        """The same for one of the first protocol, which asks. None: it takes `handle` to answer."""
        outcome = self._short_ways.add(request, context)
        if outcome is None:
            return None
        for item in outcome.memory:
            self.remember(item)
        response: Message | None = outcome.response
        return response

    def _verify(
        self, draft: Draft, each: messages.AddPartitionsToTxnTransaction, asked: Identity, context: Context
    ) -> tuple[messages.AddPartitionsToTxnTopicResult, ...]:
        if not each.transactional_id:
            return topic_results(each.topics, ErrorCode.INVALID_REQUEST)
        transaction, ahead = draft.transaction(each.transactional_id), draft.memory(each.transactional_id).ahead
        codes = verify(transaction, ahead, asked, _partitions(each.topics), context.version)
        return tuple(
            messages.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    messages.AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                    )
                    for number in topic.partitions
                ),
            )
            for topic in each.topics
        )

    def _add_offsets(
        self, draft: Draft, request: messages.AddOffsetsToTxnRequest, context: Context, now_ms: int
    ) -> Message | None:
        name = request.transactional_id
        if not request.group_id:
            return refuse(request, ErrorCode.INVALID_GROUP_ID, context.version)
        verdict = self._add(
            draft,
            name,
            Identity(request.producer_id, request.producer_epoch),
            frozenset({TopicPartition(OFFSETS_TOPIC, self._offsets_partition(request.group_id))}),
            FIRST_PROTOCOL,
            context,
            now_ms,
        )
        if not self._settle(draft, name, verdict, request, context):
            return None
        return _refusal(verdict, request, context)

    def _end(self, draft: Draft, request: messages.EndTxnRequest, context: Context, now_ms: int) -> Message | None:
        name = request.transactional_id
        verdict = self._decide_end(draft, request, context, now_ms) if name else refused(ErrorCode.INVALID_REQUEST)
        if not self._settle(draft, name, verdict, request, context):
            return None
        if verdict.identity is None:
            return _refusal(verdict, request, context)
        return messages.EndTxnResponse(**verdict.identity._asdict())

    def _decide_end(self, draft: Draft, request: messages.EndTxnRequest, context: Context, now_ms: int) -> Verdict:
        name = request.transactional_id
        self._catch_up(draft, name, now_ms)
        transaction, memory = draft.transaction(name), draft.memory(name)
        return end(transaction, memory, request, context, self._new_producer_id, self._ends_of, now_ms)

    def _describe(
        self, draft: Draft, request: messages.DescribeTransactionsRequest, context: Context, now_ms: int
    ) -> Message:
        return messages.DescribeTransactionsResponse(
            transaction_states=tuple(describe(each, self.seen(each)) for each in request.transactional_ids)
        )

    def _list(self, draft: Draft, request: messages.ListTransactionsRequest, context: Context, now_ms: int) -> Message:
        return list_transactions(self.all(), request, self._select, now_ms)

    # -- what they share ----------------------------------------------------------------------------------------------

    def _add(
        self,
        draft: Draft,
        name: str,
        asked: Identity,
        partitions: frozenset[TopicPartition],
        client_version: int,
        context: Context,
        now_ms: int,
    ) -> Verdict:
        if not name:
            return refused(ErrorCode.INVALID_REQUEST)
        transaction, memory = draft.transaction(name), draft.memory(name)
        ahead = transaction is not None and goes_ahead(
            transaction, memory, asked, partitions, client_version, self._ends_of
        )
        if not ahead and memory.safe:
            self._catch_up(draft, name, now_ms)
            transaction, memory = draft.transaction(name), draft.memory(name)
        return add(transaction, memory, asked, partitions, client_version, context, now_ms, goes_ahead=ahead)

    def _catch_up(self, draft: Draft, name: str, now_ms: int) -> None:
        """Put down what is known already, before something else is decided: the markers are safe."""
        transaction, memory = draft.transaction(name), draft.memory(name)
        if memory.safe and transaction is not None:
            draft.take(name, caught_up(transaction, memory, now_ms))

    def _settle(
        self,
        draft: Draft,
        name: str,
        verdict: Verdict,
        request: Message,
        context: Context,
        *,
        may_wait: bool = True,
    ) -> bool:
        """Take a verdict over into the draft. False: the request waits, there is no answer yet."""
        draft.take(name, verdict)
        return not (verdict.waits and may_wait and draft.park(name, request, context))

    # -- markers, timers and expiry -----------------------------------------------------------------------------------

    def markers_placed(self, markers: Markers) -> None:
        """Every partition has its marker, all in logs of this broker, though maybe not on disk yet. Nobody is told, so
        this needs no outcome."""
        if self.is_ending(markers):
            memory = self._memories.get(markers.transactional_id, _NO_MEMORY)
            self._memories[markers.transactional_id] = replace(memory, placed=True)

    def markers_safe(self, markers: Markers) -> bool:
        """They are on disk. True if it is enough to hear of that: what follows will write it down. If nothing does
        within `SETTLE_MS`, or this is False, it is for `markers_written` to do."""
        memory = self._memories.get(markers.transactional_id, _NO_MEMORY)
        if not markers.ends or memory.parked or not self.is_ending(markers):
            return False
        self._memories[markers.transactional_id] = replace(memory, safe=markers)
        return True

    def is_to_be_settled(self, markers: Markers) -> bool:
        """Whether what `markers_safe` heard of is still to be written down."""
        return self._memories.get(markers.transactional_id, _NO_MEMORY).safe is markers

    def is_ending(self, markers: Markers) -> bool:
        """Whether they are those of the transaction that is being ended. Transactions of the first protocol that
        follow each other differ in nothing but where they ended."""
        transaction = self.find(markers.transactional_id)
        return (
            transaction is not None
            and transaction.state.is_prepared
            and transaction.producer_epoch == markers.producer_epoch
            and transaction.producer_id == markers.producer_id
            and transaction.state.is_committed == markers.committed
            and transaction.ends == markers.ends
        )

    def markers_written(
        self, markers: Markers, now_ms: int, ahead: frozenset[TopicPartition] = frozenset()
    ) -> Outcome[bool, TransactionRecord]:
        """Every partition has its marker, safely. False if that was known already, or is about an end long past.
        `ahead`: where the producer's next transaction was found to have begun."""
        name = markers.transactional_id
        if not self.is_ending(markers):
            return Outcome(False)
        draft = self._draft()
        memory = draft.memory(name)
        if ahead:
            # What else it had announced is not known any more. A marker in a partition that it never wrote to does no
            # harm.
            memory = replace(memory, ahead=memory.ahead.union(markers.ends), graced=frozenset())
        draft.take(name, Verdict(memory=replace(memory, safe=markers)))
        self._catch_up(draft, name, now_ms)
        for parked in draft.unpark(name):
            request, context = parked
            try:
                response = self._handlers[type(request)](draft, request, context, now_ms)
            except KafkaError as error:
                response = refuse(request, coordinator_code(error), context.version)
            if response is not None:
                draft.complete(parked, response)
        return draft.outcome(True)

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, TransactionRecord]:
        kind, name = key
        draft = self._draft()
        if kind == PARKED:
            for parked in draft.unpark(name):
                answer = refuse(parked.request, ErrorCode.CONCURRENT_TRANSACTIONS, parked.context.version)
                draft.complete(parked, answer)
        transaction = self.find(name)
        if kind == TIMEOUT and transaction is not None and transaction.state is State.ONGOING:
            draft.take(name, time_out(transaction, draft.memory(name), now_ms))
        return draft.outcome()

    def expiry(self, now_ms: int) -> Iterator[TransactionOutcome]:
        """Transactional ids that nobody used for long. Each outcome must be made true before the next is asked for."""
        limit_ms = now_ms - self.settings.transactional_id_expiration_ms
        names = [
            name
            for name, each in self._transactions.items()
            if (each.state, Event.EXPIRED) in NEXT and each.update_ms <= limit_ms
        ]
        for start in range(0, len(names), EXPIRED_AT_ONCE):
            gone = names[start : start + EXPIRED_AT_ONCE]
            yield Outcome(
                records=tuple(TransactionRecord(name, None) for name in gone),
                memory=tuple(Remember(name, None) for name in gone),
            )

    # -- the rest of the Shard protocol: the only changes -------------------------------------------------------------

    def replay(self, record: TransactionRecord, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        name, value = record
        if value is None or value.transaction_status == State.DEAD.number:
            self._transactions.pop(name, None)
        else:
            self._transactions[name] = self._short_ways.meaning_of(record) or Transaction.restored(name, value)

    def replay_batch(self, records: Sequence[TransactionRecord], first_offset: int, producer_id: int) -> None:
        for offset, record in enumerate(records, first_offset):
            self.replay(record, offset, producer_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """Nothing is written to this topic in a transaction."""

    def remember(self, item: Any) -> None:
        if not isinstance(item, Remember):
            raise TypeError(f"nobody remembers a {type(item).__name__}")
        if item.memory is None:
            self._memories.pop(item.transactional_id, None)
        else:
            self._memories[item.transactional_id] = item.memory

    def on_loaded(self, now_ms: int) -> Outcome[None, TransactionRecord]:
        """Open transactions keep their time; what was decided is carried out, for the second time if need be."""
        timers = []
        effects = []
        memories = []
        for name, each in self._transactions.items():
            if each.state is State.ONGOING:
                # The wall clock is all there is across a restart. However it jumped, nobody gets more than the whole.
                left_ms = min(max(each.start_ms + each.timeout_ms - now_ms, 0), each.timeout_ms)
                timers.append(Timer((TIMEOUT, name), left_ms))
            elif each.state.is_prepared:
                effects.append(markers_of(each, self.coordinator_epoch))
                if each.ends and each.client_version < SECOND_PROTOCOL:  # whose transactions epochs tell apart
                    memories.append(Remember(name, Memory(graced=frozenset(each.ends))))
        return Outcome(timers=tuple(timers), effects=tuple(effects), memory=tuple(memories))


def _code(verdict: Verdict) -> ErrorCode:
    return ErrorCode.CONCURRENT_TRANSACTIONS if verdict.waits else verdict.code


def _refusal(verdict: Verdict, request: Message, context: Context) -> Message:
    """Also the answer of requests that say nothing but a code, when that is NONE."""
    return refuse(request, _code(verdict), context.version)


def _partitions(topics: Iterable[messages.AddPartitionsToTxnTopic]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
