"""A network that loses, delays, doubles and reorders, and can be cut in one direction only."""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple


class Weather(NamedTuple):
    drop: float = 0.0
    double: float = 0.0
    slow: float = 0.0
    """Share of messages that take up to `slow_ms`, and so overtake and are overtaken."""
    slow_ms: int = 300
    fast_ms: int = 4


CLEAR = Weather()


class Network:
    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self.weather = CLEAR
        self._blocked: set[tuple[int, int]] = set()

    def block(self, senders: Iterable[int], receivers: Iterable[int]) -> None:
        """One way."""
        targets = list(receivers)
        self._blocked.update((sender, receiver) for sender in senders for receiver in targets)

    def heal(self) -> None:
        self._blocked.clear()

    def delays(self, sender: int, receiver: int) -> list[int]:
        """After how long the message arrives: never, once or twice."""
        if (sender, receiver) in self._blocked:
            return []
        random, weather = self._dice.random, self.weather
        if random() < weather.drop:
            return []
        delays = [self._delay()]
        if random() < weather.double:
            delays.append(self._delay())
        return delays

    def _delay(self) -> int:
        weather = self.weather
        limit = weather.slow_ms if self._dice.random() < weather.slow else weather.fast_ms
        return 1 + int(self._dice.random() * limit)
