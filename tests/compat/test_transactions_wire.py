"""Requests that come late, twice or from the wrong one, in both of Kafka's protocols, and the codes Kafka answers."""

import uuid
from collections.abc import Callable

import pytest

from tidelog.errors import ErrorCode

from .conftest import MakeTopic
from .group_members import wait_for
from .transaction_readers import end_offset, read, until_over
from .transaction_wire import FIRST, FIRST_NEWEST, SECOND, Identity, Versions, WireProducer

PROTOCOLS = {"first": FIRST, "first, newest": FIRST_NEWEST, "second": SECOND}
OK, FENCED, OLD_EPOCH = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
WRONG_STATE, ABORTABLE = ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING

every_protocol = pytest.mark.parametrize("versions", PROTOCOLS.values(), ids=PROTOCOLS)


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


def ends(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    stable = end_offset(bootstrap, topic, partition, "read_committed")
    return stable, end_offset(bootstrap, topic, partition, "read_uncommitted")


@every_protocol
def test_the_life_of_a_transaction(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    topic = make_group_topic("life")
    with WireProducer(groups, new_id(), versions) as producer:
        assert producer.init() is OK
        epochs = [producer.identity.epoch]
        for commit, open_at, over_at in ((True, 2, 3), (False, 5, 6), (True, 8, 9)):
            producer.write(topic, 0, b"a", b"b")
            assert ends(groups, topic) == (over_at - 3, open_at)
            assert producer.end(commit) is OK
            epochs.append(producer.identity.epoch)
            until_over(groups, topic)
            assert ends(groups, topic) == (over_at, over_at)
        assert epochs == ([0, 1, 2, 3] if versions is SECOND else [0, 0, 0, 0])
    assert read(groups, topic)[0] == [b"a", b"b"] * 2


@pytest.mark.parametrize(("versions", "code"), [(FIRST, WRONG_STATE), (FIRST_NEWEST, ABORTABLE)])
def test_a_write_outside_of_a_transaction(
    groups: str, make_group_topic: MakeTopic, versions: Versions, code: ErrorCode
) -> None:
    """The first protocol adds partitions by a request; what was not added is not written."""
    topic = make_group_topic("outside", 2)
    with WireProducer(groups, new_id(), versions) as producer:
        producer.init()
        assert producer.produce(topic, 0, b"x") is code
        producer.write(topic, 1, b"y")
        assert producer.produce(topic, 0, b"x") is code
        assert producer.end(True) is OK
    assert ends(groups, topic) == (0, 0)


@every_protocol
def test_a_write_that_comes_after_the_end(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    """It must not begin the next transaction: nobody would end that, and readers would wait for it."""
    topic = make_group_topic("late")
    late = {FIRST: WRONG_STATE, FIRST_NEWEST: ABORTABLE, SECOND: OLD_EPOCH}[versions]
    with WireProducer(groups, new_id(), versions) as producer:
        producer.init()
        for commit in (True, False):
            producer.write(topic, 0, b"a", b"b")
            before, sequence = producer.identity, dict(producer.sequence)
            assert producer.end(commit) is OK
            after, producer.identity = producer.identity, before
            until_over(groups, topic)
            here = ends(groups, topic)
            producer.sequence = dict(sequence)
            assert producer.produce(topic, 0, b"late") is late
            assert ends(groups, topic) == here
            producer.identity = after
            producer.sequence = {} if versions is SECOND else sequence
    assert read(groups, topic)[0] == [b"a", b"b"]


@every_protocol
def test_an_end_that_is_asked_for_again(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    """The answer was lost: the same decision is confirmed, the other is refused, and nothing is written."""
    topic = make_group_topic("again")
    with WireProducer(groups, new_id(), versions) as producer:
        producer.init()
        for commit in (True, False):
            producer.write(topic, 0, b"a")
            before = producer.identity
            assert producer.end(commit) is OK
            after = producer.identity
            until_over(groups, topic)
            here = ends(groups, topic)
            producer.identity = before
            assert producer.end(commit) is OK
            assert producer.identity == after
            producer.identity = before
            assert producer.end(not commit) in (WRONG_STATE, ABORTABLE)
            assert ends(groups, topic) == here
            producer.identity = after


def test_what_is_late_does_not_touch_the_next_transaction(groups: str, make_group_topic: MakeTopic) -> None:
    """KAFKA-17754. In the second protocol every transaction has an epoch of its own."""
    topic = make_group_topic("next", 2)
    with WireProducer(groups, new_id(), SECOND) as producer:
        producer.init()
        producer.write(topic, 0, b"first")
        before = producer.identity
        assert producer.end(True) is OK
        until_over(groups, topic)
        producer.write(topic, 0, b"second")
        now, producer.identity = producer.identity, before
        attempts: list[tuple[Callable[[], ErrorCode], ErrorCode]] = [
            (lambda: producer.end(True), FENCED),
            (lambda: producer.end(False), FENCED),
            (lambda: producer.produce(topic, 0, b"late"), OLD_EPOCH),
            (lambda: producer.produce(topic, 1, b"late"), OLD_EPOCH),
            (lambda: producer.add(topic, 1), FENCED),
            (lambda: producer.add_offsets("late"), FENCED),
            (lambda: producer.commit_offset("late", topic, 1), OLD_EPOCH),
            (lambda: producer.mark(topic, 0, True), OLD_EPOCH),
            (lambda: producer.mark(topic, 0, False), OLD_EPOCH),
        ]
        assert [attempt() for attempt, _ in attempts] == [code for _, code in attempts]
        assert ends(groups, topic) == (2, 3)
        producer.identity = now
        assert producer.end(False) is OK
    assert read(groups, topic, partitions=[0, 1], over=True) == {0: [b"first"], 1: []}


@every_protocol
def test_the_previous_owner_is_fenced_everywhere(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    topic, name = make_group_topic("owner", 2), new_id()
    with WireProducer(groups, name, versions) as old, WireProducer(groups, name, versions) as new:
        old.init()
        old.write(topic, 0, b"lost")
        assert new.init() is OK
        assert new.identity.epoch > old.identity.epoch
        attempts: list[tuple[Callable[[], ErrorCode], ErrorCode]] = [
            (lambda: old.add(topic, 1), FENCED),
            (lambda: old.produce(topic, 0, b"late"), OLD_EPOCH),
            (lambda: old.produce(topic, 1, b"late"), OLD_EPOCH),
            (lambda: old.end(True), FENCED),
            (lambda: old.end(False), FENCED),
            (lambda: old.add_offsets("late"), FENCED),
            (lambda: old.commit_offset("late", topic, 1), OLD_EPOCH),
            (lambda: old.mark(topic, 0, True), OLD_EPOCH),
            (old.init_again, FENCED),
        ]
        assert [attempt() for attempt, _ in attempts] == [code for _, code in attempts]
        new.write(topic, 0, b"kept")
        assert new.end(True) is OK
        epoch = new.identity.epoch
        assert new.init_again() is OK  # its own epoch it may raise
        assert new.identity.epoch == epoch + 1
    assert read(groups, topic, partitions=[0, 1], over=True) == {0: [b"kept"], 1: []}


@every_protocol
def test_too_late_after_the_timeout(groups: str, make_group_topic: MakeTopic, versions: Versions) -> None:
    """Nobody took over, so it may ask for a new epoch and go on; what it had written is gone."""
    topic = make_group_topic("timeout")
    with WireProducer(groups, new_id(), versions) as producer:
        producer.init(timeout_ms=300)
        producer.write(topic, 0, b"lost")
        wait_for(lambda: ends(groups, topic) == (2, 2), "the broker's abort")
        assert producer.produce(topic, 0, b"late") is OLD_EPOCH
        assert producer.add(topic, 0) is FENCED
        before = producer.identity
        if versions is SECOND:
            assert producer.end(True) in (WRONG_STATE, ABORTABLE)
            assert producer.end(False) is OK
            producer.identity = before
        else:
            assert producer.end(True) is FENCED
            assert producer.end(False) is FENCED
        assert producer.init_again() is OK
        assert producer.identity == Identity(before.producer_id, before.epoch + 1)
        producer.write(topic, 0, b"kept")
        assert producer.end(True) is OK
    assert read(groups, topic, over=True)[0] == [b"kept"]


def test_what_nobody_knows(groups: str, make_group_topic: MakeTopic) -> None:
    topic = make_group_topic("unknown")
    with WireProducer(groups, new_id()) as producer:
        producer.identity = Identity(1 << 40, 0)
        assert producer.add(topic, 0) is UNKNOWN
        assert producer.end(True) is UNKNOWN
        assert producer.produce(topic, 0, b"x") is UNKNOWN
        assert producer.add_offsets("group") is UNKNOWN
        assert producer.commit_offset("group", topic, 1) is UNKNOWN
        for timeout_ms in (0, -1, 900_001):
            assert producer.init(timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert producer.init(900_000) is OK
        producer.write(topic, 0, b"x")
        assert producer.add(f"no-{topic}", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert producer.commit_offset("group", topic, 1) is WRONG_STATE  # the group was not added
        assert producer.end(True) is OK
        assert producer.end(False) is WRONG_STATE
    with WireProducer(groups, "") as producer:
        assert producer.init() is ErrorCode.INVALID_REQUEST
