"""Group commit: fdatasync back to back, in a thread, with no timer.

While one sync runs, the next group forms by itself out of whatever is appended meanwhile. A timer would only add
latency. After a failed sync its log directory never acknowledges again: the kernel may have dropped the dirty pages
and would report success the next time.
"""

import threading
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from tidelog.cluster.replica import Replica
from tidelog.storage.disk import OUT_OF_DESCRIPTORS
from tidelog.storage.flush import Flush

THREADS: Final = 4
"""Syncs of different files run side by side; the file system merges their journal commits."""

LAZY_SECONDS: Final = 0.005
"""How long appends that nobody waits for may gather before they are synced."""

RETRY_SECONDS: Final = 0.1
"""Until a sync that found no free descriptor is tried again."""

Job = tuple[Replica, Flush]


class Flusher:
    def __init__(self, loop: AbstractEventLoop, on_error: Callable[[Replica, OSError], None]) -> None:
        self._loop = loop
        self._on_error = on_error
        self._dirty: set[Replica] = set()
        self._lazy: set[Replica] = set()
        self._lazy_timer: TimerHandle | None = None
        self._busy: set[Replica] = set()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"tidelog-flush-{i}", daemon=True) for i in range(THREADS)
        ]
        self._started = 0

    def mark_lazily(self, replica: Replica) -> None:
        """Something was appended that no producer and no reader waits for: sync it soon, together with what follows."""
        self._lazy.add(replica)
        if self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(LAZY_SECONDS, self._flush_lazy)

    def _flush_lazy(self) -> None:
        self._lazy_timer = None
        lazy, self._lazy = self._lazy, set()
        for replica in lazy:
            self.mark(replica)

    def mark(self, replica: Replica) -> None:
        """Somebody waits: sync now, or as soon as this log's running sync is done."""
        if replica in self._busy:
            self._dirty.add(replica)
            return
        if replica.log.failed:
            return  # whoever waits for it has been told
        flush = replica.log.begin_flush()
        if flush is None:
            return
        self._busy.add(replica)
        if self._started < min(THREADS, len(self._busy)):
            self._threads[self._started].start()
            self._started += 1
        self._jobs.put((replica, flush))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            replica, flush = job
            error: OSError | None = None
            try:
                flush.run()
            except OSError as failure:
                error = failure
            try:
                self._loop.call_soon_threadsafe(self._done, replica, flush, error)
            except RuntimeError:  # the loop is closed: the broker is going down, and nobody waits for this sync
                return

    def _done(self, replica: Replica, flush: Flush, error: OSError | None) -> None:
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
        replica.log.complete_flush(flush)
        if replica in self._dirty:
            self._dirty.discard(replica)
            self.mark(replica)
        replica.advance_watermark()

    @property
    def idle(self) -> bool:
        return not (self._busy or self._dirty or self._lazy)

    def stop(self) -> None:
        for _ in range(self._started):
            self._jobs.put(None)
        for thread in self._threads[: self._started]:
            thread.join()
