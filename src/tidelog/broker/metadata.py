"""The one door to cluster metadata. Handlers read `image` and ask for changes; they do not know how changes are stored.

Today a change is committed when it is on this node's disk. When a quorum stores it, only this file learns of that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tidelog.clock import Clock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.metadata_log import MetadataLog
from tidelog.cluster.records import AnyRecord
from tidelog.errors import StorageOffline

Decide = Callable[[MetadataImage], Sequence[AnyRecord]]
Listener = Callable[[MetadataImage, MetadataImage], Awaitable[None]]


class Metadata:
    def __init__(self, log: MetadataLog, image: MetadataImage, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = asyncio.Lock()
        self._listeners: list[Listener] = []
        self.image = image

    def subscribe(self, listener: Listener) -> None:
        """`listener(before, after)` has run before the change is answered, so a created topic is usable at once."""
        self._listeners.append(listener)

    async def change(self, decide: Decide) -> MetadataImage:
        """Decide on the newest image, make it durable, publish it. What `decide` raises is the caller's to answer."""
        async with self._lock:
            before = self.image
            records = list(decide(before))
            if not records:
                return before
            await self._store(records)
            after = self.image = before.apply(records)
            for listener in self._listeners:
                await listener(before, after)
            return after

    async def _store(self, records: Sequence[AnyRecord]) -> None:
        log = self._log.log
        try:
            self._log.append(records, now_ms=self._clock.now_ms())
            flush = log.begin_flush()
            if flush is not None:
                await asyncio.get_running_loop().run_in_executor(None, flush.run)
                log.complete_flush(flush)
        except (OSError, StorageOffline) as error:
            # As for any log: after a failed sync nothing written to it can be trusted, so nothing more is promised.
            log.fail(f"metadata could not be stored: {error}")
            raise StorageOffline(f"metadata could not be stored: {error}") from error
