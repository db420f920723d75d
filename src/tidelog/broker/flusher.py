"""Group commit: fdatasync back to back, in threads, with no timer.

While one sync runs, the next group forms by itself out of whatever is appended meanwhile. A timer would only add
latency. Logs that were marked in one turn of the loop are handed over together when it ends: so their appends share
syncs, and the threads do not fight the loop for the interpreter while it is still busy with requests.

A thread that finds more to do goes on with it, and tells of what is done when it has run dry or `REPORT` are done:
waking the loop costs as much as a sync. After a failed sync its log directory never acknowledges again: the kernel may
have dropped the dirty pages and would report success the next time.
"""

import threading
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

from tidelog.cluster.replica import Replica
from tidelog.storage.disk import OUT_OF_DESCRIPTORS
from tidelog.storage.flush import Flush

THREADS: Final = 4
"""Syncs of different files run side by side; the file system merges their journal commits."""

REPORT: Final = 8
"""Syncs that a thread may have done before it tells the loop, although there are more to do."""

LAZY_SECONDS: Final = 0.005
"""How long appends that nobody waits for gather before they are synced: up to twice as long."""

RETRY_SECONDS: Final = 0.1
"""Until a sync that found no free descriptor is tried again."""


class Job(NamedTuple):
    replica: Replica
    flush: Flush


class Done(NamedTuple):
    replica: Replica
    flush: Flush
    error: OSError | None


class Flusher:
    def __init__(self, loop: AbstractEventLoop, on_error: Callable[[Replica, OSError], None]) -> None:
        self._loop = loop
        self._on_error = on_error
        self._marked: dict[Replica, None] = {}
        self._dirty: set[Replica] = set()
        self._lazy: set[Replica] = set()
        self._lazier: set[Replica] = set()
        """Those since the timer last rang, which are synced when it rings for the second time: what somebody waits for
        often follows close behind, and both are one sync."""
        self._lazy_timer: TimerHandle | None = None
        self._busy: set[Replica] = set()
        self._jobs: deque[Job] = deque()
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        """A thread each: True when there are jobs, False to end."""
        self._done: deque[Done] = deque()
        self._threads: list[threading.Thread] = []

    # -- on the loop ------------------------------------------------------------------------------------------------

    def mark_lazily(self, replica: Replica) -> None:
        """Something was appended that no producer and no reader waits for: sync it soon, together with what follows."""
        if replica not in self._lazy:
            self._lazier.add(replica)
        if self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._flush_lazy)

    def _flush_lazy(self) -> None:
        lazy, self._lazy, self._lazier = self._lazy, self._lazier, set()
        # It rings once more for nothing if all of them were synced meanwhile: that is cheaper than to stop it.
        self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._flush_lazy) if lazy or self._lazy else None
        for replica in lazy:
            self.mark(replica)

    def mark(self, replica: Replica) -> None:
        """Somebody waits: sync when this turn of the loop ends, or as soon as this log's running sync is done."""
        self._lazy.discard(replica)
        self._lazier.discard(replica)
        if replica in self._busy:
            self._dirty.add(replica)
            return
        if not self._marked:
            self._loop.call_soon(self._hand_over)
        self._marked[replica] = None

    def _hand_over(self) -> None:
        marked, self._marked = self._marked, {}
        count = 0
        for replica in marked:
            if replica.log.closed or replica.log.failed:
                continue  # deleted, or whoever waits for it has been told
            flush = replica.log.begin_flush()
            if flush is not None:
                self._busy.add(replica)
                self._jobs.append(Job(replica, flush))
                count += 1
        for _ in range(min(count, THREADS)):
            self._wakes.put(True)
        while len(self._threads) < min(THREADS, len(self._busy)):
            self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"tidelog-flush-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _collect(self) -> None:
        try:
            while self._done:
                self._complete(*self._done.popleft())
        finally:
            if self._done:  # what one log's watermark set off must not keep the others waiting
                self._loop.call_soon(self._collect)

    def _complete(self, replica: Replica, flush: Flush, error: OSError | None) -> None:
        self._busy.discard(replica)
        if replica.log.closed:
            # Deleted while the sync ran: its files were taken from under it, and nobody waits for it any more.
            self._dirty.discard(replica)
            return
        if error is not None:
            self._dirty.discard(replica)
            if error.errno in OUT_OF_DESCRIPTORS:
                self._loop.call_later(RETRY_SECONDS, self.mark, replica)
            else:
                self._on_error(replica, error)
            return
        if replica.log.failed:  # its directory was given up because of another log
            self._dirty.discard(replica)
            return
        replica.log.complete_flush(flush)
        if replica in self._dirty:
            self._dirty.discard(replica)
            self.mark(replica)
        replica.advance_watermark()

    @property
    def idle(self) -> bool:
        return not (self._marked or self._busy or self._dirty or self._lazy or self._lazier)

    @property
    def working(self) -> bool:
        """A thread syncs, or is about to."""
        return bool(self._busy or self._marked)

    def stop(self) -> None:
        for _ in self._threads:
            self._wakes.put(False)
        for thread in self._threads:
            thread.join()

    # -- in the threads -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._wakes.get():
            finished: list[Done] = []
            while (job := self._next()) is not None:
                finished.append(_run(job))
                if len(finished) >= REPORT:
                    self._report(finished)
                    finished = []
            self._report(finished)

    def _next(self) -> Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:  # another thread was faster
            return None

    def _report(self, finished: list[Done]) -> None:
        if not finished:
            return
        self._done.extend(finished)
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop is closed: the broker is going down, and nobody waits for these syncs
            return


def _run(job: Job) -> Done:
    try:
        job.flush.run()
    except OSError as failure:
        return Done(job.replica, job.flush, failure)
    return Done(job.replica, job.flush, None)
