"""Looking for the next request instead of sleeping until it comes, while requests come close together.

A process that sleeps is woken late; on virtual machines that is a third of what a client waits for a small answer. So
while a client asks again as soon as it is answered, the loop looks again and again, for at most `busy.poll.max.us`
after the last request. Where requests come less often than that the loop sleeps at once, as ever. Who is in the middle
of a transaction is `expect`ed to go on.

It gives way to everybody: to threads of this process, which need the interpreter (it never polls while one works), and
to other processes, which need the core (it offers the core with every idle look, and sleeps for a while once that
was taken).
"""

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic_ns
from typing import Any, Final, ParamSpec, TypeVar

from tidelog.broker.connection import Connection, FrameHandler

ROW: Final = 16
"""So many small requests must have come close together first: one that comes late, or is large, or whose answer is,
begins anew."""
SMALL_BYTES: Final = 16_384
"""Whoever sends more at once, or reads much, has work to do and needs the core, and a late answer is a small part of
its time."""
TAKEN_NS: Final = 20_000
"""The core was offered, and came back only after this: somebody took it."""
MODEST_NS: Final = 5_000_000
"""How long the loop then sleeps whenever it has nothing to do."""

OFFER_CORE: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)
"""Not every system lets a process say so."""

P = ParamSpec("P")
T = TypeVar("T")


class BusyPoll:
    def __init__(
        self,
        loop: AbstractEventLoop,
        longest_us: int,
        is_alone: Callable[[], bool],
        *,
        clock: Callable[[], int] = monotonic_ns,
        offer_core: Callable[[], None] = OFFER_CORE,
    ) -> None:
        """`is_alone`: no thread of ours works, or is about to."""
        self._call_soon = loop.call_soon
        self._longest = longest_us * 1000
        self._is_alone = is_alone
        self._clock = clock
        self._offer_core = offer_core
        self._row = 0
        self._quiet_since = self._modest_until = self._looked_at = clock()
        self.polling = False

    def around(self, handle: FrameHandler) -> FrameHandler:
        """The same handler, listened to."""

        def heard(connection: Connection, frame: memoryview, /) -> None:
            self.begin(len(frame))
            handle(connection, frame)
            self.end(connection.sends_much)

        return heard

    def begin(self, size: int) -> None:
        """A request has come."""
        now = self._clock()
        if now - self._quiet_since > self._longest or size > SMALL_BYTES:
            self._row = 0
        else:
            self._row += 1
            if not self.polling and self._row >= ROW and now >= self._modest_until:
                self.polling = True
                self._call_soon(self._look)

    def end(self, sends_much: bool) -> None:
        """It is answered, or waits for something."""
        self._quiet_since = self._clock()
        if sends_much:
            self._row = 0

    def expect(self) -> None:
        """A client was answered that never leaves it at that, as in the middle of a transaction: look for what it asks
        next, whatever came before."""
        self._row = ROW
        now = self._quiet_since = self._clock()
        if not self.polling and now >= self._modest_until:
            self.polling = True
            self._call_soon(self._look)

    def _look(self) -> None:
        """Called once in every turn of the loop, which cannot sleep as long as it is to be called again."""
        if self._row < ROW or not self._is_alone():
            self.polling = False
            return
        if self._quiet_since != self._looked_at:
            self._looked_at = self._quiet_since  # this turn had something to do: nobody is kept waiting by us
            self._call_soon(self._look)
            return
        now = self._clock()
        if now - self._quiet_since > self._longest:
            self.polling = False
            return
        self._offer_core()
        if self._clock() - now > TAKEN_NS:
            self._modest_until = now + MODEST_NS
            self.polling = False
            return
        self._call_soon(self._look)


class Threads(ThreadPoolExecutor):
    """The loop's threads for what blocks, and whether any of them works."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="tidelog")
        self._working: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        return future

    @property
    def idle(self) -> bool:
        return not self._working
