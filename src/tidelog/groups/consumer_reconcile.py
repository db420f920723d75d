"""One step of one member towards its target assignment: first give up, then receive.

```
             target moved, owns what it must give up
   STABLE ───────────────────────────────────────────▶ UNREVOKED_PARTITIONS
     ▲  ╲                                                    │ no longer reports them
     │    ╲ target moved, wants what others hold             ▼
     └──────▶ UNRELEASED_PARTITIONS ◀───────── next step (any of the three)
```
A partition is handed over only when nobody holds it or is still giving it up, so it never has two owners, and a member
that gains nothing and loses nothing never stops reading.
"""

from collections.abc import Callable, Iterable

import msgspec

from tidelog.groups.assignors import NOTHING, Assignment
from tidelog.groups.consumer_member import ConsumerMember, MemberState, Slot, assignment_of, slots_of


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: frozenset[Slot] | None,
    holder_of: Callable[[Slot], str | None],
) -> ConsumerMember:
    """The member's next state, or the same member if it cannot or need not move.

    `owned` is what the member says it still has; `None` if it did not say. `holder_of` knows every member's partitions,
    those being given up included.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, slots_of(member.revoking)):
            return member
        case MemberState.UNREVOKED_PARTITIONS:
            # It left the epoch in which it held the revoked partitions, also if it must now give up more.
            return _step(member, member.member_epoch + 1, target_epoch, target, owned, holder_of)
        case _:
            return _step(member, member.member_epoch, target_epoch, target, owned, holder_of)


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: frozenset[Slot] | None,
    holder_of: Callable[[Slot], str | None],
) -> ConsumerMember:
    had = set(slots_of(member.assigned))
    wanted = set(slots_of(target))
    kept = had & wanted
    lost = had - wanted
    if lost and _still_owns(owned, lost):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost)
    gained = {slot for slot in wanted - kept if holder_of(slot) in (None, member.member_id)}
    waits = len(kept) + len(gained) < len(wanted)
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target_epoch, state, kept | gained, set())


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: set[Slot], revoking: set[Slot]
) -> ConsumerMember:
    return msgspec.structs.replace(
        member,
        member_epoch=epoch,
        # A heartbeat with the previous epoch is accepted once: the answer that carried the new one may be lost.
        previous_member_epoch=member.member_epoch if epoch != member.member_epoch else member.previous_member_epoch,
        state=state,
        assigned=assignment_of(assigned),
        revoking=assignment_of(revoking) if revoking else NOTHING,
        assignment_epochs={slot: member.assignment_epochs.get(slot, epoch) for slot in assigned | revoking},
    )


def _still_owns(owned: frozenset[Slot] | None, slots: Iterable[Slot]) -> bool:
    return owned is None or not owned.isdisjoint(slots)
