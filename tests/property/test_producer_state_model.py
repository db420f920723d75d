"""Idempotent producers: a retry within the window is answered with its first offset, whatever happened in between."""

import sys
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from batches import NOW, batch, create_log, open_log, read_values
from sim_disk import SimDisk

from tidelog.config import TopicConfig
from tidelog.errors import InvalidProducerEpoch, OutOfOrderSequence
from tidelog.storage.log import Log
from tidelog.storage.producer_state import BATCHES_REMEMBERED, ProducerStates
from tidelog.storage.snapshots import SnapshotCorrupt, decode, encode

DIRECTORY = "/data/orders-0"
CONFIG = TopicConfig(segment_bytes=400)


def send(log: Log, producer: int, epoch: int, sequence: int, count: int) -> tuple[int, bool]:
    data = batch(*(b"%d" % (sequence + i) for i in range(count)), producer=(producer, epoch, sequence))
    answer = log.append(data, leader_epoch=0, now_ms=NOW)
    return answer.base_offset, answer.duplicate


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_every_retry_in_the_window_is_one_copy(data: st.DataObject) -> None:
    disk = SimDisk()
    log = create_log(disk, DIRECTORY, CONFIG)
    sent: dict[int, list[tuple[int, int, int]]] = {1: [], 2: []}  # producer: [(sequence, count, offset)]
    stored = 0
    for _ in range(data.draw(st.integers(1, 25))):
        producer = data.draw(st.sampled_from([1, 2]))
        history = sent[producer]
        action = data.draw(st.sampled_from(["new", "new", "retry", "gap", "old epoch", "restart", "cut"]))
        following = history[-1][0] + history[-1][1] if history else 0
        if action == "new":
            count = data.draw(st.integers(1, 3))
            offset, duplicate = send(log, producer, 1, following, count)
            assert (offset, duplicate) == (stored, False)
            history.append((following, count, offset))
            stored += count
        elif action == "retry" and history:
            sequence, count, offset = data.draw(st.sampled_from(history[-BATCHES_REMEMBERED:]))
            assert send(log, producer, 1, sequence, count) == (offset, True)
        elif action == "gap" and history:
            with pytest.raises(OutOfOrderSequence):
                send(log, producer, 1, following + data.draw(st.integers(1, 9)), 1)
        elif action == "old epoch" and history:
            with pytest.raises(InvalidProducerEpoch):
                send(log, producer, 0, following, 1)
        elif action == "restart":
            log = restart(log, disk, data.draw(st.sampled_from(["clean", "killed", "snapshots lost", "torn"])))
        elif action == "cut":
            log.truncate_to(data.draw(st.integers(0, stored)))
            log.flush()
            stored = log.end_offset
            sent = {who: [each for each in history if each[2] < stored] for who, history in sent.items()}
            assert log.expire_producers(NOW + 999, 1000) == 0
    assert len(read_values(log)) == stored == log.end_offset


def restart(log: Log, disk: SimDisk, how: str) -> Log:
    flushed = log.flushed_offset
    if how == "clean":
        log.close()
    log.abandon("stop")
    for name in [name for name in disk.names if name.endswith(".snapshot")]:
        if how == "snapshots lost":
            del disk.names[name]
        elif how == "torn" and disk.names[name].cache:
            disk.names[name].cache[-1] ^= 0xFF
    return open_log(disk, DIRECTORY, CONFIG, clean=how == "clean", recovery_point=flushed)


def test_the_window_has_five_places() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    for sequence in range(7):
        send(log, 1, 0, sequence, 1)
    for sequence in range(2, 7):
        assert send(log, 1, 0, sequence, 1) == (sequence, True)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, 0, 1, 1)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, 0, 5, 2)  # begins like a known batch, but is not it
    assert log.end_offset == 7


def test_sequences_wrap_to_zero() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    last = 2**31 - 1
    assert send(log, 1, 0, last - 1, 3) == (0, False)  # the last two numbers and zero
    assert send(log, 1, 0, 1, 2) == (3, False)
    assert send(log, 1, 0, last - 1, 3) == (0, True)
    assert send(log, 1, 0, 3, 1) == (5, False)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    send(log, 1, 0, 0, 2)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, 1, 2, 1)
    assert send(log, 1, 1, 0, 2) == (2, False)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, 0, 2, 1)
    assert send(log, 1, 1, 0, 2) == (2, True)


def test_a_producer_nobody_remembers_may_begin_anywhere() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    assert send(log, 1, 3, 17, 1) == (0, False)
    with pytest.raises(OutOfOrderSequence):
        send(log, 1, 3, 19, 1)


def test_idle_producers_are_forgotten_by_broker_time_not_record_time() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    old = batch(b"history", timestamps=[1000], producer=(1, 0, 0))
    log.append(old, leader_epoch=0, now_ms=NOW)
    assert log.expire_producers(NOW + 999, 1000) == 0
    assert log.expire_producers(NOW + 1000, 1000) == 1
    assert len(log.producers) == 0


def test_memory_is_bounded_and_the_longest_idle_go_first() -> None:
    log = create_log(SimDisk(), DIRECTORY)
    log.producers = ProducerStates(limit=20)
    for producer in range(50):
        data = batch(b"x", producer=(producer, 0, 0))
        log.append(data, leader_epoch=0, now_ms=NOW + producer)
    assert len(log.producers) <= 20
    assert 49 in log.producers.producers
    assert 0 not in log.producers.producers


def states_of(*batches: tuple[int, int, int, int]) -> ProducerStates:
    log = create_log(SimDisk(), DIRECTORY)
    for producer, epoch, sequence, count in batches:
        send(log, producer, epoch, sequence, count)
    return log.producers


def test_a_snapshot_is_kafkas_format_with_our_window_behind_it() -> None:
    data = encode(states_of((258, 3, 0, 2), (258, 3, 2, 1)))
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == (1).to_bytes(4, "big")
    entry = data[10:56]
    assert entry == bytes.fromhex(
        "0000000000000102"  # producer id
        "0003"  # epoch
        "00000002"  # last sequence
        "0000000000000002"  # last offset
        "00000000"  # offset delta
        f"{NOW:016x}"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no transaction
    )
    assert data[56:60] == b"TLW1"


def test_kafkas_own_snapshot_is_read_without_a_window() -> None:
    ours = encode(states_of((1, 0, 0, 2), (1, 0, 2, 1)))
    body = ours[6:56]
    (producer,) = decode(b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body, NOW)
    assert [(one.first_sequence, one.last_offset) for one in producer.batches] == [(2, 2)]
    assert producer.last_seen_ms == NOW


@settings(max_examples=200, deadline=None)
@given(position=st.integers(0, 10_000), value=st.integers(1, 255), cut=st.integers(0, 10_000))
def test_a_damaged_snapshot_is_never_believed(position: int, value: int, cut: int) -> None:
    data = bytearray(encode(states_of((1, 0, 0, 2), (2, 5, 0, 1), (1, 0, 2, 1))))
    whole = decode(bytes(data), NOW)
    assert [(one.producer_id, len(one.batches)) for one in whole] == [(1, 2), (2, 1)]
    with pytest.raises(SnapshotCorrupt):
        decode(bytes(data[: cut % len(data)]), NOW)
    data[position % len(data)] ^= value
    with pytest.raises(SnapshotCorrupt):
        decode(bytes(data), NOW)
