"""Options: Spark's Kafka names and defaults, and complaints that say what to write instead."""

import pytest

from tidelog.ids import TopicPartition
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.options import parse_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(streaming=False, without=(), **more):
    given = {key: value for key, value in (BASE | more).items() if key not in without}
    return parse_options(given, streaming=streaming)


def test_defaults_are_those_of_sparks_connector():
    batch, stream = parse(), parse(streaming=True)
    assert (batch.starting.kind, batch.ending.kind, stream.starting.kind) == ("earliest", "latest", "latest")
    assert batch.topics == ("orders",)
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.isolation_level == 0
    assert batch.group_id is None


def test_names_do_not_distinguish_case():
    options = parse(streaming=True, MAXOFFSETSPERTRIGGER="5", failondataloss="FALSE", IncludeHeaders="true")
    assert options.max_offsets_per_trigger == 5
    assert not options.fail_on_data_loss
    assert options.include_headers


def test_settings_of_javas_consumer_that_have_no_effect_are_taken():
    assert parse(**{"kafka.max.poll.records": "500", "kafka.fetch.max.bytes": "1", "kafka.client.rack": "a"})


def test_what_to_read():
    assert parse(subscribe="b, a,a").topics == ("a", "b")
    assert parse(without=("subscribe",), subscribePattern="or.*").pattern == "or.*"
    assigned = parse(without=("subscribe",), assign='{"b": [1, 0], "a": [2]}').assigned
    assert assigned == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


def test_offsets_and_timestamps():
    bound = parse(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert bound.per_partition == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}
    # As in Spark's connector, one timestamp comes before timestamps per partition, and those before offsets.
    both = parse(startingOffsets="earliest", startingTimestamp="17", startingOffsetsByTimestamp='{"orders": {"0": 3}}')
    assert (both.starting.kind, both.starting.timestamp) == ("timestamp", 17)
    assert parse(endingOffsetsByTimestamp='{"orders": {"0": 3}}', endingOffsets="latest").ending.kind == "timestamps"


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("500 ms", 500), ("2h", 7_200_000)])
def test_trigger_delay(text, ms):
    assert parse(streaming=True, maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_isolation_level_by_either_name():
    assert parse(**{"kafka.isolation.level": "read_committed"}).isolation_level == 1
    assert parse(**{"isolation.level": "read_committed"}).isolation_level == 1


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"maxOffsetsPerTriger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"bootstrap.servers": "x:1"}, "write kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "localhost"}, "'localhost' is not host:port"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is not set"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": ""}, "none is given"),
        ({"subscribe": "", "subscribePattern": "("}, "no regular expression"),
        ({"subscribe": "", "assign": "[1]"}, "assign: expected JSON"),
        ({"subscribe": "", "assign": "{}"}, "no partition is named"),
        ({"startingOffsets": "newest"}, 'expected "earliest", "latest" or JSON'),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "expected"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "-3; offsets are"),
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -5}}'}, "negative timestamp"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "may be error or latest"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"includeHeaders": "yes"}, "includeHeaders is 'yes'"),
        ({"maxOffsetsPerTrigger": "5"}, "is for streams"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.group.id publishes it"),
        ({"kafka.security.protocol": "SASL_SSL"}, "PLAINTEXT only"),
        ({"kafka.sasl.jaas.config": "x"}, "PLAINTEXT only"),
        ({"kafka.isolation.levle": "read_committed"}, "did you mean kafka.isolation.level"),
        ({"kafka.bootstrap.server": "x:1"}, "did you mean kafka.bootstrap.servers"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        ({"value.format": "xml"}, "may be raw or string or json or avro"),
    ],
)
def test_complaints_of_batch_reads(given, complaint):
    with pytest.raises(InvalidOption, match=complaint.replace("(", r"\(")):
        parse(**given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"endingOffsets": "latest"}, "is for batch reads"),
        ({"endingTimestamp": "5"}, "is for batch reads"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "9 is above maxOffsetsPerTrigger 3"),
        ({"maxTriggerDelay": "soon"}, "for example 15m"),
    ],
)
def test_complaints_of_streams(given, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse(streaming=True, **given)
