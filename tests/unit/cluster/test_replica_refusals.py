"""Batches that were under way behind a refused one are refused alike, and never told to be out of order for it."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from batches import NOW, batch, create_log
from sim_disk import SimDisk

from tidelog.cluster.refusals import PRODUCERS_MAX, REMEMBERED_MS
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, KafkaError

Refuse = Callable[[Replica, SimDisk], None]


def leader(disk: SimDisk | None = None) -> Replica:
    log = create_log(disk or SimDisk(), "/data/orders-0", TopicConfig(min_insync_replicas=2))
    one = Replica(log, UUID(int=1), -1, 0)
    with_isr(one, 1, (1, 2))
    return one


def with_isr(one: Replica, version: int, isr: tuple[int, ...], epoch: int = 0) -> None:
    one.lead(epoch, node_id=1, partition_epoch=version, replicas=(1, 2), isr=isr, monotonic_ms=0)


def send(one: Replica, sequence: int, *, producer: int = 7, epoch: int = 0, now_ms: int = NOW) -> int:
    """Two records. Their offset."""
    data = batch(b"a", b"b", producer=(producer, epoch, sequence))
    return one.append(data, acks=-1, now_ms=now_ms).base_offset


def told(one: Replica, sequence: int, *, producer: int = 7, epoch: int = 0, now_ms: int = NOW) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        send(one, sequence, producer=producer, epoch=epoch, now_ms=now_ms)
    return error.value.code


def shrink(one: Replica, _: SimDisk) -> None:
    with_isr(one, 2, (1,))


def depose(one: Replica, _: SimDisk) -> None:
    one.follow(2, 1, 2)


def fill_up(_: Replica, disk: SimDisk) -> None:
    disk.fail_on["write"] = errno.ENOSPC


@pytest.mark.parametrize(
    ("refuse", "code"),
    [
        (shrink, ErrorCode.NOT_ENOUGH_REPLICAS),
        (depose, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (fill_up, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
@pytest.mark.parametrize("before", [0, 2], ids=["from the first", "later"])
def test_what_follows_a_refused_batch_is_refused_alike(refuse: Refuse, code: ErrorCode, before: int) -> None:
    disk = SimDisk()
    one = leader(disk)
    for sequence in range(0, before, 2):
        send(one, sequence)
    refuse(one, disk)
    assert told(one, before) is code
    disk.fail_on.clear()
    with_isr(one, 3, (1, 2), epoch=2)
    assert [told(one, before + 2), told(one, before + 4)] == [code, code]
    assert [send(one, sequence) for sequence in (before, before + 2, before + 4)] == [before, before + 2, before + 4]


def test_a_batch_that_an_earlier_attempt_left_in_the_log_is_found_there() -> None:
    """As after NOT_ENOUGH_REPLICAS_AFTER_APPEND: the first is in the log, its retry and the second are refused, and the
    third comes when all is well again."""
    one = leader()
    send(one, 0)
    with_isr(one, 2, (1,))
    assert [told(one, 0), told(one, 2)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    with_isr(one, 3, (1, 2))
    assert told(one, 4) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [send(one, sequence) for sequence in (0, 2, 4)] == [0, 2, 4]
    assert one.log.end_offset == 6


def test_a_gap_that_no_refusal_left_is_out_of_order() -> None:
    one = leader()
    send(one, 0)
    assert told(one, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    send(one, 2)
    assert told(one, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(one, 0, producer=8)
    assert told(one, 4, producer=8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_it_is_forgotten_when_nothing_can_be_under_way_any_more() -> None:
    one = leader()
    send(one, 0)
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    assert told(one, 4, now_ms=NOW + REMEMBERED_MS) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert told(one, 6, now_ms=NOW + 2 * REMEMBERED_MS + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_behind_no_refusal_of_the_old_one() -> None:
    one = leader()
    send(one, 0)
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    assert send(one, 0, epoch=1) == 2
    assert send(one, 2, epoch=1) == 4


def test_memory_is_bounded() -> None:
    one = leader()
    with_isr(one, 2, (1,))
    for producer in range(PRODUCERS_MAX + 10):
        told(one, 0, producer=producer)
    with_isr(one, 3, (1, 2))
    assert told(one, 2, producer=PRODUCERS_MAX + 9) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert send(one, 2, producer=1) == 0, "forgotten: the log takes what it would have taken"


LAST = 0x7FFFFFFF


@pytest.mark.parametrize("refused", [LAST - 3, LAST - 1], ids=["two before the last", "the last"])
def test_after_the_last_sequence_comes_the_first_here_too(refused: int) -> None:
    one = leader()
    send(one, refused - 2)  # unknown here: it may begin anywhere
    with_isr(one, 2, (1,))
    told(one, refused)
    with_isr(one, 3, (1, 2))
    behind = [(refused + more) & LAST for more in (2, 4, 6)]
    assert [told(one, sequence) for sequence in behind] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
    assert send(one, refused - 2) == 0, "in the log already, and nothing that comes too early"
    assert [send(one, sequence) for sequence in (refused, *behind)] == [2, 4, 6, 8]
    assert told(one, (refused + 10) & LAST) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_who_only_repeats_what_is_behind_it_is_not_put_off_for_ever() -> None:
    """Its producer gave the refused one up. Only out of order tells it that nothing it does will help."""
    one = leader()
    send(one, 0)
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    codes = [told(one, 4, now_ms=NOW + second * 1000) for second in range(30)]
    assert codes[0] is ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes[-1] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_comes_slowly_was_under_way_all_the_same() -> None:
    """Large batches on a narrow line: the retry of the first comes after all of them."""
    one = leader()
    send(one, 0)
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    late = [(4, REMEMBERED_MS), (6, 2 * REMEMBERED_MS), (8, 3 * REMEMBERED_MS)]
    codes = [told(one, sequence, now_ms=NOW + after) for sequence, after in late]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS] * 3


def test_who_was_fenced_meanwhile_hears_that() -> None:
    one = leader()
    send(one, 0)
    send(one, 0, epoch=1)
    with_isr(one, 2, (1,))
    told(one, 2)
    with_isr(one, 3, (1, 2))
    assert told(one, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
