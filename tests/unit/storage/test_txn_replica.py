"""A leader's view of transactions: how far readers of committed records see, and when they are told."""

from uuid import UUID

import pytest
from batches import NOW, append, create_log
from sim_disk import SimDisk
from txn_writer import Writer

from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError, OffsetOutOfRange
from tidelog.wire.record_batch import read_header

DIRECTORY = "/data/orders-0"


def make(config: TopicConfig | None = None) -> tuple[Replica, Writer, list[int]]:
    log = create_log(SimDisk(), DIRECTORY, config)
    replica = Replica(log, UUID(int=1), 0)
    told: list[int] = []
    replica.on_watermark = lambda each: told.append(each.last_stable_offset)
    return replica, Writer(log, 1), told


def flush(replica: Replica) -> None:
    replica.log.flush()
    replica.advance_watermark()


def test_the_last_stable_offset_follows_what_is_on_disk() -> None:
    replica, writer, told = make()
    append(replica.log, b"plain")
    writer.write((b"a", b"1"))
    assert (replica.high_watermark, replica.last_stable_offset) == (0, 0)
    flush(replica)
    assert (replica.high_watermark, replica.last_stable_offset) == (2, 1)
    replica.append_marker(1, 0, committed=True, coordinator_epoch=0, now_ms=0)
    assert replica.last_stable_offset == 1
    flush(replica)
    assert (replica.high_watermark, replica.last_stable_offset) == (3, 3)
    assert told == [1, 3], "whoever waits for committed records is woken when there are any"
    assert not replica.log.producers.transactions.ended


def test_without_flush_on_ack_it_follows_the_page_cache() -> None:
    replica, writer, told = make(TopicConfig(flush_on_ack=False))
    batch = writer.batch((b"a", b"1"))
    verification = replica.log.begin_verification(read_header(batch))
    replica.append(batch, acks=1, now_ms=NOW, verification=verification)
    replica.append_marker(1, 0, committed=False, coordinator_epoch=0, now_ms=0)
    assert told == [0, 2]


def test_committed_readers_wait_at_an_open_transaction() -> None:
    replica, writer, _ = make()
    append(replica.log, b"plain")
    writer.write((b"a", b"1"))
    flush(replica)
    whole = replica.read(0, 1 << 16, min_one=True)
    decided = replica.read(0, 1 << 16, min_one=True, committed=True)
    assert 0 < decided.length < whole.length
    for offset in (1, 2):
        assert replica.read(offset, 1 << 16, min_one=True, committed=True).length == 0
    with pytest.raises(OffsetOutOfRange):
        replica.read(3, 1 << 16, min_one=True, committed=True)


def test_a_restart_remembers_the_open_transaction() -> None:
    replica, writer, _ = make()
    writer.write((b"a", b"1"))
    flush(replica)
    assert Replica(replica.log, UUID(int=1), 0).last_stable_offset == 0


def test_deleted_records_hold_nobody_back() -> None:
    replica, writer, _ = make()
    writer.write((b"a", b"1"), (b"b", b"1"))
    append(replica.log, b"plain")
    flush(replica)
    replica.advance_start_offset(2)
    assert replica.last_stable_offset == 2


def test_markers_need_the_in_sync_replicas_that_acks_all_needs() -> None:
    replica, _, _ = make(TopicConfig(min_insync_replicas=2))
    with pytest.raises(KafkaError) as refused:
        replica.append_marker(1, 0, committed=True, coordinator_epoch=0, now_ms=0)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
