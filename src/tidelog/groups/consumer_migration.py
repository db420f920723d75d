"""A live group changes its protocol: classic to consumer when the first consumer-protocol member joins, and back when
the last one is gone. Nobody's offsets are touched, and members that did not change keep their ids and partitions.

Upgrade: the classic members become members of a consumer group at the epoch of their generation, holding what they were
last assigned. They go on with JoinGroup, SyncGroup and Heartbeat (`consumer_classic`) until they are upgraded too.
Downgrade: those who are left are a classic group again, which rebalances at once.
"""

from tidelog.coordination import Completion, Outcome, Timer
from tidelog.errors import ErrorCode, KafkaError, MalformedMessage
from tidelog.groups import classic_step, consumer_records
from tidelog.groups.assignors import Assignment
from tidelog.groups.classic_group import ClassicGroup, Member, State
from tidelog.groups.classic_rebalance import rebalance
from tidelog.groups.consumer_embedded import read_subscription, slots_named, write_assignment
from tidelog.groups.consumer_group import ConsumerGroup
from tidelog.groups.consumer_heartbeat import ConsumerGroupSettings
from tidelog.groups.consumer_member import ConsumerMember, Slot, assignment_of
from tidelog.groups.consumer_rebalance import SESSION, Draft
from tidelog.groups.consumer_topics import TopicAnswers, Topics
from tidelog.groups.embedded import CONSUMER, assigned_partitions
from tidelog.groups.group import GroupSettings
from tidelog.groups.history import EventKind
from tidelog.groups.records import ClassicMemberMetadata, ClassicProtocol, GroupRecord
from tidelog.wire.messages.groups import SyncGroupResponse

MAY_UPGRADE = frozenset({"bidirectional", "upgrade"})
MAY_DOWNGRADE = frozenset({"bidirectional", "downgrade"})


class NotUpgradable(KafkaError):
    code = ErrorCode.GROUP_ID_NOT_FOUND

    def __init__(self, group_id: str, why: str) -> None:
        super().__init__(f"group {group_id!r} is a classic group and stays one: {why}")


# -- upgrade -----------------------------------------------------------------------------------------------------------


def upgrade(classic: ClassicGroup, settings: ConsumerGroupSettings, topics: TopicAnswers, now_ms: int) -> Draft:
    """The same group as a consumer group, on which the newcomer's request can be decided."""
    draft = Draft(ConsumerGroup(classic.group_id), now_ms)
    draft.records.extend(classic.tombstones())
    if classic.members:
        _check_upgrade(classic, settings)
        _take_over(draft, classic, topics)
        draft.note(EventKind.REBALANCE, reason="upgraded to the consumer protocol")
    return draft


def _check_upgrade(classic: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    policy = settings.group_consumer_migration_policy
    if policy not in MAY_UPGRADE:
        raise NotUpgradable(classic.group_id, f"group.consumer.migration.policy={policy}")
    if not classic.uses_consumer_protocol:
        raise NotUpgradable(classic.group_id, f"its members are not consumers but {classic.protocol_type!r}")
    if len(classic.members) > settings.group_consumer_max_size:
        raise NotUpgradable(classic.group_id, "it has more members than group.consumer.max.size")


def _take_over(draft: Draft, classic: ClassicGroup, topics: TopicAnswers) -> None:
    group_id, epoch = classic.group_id, classic.generation
    taken: set[Slot] = set()
    members: list[ConsumerMember] = []
    for old in classic.members.values():
        held = slots_named(assigned_partitions(old.assignment) or (), topics.topics) - taken
        taken |= held  # a leader may assign a partition twice; a consumer group may not
        members.append(_as_consumer_member(classic, old, assignment_of(held)))
    for member in members:
        draft.write(consumer_records.member_metadata(group_id, member))
    names = draft.group.subscribed_topics()
    # If its leader left something out, what it was last assigned is not the answer to the topics as they are.
    complete = len(taken) == sum(topics.partition_counts(names).values())
    draft.write(consumer_records.group_epoch(group_id, epoch, topics.hash_of(names) if complete else 0))
    for member in members:
        draft.write(consumer_records.target(group_id, member.member_id, member.assigned))
    draft.write(consumer_records.target_epoch(group_id, epoch, draft.now_ms))
    for member in members:
        draft.write(consumer_records.current(group_id, member))
        if member.classic is not None:
            draft.set_timer(SESSION, member.member_id, member.classic.session_timeout_ms)


def _as_consumer_member(classic: ClassicGroup, member: Member, held: Assignment) -> ConsumerMember:
    try:
        subscription = read_subscription(member.metadata(classic.protocol) or member.protocols[0][1])
    except (MalformedMessage, IndexError):
        raise NotUpgradable(classic.group_id, f"the subscription of {member.member_id!r} cannot be read") from None
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(ClassicProtocol(name=name, metadata=data) for name, data in member.protocols),
        ),
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        assigned=held,
    )


def upgraded(classic: ClassicGroup, decided: Outcome[object, GroupRecord]) -> Outcome[object, GroupRecord]:
    """What else happens when the upgrade is made true: whoever waits in the classic group is told to join again."""
    completions: list[Completion] = []
    timers = [Timer((word, classic.group_id), None) for word in (classic_step.JOIN, classic_step.SYNC)]
    for member in classic.members.values():
        timers.append(Timer((classic_step.SESSION, classic.group_id, member.member_id), None))
        if member.join_waiter is not None:
            again = classic_step.join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, member.join_version)
            completions.append(Completion(member.join_waiter, again))
        if member.sync_waiter is not None:
            refused = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
            completions.append(Completion(member.sync_waiter, refused))
    return Outcome(
        decided.response,
        records=decided.records,
        timers=(*timers, *decided.timers),
        completions=tuple(completions),
        memory=(*decided.memory, classic_step.Forget(classic.group_id)),
    )


# -- downgrade ---------------------------------------------------------------------------------------------------------


def must_downgrade(group: ConsumerGroup, settings: ConsumerGroupSettings, classic: GroupSettings) -> bool:
    """Only classic members are left."""
    return (
        0 < len(group.members) <= classic.group_max_size
        and group.classic_members() == len(group.members)
        and settings.group_consumer_migration_policy in MAY_DOWNGRADE
    )


def downgrade(
    before: ConsumerGroup,
    after: Draft,
    settings: GroupSettings,
    topics: Topics,
    response: object,
    *,
    at_rest: bool = False,
) -> Outcome[object, GroupRecord]:
    """The group as `after` has it, as a classic group; `before` is what the log holds of it now.

    It rebalances at once, unless it is `at_rest`: a static member that came back as a classic one took over a place,
    and nothing moved.
    """
    classic = _as_classic_group(after.group, topics, after.now_ms)
    step = classic_step.Step(classic, settings, after.now_ms)
    for member in classic.members.values():
        step.expect(member)
    if not at_rest:
        rebalance(step, "the last member of the consumer protocol is gone")
    decided = step.outcome(response)
    for member_id in sorted({*before.members, *after.group.members}):
        after.cancel_timers(member_id)
    ended = after.outcome()
    return Outcome(
        response,
        records=(*before.tombstones(), classic.record(), *decided.records),
        timers=(*ended.timers, *decided.timers),
        completions=decided.completions,
        memory=(*ended.memory, *decided.memory),
    )


def _as_classic_group(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup:
    classic = ClassicGroup(
        group_id=group.group_id,
        state=State.STABLE,
        state_since_ms=now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER,
        is_stored=True,
    )
    for member in group.members.values():
        classic = classic.with_member(_as_classic_member(member, topics))
    return classic.with_(protocol=classic.elect_protocol()).with_subscriptions()


def _as_classic_member(member: ConsumerMember, topics: Topics) -> Member:
    if member.classic is None:
        raise KafkaError(f"member {member.member_id!r} does not speak the classic protocol")
    protocols = tuple((one.name, bytes(one.metadata)) for one in member.classic.supported_protocols)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=protocols,
        assignment=write_assignment(member.assigned, topics, protocols[0][1]),
    )
