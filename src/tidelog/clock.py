"""The only place that reads the time. Deciding code is handed a number instead."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time; may jump. For timestamps that people and clients see."""
        ...

    def monotonic_ms(self) -> int:
        """Never jumps. For every timeout and timer."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
