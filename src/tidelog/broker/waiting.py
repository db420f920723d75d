"""Requests that wait: acks=all for the high watermark, fetches for bytes. Each is parked once and woken, never
polled.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.broker.connection import Connection
from tidelog.broker.logs import get_logger
from tidelog.cluster.replica import Replica

SWEEP_SECONDS: Final = 0.25
"""Produce timeouts are seconds long and hardly ever happen, so one sweep serves them all instead of a timer each."""
TICKS_PER_SECOND: Final = 500
"""Fetches whose time is up in the same tick share a timer, and are answered at its end."""
WOKEN_AT_ONCE: Final = 256
"""Fetches looked at before others get their turn."""

Shared = dict[object, object]
"""What fetches find out that are looked at together, and others of them may use: nothing is written meanwhile."""

log = get_logger("broker")


class ParkedProduce:
    """Waits until every partition it wrote to has made its records visible."""

    __slots__ = ("_missing", "deadline", "done", "failed")

    def __init__(self, missing: int, deadline: float, done: "Callable[[ParkedProduce], None]") -> None:
        self._missing = missing
        self.deadline = deadline
        self.done = done
        self.failed: dict[Replica, int] = {}

    def arrived(self) -> bool:
        self._missing -= 1
        return self._missing == 0


class ParkedFetch:
    """Waits until one of its partitions has something new, or its time is up."""

    __slots__ = ("_retry", "_tick", "_woken", "connection", "follows", "replicas")

    def __init__(
        self,
        connection: Connection,
        replicas: Sequence[Replica],
        retry: Callable[[bool, Shared], bool],
        *,
        follows: bool = False,
    ) -> None:
        self.follows = follows
        """It is a follower's, which waits for what is written, not for what is safe."""
        self.connection = connection
        self.replicas = replicas
        self._retry = retry
        """Called with "time is up" and what may be shared; True means it was answered."""
        self._tick: int | None = None
        self._woken = False

    def look(self, *, time_is_up: bool, shared: Shared) -> bool:
        """True if nobody waits for it any more. It is looked at among others, who must not lose their answers because
        of what goes wrong with this one."""
        try:
            return self._retry(time_is_up, shared)
        except Exception:
            log.exception("a waiting fetch failed", peer=self.connection.peer)
            self.connection.close("internal error")
            return True


class Waiting:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._produces: dict[Replica, deque[tuple[int, ParkedProduce]]] = {}
        self._deadlines: dict[ParkedProduce, None] = {}
        self._fetches: dict[Replica, dict[ParkedFetch, None]] = {}
        self._woken: list[ParkedFetch] = []
        self._ticks: dict[int, tuple[TimerHandle, dict[ParkedFetch, None]]] = {}
        self._sweep: TimerHandle | None = None

    # -- produce ----------------------------------------------------------------------------------------------------

    def park_produce(
        self, needs: Sequence[tuple[Replica, int]], timeout_s: float, done: Callable[[ParkedProduce], None]
    ) -> None:
        parked = ParkedProduce(len(needs), self._loop.time() + timeout_s, done)
        for replica, offset in needs:
            queue = self._produces.get(replica)
            if queue is None:
                queue = self._produces[replica] = deque()
            queue.append((offset, parked))
        self._deadlines[parked] = None
        if self._sweep is None:
            self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire_produces)

    def on_watermark(self, replica: Replica) -> None:
        visible = replica.high_watermark
        queue = self._produces.get(replica)
        while queue and queue[0][0] <= visible:
            _, parked = queue.popleft()
            self._settle(parked)
        self._wake_soon(replica, follows=False)

    def on_append(self, replica: Replica) -> None:
        """Something was written that followers have to fetch."""
        self._wake_soon(replica, follows=True)

    def _wake_soon(self, replica: Replica, *, follows: bool) -> None:
        for fetch in self._fetches.get(replica, ()):
            if fetch.follows is follows and not fetch._woken:
                fetch._woken = True
                if not self._woken:
                    # At the end of this turn of the loop, so that all appends of one turn are one answer.
                    self._loop.call_soon(self._wake_some)
                self._woken.append(fetch)

    def on_failure(self, replica: Replica) -> None:
        """The disk under this log is gone, or another broker leads it: nothing that waits for it will come true."""
        for offset, parked in self._produces.pop(replica, ()):
            parked.failed[replica] = offset
            self._settle(parked)
        for fetch in list(self._fetches.get(replica, ())):
            self._wake(fetch, {})

    def _settle(self, parked: ParkedProduce) -> None:
        if parked.arrived() and parked in self._deadlines:
            del self._deadlines[parked]
            parked.done(parked)

    def _expire_produces(self) -> None:
        now = self._loop.time()
        late = [parked for parked in self._deadlines if parked.deadline <= now]
        for parked in late:
            del self._deadlines[parked]
            parked.done(parked)
        if late:
            # Their partitions may stand still for hours, and their producers ask again and again.
            for replica, queue in list(self._produces.items()):
                self._produces[replica] = deque(entry for entry in queue if entry[1] in self._deadlines)
        waits = bool(self._deadlines)
        self._sweep = self._loop.call_later(SWEEP_SECONDS, self._expire_produces) if waits else None

    # -- fetch ------------------------------------------------------------------------------------------------------

    def has_reader(self, replica: Replica) -> bool:
        return replica in self._fetches

    def park_fetch(self, fetch: ParkedFetch, wait_s: float) -> None:
        fetch.connection.parked[fetch] = lambda: self._forget(fetch)
        for replica in fetch.replicas:
            waiters = self._fetches.get(replica)
            if waiters is None:
                self._fetches[replica] = {fetch: None}
            else:
                waiters[fetch] = None
        tick = fetch._tick = int((self._loop.time() + wait_s) * TICKS_PER_SECOND) + 1
        ending = self._ticks.get(tick)
        if ending is None:
            timer = self._loop.call_at(tick / TICKS_PER_SECOND, self._time_is_up, tick)
            self._ticks[tick] = timer, {fetch: None}
        else:
            ending[1][fetch] = None

    def unpark_fetch(self, fetch: ParkedFetch) -> None:
        """It waits no longer, whether it was woken or not."""
        self._forget(fetch)

    def _wake_some(self) -> None:
        woken, self._woken = self._woken[:WOKEN_AT_ONCE], self._woken[WOKEN_AT_ONCE:]
        if self._woken:
            self._loop.call_soon(self._wake_some)
        shared: Shared = {}
        for fetch in woken:
            fetch._woken = False
            self._wake(fetch, shared)

    def _wake(self, fetch: ParkedFetch, shared: Shared) -> None:
        if fetch._tick is not None and fetch.look(time_is_up=False, shared=shared):
            self._forget(fetch)

    def _time_is_up(self, tick: int) -> None:
        if tick in self._ticks:
            self._answer_all(list(self._ticks[tick][1]))

    def _answer_all(self, fetches: Iterable[ParkedFetch]) -> None:
        shared: Shared = {}
        for fetch in fetches:
            if fetch._tick is not None:
                self._forget(fetch)
                fetch.look(time_is_up=True, shared=shared)

    def _forget(self, fetch: ParkedFetch) -> None:
        fetch.connection.parked.pop(fetch, None)
        if fetch._tick is not None:
            timer, ending = self._ticks[fetch._tick]
            ending.pop(fetch, None)
            if not ending:
                timer.cancel()
                del self._ticks[fetch._tick]
            fetch._tick = None
        for replica in fetch.replicas:
            waiters = self._fetches.get(replica)
            if waiters is not None:
                waiters.pop(fetch, None)
                if not waiters:
                    del self._fetches[replica]

    def forget_replicas(self, replicas: Iterable[Replica]) -> None:
        """These partitions are gone: answer whoever waits for them, and they will learn it."""
        for replica in replicas:
            self.on_failure(replica)

    def release_all(self) -> None:
        """The broker stops: answer every parked fetch with what there is."""
        self._answer_all({fetch: None for waiters in self._fetches.values() for fetch in waiters})
