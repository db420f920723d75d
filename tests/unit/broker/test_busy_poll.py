"""When the loop looks for the next request instead of sleeping, and to whom it gives way."""

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidelog.broker.busy_poll import MODEST_NS, ROW, SMALL_BYTES, TAKEN_NS, BusyPoll, Threads

LONGEST_US = 100
CLOSE_NS = LONGEST_US * 1000 // 2
FAR_NS = LONGEST_US * 1000 * 2


class World:
    """A loop that calls what it is asked to when told, and a clock that stands still otherwise."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.soon: list[Callable[[], None]] = []
        self.core_takes = 0
        self.alone = True
        self.poll = BusyPoll(
            cast(AbstractEventLoop, self),
            LONGEST_US,
            lambda: self.alone,
            clock=lambda: self.now,
            offer_core=self._offer_core,
        )

    def call_soon(self, callback: Callable[[], None], *_: Any) -> None:
        self.soon.append(callback)

    def _offer_core(self) -> None:
        self.now += self.core_takes

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def requests(self, count: int, gap_ns: int, size: int = 100, *, sends_much: bool = False) -> None:
        for _ in range(count):
            self.now += gap_ns
            self.poll.begin(size)
            self.poll.end(sends_much)


@pytest.fixture
def world() -> World:
    return World()


def test_requests_close_together_keep_the_loop_awake(world: World) -> None:
    world.requests(ROW - 1, CLOSE_NS)
    assert not world.soon, "a few may be chance"
    world.requests(1, CLOSE_NS)
    for _ in range(10):
        world.turn()
        assert len(world.soon) == 1, "it is called again in the next turn, and never twice in one"
        world.requests(3, CLOSE_NS)
    world.turn()
    world.now += FAR_NS
    world.turn()
    assert not world.soon, "nothing came for long enough: the loop may sleep"
    world.requests(1, CLOSE_NS)
    assert not world.poll.polling, "and what comes late begins a new row"


def test_requests_that_come_seldom_never_do(world: World) -> None:
    for _ in range(10):
        world.requests(ROW - 1, CLOSE_NS)
        world.requests(1, FAR_NS)
    assert not world.poll.polling


def test_large_requests_never_do(world: World) -> None:
    world.requests(3 * ROW, CLOSE_NS, SMALL_BYTES + 1)
    assert not world.poll.polling
    world.requests(3 * ROW, CLOSE_NS, sends_much=True)
    assert not world.poll.polling, "nor do large answers"
    world.requests(ROW, CLOSE_NS)
    assert world.poll.polling
    world.requests(1, CLOSE_NS, sends_much=True)
    world.turn()
    assert not world.soon, "and one ends it"


def test_a_thread_that_works_ends_it(world: World) -> None:
    world.requests(ROW, CLOSE_NS)
    world.alone = False
    world.turn()
    assert not world.soon
    world.alone = True
    world.requests(1, CLOSE_NS)
    assert world.poll.polling, "the row goes on"


def test_a_process_that_takes_the_core_is_left_alone_for_a_while(world: World) -> None:
    world.requests(ROW, CLOSE_NS)
    world.core_takes = TAKEN_NS + 1
    world.turn()
    assert world.soon, "that turn had something to do, and the core was not offered"
    world.turn()
    assert not world.soon
    before = world.now
    world.requests(MODEST_NS // CLOSE_NS - 2, CLOSE_NS)
    assert not world.poll.polling, f"{world.now - before} ns later"
    world.requests(3, CLOSE_NS)
    assert world.poll.polling


def test_whoever_is_in_the_middle_of_something_is_expected(world: World) -> None:
    world.requests(1, FAR_NS, SMALL_BYTES + 1)
    assert not world.poll.polling
    world.poll.expect()
    world.poll.expect()
    assert len(world.soon) == 1, "once in each turn"
    world.turn()
    assert world.soon
    world.now += FAR_NS
    world.turn()
    world.turn()
    assert not world.soon, "and not for ever"


def test_nobody_is_expected_where_another_takes_the_core(world: World) -> None:
    world.core_takes = TAKEN_NS + 1
    world.poll.expect()
    world.turn()
    world.turn()
    assert not world.soon
    world.poll.expect()
    assert not world.soon


def test_threads_know_whether_one_works() -> None:
    threads, hold = Threads(), threading.Event()
    try:
        assert threads.idle
        working = threads.submit(hold.wait)
        assert not threads.idle
        hold.set()
        working.result()
        threads.submit(int).result()
    finally:
        hold.set()
        threads.shutdown()
    assert threads.idle
