"""The one door to cluster metadata. Handlers read `image` and ask for changes; they do not know how changes are stored.

Today a change is committed when it is on this node's disk. When a quorum stores it, only this file learns of that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidelog.clock import Clock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.metadata_log import MetadataLog
from tidelog.cluster.records import AnyRecord
from tidelog.errors import StorageOffline
from tidelog.storage.disk import OUT_OF_DESCRIPTORS

RETRY_SECONDS: Final = 0.1
"""Until a sync that found no free descriptor is tried again."""

Decide = Callable[[MetadataImage], Sequence[AnyRecord]]
Listener = Callable[[MetadataImage, MetadataImage], Awaitable[None]]


class Metadata:
    def __init__(self, log: MetadataLog, image: MetadataImage, clock: Clock, on_failure: Callable[[str], None]) -> None:
        self._log = log
        self._clock = clock
        self._on_failure = on_failure
        """Told that this disk can no longer be trusted."""
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

    async def settle(self) -> None:
        """Let listeners finish what they could not do when the image changed."""
        async with self._lock:
            for listener in self._listeners:
                await listener(self.image, self.image)

    async def _store(self, records: Sequence[AnyRecord]) -> None:
        try:
            self._log.append(records, now_ms=self._clock.now_ms())
        except (OSError, StorageOffline) as error:
            # Nothing of it was written, and another time there may be space for it.
            raise StorageOffline(f"metadata could not be stored: {error}") from error
        try:
            await self._flush()
        except OSError as error:
            # It is in the log and may come true with the next start, while this image will never have it.
            reason = f"metadata could not be synced: {error}"
            self._on_failure(reason)
            raise StorageOffline(reason) from error

    async def _flush(self) -> None:
        log = self._log.log
        flush = log.begin_flush()
        while flush is not None and not flush.done:
            try:
                await asyncio.get_running_loop().run_in_executor(None, flush.run)
                log.complete_flush(flush)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
