"""Who is a member, and until when: static members, crashes, members that stop polling, and what late ones may do."""

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

from tidelog.testing import Broker

from .conftest import MakeTopic
from .group_members import MEMBERS, ConfluentMember, KafkaPythonMember, Options, settle, wait_for
from .group_traffic import numbers, send

PARTITIONS = 6
BEYOND_S = 15.0
"""The bar is one second beyond the session timeout; `python -m bench` measures it where nothing else runs."""


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


# -- static members ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", MEMBERS)
def test_a_static_member_restarts_and_nobody_notices(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic, group = make_group_topic("static", PARTITIONS), new_group()
    make = MEMBERS[client]
    with make(groups, group, [topic], Options(instance_id="stays")) as stays:
        with make(groups, group, [topic], Options(instance_id="restarts")) as restarts:
            settle([stays, restarts], PARTITIONS)
            had, noted = restarts.owned, len(stays.changes)
        with make(groups, group, [topic], Options(instance_id="restarts")) as restarts:
            settle([stays, restarts], PARTITIONS)
            send(groups, topic, PARTITIONS, range(60))
            wait_for(lambda: numbers([stays, restarts]) == list(range(60)), "every record, once")
            assert restarts.owned == had
            assert len(stays.changes) == noted


def test_a_static_member_that_stays_away_is_replaced(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("away", PARTITIONS), new_group()
    with ConfluentMember(groups, group, [topic], Options(instance_id="stays")) as stays:
        with ConfluentMember(groups, group, [topic], Options(instance_id="goes", session_ms=500)) as goes:
            settle([stays, goes], PARTITIONS)
        settle([stays], PARTITIONS, seconds=0.5 + BEYOND_S)


def test_the_same_instance_twice(groups: str, make_group_topic: MakeTopic) -> None:
    """The newer one lives; the older learns that it was replaced."""
    topic, group, options = make_group_topic("twice", PARTITIONS), new_group(), Options(instance_id="same")
    with ConfluentMember(groups, group, [topic], options) as older:
        settle([older], PARTITIONS)
        with ConfluentMember(groups, group, [topic], options) as newer:
            wait_for(lambda: len(newer.owned) == PARTITIONS, "the newer one has everything")
            wait_for(lambda: older.errors, "the older one is told")
            assert older.errors[0].code() == KafkaError._FATAL
            assert "group.instance.id" in older.errors[0].str()


# -- crashes -----------------------------------------------------------------------------------------------------------

_CONSUME = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic, session_ms = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": group, "session.timeout.ms": session_ms, "heartbeat.interval.ms": 60,
    "partition.assignment.strategy": "range", "auto.offset.reset": "earliest",
})
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


@contextmanager
def doomed_member(bootstrap: str, group: str, topic: str, session_ms: int) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", _CONSUME, bootstrap, group, topic, str(session_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("client", MEMBERS)
def test_takeover_after_kill_9(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic, group, session_ms = make_group_topic("crash", PARTITIONS), new_group(), 3000
    with (
        MEMBERS[client](groups, group, [topic]) as survivor,
        doomed_member(groups, group, topic, session_ms) as doomed,
    ):
        wait_for(lambda: len(survivor.owned) == PARTITIONS // 2, "shared with a process")
        assert doomed.stdout is not None
        next(line for line in doomed.stdout if int(line) == PARTITIONS // 2)  # it has its share, and sends heartbeats
        doomed.send_signal(signal.SIGKILL)
        took_s = settle([survivor], PARTITIONS)
        assert took_s < session_ms / 1000 + BEYOND_S
        # Not before: it could have been a slow network. Its last heartbeat was a while ago: librdkafka looks for them
        # twice a second, and on a busy machine later.
        assert took_s > session_ms / 1000 / 3


def test_a_killed_kcat(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("kcat", PARTITIONS), new_group()
    command = ["kcat", "-b", groups, "-G", group, "-q", "-X", "session.timeout.ms=500"]
    command += ["-X", "heartbeat.interval.ms=60", "-X", "partition.assignment.strategy=range", topic]
    with KafkaPythonMember(groups, group, [topic]) as survivor:
        settle([survivor], PARTITIONS)
        doomed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(survivor.owned) == PARTITIONS // 2, "shared with kcat")
        finally:
            doomed.kill()
            doomed.wait()
        settle([survivor], PARTITIONS, seconds=0.5 + BEYOND_S)


# -- members that stop polling, and what those who were evicted may do -------------------------------------------------


def test_max_poll_interval(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("stuck", PARTITIONS), new_group()
    with (
        ConfluentMember(groups, group, [topic], Options(session_ms=3000, max_poll_ms=3000)) as stuck,
        ConfluentMember(groups, group, [topic]) as works,
    ):
        settle([stuck, works], PARTITIONS)
        stuck.polling.clear()
        wait_for(lambda: len(works.owned) == PARTITIONS, "the other has everything", 3 + 2 * BEYOND_S)
        stuck.polling.set()
        settle([stuck, works], PARTITIONS)
        assert [error.code() for error in stuck.errors] == [KafkaError._MAX_POLL_EXCEEDED]


def test_confluent_commits_too_late(groups: str, make_group_topic: MakeTopic) -> None:
    """It was revoked its partitions while it did not look: its commit is for a generation that is over."""
    topic, group = make_group_topic("late", PARTITIONS), new_group()
    options = Options(session_ms=2000, max_poll_ms=2000)
    send(groups, topic, PARTITIONS, range(60))
    with ConfluentMember(groups, group, [topic], options) as late:
        wait_for(lambda: len(late.reads) >= 60, "all records")
        late.polling.clear()
        place = confluent_kafka.TopicPartition(topic, 0, 9)
        with ConfluentMember(groups, group, [topic]) as takes_over:
            wait_for(lambda: len(takes_over.owned) == PARTITIONS, "the other has everything")
            late.polling.set()
            with pytest.raises(KafkaException) as refused:
                late.do(lambda c: c.commit(offsets=[place], asynchronous=False))
            assert refused.value.args[0].code() in (
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.ILLEGAL_GENERATION,
                KafkaError.REBALANCE_IN_PROGRESS,
            )
            committed = takes_over.do(lambda c: c.committed([place], timeout=10))
            assert committed[0].offset == confluent_kafka.OFFSET_INVALID


def test_kafka_python_commits_too_late(groups: str, make_group_topic: MakeTopic) -> None:
    topic, group = make_group_topic("late", PARTITIONS), new_group()
    with KafkaPythonMember(groups, group, [topic], Options(session_ms=2000, max_poll_ms=2000)) as late:
        settle([late], PARTITIONS)

        def sleep_and_commit(consumer: kafka.KafkaConsumer) -> None:
            time.sleep(6)
            consumer.commit({kafka.TopicPartition(topic, 0): kafka.structs.OffsetAndMetadata(9, "", -1)})

        with pytest.raises(kafka.errors.CommitFailedError):
            late.do(sleep_and_commit)


# -- settings of the broker --------------------------------------------------------------------------------------------


def test_initial_rebalance_delay() -> None:
    """Members that come one after another within the delay get one assignment, not one each time."""
    settings = {"group.min.session.timeout.ms": 100, "group.initial.rebalance.delay.ms": 4000, "num.partitions": 6}
    with Broker(settings) as broker, ExitStack() as stack:
        members = [ConfluentMember(broker.bootstrap_servers, "delayed", ["delayed"]) for _ in range(3)]
        send(broker.bootstrap_servers, "delayed", PARTITIONS, range(6))
        began = time.monotonic()
        for member in members:
            stack.enter_context(member)
            time.sleep(0.1)
        settle(members, PARTITIONS)
        assert time.monotonic() - began > 3.9
        assert [len(member.changes) for member in members] == [1, 1, 1]


def test_a_session_timeout_that_the_broker_does_not_allow() -> None:
    with Broker({"num.partitions": 1}) as broker:
        send(broker.bootstrap_servers, "short", 1, [0])
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "short", "session.timeout.ms": 100}
        consumer = confluent_kafka.Consumer({**settings, "heartbeat.interval.ms": 50, "log_level": 0})
        consumer.subscribe(["short"])
        (message,) = consumer.consume(1, 60)
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.INVALID_SESSION_TIMEOUT
        consumer.close()


def test_group_max_size() -> None:
    settings = {"group.min.session.timeout.ms": 100, "group.max.size": 1, "num.partitions": 2}
    with Broker(settings) as broker:
        bootstrap = broker.bootstrap_servers
        send(bootstrap, "full", 2, [0])
        with ConfluentMember(bootstrap, "full", ["full"]) as first:
            settle([first], 2)
            second = KafkaPythonMember(bootstrap, "full", ["full"]).start()
            wait_for(lambda: second._failure is not None, "a refusal")
            with pytest.raises(kafka.errors.GroupMaxSizeReachedError):
                second.close()
            assert len(first.owned) == 2
