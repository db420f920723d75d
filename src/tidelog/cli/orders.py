"""Made-up orders of a small shop: the records of the demo and of examples/orders.py."""

import json
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

CUSTOMERS: Final = 500
_MENU: Final = {"tea": 240, "coffee": 310, "bread": 420, "cheese": 890, "honey": 1150, "saffron": 2900}


class Order(NamedTuple):
    key: bytes  # the customer: all orders of one customer share a partition and so stay in order
    value: bytes


def orders(dice: Random, now_ms: int) -> Iterator[Order]:
    """Orders without end. A few customers buy most, as in life, so partitions fill unevenly and skew is seen."""
    number = 0
    items = list(_MENU)
    while True:
        number += 1
        customer = 1 + int(CUSTOMERS * dice.random() ** 2)
        item = dice.choice(items)
        quantity = dice.randint(1, 5)
        order = {
            "order": number,
            "customer": f"customer-{customer}",
            "item": item,
            "quantity": quantity,
            "cents": _MENU[item] * quantity,
            "at": now_ms + number,
        }
        yield Order(f"customer-{customer}".encode(), json.dumps(order, separators=(",", ":")).encode())
