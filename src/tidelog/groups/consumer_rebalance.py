"""What every change of a consumer group goes through: epoch, target, one member's step; or a member's end.

Decisions are made on a `Draft`: a copy of the group to which each record is replayed as soon as it is decided. So every
later step of the same decision sees what the earlier ones did, by the very code that will apply them to the group.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from tidelog.coordination import Outcome, Timer, TimerKey
from tidelog.groups import consumer_records
from tidelog.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, NOTHING, MemberSpec
from tidelog.groups.consumer_errors import InvalidRegularExpression
from tidelog.groups.consumer_group import ConsumerGroup, GroupState
from tidelog.groups.consumer_member import ConsumerMember, MemberState, Slot, slots_of
from tidelog.groups.consumer_reconcile import reconcile
from tidelog.groups.consumer_topics import TopicAnswers
from tidelog.groups.history import EventKind, GroupEvent
from tidelog.groups.records import GroupRecord
from tidelog.ids import TopicId

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
JOIN = "consumer-join"  # a classic member was told to rejoin
SYNC = "consumer-sync"  # a classic member joined and has yet to fetch its assignment
TIMERS = (SESSION, REBALANCE, JOIN, SYNC)


class Asked(msgspec.Struct, frozen=True):
    """In an outcome's memory: a classic member was told to rejoin, and its time runs; or that is over."""

    group_id: str
    member_id: str
    rejoin: bool


class Draft:
    """The group as it will be, and what it takes to make it so."""

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        self._before = group
        self.group = group
        self.now_ms = now_ms
        self.records: list[GroupRecord] = []
        self._timers: dict[TimerKey, int | None] = {}
        self._memory: list[Any] = []

    def write(self, record: GroupRecord) -> None:
        if self.group is self._before:  # most heartbeats change nothing and need no copy
            self.group = self._before.copy()
        self.group.replay(record)
        self.records.append(record)

    def outcome(self, response: Any = None) -> Outcome[Any, GroupRecord]:
        if self.group is not self._before and self.group.state is not self._before.state:
            if self.group.state is GroupState.STABLE:
                self.note(EventKind.STABLE, stopped_ms=0)  # whoever kept its partitions never stood still
            elif self.group.state is GroupState.EMPTY:
                self.note(EventKind.EMPTY)
        timers = tuple(Timer(key, after_ms) for key, after_ms in self._timers.items())
        return Outcome(response, records=tuple(self.records), timers=timers, memory=tuple(self._memory))

    def set_timer(self, kind: str, member_id: str, after_ms: int | None) -> None:
        self._timers[kind, self.group.group_id, member_id] = after_ms

    def cancel_timers(self, member_id: str) -> None:
        for kind in TIMERS:
            self.set_timer(kind, member_id, None)
        self.remember(Asked(self.group.group_id, member_id, rejoin=False))

    def remember(self, item: Any) -> None:
        """Something that is not in the log."""
        self._memory.append(item)

    def note(self, kind: EventKind, member: ConsumerMember | None = None, reason: str = "", **facts: int) -> None:
        self.remember(
            GroupEvent(
                group_id=self.group.group_id,
                at_ms=self.now_ms,
                kind=kind,
                generation=self.group.epoch,
                member_id="" if member is None else member.member_id,
                client_id="" if member is None else member.client_id,
                reason=reason,
                members=len(self.group.members),
                **facts,
            )
        )


def subscribe(draft: Draft, before: ConsumerMember, after: ConsumerMember, topics: TopicAnswers) -> str:
    """Write what the member says about itself. Why the group must be rebalanced for it, empty if it need not."""
    group_id = draft.group.group_id
    joined = after.member_id not in draft.group.members
    if joined or before != after:
        draft.write(consumer_records.member_metadata(group_id, after))
    if joined:
        draft.note(EventKind.JOINED, after)
    pattern = after.subscribed_topic_regex
    if pattern and pattern not in draft.group.regexes:
        matching = topics.matching(pattern)
        draft.write(consumer_records.regex(group_id, pattern, matching, topics.topics.version, draft.now_ms))
    if before.subscribed_topic_regex != pattern:
        drop_unused_patterns(draft)
    if joined:
        return f"{after.member_id} joined"
    same = before.subscribed_topic_names == after.subscribed_topic_names and before.subscribed_topic_regex == pattern
    return "" if same else f"{after.member_id} changed its subscription"


def drop_unused_patterns(draft: Draft) -> None:
    used = {member.subscribed_topic_regex for member in draft.group.members.values()}
    for pattern in sorted(draft.group.regexes.keys() - used):
        draft.write(consumer_records.regex_removed(draft.group.group_id, pattern))


def refresh(draft: Draft, reason: str, topics: TopicAnswers) -> None:
    """Move the group to a new epoch if members (`reason` says why) or topics changed, and its target after it."""
    group_id = draft.group.group_id
    for pattern, known in sorted(draft.group.regexes.items()):
        matching = _matching_now(pattern, known, topics)
        if matching != known:
            draft.write(consumer_records.regex(group_id, pattern, matching, topics.topics.version, draft.now_ms))
    metadata_hash = topics.hash_of(draft.group.subscribed_topics())
    if reason or metadata_hash != draft.group.metadata_hash:
        draft.write(consumer_records.group_epoch(group_id, draft.group.epoch + 1, metadata_hash))
        draft.note(EventKind.REBALANCE, reason=reason or "topics changed")
    if draft.group.epoch > draft.group.target_epoch:
        _retarget(draft, topics)


def _matching_now(pattern: str, known: frozenset[str], topics: TopicAnswers) -> frozenset[str]:
    try:
        return topics.matching(pattern)
    except InvalidRegularExpression:
        # It was fine when its member came, and the others must not suffer for it now that there are more topics.
        return known


def _retarget(draft: Draft, topics: TopicAnswers) -> None:
    group = draft.group
    counts = topics.partition_counts(group.subscribed_topics())
    ids_of: dict[frozenset[str], frozenset[TopicId]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in group.members.items():
        names = group.topics_of(member)
        if names not in ids_of:  # most members subscribe alike
            ids_of[names] = frozenset(topics.partition_counts(names))
        specs[member_id] = MemberSpec(ids_of[names], group.target(member_id), member.instance_id)
    targets = ASSIGNORS[preferred_assignor(group)](specs, counts)
    moved = 0
    for member_id, assignment in sorted(targets.items()):
        old = group.targets.get(member_id)
        if old != assignment:
            moved += len(set(slots_of(assignment)) - set(slots_of(old or NOTHING)))
            draft.write(consumer_records.target(group.group_id, member_id, assignment))
    draft.write(consumer_records.target_epoch(group.group_id, group.epoch, draft.now_ms))
    draft.note(EventKind.GENERATION, partitions_moved=moved)


def preferred_assignor(group: ConsumerGroup) -> str:
    """The one that most members ask for; the first by name if several are equally wanted."""
    votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor)
    return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)


def settle(draft: Draft, member_id: str, owned: frozenset[Slot] | None) -> ConsumerMember:
    """Let the member take its next step towards its target."""
    group = draft.group
    before = group.members[member_id]
    after = reconcile(before, group.target_epoch, group.target(member_id), owned, group.holders.get)
    if after != before:
        draft.write(consumer_records.current(group.group_id, after))
        if after.classic is None:
            revoking = after.state is MemberState.UNREVOKED_PARTITIONS
            draft.set_timer(REBALANCE, member_id, after.rebalance_timeout_ms if revoking else None)
    return after


def remove(
    draft: Draft, departures: Iterable[tuple[ConsumerMember, str]], topics: TopicAnswers, kind: EventKind
) -> None:
    """These members are gone, each for its reason. Who gets their partitions is decided when the next member asks."""
    group_id = draft.group.group_id
    for member, reason in departures:
        _forget(draft, member.member_id)
        draft.cancel_timers(member.member_id)
        draft.note(kind, member, reason)
    drop_unused_patterns(draft)
    metadata_hash = topics.hash_of(draft.group.subscribed_topics())
    draft.write(consumer_records.group_epoch(group_id, draft.group.epoch + 1, metadata_hash))
    if not draft.group.members:  # nobody will ask, and an empty group has nothing left to assign
        draft.write(consumer_records.target_epoch(group_id, draft.group.epoch, draft.now_ms))


def replace(draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member is back under a new id: it inherits the place, the target and the partitions."""
    group_id = draft.group.group_id
    target = draft.group.target(old.member_id)
    new = msgspec.structs.replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    _forget(draft, old.member_id)
    draft.cancel_timers(old.member_id)
    draft.write(consumer_records.member_metadata(group_id, new))
    draft.write(consumer_records.target(group_id, member_id, target))
    draft.write(consumer_records.current(group_id, new))
    draft.note(EventKind.REPLACED, new)
    return new


def _forget(draft: Draft, member_id: str) -> None:
    group_id = draft.group.group_id
    draft.write(consumer_records.current_removed(group_id, member_id))
    draft.write(consumer_records.target_removed(group_id, member_id))
    draft.write(consumer_records.member_removed(group_id, member_id))
