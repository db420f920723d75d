"""A limit on copying: how fast replicas that are not in sync may catch up, so that those who read and write are not
pushed aside. Replicas in sync are never held back, since whoever wrote with acks=all waits for them.

The settings are Kafka's: a rate for what a broker gives as leader and one for what it takes as follower, each for the
replicas that the topic lists as `partition:broker`, or `*`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.config.setting import LONG_MAX

UNLIMITED: Final = LONG_MAX
EVERY: Final = "*"


class Throttle:
    """One direction of one broker: a bucket that fills at the rate and holds what a second brings. What is sent is only
    known afterwards, so it may be overdrawn, and then nothing is sent until it has filled again."""

    def __init__(
        self, node_id: int, rate: Callable[[], int], listed: Callable[[TopicConfig], Sequence[str]], monotonic_ms: int
    ) -> None:
        self._node_id = node_id
        self._rate = rate
        self._listed = listed
        self._balance = 0.0
        self._filled_ms = monotonic_ms

    def concerns(self, replica: Replica) -> bool:
        """Whether there is a limit for it, as long as it is not in sync."""
        listed = self._listed(replica.log.config)
        if not listed or self._rate() >= UNLIMITED:
            return False
        return EVERY in listed or f"{replica.partition.partition}:{self._node_id}" in listed

    def budget(self, monotonic_ms: int) -> int:
        """Bytes that may be copied now."""
        rate = self._rate()
        passed, self._filled_ms = max(monotonic_ms - self._filled_ms, 0), monotonic_ms
        self._balance = min(self._balance + rate * passed / 1000, rate)
        return max(int(self._balance), 0)

    def spend(self, count: int) -> None:
        self._balance -= count

    def wait_ms(self, longest: int, monotonic_ms: int) -> int:
        """Until something may be copied again."""
        if self._rate() >= UNLIMITED or self.budget(monotonic_ms) > 0:
            return longest
        return min(longest, 1 + int((1 - self._balance) * 1000 / self._rate()))
