"""One partition as its leader sees it: the log, the epoch it leads in, and how far readers may look.

With `flush.on.ack` (the default) a record becomes visible when it is on disk, so no reader ever sees a value that a
power loss could take back and another value replace. Without it, visibility follows the page cache, as in Kafka.
Readers of committed records look only as far as every transaction is decided: the last stable offset, which moves when
the watermark does, because a marker decides nothing before it is visible.
"""

from collections.abc import Callable
from typing import NoReturn
from uuid import UUID

from tidelog.config import TopicConfig
from tidelog.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    OffsetOutOfRange,
    StorageOffline,
    UnknownLeaderEpoch,
)
from tidelog.ids import TopicPartition
from tidelog.storage.log import Appended, Log, Slice, Verification

NO_EPOCH = -1


class Replica:
    __slots__ = (
        "_isr_size",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log",
        "on_watermark",
        "partition",
        "topic_id",
    )

    def __init__(self, log: Log, topic_id: UUID, leader_epoch: int) -> None:
        self.log = log
        self.partition: TopicPartition = log.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark: int = log.end_offset
        self.last_stable_offset: int = log.last_stable_offset(self.high_watermark)
        self.on_watermark: Callable[[Replica], None] | None = None
        """Told of every advance, of the last stable offset too. The only signal that goes up."""
        self._isr_size = 1

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    def append(
        self,
        records: memoryview | bytearray | bytes,
        *,
        acks: int,
        now_ms: int,
        prepared: bool = False,
        from_coordinator: bool = False,
        verification: Verification | None = None,
    ) -> Appended:
        """As `Log.append`, with as many in-sync replicas as `acks` asks for."""
        log = self.log
        if acks == -1 and log.config.min_insync_replicas > self._isr_size:
            self._refuse_isr()
        if verification is None and not from_coordinator:
            appended = log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, prepared=prepared)
        else:
            appended = log.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                prepared=prepared,
                from_coordinator=from_coordinator,
                verification=verification,
            )
        if not log.config.flush_on_ack:
            self.advance_watermark()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 1,
    ) -> Appended:
        """As `Log.append_marker`. A marker must be as safe as acks=all makes a record: ask for a flush, and answer when
        the watermark has passed it."""
        log = self.log
        if log.config.min_insync_replicas > self._isr_size:
            self._refuse_isr()
        appended = log.append_marker(
            producer_id,
            producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            transaction_version=transaction_version,
        )
        if not log.config.flush_on_ack:
            self.advance_watermark()
        return appended

    def _refuse_isr(self) -> NoReturn:
        raise KafkaError(
            f"{self.partition}: {self._isr_size} in-sync replicas are fewer than "
            f"min.insync.replicas={self.log.config.min_insync_replicas}",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )

    def advance_watermark(self) -> None:
        log = self.log
        visible = log.flushed_offset if log.config.flush_on_ack else log.end_offset
        if visible > self.high_watermark:
            self.high_watermark = visible
            transactions = log.producers.transactions
            if transactions.open or transactions.ended:
                self.last_stable_offset = log.last_stable_offset(visible)
                transactions.settle(visible)
            else:
                self.last_stable_offset = visible
            if self.on_watermark is not None:
                self.on_watermark(self)

    def advance_start_offset(self, offset: int) -> None:
        """DeleteRecords: nothing before `offset` holds readers back any more."""
        self.log.advance_start_offset(offset)
        self.last_stable_offset = self.log.last_stable_offset(self.high_watermark)

    def check_epoch(self, client_epoch: int) -> None:
        """A client with an older picture must refresh; one with a newer picture must wait for us."""
        if client_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if client_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.partition}: epoch {client_epoch} is older than {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.partition}: epoch {client_epoch} is newer than {self.leader_epoch}")

    def read(self, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False) -> Slice:
        """`committed`: only what is decided. `Log.aborted_in` says what of it to leave out."""
        if self.log.failure is not None:
            raise StorageOffline(f"{self.partition} is offline: {self.log.failure}")
        upper = self.last_stable_offset if committed else self.high_watermark
        if offset > upper and offset <= self.log.end_offset:
            # Written but not yet visible: an empty answer, not an error, since it soon will be.
            return self.log.read(upper, 0, upper=upper, min_one=False)
        if offset > upper:
            raise OffsetOutOfRange(offset, self.log.start_offset, upper)
        return self.log.read(offset, max_bytes, upper=upper, min_one=min_one)
