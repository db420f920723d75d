"""What is different about a Fetch that another broker sends: it says how far that broker has got, it sees what is not
safe yet, and copying may have a limit."""

from typing import Final

from tidelog.broker.handlers.fetch_attempt import Attempt
from tidelog.broker.partitions import Partitions
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.cluster.throttle import Throttle
from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.log import Slice
from tidelog.wire.fetch_fast import FetchedPartition
from tidelog.wire.messages.data import EpochEndOffset, FetchPartition

NOT_TOLD: Final = -1
"""In place of a last stable offset: a follower finds its own."""


class FollowerFetches:
    def __init__(self, partitions: Partitions, throttle: Throttle, clock: Clock) -> None:
        self._partitions = partitions
        self._throttle = throttle
        self._clock = clock

    def note(self, attempt: Attempt) -> None:
        """Once a request: where the follower is. That may move the watermark, and consumers with it."""
        state = attempt.request.replica_state
        now_ms = self._clock.monotonic_ms()
        for name, topic_id, wishes in attempt.topics:
            for wish in wishes:
                try:
                    replica = self._partitions.find(name, topic_id, wish.partition)
                    replica.check_leader()
                    replica.check_follower_epoch(wish.current_leader_epoch)
                    if divergence(replica, wish) is None:
                        replica.follower_fetched(attempt.follower, wish.fetch_offset, state.replica_epoch, now_ms)
                except KafkaError:
                    continue  # told with the answer

    def read(self, attempt: Attempt, replica: Replica, wish: FetchPartition) -> FetchedPartition:
        records: Slice | None = None
        try:
            replica.check_follower_epoch(wish.current_leader_epoch)
            diverging = divergence(replica, wish)
            limit = attempt.limit(wish)
            held_back = self._is_held_back(attempt.follower, replica)
            if held_back:
                limit = min(limit, self._throttle.budget(self._clock.monotonic_ms()))
            if diverging is None and (limit > 0 or (attempt.found == 0 and not held_back)):
                records = replica.read_as_follower(wish.fetch_offset, limit, min_one=attempt.found == 0)
                if held_back:
                    self._throttle.spend(records.length)
        except KafkaError as error:
            return attempt.fail(wish, error.code)
        except OSError:
            return attempt.fail(wish, ErrorCode.KAFKA_STORAGE_ERROR)
        return attempt.take(replica, wish, diverging, records, NOT_TOLD, None)

    def _is_held_back(self, follower: int, replica: Replica) -> bool:
        followers = replica.followers
        return followers is not None and follower not in followers.isr and self._throttle.concerns(replica)

    def wait_ms(self, longest: int) -> int:
        """How long a request may be parked: what waits for the limit is not woken by anything."""
        return self._throttle.wait_ms(longest, self._clock.monotonic_ms())


def divergence(replica: Replica, wish: FetchPartition) -> EpochEndOffset | None:
    """Where the client's history leaves ours, if it does: it must truncate before it can read on."""
    parts = replica.parts_at(wish.fetch_offset, wish.last_fetched_epoch)
    return None if parts is None else EpochEndOffset(epoch=parts[0], end_offset=parts[1])
