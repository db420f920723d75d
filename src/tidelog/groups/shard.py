"""All groups of one partition of `__consumer_offsets`: which request is decided where, and the state they share.

A group is *classic*, or of the *consumer* protocol, or *simple*: nobody ever joined it, it is nothing but its committed
offsets. A simple group has no state of its own, so it exists exactly as long as there are offsets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidelog.coordination import Outcome, Timer, TimerKey
from tidelog.errors import ErrorCode, KafkaError
from tidelog.groups import classic_members, offset_requests
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.classic_join import join
from tidelog.groups.classic_rebalance import on_join_timer, on_session_timer, on_sync_timer
from tidelog.groups.classic_step import JOIN, SESSION, SYNC, TIMERS, UNKNOWN, Forget, Step, session_timer
from tidelog.groups.commit_records import CommitRecords
from tidelog.groups.group import ConsumerGroups, Context, Dice, Group, GroupSettings
from tidelog.groups.history import GroupEvent, History
from tidelog.groups.listing import describe, list_groups
from tidelog.groups.offsets import Offsets, in_batches
from tidelog.groups.records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.groups.refusals import refuse
from tidelog.ids import NO_PRODUCER_ID, NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.wire.commit_fast import PlainCommit, TopicOffsets
from tidelog.wire.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.wire.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from tidelog.wire.schema import Message

GroupOutcome = Outcome[Any, GroupRecord]

NOT_FOUND_SINCE: Final = 9
"""From this version of OffsetCommit a group that does not exist is called so."""


class GroupShard:
    """Implements `coordination.Shard`. `handle` decides; `replay`, `replay_marker` and `remember` change."""

    def __init__(
        self,
        settings: GroupSettings,
        dice: Dice,
        consumer_groups: ConsumerGroups | None = None,
        topic_id_of: offset_requests.TopicIdOf = lambda name: NO_TOPIC_ID,
    ) -> None:
        self.settings = settings
        self._topic_id_of = topic_id_of
        self.offsets = Offsets()
        self.history = History()
        self._classic: dict[str, ClassicGroup] = {}
        self._consumer = consumer_groups
        self._dice = dice
        self._handlers: Mapping[type[Message], Callable[[Any, Context, int], GroupOutcome]] = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            OffsetCommitRequest: self._commit,
            TxnOffsetCommitRequest: self._commit_transactional,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete_offsets,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete,
            ConsumerGroupHeartbeatRequest: self._to_consumer_groups,
            ConsumerGroupDescribeRequest: self._to_consumer_groups,
        }

    def handle(self, request: Message, context: Context, now_ms: int) -> GroupOutcome:
        return self._handlers[type(request)](request, context, now_ms)

    # -- what there is ------------------------------------------------------------------------------------------------

    def classic(self, group_id: str) -> ClassicGroup | None:
        """A classic or simple group."""
        group = self._classic.get(group_id)
        if group is None and self.offsets.has(group_id) and self._consumer_group(group_id) is None:
            return ClassicGroup(group_id=group_id)
        return group

    def find(self, group_id: str) -> Group | None:
        return self._consumer_group(group_id) or self.classic(group_id)

    def all(self) -> Iterator[Group]:
        if self._consumer is not None:
            yield from self._consumer.all()
        yield from self._classic.values()
        for group_id in self.offsets.groups():
            if group_id not in self._classic and self._consumer_group(group_id) is None:
                yield ClassicGroup(group_id=group_id)

    def _consumer_group(self, group_id: str) -> Group | None:
        return None if self._consumer is None else self._consumer.find(group_id)

    def dump(self) -> dict[str, object]:
        """What a reload must bring back, for comparing. Of a group in the middle of a rebalance that is what was
        written down last, so it is left out."""
        settled = {
            group_id: ClassicGroup.restored(group_id, group.record().value)  # type: ignore[arg-type]
            for group_id, group in self._classic.items()
            if group.is_stored and group.state in (State.STABLE, State.EMPTY)
        }
        return {"classic": settled, "offsets": self.offsets.dump()}

    # -- membership ---------------------------------------------------------------------------------------------------

    def _step(self, group: ClassicGroup, now_ms: int) -> Step:
        return Step(group, self.settings, now_ms)

    def _join(self, request: JoinGroupRequest, context: Context, now_ms: int) -> GroupOutcome:
        settings = self.settings
        if not request.group_id:
            return Outcome(refuse(request, ErrorCode.INVALID_GROUP_ID, context.version))
        timeout_ms = request.session_timeout_ms
        if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            return Outcome(refuse(request, ErrorCode.INVALID_SESSION_TIMEOUT, context.version))
        other = self._consumer_group(request.group_id)
        if other is not None and not other.is_empty:
            return self._to_consumer_groups(request, context, now_ms)
        group = self._classic.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN:
                return Outcome(refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, context.version))
            group = ClassicGroup(group_id=request.group_id)
        outcome = join(self._step(group, now_ms), request, context, self._dice)
        if other is not None:
            # Nobody is left who speaks the consumer protocol, so the group becomes what its next member speaks.
            outcome = msgspec.structs.replace(outcome, records=(*other.tombstones(), *outcome.records))
        return outcome

    def _sync(self, request: SyncGroupRequest, context: Context, now_ms: int) -> GroupOutcome:
        group = self._member_group(request, context)
        if isinstance(group, ClassicGroup):
            return classic_members.sync(self._step(group, now_ms), request, context.waiter)
        return self._to_consumer_groups(request, context, now_ms) if group is None else group

    def _heartbeat(self, request: HeartbeatRequest, context: Context, now_ms: int) -> GroupOutcome:
        group = self._member_group(request, context)
        if isinstance(group, ClassicGroup):
            return classic_members.heartbeat(group, request)
        return self._to_consumer_groups(request, context, now_ms) if group is None else group

    def _leave(self, request: LeaveGroupRequest, context: Context, now_ms: int) -> GroupOutcome:
        group = self._member_group(request, context)
        if isinstance(group, ClassicGroup):
            return classic_members.leave(self._step(group, now_ms), request, context.version)
        return self._to_consumer_groups(request, context, now_ms) if group is None else group

    def _member_group(
        self, request: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest, context: Context
    ) -> ClassicGroup | GroupOutcome | None:
        """The classic group that a member means; None for a consumer group; a refusal if there is no such group."""
        if not request.group_id:
            return Outcome(refuse(request, ErrorCode.INVALID_GROUP_ID, context.version))
        if self._consumer_group(request.group_id) is not None:
            return None
        group = self._classic.get(request.group_id)
        return group or Outcome(refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, context.version))

    def _to_consumer_groups(self, request: Any, context: Context, now_ms: int) -> GroupOutcome:
        if self._consumer is None:
            return Outcome(refuse(request, ErrorCode.UNSUPPORTED_VERSION, context.version))
        group_id = getattr(request, "group_id", "")
        return self._consumer.handle(request, context, now_ms, self._classic.get(group_id))

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _commit(self, request: OffsetCommitRequest, context: Context, now_ms: int) -> GroupOutcome:
        code = self._check_commit(request, context.version)
        if code:
            return Outcome(refuse(request, code, context.version))
        timers = self._signs_of_life(request.group_id, request.member_id)
        return offset_requests.commit(request, self.settings, now_ms, timers)

    def commit(self, request: PlainCommit, version: int, now_ms: int) -> Outcome[ErrorCode, GroupRecord]:
        """The same in columns. All partitions are answered with one code."""
        code = self._check_commit(request, version)
        if code:
            return Outcome(code)
        records = CommitRecords(request.group_id, request.topics, now_ms)
        return Outcome(code, records, self._signs_of_life(request.group_id, request.member_id))

    def _check_commit(self, request: OffsetCommitRequest | PlainCommit, version: int) -> ErrorCode:
        epoch = request.generation_id_or_member_epoch
        group = self._consumer_group(request.group_id) or self._classic.get(request.group_id)
        if group is None and epoch < 0:
            return ErrorCode.NONE  # a consumer that assigns partitions itself, in a group without members
        group = group or self.classic(request.group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
        return group.check_commit(
            request.member_id,
            request.group_instance_id,
            epoch,
            lambda: self._slots(request.topics),
            transactional=False,
            version=version,
        )

    def _signs_of_life(self, group_id: str, member_id: str) -> tuple[Timer, ...]:
        """Whoever commits is alive."""
        group = self._classic.get(group_id) if member_id else None
        return () if group is None or member_id not in group.members else (session_timer(group, member_id),)

    def _commit_transactional(self, request: TxnOffsetCommitRequest, context: Context, now_ms: int) -> GroupOutcome:
        group = self.find(request.group_id)
        if group is None:
            code = ErrorCode.ILLEGAL_GENERATION if request.generation_id >= 0 else ErrorCode.NONE
        else:
            code = group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                lambda: self._slots(request.topics),
                transactional=True,
                version=context.version,
            )
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            code = ErrorCode.ILLEGAL_GENERATION  # this request has no other word for it
        if code:
            return Outcome(refuse(request, code, context.version))
        return offset_requests.commit_transactional(request, self.settings, now_ms, self._topic_id_of)

    def _slots(
        self, topics: Iterable[OffsetCommitRequestTopic | TopicOffsets | TxnOffsetCommitRequestTopic]
    ) -> Iterator[tuple[TopicId, int]]:
        for topic in topics:
            topic_id = NO_TOPIC_ID if self._consumer is None else self._consumer.topic_id(topic.name)
            for each in topic.partitions:
                yield topic_id, each if isinstance(each, int) else each.partition_index

    def _fetch(self, request: OffsetFetchRequest, context: Context, now_ms: int) -> GroupOutcome:
        if context.version < offset_requests.GROUPS_SINCE:
            return Outcome(offset_requests.fetch_one(self.offsets, request, self._topic_id_of))
        return Outcome(
            OffsetFetchResponse(
                groups=tuple(
                    offset_requests.fetch_group(
                        self.offsets, self.find(group.group_id), group, request.require_stable, self._topic_id_of
                    )
                    for group in request.groups
                )
            )
        )

    def _delete_offsets(self, request: OffsetDeleteRequest, context: Context, now_ms: int) -> GroupOutcome:
        return offset_requests.delete(self.offsets, self.find(request.group_id), request)

    # -- administration -----------------------------------------------------------------------------------------------

    def _describe(self, request: DescribeGroupsRequest, context: Context, now_ms: int) -> GroupOutcome:
        described = tuple(describe(group_id, self.classic(group_id), context.version) for group_id in request.groups)
        return Outcome(DescribeGroupsResponse(groups=described))

    def _list(self, request: ListGroupsRequest, context: Context, now_ms: int) -> GroupOutcome:
        return Outcome(list_groups(self.all(), request))

    def _delete(self, request: DeleteGroupsRequest, context: Context, now_ms: int) -> GroupOutcome:
        records: list[GroupRecord] = []
        results = []
        gone: dict[str, Forget] = {}
        for group_id in request.groups_names:
            group = None if group_id in gone else self.find(group_id)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
            if group is not None and not code:
                records += self.offsets.all_deletions(group_id)
                records += group.tombstones()
                gone[group_id] = Forget(group_id)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        response = DeleteGroupsResponse(results=tuple(results))
        return Outcome(response, records=tuple(records), memory=tuple(gone.values()))

    def expiry(self, now_ms: int) -> Iterator[GroupOutcome]:
        """Offsets whose retention is over, and groups of which nothing is left, in batches per group. Each must be made
        true before the next is asked for."""
        for group_id in [group.group_id for group in self.all()]:
            group = self.find(group_id)
            if group is None:
                continue
            expired = self.offsets.expired(group, now_ms, self.settings.offsets_retention_ms)
            yield from self._in_batches(self.offsets.deletions(group_id, expired))
            if isinstance(group, ClassicGroup) and group.pending_members:
                continue  # somebody is about to join
            if group.is_empty and not self.offsets.has(group_id):
                tombstones = group.tombstones()
                if tombstones:
                    yield Outcome(records=tombstones, memory=(Forget(group_id),))

    def on_partitions_deleted(self, partitions: Iterable[TopicPartition]) -> Iterator[GroupOutcome]:
        """The offsets of partitions that no longer exist, in batches per group."""
        gone = tuple(partitions)
        for group_id in list(self.offsets.groups()):
            yield from self._in_batches(self.offsets.deletions(group_id, gone))

    def prelude(self, request: Message) -> Iterator[GroupOutcome]:
        """What has to be written before `request` is handled, because all of it would not fit into one batch. Each must
        be made true before the next is asked for. Nobody is told that anything is gone before all of it is."""
        if isinstance(request, DeleteGroupsRequest):
            for group_id in request.groups_names:
                group = self.find(group_id)
                if group is not None and not group.check_delete():
                    yield from self._but_the_last_batch(self.offsets.all_deletions(group_id))
        elif isinstance(request, OffsetDeleteRequest):
            group = self.find(request.group_id)
            yield from self._but_the_last_batch(offset_requests.delete(self.offsets, group, request).records)

    def _in_batches(self, records: Iterable[GroupRecord]) -> Iterator[GroupOutcome]:
        return (Outcome(records=batch) for batch in in_batches(records, self.settings.batch_bytes))

    def _but_the_last_batch(self, records: Iterable[GroupRecord]) -> list[GroupOutcome]:
        """The last is the request's own: a group that is nothing but its offsets must still be there then."""
        return list(self._in_batches(records))[:-1]

    # -- the Shard protocol: the only changes -------------------------------------------------------------------------

    def replay(self, record: GroupRecord, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        key, value = record
        if type(key) is OffsetCommitKey:
            self.offsets.replay(key, value if type(value) is OffsetCommitValue else None, offset, producer_id)
        elif isinstance(key, GroupMetadataKey):
            if isinstance(value, GroupMetadataValue):
                self._classic[key.group] = ClassicGroup.restored(key.group, value)
            else:
                self._classic.pop(key.group, None)
        elif self._consumer is not None:
            self._consumer.replay(record)
            if isinstance(key, ConsumerGroupMetadataKey) and value is not None:
                self._classic.pop(key.group_id, None)  # a group is one or the other

    def replay_batch(self, records: Sequence[GroupRecord], first_offset: int, producer_id: int) -> None:
        if type(records) is CommitRecords and producer_id == NO_PRODUCER_ID:
            self.offsets.replay_commit(records, first_offset)
            return
        for offset, record in enumerate(records, first_offset):
            self.replay(record, offset, producer_id)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)

    def remember(self, item: Any) -> None:
        if isinstance(item, ClassicGroup):
            self._classic[item.group_id] = item
        elif isinstance(item, Forget):
            self._classic.pop(item.group_id, None)
            if self.find(item.group_id) is None:
                self.history.forget([item.group_id])
        elif isinstance(item, GroupEvent):
            self.history.add(item)
        elif self._consumer is not None:
            self._consumer.remember(item)
        else:
            raise KafkaError(f"nobody remembers a {type(item).__name__}")

    def on_loaded(self, now_ms: int) -> Outcome[None, GroupRecord]:
        """Every member gets a whole session to be heard of: it could not reach a coordinator that was not there."""
        timers = [session_timer(group, member_id) for group in self._classic.values() for member_id in group.members]
        if self._consumer is None:
            return Outcome(timers=tuple(timers))
        other = self._consumer.on_loaded(now_ms)
        return Outcome(records=other.records, timers=(*timers, *other.timers), memory=other.memory)

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome[None, GroupRecord]:
        if key[0] not in TIMERS:
            return Outcome() if self._consumer is None else self._consumer.on_timer(key, now_ms)
        group = self._classic.get(key[1])
        if group is None:
            return Outcome()
        step = self._step(group, now_ms)
        if key[0] == SESSION:
            on_session_timer(step, key[2])
        elif key[0] == JOIN:
            on_join_timer(step)
        elif key[0] == SYNC:
            on_sync_timer(step)
        return step.outcome()
