"""One partition on one broker: the log, whether this broker leads it, in which epoch, and how far readers may look.

A leader takes records and decides what is safe: the high watermark, below which every member of the in-sync set has
everything. A follower copies the leader's log and hears of the watermark from it; see `cluster.follower`.

With `flush.on.ack` (the default) a record becomes visible when it is on disk, so no reader ever sees a value that a
power loss could take back and another value replace. Without it, visibility follows the page cache, as in Kafka.
Readers of committed records look only as far as every transaction is decided: the last stable offset, which moves when
the watermark does, because a marker decides nothing before it is visible.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn
from uuid import UUID

from tidelog.cluster.progress import Followers
from tidelog.cluster.refusals import Refusals
from tidelog.config import TopicConfig
from tidelog.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageOffline,
    UnknownLeaderEpoch,
)
from tidelog.ids import TopicPartition
from tidelog.storage.log import Appended, Log, Slice, Verification

NO_EPOCH = -1
NO_LEADER = -1


class Replica:
    __slots__ = (
        "_epoch_start",
        "_refusals",
        "agreed_offset",
        "followers",
        "high_watermark",
        "is_deserted",
        "is_leader",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log",
        "missing_before",
        "on_append",
        "on_refused",
        "on_watermark",
        "partition",
        "partition_epoch",
        "topic_id",
    )

    def __init__(self, log: Log, topic_id: UUID, leader_epoch: int, high_watermark: int | None = None) -> None:
        """`high_watermark`: what is known of it if there are other replicas. Alone, everything that is here is safe."""
        self.log = log
        self.partition: TopicPartition = log.partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.high_watermark: int = log.end_offset if high_watermark is None else min(high_watermark, log.end_offset)
        self.missing_before = high_watermark if high_watermark is not None and log.config.flush_on_ack else 0
        """Readers were shown everything before it, and it was on this disk."""
        self.last_stable_offset: int = log.last_stable_offset(self.high_watermark)
        self.on_watermark: Callable[[Replica], None] | None = None
        """Told of every advance, of the last stable offset too."""
        self.on_append: Callable[[Replica], None] | None = None
        """Told of every append that followers wait for."""
        self.on_refused: Callable[[Replica, StorageOffline], None] | None = None
        """Told of a write that the disk did not take. These three are the only signals that go up."""
        self.is_leader = True
        self.leader = NO_LEADER
        self.partition_epoch = 0
        self.followers: Followers | None = None
        """None if nobody else has this partition: then what is safe here is safe."""
        self.agreed_offset = self.high_watermark
        """Of a follower: before it this log is known to be the leader's."""
        self.is_deserted = False
        """Of a leader: so few of its followers are heard of that nothing would become safe, though nobody was there to
        take them out of the in-sync set."""
        self._epoch_start = log.end_offset
        self._refusals = Refusals()

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    # -- who leads --------------------------------------------------------------------------------------------------

    def lead(
        self,
        leader_epoch: int,
        *,
        node_id: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        monotonic_ms: int,
    ) -> None:
        """This broker leads from now on, or leads on in the same epoch with another in-sync set."""
        if self.is_leader and self.leader == node_id and leader_epoch == self.leader_epoch and self.followers:
            if partition_epoch > self.partition_epoch:  # else it is no answer to what the controller was asked for
                self.partition_epoch = partition_epoch
                self.followers.update(replicas, isr, monotonic_ms)
                self.advance_watermark()
            return
        alone = len(replicas) == 1
        if leader_epoch > self.log.epochs.latest and not alone:
            # Before any follower asks where earlier epochs ended: that is where this one begins. And before anything
            # is changed here, since the disk may fail.
            self.log.begin_epoch(leader_epoch)
        self.partition_epoch = partition_epoch
        self.leader = node_id
        self.leader_epoch = leader_epoch
        self.is_leader = True
        self.is_deserted = False
        self._epoch_start = self.log.end_offset
        self.followers = None if alone else Followers(node_id, replicas, isr, monotonic_ms)
        self.advance_watermark()

    def follow(self, leader: int, leader_epoch: int, partition_epoch: int) -> None:
        """Another broker leads, or nobody does. What was not safe yet may be taken back by it."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            self.agreed_offset = self.high_watermark  # what readers were shown is on every later leader
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.is_leader = False
        self.is_deserted = False
        self.followers = None

    @property
    def is_damaged(self) -> bool:
        """Whether a recovery found less than was safe here, because the disk did not keep it. Such a replica follows,
        and gets it from others. It must not lead: they would lose it too."""
        return self.log.end_offset < self.missing_before

    @property
    def known_watermark(self) -> int:
        """For the checkpoint, which must not forget what is missing."""
        return max(self.high_watermark, self.missing_before) if self.is_damaged else self.high_watermark

    def check_leader(self) -> None:
        if not self.is_leader:
            raise NotLeaderOrFollower(f"{self.partition} is led by broker {self.leader}")

    @property
    def is_settled(self) -> bool:
        """Whether this leader knows of everything that leaders before it let readers see."""
        return self.followers is None or self.high_watermark >= self._epoch_start

    @property
    def in_sync(self) -> int:
        """How many replicas are in sync, this one included."""
        return 1 if self.followers is None else len(self.followers.isr)

    @property
    def has_enough(self) -> bool:
        """Whether acks=all can be promised: as many in sync as min.insync.replicas asks for, and there."""
        return not self.is_deserted and self.in_sync >= self.log.config.min_insync_replicas

    # -- followers, as their leader sees them -----------------------------------------------------------------------

    def follower_fetched(self, node_id: int, offset: int, broker_epoch: int, monotonic_ms: int) -> None:
        """A follower asks for what is at `offset` and behind: it has everything before. The watermark may move."""
        followers = self.followers
        if followers is None or node_id not in followers:
            raise KafkaError(f"broker {node_id} has no replica of {self.partition}", ErrorCode.UNKNOWN_LEADER_EPOCH)
        followers.fetched(node_id, offset, self.log.end_offset, broker_epoch, monotonic_ms)
        self.advance_watermark()

    def wanted_isr(self, lag_max_ms: int, monotonic_ms: int) -> frozenset[int] | None:
        """The in-sync set as it should be; None if it is, or if the controller was asked already."""
        followers = self.followers
        if followers is None or followers.asked is not None:
            return None
        joining = followers.joinable(self.high_watermark, self._epoch_start)
        leaving = followers.lagging(self.log.end_offset, lag_max_ms, monotonic_ms)
        wanted = (followers.isr | joining) - leaving
        return None if wanted == followers.isr else wanted

    def withdraw_isr(self) -> None:
        """What the controller was asked for is not granted, and never will be: who was to join holds nothing back."""
        if self.followers is not None:
            self.followers.asked = None
            self.advance_watermark()

    def listen(self, silence_max_ms: int, monotonic_ms: int) -> bool:
        """See whether followers are there, while no controller does that. True if too few are, and were a moment
        before: who waits for them waits in vain. To refuse is always safe."""
        before, followers = self.is_deserted, self.followers
        needed = 0 if followers is None else min(self.log.config.min_insync_replicas, followers.replica_count)
        self.is_deserted = followers is not None and followers.heard(silence_max_ms, monotonic_ms) < needed
        return self.is_deserted and not before

    # -- append -----------------------------------------------------------------------------------------------------

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
        try:
            if not self.is_leader:
                self.check_leader()
            if acks == -1 and log.config.min_insync_replicas > 1 and not self.has_enough:
                self._refuse_isr()
            if self._refusals:
                self._refusals.check(records, log.producers, now_ms)
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
        except (NotLeaderOrFollower, NotEnoughReplicas, StorageOffline) as error:
            self._refusals.note(records, error, now_ms)
            if isinstance(error, StorageOffline) and self.on_refused is not None:
                self.on_refused(self, error)
            raise
        self._appended()
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
        self.check_leader()
        if not self.has_enough:
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
        self._appended()
        return appended

    def _appended(self) -> None:
        if not self.log.config.flush_on_ack:
            self.advance_watermark()
        if self.followers is not None and self.on_append is not None:
            self.on_append(self)

    def _refuse_isr(self) -> NoReturn:
        wanted = f"min.insync.replicas={self.log.config.min_insync_replicas}"
        found = "those in sync that are heard of" if self.is_deserted else f"{self.in_sync} in-sync replicas"
        raise NotEnoughReplicas(f"{self.partition}: {found} are fewer than {wanted}")

    def advance_watermark(self) -> None:
        """As far as what is safe reaches. Only a leader can know that; a follower is told.

        Not while fewer replicas are in sync than the topic asks for: nothing is acknowledged then, and what readers
        see must not depend on the last disk that has it (KIP-966).
        """
        if not self.is_leader:
            return
        followers = self.followers
        if followers is None:
            self.raise_watermark(self.safe_offset)
        elif len(followers.isr) >= min(self.log.config.min_insync_replicas, followers.replica_count):
            self.raise_watermark(followers.safe_offset(self.safe_offset))

    @property
    def safe_offset(self) -> int:
        """Before it everything is as safe here as `flush.on.ack` asks for."""
        log = self.log
        return log.flushed_offset if log.config.flush_on_ack else log.end_offset

    def raise_watermark(self, visible: int) -> None:
        log = self.log
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

    def lower_watermark(self, end: int) -> None:
        """The log was cut there."""
        self.high_watermark = min(self.high_watermark, end)
        self.agreed_offset = min(self.agreed_offset, end)
        self.last_stable_offset = self.log.last_stable_offset(self.high_watermark)

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

    def check_follower_epoch(self, epoch: int) -> None:
        """A follower must know whom it follows: one of an older epoch would say things about another history."""
        if epoch == NO_EPOCH:
            raise UnknownLeaderEpoch(f"{self.partition}: a follower must name the epoch it follows in")
        self.check_epoch(epoch)

    def parts_at(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the last thing that whoever has `last_fetched_epoch` just before `fetch_offset` may
        have in common with this log; None if that is everything."""
        if last_fetched_epoch < 0:
            return None
        epoch, end = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if epoch == last_fetched_epoch and end >= fetch_offset:
            return None
        if epoch < 0:
            # An epoch we never heard of: there is no place to send them back to, and silence would keep them asking.
            raise OffsetOutOfRange(fetch_offset, self.log.start_offset, self.log.end_offset)
        return epoch, end

    def read_as_follower(self, offset: int, max_bytes: int, *, min_one: bool) -> Slice:
        """Everything there is, also what is not safe yet: it becomes safe by being read."""
        log = self.log
        if log.failure is not None:
            raise StorageOffline(f"{self.partition} is offline: {log.failure}")
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(offset, log.start_offset, log.end_offset)
        return log.read(offset, max_bytes, upper=log.end_offset, min_one=min_one)

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
