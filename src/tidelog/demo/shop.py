"""A small shop, made up: orders are placed, reserved, paid and confirmed, with all that goes wrong in real streams.

Every event has an id of its own. Some are sent twice, some arrive late or before what they follow from, and one
wholesale order gets far more of them than any other. What the shop earned is known here exactly, so that whoever
counts it from the topic can be held to it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import Final, NamedTuple

PLACED: Final = "OrderPlaced"
RESERVED: Final = "InventoryReserved"
PAID: Final = "PaymentCaptured"
CONFIRMED: Final = "EmailScheduled"

_MENU: Final = {"tea": 240, "coffee": 310, "bread": 420, "cheese": 890, "honey": 1150, "saffron": 2900}
_CUSTOMERS: Final = 500
_TWICE: Final = 0.02
_LATE: Final = 0.03
_OUT_OF_ORDER: Final = 0.05
_WHOLESALE: Final = 0.08
_LATE_MS: Final = 20_000
WHOLESALE_ORDER: Final = "order-wholesale"


class Event(NamedTuple):
    key: bytes
    """The order: all its events share a partition, and so stay in the order in which they were sent."""
    value: bytes
    timestamp_ms: int


class Books:
    """What the shop knows about itself."""

    def __init__(self) -> None:
        self.sent = 0
        self.distinct = 0
        self.revenue_cents = 0
        self.by_kind: Counter[str] = Counter()


class Shop:
    def __init__(self, dice: Random, run: str) -> None:
        self.books = Books()
        self._dice = dice
        self._run = run
        self._orders = 0
        self._events = 0
        self._due: list[tuple[int, int, Event]] = []
        """(when to send, tie breaker, event)."""

    def open(self, start_ms: int, per_second: float) -> Iterator[Event]:
        """Events without end, in the order in which they are sent, about so many a second of the shop's time."""
        now_ms = float(start_ms)
        # An order makes about four and a half events, duplicates included.
        between_orders_ms = 1000.0 * 4.5 / per_second
        while True:
            now_ms += self._dice.expovariate(1.0) * between_orders_ms
            while self._due and self._due[0][0] <= now_ms:
                yield self._sent(heappop(self._due)[2])
            self._place(int(now_ms))

    def _place(self, now_ms: int) -> None:
        self._orders += 1
        if self._dice.random() < _WHOLESALE:
            self._pay_some(now_ms)
            return
        order = f"order-{self._run}-{self._orders}"
        customer = f"customer-{1 + int(_CUSTOMERS * self._dice.random() ** 2)}"
        item = self._dice.choice(list(_MENU))
        quantity = self._dice.randint(1, 5)
        cents = _MENU[item] * quantity
        steps: list[tuple[str, int, dict[str, object]]] = [
            (PLACED, 0, {"customer": customer, "item": item, "quantity": quantity, "cents": cents}),
            (RESERVED, 40, {"item": item, "quantity": quantity}),
            (PAID, 90, {"cents": cents}),
            (CONFIRMED, 130, {"customer": customer}),
        ]
        if self._dice.random() < _OUT_OF_ORDER:
            steps[1], steps[2] = (RESERVED, 90, steps[1][2]), (PAID, 40, steps[2][2])
        for kind, after_ms, facts in steps:
            self._happen(order, kind, now_ms + after_ms, facts)

    def _pay_some(self, now_ms: int) -> None:
        """The hot key: one order that is paid in very many parts."""
        for part in range(4):
            self._happen(WHOLESALE_ORDER, PAID, now_ms + part, {"cents": self._dice.randint(1, 50) * 100})

    def _happen(self, order: str, kind: str, at_ms: int, facts: dict[str, object]) -> None:
        self._events += 1
        fields = {"event_id": f"{self._run}-{self._events}", "type": kind, "order": order, "at": at_ms, **facts}
        event = Event(order.encode(), json.dumps(fields, separators=(",", ":")).encode(), at_ms)
        self.books.distinct += 1
        if kind == PAID:
            self.books.revenue_cents += int(str(facts["cents"]))
        send_ms = at_ms
        if self._dice.random() < _LATE:
            send_ms += self._dice.randint(1000, _LATE_MS)
        heappush(self._due, (send_ms, self._events, event))
        if self._dice.random() < _TWICE:
            heappush(self._due, (send_ms + self._dice.randint(0, 3000), self._events, event))

    def close(self) -> Iterator[Event]:
        """What is still on its way when the shop closes."""
        while self._due:
            yield self._sent(heappop(self._due)[2])

    def _sent(self, event: Event) -> Event:
        self.books.sent += 1
        return event
