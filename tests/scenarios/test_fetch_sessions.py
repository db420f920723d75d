"""Fetch sessions (KIP-227): after the first answer only news travels, and confusion is answered with Kafka's errors."""

from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.broker.fetch_sessions import PARTITIONS_MAX
from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.testing import Broker
from tidelog.wire.messages.data import FetchRequest, ForgottenTopic

from . import kit


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"max.incremental.fetch.session.cache.slots": 3}) as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected


class Session:
    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self.session_id = 0
        self.epoch = 0

    def fetch(self, *wishes: Any, forget: tuple[int, ...] = (), **options: Any) -> Any:
        forgotten = (ForgottenTopic(topic=self.topic, partitions=forget),) if forget else ()
        fields = {"session_id": self.session_id, "session_epoch": self.epoch, "forgotten_topics_data": forgotten}
        request = kit.fetch_request(self.topic, *wishes, **{**fields, **options})
        if not wishes:
            request = FetchRequest(topics=(), **{**_fields(request), **{k: getattr(request, k) for k in fields}})
        answer = self.connection.call(request, kit.NAMES)
        if answer.error_code == 0:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer

    def told(self, *wishes: Any, **options: Any) -> dict[int, list[bytes]]:
        answer = self.fetch(*wishes, **options)
        assert answer.error_code == 0
        return {
            each.partition_index: kit.values(kit.records_in(each.records))
            for topic in answer.responses
            for each in topic.partitions
        }


def _fields(request: FetchRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("max_wait_ms", "min_bytes", "max_bytes", "isolation_level")}


def test_only_news_is_told(connection: Connection) -> None:
    kit.create_topic(connection, "news", 3)
    kit.store(connection, "news", b"old", partition=1)
    session = Session(connection, "news")
    assert session.told(kit.wish(0), kit.wish(0, 1), kit.wish(0, 2)) == {0: [], 1: [b"old"], 2: []}
    assert session.session_id > 0
    assert session.told(kit.wish(1, 1)) == {}, "nothing is new, and nothing is said"
    kit.store(connection, "news", b"new", partition=2)
    assert session.told() == {2: [b"new"]}
    assert session.told() == {2: [b"new"]}, "until the client says that it has it"
    assert session.told(kit.wish(1, 2)) == {}
    assert kit.delete_records(connection, "news", 1, partition=1).error_code == 0
    assert session.told() == {1: []}, "a moved start is news too"


def test_forgotten_partitions_are_told_no_more(connection: Connection) -> None:
    kit.create_topic(connection, "forget", 2)
    session = Session(connection, "forget")
    session.fetch(kit.wish(0), kit.wish(0, 1))
    session.fetch(forget=(1,))
    for partition in range(2):
        kit.store(connection, "forget", b"x", partition=partition)
    assert session.told() == {0: [b"x"]}
    assert session.told(kit.wish(0, 1)) == {0: [b"x"], 1: [b"x"]}


def test_a_wrong_epoch_or_id(connection: Connection) -> None:
    kit.create_topic(connection, "epoch")
    session = Session(connection, "epoch")
    session.fetch(kit.wish(0))
    assert session.fetch(session_epoch=7).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.fetch(session_id=session.session_id ^ 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert session.fetch().error_code == 0, "the session itself is unharmed"
    closed = session.fetch(kit.wish(0), session_epoch=-1)
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert session.fetch(session_epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_longest_unused_session_makes_room(connection: Connection) -> None:
    kit.create_topic(connection, "slots")
    sessions = [Session(connection, "slots") for _ in range(4)]
    for session in sessions[:3]:
        session.fetch(kit.wish(0))
    assert sessions[0].fetch().error_code == 0
    sessions[3].fetch(kit.wish(0))
    codes = [session.fetch().error_code for session in sessions]
    assert codes == [0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0]


def test_sessions_together_have_room_for_so_many_partitions(connection: Connection) -> None:
    """Also for partitions that do not exist: one fetch may name a million, and a thousand sessions remembered them."""
    kit.create_topic(connection, "roomy")
    small, large, larger = (Session(connection, "roomy") for _ in range(3))
    small.fetch(kit.wish(0))
    half = [kit.wish(0, number) for number in range(PARTITIONS_MAX // 2)]
    large.fetch(*half)
    assert small.fetch().error_code == 0
    larger.fetch(*half)  # and one more than there is room for
    assert large.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert small.fetch().error_code == 0
    answer = small.fetch(*(kit.wish(0, number) for number in range(PARTITIONS_MAX + 1)))
    assert len(answer.responses[0].partitions) == PARTITIONS_MAX  # all but the one it knows of
    assert small.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    unkept = Session(connection, "roomy")
    assert unkept.fetch(*(kit.wish(0, number) for number in range(PARTITIONS_MAX + 1))).session_id == 0


def test_names_and_ids_do_not_mix(connection: Connection) -> None:
    topic_id = kit.create_topic(connection, "mixed")
    session = Session(connection, "mixed")
    session.fetch(kit.wish(0))
    request = kit.fetch_request(topic_id, kit.wish(0), session_id=session.session_id, session_epoch=1)
    assert connection.call(request, kit.IDS).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_answer_starves_nobody(connection: Connection) -> None:
    """One batch fits into an answer; every partition has its turn."""
    kit.create_topic(connection, "turns", 5)
    for partition in range(5):
        kit.store(connection, "turns", b"x" * 1000, partition=partition)
    session = Session(connection, "turns")
    served: list[int] = []
    wishes = [kit.wish(0, partition) for partition in range(5)]
    for _ in range(5):
        told = session.told(*wishes, max_bytes=1100)
        wishes = []
        served += [partition for partition, found in told.items() if found]
    assert sorted(served) == [0, 1, 2, 3, 4]


def test_a_deleted_topic_is_an_error_until_it_is_forgotten(connection: Connection) -> None:
    kit.create_topic(connection, "vanish")
    kit.create_topic(connection, "stay")
    session = Session(connection, "vanish")
    session.fetch(kit.wish(0))
    kit.delete_topic(connection, "vanish")
    for _ in range(2):
        (topic,) = session.fetch().responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert session.told(forget=(0,)) == {}
