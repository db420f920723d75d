"""How a classic group gets from one generation to the next: everybody joins again, then the leader assigns."""

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import Change, InitialDelay, Member, State
from tidelog.groups.classic_step import JOIN, SYNC, Step, joined
from tidelog.groups.history import EventKind, counted
from tidelog.wire.messages.groups import SyncGroupResponse

JOIN_RETRY_MS: Final = 1_000


def rebalance_or_complete(step: Step, reason: str) -> None:
    """Something changed about the members: start over, or if that is going on already, see whether all are here."""
    if step.group.state is State.PREPARING_REBALANCE:
        complete_if_all_joined(step)
    else:
        rebalance(step, reason)


def rebalance(step: Step, reason: str) -> None:
    group = step.group
    if group.state is State.COMPLETING_REBALANCE:
        # The assignment they wait for will never be made.
        for member in group.members.values():
            step.complete_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
            if member.sync_waiter is not None:
                step.expect(member)
        group = group.with_(
            members={key: msgspec.structs.replace(member, sync_waiter=None) for key, member in group.members.items()}
        )
    step.set_timer(SYNC, None)
    was = group.state
    owners = group.current_owners() if was is State.STABLE and group.owners is None else group.owners
    stopped_since_ms = step.now_ms if was in (State.STABLE, State.EMPTY) else group.stopped_since_ms
    group = group.after(Change.REBALANCE, step.now_ms)
    step.group = group.with_(pending_sync=frozenset(), owners=owners, stopped_since_ms=stopped_since_ms)
    step.note(EventKind.REBALANCE, reason=reason)
    if was is State.EMPTY:
        delay_ms = step.settings.group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        step.group = step.group.with_(initial=InitialDelay(delay_ms, remaining_ms))
        step.set_timer(JOIN, delay_ms)
    elif step.group.all_joined:
        complete_join(step)
    else:
        step.set_timer(JOIN, group.rebalance_timeout_ms)


def complete_if_all_joined(step: Step) -> None:
    group = step.group
    # The first generation of a group waits for its delay to pass, however many have come.
    if group.state is State.PREPARING_REBALANCE and group.initial is None and group.all_joined:
        complete_join(step)


def on_join_timer(step: Step) -> None:
    """The time to join is over, or the initial delay has passed."""
    group = step.group
    if group.state is not State.PREPARING_REBALANCE:
        return
    initial = group.initial
    if initial is None or not (initial.extended and initial.remaining_ms):
        complete_join(step)
        return
    delay_ms = min(step.settings.group_initial_rebalance_delay_ms, initial.remaining_ms)
    step.group = group.with_(initial=InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0)))
    step.set_timer(JOIN, delay_ms)


def complete_join(step: Step) -> None:
    """Go on with those who joined. Static members who did not keep their place until their session ends."""
    step.set_timer(JOIN, None)
    late = [each for each in step.group.members.values() if each.join_waiter is None and each.instance_id is None]
    remove(step, late, EventKind.EVICTED, "did not rejoin within the rebalance timeout (max.poll.interval.ms)")
    group = step.group
    if not group.members:
        _nobody_left(step)
        return
    if group.leader is None or group.members[group.leader].join_waiter is None:
        leader = next((each.member_id for each in group.members.values() if each.join_waiter is not None), None)
        if leader is None:
            # Only silent static members: their sessions decide. Their timeout may be 0, which must not make us spin.
            step.set_timer(JOIN, max(group.rebalance_timeout_ms, JOIN_RETRY_MS))
            return
        group = group.with_(leader=leader)
    group = group.with_(
        generation=_next_generation(group.generation),
        protocol=group.elect_protocol(),
        pending_sync=frozenset(group.members),
        initial=None,
    )
    step.group = group = group.with_subscriptions().after(Change.ALL_JOINED, step.now_ms)
    step.note(EventKind.GENERATION)
    for member in group.members.values():
        step.complete_join(member, joined(group, member.member_id))
        step.expect(member)
    step.group = group.with_(
        members={
            key: msgspec.structs.replace(member, join_waiter=None, is_new=False)
            for key, member in group.members.items()
        }
    )
    step.set_timer(SYNC, group.rebalance_timeout_ms)


def _nobody_left(step: Step) -> None:
    group = step.group.after(Change.ALL_LEFT, step.now_ms)
    step.group = group.with_(
        generation=_next_generation(group.generation),
        protocol=None,
        leader=None,
        initial=None,
        owners=None,
        stopped_since_ms=-1,
        is_stored=True,
    ).with_subscriptions()
    step.records.append(step.group.record())
    step.note(EventKind.EMPTY)


def _next_generation(generation: int) -> int:
    return generation + 1 if generation < 2**31 - 1 else 1


def on_sync_timer(step: Step) -> None:
    """Members who joined but never asked for their assignment are gone."""
    group = step.group
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
        return
    silent = [group.members[member_id] for member_id in group.members if member_id in group.pending_sync]
    remove(step, silent, EventKind.EVICTED, "joined but did not sync within the rebalance timeout")
    rebalance(step, f"{counted(len(silent), 'member')} did not sync")


def on_session_timer(step: Step, member_id: str) -> None:
    group = step.group
    if member_id in group.pending_members:
        step.group = group.without(member_id)
        complete_if_all_joined(step)
        return
    member = group.members.get(member_id)
    if member is None or member.is_waiting:
        return
    remove(step, [member], EventKind.EVICTED, f"no heartbeat within session.timeout.ms={member.session_timeout_ms}")
    if group.state is not State.EMPTY:
        rebalance_or_complete(step, f"member {member_id} timed out")


def remove(step: Step, members: Iterable[Member], kind: EventKind, reason: str) -> None:
    if step.group.state is State.STABLE and step.group.owners is None:
        step.group = step.group.with_(owners=step.group.current_owners())  # those who go included
    for member in members:
        step.refuse_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        step.group = step.group.without(member.member_id)
        step.expect_id(member.member_id, None)
        step.note(kind, member, reason)
