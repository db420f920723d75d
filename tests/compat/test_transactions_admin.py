"""Looking at transactions and ending one that hangs: by kafka-python's admin client, and over the wire."""

import time
import uuid
from collections.abc import Iterator

import kafka
import kafka.errors
import pytest
from kafka.admin._transactions import AbortTransactionSpec

from tidelog.errors import ErrorCode
from tidelog.wire.messages.configs import DescribeProducersRequest, DescribeProducersRequestTopic
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from .conftest import MakeTopic
from .group_members import wait_for
from .transaction_clients import PRODUCERS
from .transaction_readers import end_offset, read, until_over
from .transaction_wire import WireProducer


def new_id() -> str:
    return f"txn-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def admin(groups: str) -> Iterator[kafka.KafkaAdminClient]:
    client = kafka.KafkaAdminClient(bootstrap_servers=groups)
    yield client
    client.close()


@pytest.mark.parametrize("client", PRODUCERS)
def test_describe(groups: str, make_group_topic: MakeTopic, admin: kafka.KafkaAdminClient, client: str) -> None:
    topic, name = make_group_topic("described", 2), new_id()
    with PRODUCERS[client](groups, name, timeout_ms=12_345) as producer:

        def look() -> tuple[str, int, set[int]]:
            found = admin.describe_transactions([name])[name]
            assert (found.transaction_timeout_ms, found.producer_id >= 0) == (12_345, True)
            assert all(each.topic == topic for each in found.topic_partitions)
            return found.state.value, found.transaction_start_time_ms, {p.partition for p in found.topic_partitions}

        assert look() == ("Empty", -1, set())
        before = time.time() * 1000
        producer.begin()
        producer.send(topic, 1, b"x")
        state, start_ms, partitions = look()
        assert (state, partitions) == ("Ongoing", {1})
        assert before - 1 <= start_ms <= time.time() * 1000
        producer.send(topic, 0, b"x")
        assert look()[2] == {0, 1}
        producer.abort()
        wait_for(lambda: look()[0] == "CompleteAbort", "the abort")
        producer.transact(topic, 0, b"y")
        wait_for(lambda: look()[0] == "CompleteCommit", "the commit")
        assert look()[2] == set()


def test_who_is_not_there(groups: str, admin: kafka.KafkaAdminClient) -> None:
    with pytest.raises(kafka.errors.TransactionalIdNotFoundError):
        admin.describe_transactions([new_id()])


def test_list(groups: str, make_group_topic: MakeTopic, admin: kafka.KafkaAdminClient) -> None:
    topic, mark = make_group_topic("listed"), uuid.uuid4().hex[:8]
    with (
        PRODUCERS["confluent"](groups, f"{mark}-open") as busy,
        PRODUCERS["kafka-python"](groups, f"{mark}-done") as done,
        PRODUCERS["aiokafka"](groups, f"{mark}-idle"),
    ):
        done.transact(topic, 0, b"x")
        until_over(groups, topic)
        busy.begin()
        busy.send(topic, 0, b"x")
        time.sleep(0.3)

        def listed(**filters: object) -> dict[str, str]:
            found = [each for listing in admin.list_transactions(**filters).values() for each in listing]
            return {
                each.transactional_id.removeprefix(f"{mark}-"): each.state.value
                for each in found
                if each.transactional_id.startswith(mark)
            }

        wait_for(lambda: listed().get("done") == "CompleteCommit", "the commit")
        assert listed() == {"open": "Ongoing", "done": "CompleteCommit", "idle": "Empty"}
        assert listed(state_filters=["Ongoing", "Empty"]) == {"open": "Ongoing", "idle": "Empty"}
        producer_id = admin.describe_transactions([f"{mark}-done"])[f"{mark}-done"].producer_id
        assert listed(producer_id_filters=[producer_id]) == {"done": "CompleteCommit"}
        assert listed(state_filters=["Ongoing"], duration_filter_ms=200) == {"open": "Ongoing"}
        assert listed(state_filters=["Ongoing"], duration_filter_ms=60_000) == {}
        assert listed(transactional_id_pattern=f"{mark}-(open|idle)") == {"open": "Ongoing", "idle": "Empty"}
        busy.abort()


def test_producers_of_a_partition(groups: str, make_group_topic: MakeTopic, admin: kafka.KafkaAdminClient) -> None:
    topic, name = make_group_topic("producers"), new_id()
    place = kafka.TopicPartition(topic, 0)
    with PRODUCERS["confluent"](groups, name) as producer:
        producer.transact(topic, 0, b"a", b"b")
        until_over(groups, topic)
        (found,) = admin.describe_producers([place])[place].active_producers
        described = admin.describe_transactions([name])[name]
        assert (found.producer_id, found.producer_epoch) == (described.producer_id, described.producer_epoch)
        assert (found.last_sequence, found.current_transaction_start_offset) == (1, -1)
        assert abs(found.last_timestamp - time.time() * 1000) < 20_000
        producer.begin()
        producer.send(topic, 0, b"c")
        (found,) = admin.describe_producers([place])[place].active_producers
        assert (found.last_sequence, found.current_transaction_start_offset) == (2, 3)
        producer.abort()
        until_over(groups, topic)
        (found,) = admin.describe_producers([place])[place].active_producers
        assert found.current_transaction_start_offset == -1
        assert found.coordinator_epoch >= 0


def test_ending_a_transaction_that_hangs(
    groups: str, make_group_topic: MakeTopic, admin: kafka.KafkaAdminClient
) -> None:
    """An administrator's abort marker in one partition: readers go on, the coordinator is not asked."""
    topic, name = make_group_topic("hangs"), new_id()
    place = kafka.TopicPartition(topic, 0)
    PRODUCERS["confluent"](groups, name).init()
    with PRODUCERS["confluent"](groups, name) as producer:
        producer.begin()
        producer.send(topic, 0, b"hangs")
        (found,) = admin.describe_producers([place])[place].active_producers
        wrong = AbortTransactionSpec(place, found.producer_id, found.producer_epoch - 1)
        with pytest.raises(kafka.errors.InvalidProducerEpochError):
            admin.abort_transaction(wrong)
        assert end_offset(groups, topic, 0, "read_committed") == 0
        admin.abort_transaction(AbortTransactionSpec(place, found.producer_id, found.producer_epoch))
        assert end_offset(groups, topic, 0, "read_committed") == 2
        assert read(groups, topic)[0] == []


def test_what_administrators_get_wrong(groups: str, make_group_topic: MakeTopic) -> None:
    topic, name = make_group_topic("wrong"), new_id()
    with WireProducer(groups, name) as producer:
        producer.init()
        call = producer.connection.call
        listed: ListTransactionsResponse = call(
            ListTransactionsRequest(state_filters=("Ongoing", "Nonsense"), producer_id_filters=()), 1
        )
        assert (listed.error_code, listed.unknown_state_filters) == (ErrorCode.NONE, ("Nonsense",))
        broken = ListTransactionsRequest(
            state_filters=(), producer_id_filters=(), transactional_id_pattern="(not a pattern"
        )
        assert call(broken, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        described = call(DescribeTransactionsRequest(transactional_ids=(name, f"no-{name}")), 0)
        codes = {each.transactional_id: each.error_code for each in described.transaction_states}
        assert codes == {name: ErrorCode.NONE, f"no-{name}": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
        asked = (
            DescribeProducersRequestTopic(name=topic, partition_indexes=(0, 7)),
            DescribeProducersRequestTopic(name=f"no-{topic}", partition_indexes=(0,)),
        )
        answer = call(DescribeProducersRequest(topics=asked), 0)
        codes = {(each.name, p.partition_index): p.error_code for each in answer.topics for p in each.partitions}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {(topic, 0): ErrorCode.NONE, (topic, 7): missing, (f"no-{topic}", 0): missing}


def test_a_fetch_names_what_was_aborted(groups: str, make_group_topic: MakeTopic) -> None:
    """Readers drop records by this list: whose, and from which offset on. It is short: only what the answer covers."""
    topic = make_group_topic("aborted")
    with WireProducer(groups, new_id()) as producer:
        producer.init()
        for number, commit in enumerate((True, False, True, False)):
            producer.write(topic, 0, b"%d" % number, b"and more")
            producer.end(commit)
            until_over(groups, topic)
        identity = producer.identity

        def aborted(offset: int, isolation_level: int) -> list[tuple[int, int]] | None:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
            topics = (FetchTopic(topic=topic, partitions=(asked,)),)
            request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, isolation_level=isolation_level)
            data = producer.connection.call(request, 11).responses[0].partitions[0]
            assert (data.last_stable_offset, data.high_watermark) == (12, 12)
            if data.aborted_transactions is None:
                return None
            return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]

        assert aborted(0, 1) == [(identity.producer_id, 3), (identity.producer_id, 9)]
        assert aborted(4, 1) == [(identity.producer_id, 3), (identity.producer_id, 9)]
        assert aborted(6, 1) == [(identity.producer_id, 9)]
        assert not aborted(0, 0)
