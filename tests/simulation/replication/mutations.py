"""Bugs to plant, one at a time. A checker counts only once it has caught the bug it is there for.

python -m tests.simulation.replication.mutations [--seeds 1000] [name ...]
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.simulation.replication import planted, planted_disks
from tests.simulation.replication.storm import Storm

from tidelog.broker import logs
from tidelog.cluster import brokers, elections, follower
from tidelog.cluster.image import MetadataImage, PartitionImage
from tidelog.cluster.progress import Followers
from tidelog.cluster.records import AnyRecord, PartitionRecord
from tidelog.cluster.replica import Replica
from tidelog.storage.log import Log

Mutation = Callable[[], Any]
MUTATIONS: dict[str, Mutation] = {}


def mutation(plant: Mutation) -> Mutation:
    MUTATIONS[plant.__name__.replace("_", "-")] = plant
    return plant


# A follower's log -----------------------------------------------------------------------------------------------------


@mutation
@contextmanager
def truncate_to_the_watermark() -> Iterator[None]:
    """KIP-101: a follower's own watermark lags, and what it cuts may be what was acknowledged."""
    follow = Replica.follow

    def cutting(self: Replica, leader: int, leader_epoch: int, partition_epoch: int) -> None:
        changed = self.is_leader or leader_epoch != self.leader_epoch
        follow(self, leader, leader_epoch, partition_epoch)
        if changed:
            self.log.truncate_to(self.high_watermark)

    with patch.object(Replica, "follow", cutting), patch.object(Replica, "parts_at", lambda *_: None):
        yield


@mutation
@contextmanager
def never_truncate() -> Iterator[None]:
    with patch.object(Replica, "parts_at", lambda *_: None):
        yield


@mutation
@contextmanager
def no_epoch_fence_on_fetch() -> Iterator[None]:
    with patch.object(Replica, "check_follower_epoch", lambda *_: None):
        yield


@mutation
@contextmanager
def followers_ask_before_flush() -> Iterator[None]:
    safe = Replica.safe_offset.fget  # type: ignore[attr-defined]
    with patch.object(
        Replica, "safe_offset", property(lambda self: safe(self) if self.is_leader else self.log.end_offset)
    ):
        yield


@mutation
@contextmanager
def leaders_count_before_flush() -> Iterator[None]:
    safe = Replica.safe_offset.fget  # type: ignore[attr-defined]
    with patch.object(
        Replica, "safe_offset", property(lambda self: self.log.end_offset if self.is_leader else safe(self))
    ):
        yield


@mutation
@contextmanager
def late_answers_are_believed() -> Iterator[None]:
    def lenient(replica: Replica, wish: follower.Wish) -> bool:
        return not replica.is_leader and replica.leader_epoch == wish.leader_epoch

    with patch.object(follower, "is_current", lenient):
        yield


@mutation
@contextmanager
def answers_of_old_leaders_are_believed() -> Iterator[None]:
    def lenient(replica: Replica, wish: follower.Wish) -> bool:
        return not replica.is_leader and replica.log.end_offset == wish.fetch_offset

    with patch.object(follower, "is_current", lenient):
        yield


@mutation
@contextmanager
def everything_is_visible_after_a_restart() -> Iterator[None]:
    init = Replica.__init__

    def hopeful(self: Replica, log: Log, topic_id: UUID, leader_epoch: int, high_watermark: int | None = None) -> None:
        init(self, log, topic_id, leader_epoch, None)

    with patch.object(Replica, "__init__", hopeful):
        yield


# A leader's picture ---------------------------------------------------------------------------------------------------


@mutation
@contextmanager
def watermark_ignores_what_was_asked_for() -> Iterator[None]:
    def careless(self: Followers, own: int) -> int:
        return min([own, *(self.end_offset_of(node) for node in self.isr if node != self._node_id)])

    with patch.object(Followers, "safe_offset", careless):
        yield


@mutation
@contextmanager
def any_metadata_answers_what_was_asked_for() -> Iterator[None]:
    lead = Replica.lead

    def forgetful(self: Replica, leader_epoch: int, **given: Any) -> None:
        lead(self, leader_epoch, **given)
        if self.followers is not None:
            self.followers.asked = None

    with patch.object(Replica, "lead", forgetful):
        yield


@mutation
@contextmanager
def joinable_before_the_epoch_began() -> Iterator[None]:
    joinable = Followers.joinable
    with patch.object(Followers, "joinable", lambda self, watermark, start: joinable(self, watermark, 0)):
        yield


@mutation
@contextmanager
def joinable_before_the_watermark() -> Iterator[None]:
    joinable = Followers.joinable
    with patch.object(Followers, "joinable", lambda self, watermark, start: joinable(self, 0, start)):
        yield


@mutation
@contextmanager
def followers_believed_in_advance() -> Iterator[None]:
    """Of a new epoch nothing is known; here, that everybody has what the leader has."""
    lead = Replica.lead

    def believing(self: Replica, leader_epoch: int, **given: Any) -> None:
        new = leader_epoch != self.leader_epoch
        lead(self, leader_epoch, **given)
        if new and self.followers is not None:
            for each in self.followers._followers.values():
                each.end_offset = self.log.end_offset
            self.advance_watermark()

    with patch.object(Replica, "lead", believing):
        yield


@mutation
@contextmanager
def old_incarnations_are_believed() -> Iterator[None]:
    """A fetch of a process that is gone says what its disk had."""
    fetched = Followers.fetched

    def gullible(self: Followers, node: int, offset: int, end: int, broker_epoch: int, now: int) -> None:
        self._followers[node].broker_epoch = -1
        fetched(self, node, offset, end, broker_epoch, now)

    def indifferent(self: Followers, node: int) -> int:
        return -1

    with patch.object(Followers, "fetched", gullible), patch.object(Followers, "broker_epoch_of", indifferent):
        yield


@mutation
@contextmanager
def minimum_in_sync_is_ignored() -> Iterator[None]:
    def eager(self: Replica) -> None:
        if self.is_leader:
            self.raise_watermark(
                self.safe_offset if self.followers is None else self.followers.safe_offset(self.safe_offset)
            )

    with patch.object(Replica, "advance_watermark", eager):
        yield


@mutation
@contextmanager
def restart_counts_as_flushed() -> Iterator[None]:
    restart_at = Log.restart_at

    def hasty(self: Log, offset: int, now_ms: int) -> None:
        restart_at(self, offset, now_ms)
        self.flushed_offset = offset

    with patch.object(Log, "restart_at", hasty):
        yield


# The controller -------------------------------------------------------------------------------------------------------


@mutation
@contextmanager
def the_last_in_sync_leaves() -> Iterator[None]:
    without = elections.without

    def emptying(image: MetadataImage, node_id: int, *, disk_lost: bool = False) -> list[AnyRecord]:
        return without(image, node_id, disk_lost=True)

    with patch.object(elections, "without", emptying):
        yield


@mutation
@contextmanager
def leaders_out_of_sync() -> Iterator[None]:
    def any_replica(partition: PartitionImage, isr: Sequence[int], available: elections.Available) -> int:
        return next((node for node in partition.replicas if available(node)), -1)

    def led_by(partition: PartitionImage, topic_id: UUID, leader: int, isr: Sequence[int]) -> PartitionRecord:
        epoch = partition.leader_epoch + (leader != partition.leader)
        isr = tuple(isr) if leader in isr or leader < 0 else (leader,)
        return partition.changed(topic_id, leader=leader, leader_epoch=epoch, isr=isr)

    with patch.object(elections, "choose_leader", any_replica), patch.object(elections, "led_by", led_by):
        yield


@mutation
@contextmanager
def no_version_check_of_in_sync_changes() -> Iterator[None]:
    alter = elections.alter_isr

    def unchecked(image: MetadataImage, topic_id: UUID, number: int, **given: Any) -> list[AnyRecord]:
        _, partition = elections.find(image, topic_id, number)
        return alter(image, topic_id, number, **{**given, "partition_epoch": partition.partition_epoch})

    with patch.object(elections, "alter_isr", unchecked):
        yield


@mutation
@contextmanager
def old_broker_epochs_join() -> Iterator[None]:
    alter = elections.alter_isr

    def unchecked(
        image: MetadataImage, topic_id: UUID, number: int, *, isr: Sequence[tuple[int, int]], **given: Any
    ) -> list[AnyRecord]:
        return alter(image, topic_id, number, isr=[(node, -1) for node, _ in isr], **given)

    with patch.object(elections, "alter_isr", unchecked):
        yield


@mutation
@contextmanager
def fenced_brokers_join() -> Iterator[None]:
    alter = elections.alter_isr

    def unchecked(image: MetadataImage, *where: Any, isr: Sequence[tuple[int, int]], **given: Any) -> list[AnyRecord]:
        with patch.object(MetadataImage, "is_available", lambda self, node: True):
            return alter(image, *where, isr=isr, **given)

    with patch.object(elections, "alter_isr", unchecked):
        yield


@mutation
@contextmanager
def restarted_brokers_stay_in_sync() -> Iterator[None]:
    register = brokers.register

    def lenient(image: MetadataImage, node_id: int, **given: Any) -> list[AnyRecord]:
        return register(image, node_id, **given)[:1]

    with patch.object(brokers, "register", lenient):
        yield


@mutation
@contextmanager
def one_epoch_for_two_leaders() -> Iterator[None]:
    def led_by(partition: PartitionImage, topic_id: UUID, leader: int, isr: Sequence[int]) -> PartitionRecord | None:
        if leader == partition.leader and tuple(isr) == partition.isr:
            return None
        return partition.changed(topic_id, leader=leader, isr=tuple(isr))

    with patch.object(elections, "led_by", led_by):
        yield


@mutation
@contextmanager
def removed_replicas_keep_the_epoch() -> Iterator[None]:
    """One that is removed and added again, with nothing, may still be believed to have what it had."""
    finished, moved = elections.finished, elections._moved

    def same_epoch(before: PartitionRecord | PartitionImage, after: Any) -> Any:
        if after is not None and after.leader == before.leader:
            return type(after)(
                *(before.leader_epoch if f == "leader_epoch" else getattr(after, f) for f in after.__struct_fields__)
            )
        return after

    def finish(image: MetadataImage, topic_id: UUID, record: PartitionRecord) -> PartitionRecord | None:
        ended: PartitionRecord | None = same_epoch(record, finished(image, topic_id, record))
        return ended

    def move(image: MetadataImage, topic_id: UUID, partition: PartitionImage, *rest: Any) -> PartitionRecord:
        record: PartitionRecord = same_epoch(partition, moved(image, topic_id, partition, *rest))
        return record

    with patch.object(elections, "finished", finish), patch.object(elections, "_moved", move):
        yield


BUGS = {**planted.BUGS, **planted_disks.BUGS}
MUTATIONS.update({plant.__name__.replace("_", "-"): plant for plant in BUGS})

# --------------------------------------------------------------------------------------------------------------------


def caught(plant: Mutation, seeds: range) -> tuple[int, str] | None:
    """The first seed that shows it, and what it shows."""
    for seed in seeds:
        try:
            with plant():
                Storm(seed, **BUGS.get(plant, {})).run()
        except Exception as error:
            return seed, f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    logs.show(logging.CRITICAL)  # a broken coordinator would tell of it in every world
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds each may hide in")
    options = parser.parse_args()
    missed = 0
    for name in options.names or MUTATIONS:
        began = time.monotonic()
        found = caught(MUTATIONS[name], range(options.seeds))
        missed += found is None
        told = f"caught by seed {found[0]}: {found[1]}" if found else f"NOT CAUGHT in {options.seeds} seeds"
        print(f"{name:<42} {time.monotonic() - began:5.1f} s  {told}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
