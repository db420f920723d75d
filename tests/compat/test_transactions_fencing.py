"""One owner per transactional id: a second producer ends the first one's transaction, and the first may never go on."""

import time
import uuid

import pytest

from .conftest import MakeTopic
from .group_members import wait_for
from .transaction_clients import PRODUCERS, Fenced, Producer
from .transaction_readers import end_offset, read


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("new", PRODUCERS)
@pytest.mark.parametrize("old", PRODUCERS)
def test_a_second_producer_takes_over(groups: str, make_group_topic: MakeTopic, old: str, new: str) -> None:
    """Whatever library it is: what the first had written is aborted, at once, and it cannot commit."""
    topic, name = make_group_topic("over"), new_id()
    with PRODUCERS[old](groups, name) as first:
        first.transact(topic, 0, b"kept")
        first.begin()
        first.send(topic, 0, b"lost")
        with PRODUCERS[new](groups, name) as second:
            wait_for(lambda: end_offset(groups, topic, 0, "read_committed") == 4, "the abort")
            second.transact(topic, 0, b"after")
            with pytest.raises(Fenced):
                first.commit()
            second.transact(topic, 0, b"still")
    assert read(groups, topic, over=True)[0] == [b"kept", b"after", b"still"]


@pytest.mark.parametrize("attempt", ["send", "abort", "offsets", "nothing sent"])
@pytest.mark.parametrize("client", PRODUCERS)
def test_whatever_a_fenced_producer_tries(groups: str, make_group_topic: MakeTopic, client: str, attempt: str) -> None:
    topic, name = make_group_topic("fenced", 2), new_id()
    with PRODUCERS[client](groups, name) as first:
        first.begin()
        if attempt != "nothing sent":
            first.send(topic, 0, b"lost")
        with PRODUCERS["confluent"](groups, name) as second:
            second.transact(topic, 0, b"kept")
            with pytest.raises(Fenced):
                _attempt(first, attempt, topic)
            second.transact(topic, 0, b"also kept")
    assert read(groups, topic, partitions=[0, 1], over=True) == {0: [b"kept", b"also kept"], 1: []}
    assert end_offset(groups, topic, 1, "read_uncommitted") == 0


def _attempt(producer: Producer, attempt: str, topic: str) -> None:
    if attempt == "offsets":
        producer.send_offsets({(topic, 0): 1}, f"group-of-{producer.transactional_id}")
    elif attempt != "abort":
        producer.send(topic, 1, b"late")
    producer.abort() if attempt == "abort" else producer.commit()


def test_a_transaction_that_was_left_open_is_aborted_by_the_next_owner(
    groups: str, make_group_topic: MakeTopic
) -> None:
    """As after a crash: its successor need not wait for the timeout."""
    topic, name = make_group_topic("crashed"), new_id()
    for number in range(4):
        producer = PRODUCERS[list(PRODUCERS)[number % 3]](groups, name, timeout_ms=60_000)
        with producer:
            producer.transact(topic, 0, b"%d" % number)
            producer.begin()
            producer.send(topic, 0, b"never")
    with PRODUCERS["confluent"](groups, name):
        assert read(groups, topic, over=True)[0] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("client", PRODUCERS)
def test_one_that_takes_too_long(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    """The broker aborts it and readers go on. It is too late to commit, and a new producer is not kept waiting."""
    topic, name = make_group_topic("timeout"), new_id()
    with (
        PRODUCERS["confluent"](groups, new_id()) as other,
        PRODUCERS[client](groups, name, timeout_ms=4000) as producer,
    ):
        began = time.monotonic()
        producer.begin()
        producer.send(topic, 0, b"lost")
        other.transact(topic, 0, b"kept")
        assert end_offset(groups, topic, 0, "read_committed") == 0
        wait_for(lambda: end_offset(groups, topic, 0, "read_committed") == 4, "the broker's abort")
        assert 3.5 < time.monotonic() - began < 20
        with pytest.raises(Exception, match=r"(?i)fenc|epoch|timed? ?out|state"):
            producer.commit()
    with PRODUCERS[client](groups, name) as producer:
        producer.transact(topic, 0, b"again")
    assert read(groups, topic, over=True)[0] == [b"kept", b"again"]


@pytest.mark.parametrize("client", PRODUCERS)
def test_many_owners_after_each_other(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic, name = make_group_topic("owners"), new_id()
    owners: list[Producer] = []
    for number in range(6):
        owner = PRODUCERS[client](groups, name).init()
        owner.transact(topic, 0, b"%d" % number)
        owners.append(owner)
    for owner in owners[:-1]:
        with pytest.raises(Fenced):
            owner.transact(topic, 0, b"zombie")
    owners[-1].transact(topic, 0, b"6")
    for owner in owners:
        owner.close()
    assert read(groups, topic, over=True)[0] == [b"%d" % number for number in range(7)]
