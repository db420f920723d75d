"""Sends the shop's events, as fast as it makes them, and knows what became of each."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from tidelog.demo.shop import Event, Shop

BURST_MAX: Final = 2000
"""After a pause, catch up in steps that leave time for everything else."""


class Traffic:
    def __init__(self, producer: Any, topic: str, shop: Shop, rate: int) -> None:
        self._producer = producer
        self._topic = topic
        self._shop = shop
        self._rate = rate
        self._events: Iterator[Event] = shop.open(time.time_ns() // 1_000_000, rate)
        self._started = time.monotonic()
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.per_partition: Counter[int] = Counter()

    def step(self) -> None:
        """Send what is due by now."""
        due = int((time.monotonic() - self._started) * self._rate) - self.sent
        self._send(islice(self._events, max(min(due, BURST_MAX), 0)))
        self._producer.poll(0)

    def finish(self, seconds: float) -> None:
        """Send what the shop had under way, and wait until all is acknowledged."""
        self._send(self._shop.close())
        self._producer.flush(seconds)

    def _send(self, events: Iterable[Event]) -> None:
        for event in events:
            while True:
                try:
                    self._producer.produce(
                        self._topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)  # the broker is behind
            self.sent += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            return
        self.acknowledged += 1
        self.per_partition[message.partition()] += 1
