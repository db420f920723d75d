"""A third member of a cooperative group, by members that rejoin as soon as they hear of a rebalance.

librdkafka joins at most once a second (its join backoff), and a cooperative join needs the newcomer twice: first to be
counted, then to be given what the others have let go. So with that client one second is what the client takes, on
any broker. These members speak the same protocol without the backoff and show what is left: the others hear of each of
the two rebalances by a heartbeat.
"""

import json
import threading
import time
from collections.abc import Mapping, Sequence

from bench.results import Result
from bench.target import Target
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 4
SESSION_MS, REBALANCE_MS = 6_000, 60_000
BAR_S = 1.0


def measure(target: Target, *, partitions: int, heartbeat_ms: int, rounds: int) -> Result:
    times = []
    for number in range(rounds):
        group = f"bench-cooperative-{time.time_ns()}"
        members = [Member(target, group, partitions, heartbeat_ms) for _ in range(3)]
        try:
            for member in members[:2]:
                member.start()
            _until_shared(members[:2], partitions)
            time.sleep(0.5 + number * 0.13)
            members[2].start()
            times.append(_until_shared(members, partitions))
        finally:
            for member in members:
                member.stop()
    times.sort()
    return Result(
        name="third member joins (classic, cooperative, no client backoff), balanced again",
        value=times[len(times) // 2],
        unit="s p50",
        target=f"all < {BAR_S:.0f} s",
        ok=times[-1] < BAR_S,
        detail={"worst": times[-1], "heartbeat_ms": heartbeat_ms},
    )


def _until_shared(members: Sequence["Member"], partitions: int) -> float:
    began = time.perf_counter()
    while any(len(member.owned) != partitions // len(members) for member in members):
        if time.perf_counter() - began > 60:
            raise RuntimeError(f"not balanced after 60 s: {[sorted(member.owned) for member in members]}")
        for member in members:
            if member.failure is not None:
                raise member.failure
        time.sleep(0.001)
    return time.perf_counter() - began


class Member(threading.Thread):
    """Tells the leader which partitions it owns; gives up what it is no longer given, and then joins again at once."""

    def __init__(self, target: Target, group: str, partitions: int, heartbeat_ms: int) -> None:
        super().__init__(daemon=True)
        self.owned: frozenset[int] = frozenset()
        self.failure: Exception | None = None
        self._connection = Connection(target.host, target.port, timeout=30)
        self._group = group
        self._partitions = partitions
        self._heartbeat_s = heartbeat_ms / 1000
        self._member_id = ""
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        if self.ident is not None:
            self.join(10)
        self._connection.close()

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._take_part()
            leaver = MemberIdentity(member_id=self._member_id)
            self._connection.call(LeaveGroupRequest(group_id=self._group, members=(leaver,)), LEAVE_VERSION)
        except Exception as failure:
            self.failure = failure

    def _take_part(self) -> None:
        """One generation: until the next rebalance, or until this member itself asks for one."""
        generation, given = self._join()
        if given is None:
            return
        must_rejoin = bool(self.owned - given)
        self.owned = given
        while not must_rejoin and not self._stopped.wait(self._heartbeat_s):
            beat = HeartbeatRequest(group_id=self._group, generation_id=generation, member_id=self._member_id)
            must_rejoin = self._connection.call(beat, HEARTBEAT_VERSION).error_code != ErrorCode.NONE

    def _join(self) -> tuple[int, frozenset[int] | None]:
        """The generation and what this member is given in it; None when the next rebalance came first."""
        owned = JoinGroupRequestProtocol(name="cooperative", metadata=json.dumps(sorted(self.owned)).encode())
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member_id,
                protocol_type="bench",
                protocols=(owned,),
            )
            joined = self._connection.call(request, JOIN_VERSION)
            self._member_id = joined.member_id
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        if joined.error_code:
            raise RuntimeError(f"JoinGroup: {ErrorCode(joined.error_code).name}")
        owners = {each.member_id: frozenset(json.loads(bytes(each.metadata))) for each in joined.members}
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=json.dumps(sorted(given)).encode())
                for member_id, given in assign(owners, self._partitions).items()
            ),
        )
        answer = self._connection.call(sync, SYNC_VERSION)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return joined.generation_id, None
        if answer.error_code:
            raise RuntimeError(f"SyncGroup: {ErrorCode(answer.error_code).name}")
        return joined.generation_id, frozenset(json.loads(bytes(answer.assignment)))


def assign(owners: Mapping[str, frozenset[int]], partitions: int) -> dict[str, set[int]]:
    """Everybody keeps up to its share; only what nobody owns is given away. What is let go comes in the next round."""
    if not owners:
        return {}
    share = partitions // len(owners)
    given = {member_id: set(sorted(owned)[:share]) for member_id, owned in owners.items()}
    free = sorted(set(range(partitions)) - {each for owned in owners.values() for each in owned})
    for taken in given.values():
        while len(taken) < share and free:
            taken.add(free.pop())
    return given
