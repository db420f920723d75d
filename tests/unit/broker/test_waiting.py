"""Requests that wait are looked at together, and each is its own."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.broker.waiting import ParkedFetch, ParkedProduce, Shared, Waiting


class Client:
    """As much of a connection as who waits for it needs to know."""

    peer = "somebody:1"

    def __init__(self) -> None:
        self.parked: dict[object, Callable[[], None]] = {}
        self.closed: list[str] = []

    def close(self, reason: str) -> None:
        self.closed.append(reason)
        for end in list(self.parked.values()):
            end()


class Partition:
    high_watermark = 1


@pytest.mark.parametrize("time_is_up", [False, True])
def test_a_fetch_that_goes_wrong_costs_nobody_else_the_answer(time_is_up: bool) -> None:
    async def scenario() -> None:
        waiting = Waiting(asyncio.get_running_loop())
        partition: Any = Partition()
        answered: list[int] = []
        clients: list[Any] = [Client() for _ in range(3)]

        def park(number: int) -> None:
            def retry(now: bool, shared: Shared) -> bool:
                if number == 1:
                    raise ValueError("this one cannot be answered")
                answered.append(number)
                return True

            waiting.park_fetch(ParkedFetch(clients[number], [partition], retry), 0.0 if time_is_up else 30.0)

        for number in range(3):
            park(number)
        if not time_is_up:
            waiting.on_watermark(partition)
        async with asyncio.timeout(5):
            while len(answered) < 2:
                await asyncio.sleep(0.001)
        assert [client.closed for client in clients] == [[], ["internal error"], []]
        assert not waiting.has_reader(partition)

    asyncio.run(scenario())


def test_a_produce_whose_time_is_up_leaves_nothing_behind() -> None:
    """Its partition may stand still for hours while producers ask again and again."""

    async def scenario() -> None:
        waiting = Waiting(asyncio.get_running_loop())
        stuck: Any = Partition()
        answered: list[str] = []

        def park(name: str, timeout_s: float) -> "weakref.ref[Callable[[ParkedProduce], None]]":
            def done(_: ParkedProduce) -> None:
                answered.append(name)

            waiting.park_produce([(stuck, 2)], timeout_s, done)
            return weakref.ref(done)

        late, patient = park("late", 0.0), park("patient", 30.0)
        async with asyncio.timeout(5):
            while not answered:
                await asyncio.sleep(0.01)
        gc.collect()
        assert (late(), patient() is None) == (None, False)
        stuck.high_watermark = 2
        waiting.on_watermark(stuck)
        assert answered == ["late", "patient"]

    asyncio.run(scenario())
