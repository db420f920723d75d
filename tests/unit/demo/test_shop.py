"""The demo's shop: what goes wrong in it really does, and its books are right all the same."""

import json
from collections import Counter
from itertools import islice
from random import Random

from tidelog.demo.shop import PAID, WHOLESALE_ORDER, Shop


def day(seed: int, count: int = 5000) -> tuple[Shop, list[dict[str, object]]]:
    shop = Shop(Random(seed), "run")
    events = [*islice(shop.open(1_000_000, 1000), count), *shop.close()]
    return shop, [json.loads(event.value) for event in events]


def test_the_same_dice_make_the_same_day() -> None:
    assert day(1)[1] == day(1)[1]
    assert day(1)[1] != day(2)[1]


def test_the_books_are_what_an_exact_reader_finds() -> None:
    shop, events = day(3)
    distinct = {event["event_id"]: event for event in events}
    assert shop.books.sent == len(events)
    assert shop.books.distinct == len(distinct)
    paid = (event for event in distinct.values() if event["type"] == PAID)
    assert shop.books.revenue_cents == sum(int(str(event["cents"])) for event in paid)


def test_some_come_twice_some_late_and_some_before_their_cause() -> None:
    _, events = day(4)
    times = Counter(event["event_id"] for event in events)
    assert 0.005 < sum(number == 2 for number in times.values()) / len(times) < 0.05
    latest = 0
    late = 0
    for event in events:
        at = int(str(event["at"]))
        late += at < latest - 1000
        latest = max(latest, at)
    assert 0.01 < late / len(events) < 0.1
    first_seen: dict[tuple[object, object], int] = {}
    for position, event in enumerate(events):
        first_seen.setdefault((event["order"], event["type"]), position)
    paid_first = sum(
        position < first_seen.get((order, "InventoryReserved"), -1)
        for (order, kind), position in first_seen.items()
        if kind == PAID
    )
    assert paid_first > 10


def test_one_key_is_hot() -> None:
    _, events = day(5)
    keys = Counter(event["order"] for event in events)
    (hottest, most), (_, second) = keys.most_common(2)
    assert hottest == WHOLESALE_ORDER
    assert most > 20 * second


def test_events_come_at_about_the_rate_that_was_asked_for() -> None:
    shop = Shop(Random(6), "run")
    events = list(islice(shop.open(0, 1000), 20_000))
    assert 15_000 < events[-1].timestamp_ms < 25_000
