"""Work that happens by the clock: checkpoints, retention, compaction, forgetting what is idle.

These loops only decide when. Deletion runs in threads (it waits for the disk); compaction in a worker process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidelog.broker.cleaner import Cleaner
from tidelog.broker.coordinators.groups import GroupRoom
from tidelog.broker.coordinators.transactions import TransactionRoom
from tidelog.broker.listener import Listeners
from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Metadata
from tidelog.broker.partitions import Partitions
from tidelog.broker.recovery_points import RecoveryPoints
from tidelog.clock import Clock
from tidelog.cluster.replica import Replica
from tidelog.errors import KafkaError, StorageOffline
from tidelog.storage.swap import delete_segments

FAR_CHECK_SECONDS: Final = 1.0
IDLE_CHECK_SECONDS: Final = 5.0
LAG_SAMPLE_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 2.0
PRODUCER_CHECK_SECONDS: Final = 600.0

log = get_logger("background")


class Background:
    def __init__(
        self,
        metadata: Metadata,
        partitions: Partitions,
        listeners: Listeners,
        recovery_points: RecoveryPoints,
        cleaner: Cleaner,
        groups: GroupRoom,
        transactions: TransactionRoom,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._listeners = listeners
        self._recovery_points = recovery_points
        self._cleaner = cleaner
        self._groups = groups
        self._transactions = transactions
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config = self._partitions.broker_config
        self._recovery_points.begin()
        self._every(config.log_flush_offset_checkpoint_interval_ms / 1000, self.checkpoint)
        self._every(FAR_CHECK_SECONDS, self._recovery_points.move_if_far)
        self._every(config.log_retention_check_interval_ms / 1000, self.enforce_retention)
        self._every(PRODUCER_CHECK_SECONDS, self.expire_producers)
        self._every(IDLE_CHECK_SECONDS, self.close_idle)
        self._every(LAG_SAMPLE_SECONDS, self._groups.sample_lag)
        self._every(config.offsets_retention_check_interval_ms / 1000, self._groups.expire_offsets)
        interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._every(interval_ms / 1000, self._transactions.expire_ids)
        self._every(SETTLE_SECONDS, self.settle)
        if config.log_cleaner_enable:
            self._every(config.log_cleaner_backoff_ms / 1000, self._cleaner.run)

    def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await work()
                except Exception:
                    # One failed round must not end the loop: the next may find the disk well again.
                    log.exception("background work failed", work=getattr(work, "__name__", "?"))

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def checkpoint(self) -> None:
        await self._recovery_points.move()

    async def enforce_retention(self) -> None:
        for replica in list(self._partitions):
            try:
                if replica.log.failure is None:
                    await self._expire(replica)
            except (KafkaError, OSError) as error:
                # On a full disk not every log can begin a new segment. What others let go makes room for it.
                log.warning("retention failed", partition=str(replica.partition), error=str(error))
            await asyncio.sleep(0)

    async def _expire(self, replica: Replica) -> None:
        expired = replica.log.expire(self._clock.now_ms(), replica.high_watermark)
        if not expired:
            return
        log.info(
            "retention", partition=str(replica.partition), segments=len(expired), start_offset=replica.log.start_offset
        )
        try:
            await self._partitions.checkpoint_start_offsets()
        finally:
            # The log has let go of them: nobody else would ever free their space.
            await asyncio.get_running_loop().run_in_executor(None, delete_segments, expired)

    async def expire_producers(self) -> None:
        horizon = self._clock.now_ms() - self._partitions.broker_config.producer_id_expiration_ms
        for replica in self._partitions:
            replica.log.producers.expire(horizon)

    async def settle(self) -> None:
        try:
            await self._metadata.settle()
        except StorageOffline as error:
            log.warning("partitions still missing", error=str(error))

    async def close_idle(self) -> None:
        self._listeners.close_idle()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
