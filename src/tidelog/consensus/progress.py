"""What a leader knows about one replica it replicates to, and how much it may have under way to it."""

from collections import deque
from typing import Final

from tidelog.consensus.entries import SnapshotId
from tidelog.consensus.voters import ReplicaKey

PROBE: Final = "probe"
"""Where its log agrees is not known yet: one message at a time."""
REPLICATE: Final = "replicate"
"""Entries are sent ahead of the answers, as far as the window allows."""
SNAPSHOT: Final = "snapshot"
"""It needs what the log no longer has."""


class Progress:
    __slots__ = (
        "_at_last_answer",
        "acked_round",
        "answered_ms",
        "answered_round",
        "caught_up_ms",
        "end_offset",
        "flying",
        "flying_bytes",
        "key",
        "match",
        "next",
        "position",
        "sent_commit",
        "sent_ms",
        "snapshot",
        "state",
        "total",
        "waiting",
        "went_back",
    )

    def __init__(self, key: ReplicaKey, next_offset: int, now_ms: int) -> None:
        self.key = key
        self.match = 0
        self.next = next_offset
        self.end_offset = 0
        """Of its log, as it last said."""
        self.state = PROBE
        self.waiting = False
        """In PROBE and SNAPSHOT: a message is under way, and its answer or a heartbeat's turn allows the next."""
        self.flying: deque[tuple[int, int]] = deque()  # (end offset, bytes) of appends without an answer
        self.flying_bytes = 0
        self.acked_round = 0
        self.answered_round = 0
        """Of the answer that moved `match`: later ones can't say less, unless its disk forgot."""
        self.answered_ms = now_ms
        self.sent_ms = now_ms
        self.sent_commit = 0
        self.caught_up_ms = -1
        self._at_last_answer = (now_ms, 1 << 62)  # when, and where the leader's log ended then
        self.snapshot: SnapshotId | None = None
        self.position = 0
        """In the snapshot's file: what is sent next."""
        self.total = 0
        self.went_back = 0
        """How often it had less than it had promised to keep."""

    def heard(self, now_ms: int, leader_end: int, round: int) -> None:
        """Any answer of this epoch. Kafka's rule for being caught up: it has all that there was at its last answer."""
        when, end_then = self._at_last_answer
        if self.match >= leader_end:
            self.caught_up_ms = now_ms
        elif self.match >= end_then:
            self.caught_up_ms = max(self.caught_up_ms, when)
        self._at_last_answer = (now_ms, leader_end)
        self.answered_ms = now_ms
        self.acked_round = max(self.acked_round, round)

    def advance(self, match: int, round: int) -> bool:
        """Its log is ours up to `match`, durably. True if that is news."""
        while self.flying and self.flying[0][0] <= match:
            self.flying_bytes -= self.flying.popleft()[1]
        if match < self.match:
            return False
        self.answered_round = max(self.answered_round, round)
        if self.state != REPLICATE:
            self._enter(REPLICATE)
            self.next = match
        self.next = max(self.next, match)
        if match == self.match:
            return False
        self.match = match
        return True

    def probe(self, next_offset: int) -> None:
        self._enter(PROBE)
        self.next = next_offset

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        self._enter(SNAPSHOT)
        self.snapshot = snapshot
        self.position = 0

    def _enter(self, state: str) -> None:
        self.state = state
        self.waiting = False
        self.snapshot = None
        self.flying.clear()
        self.flying_bytes = 0

    def sent(self, end_offset: int, size: int) -> None:
        self.flying.append((end_offset, size))
        self.flying_bytes += size
        self.next = end_offset

    def may_send(self, appends_max: int, bytes_max: int) -> bool:
        if self.state == REPLICATE:
            return len(self.flying) < appends_max and self.flying_bytes < bytes_max
        return not self.waiting
