"""The one door to cluster metadata. Handlers read `image` and ask for changes; they do not know how changes are stored.

`LocalMetadata` is a broker alone: a change is committed when it is on its disk. In a cluster it is
`quorum_metadata.QuorumMetadata`.
"""

import asyncio
from abc import ABC, abstractmethod
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
"""From the newest image to the records that are wanted. May be asked more than once, if another change came first."""
Listener = Callable[[MetadataImage, MetadataImage], Awaitable[None]]


class Metadata(ABC):
    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """`listener(before, after)` has run before the change is answered, so a created topic is usable at once."""
        self._listeners.append(listener)

    @abstractmethod
    async def change(self, decide: Decide) -> MetadataImage:
        """Decide on the newest image, make it durable, publish it. What `decide` raises is the caller's to answer."""

    @abstractmethod
    async def settle(self) -> None:
        """Let listeners finish what they could not do when the image changed."""

    async def _follow(self, before: MetadataImage, after: MetadataImage) -> None:
        failure: StorageOffline | None = None
        for listener in self._listeners:
            try:
                await listener(before, after)
            except StorageOffline as error:
                failure = error  # the others will not be told of this change again
        if failure is not None:
            raise failure


class LocalMetadata(Metadata):
    def __init__(self, log: MetadataLog, image: MetadataImage, clock: Clock, on_failure: Callable[[str], None]) -> None:
        super().__init__(image)
        self._log = log
        self._clock = clock
        self._on_failure = on_failure
        """Told that this disk can no longer be trusted."""
        self._lock = asyncio.Lock()

    async def change(self, decide: Decide) -> MetadataImage:
        async with self._lock:
            before = self.image
            records = list(decide(before))
            if not records:
                return before
            await self._store(records)
            after = self.image = before.apply(records)
            await self._follow(before, after)
            return after

    async def settle(self) -> None:
        async with self._lock:
            await self._follow(self.image, self.image)

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
