"""What readers of each isolation level are given, by four clients. Nothing is patched."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import KafkaError

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from .group_members import wait_for

Isolation = Literal["read_committed", "read_uncommitted"]
ISOLATIONS: tuple[Isolation, Isolation] = ("read_committed", "read_uncommitted")
CALL_S = 60.0

Values = dict[int, list[bytes]]


def end_offset(bootstrap: str, topic: str, partition: int, isolation: Isolation) -> int:
    """Of read_committed readers this is the last stable offset."""
    host, port = bootstrap.rsplit(":", 1)
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(isolation == "read_committed"),
        topics=(ListOffsetsTopic(name=topic, partitions=(asked,)),),
    )
    with Connection(host, int(port)) as connection:
        (answer,) = connection.call(request, 5).topics[0].partitions
    assert answer.error_code == ErrorCode.NONE
    return int(answer.offset)


def _confluent(bootstrap: str, topic: str, ends: Mapping[int, int], isolation: Isolation) -> Values:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_BEGINNING) for p in ends])
    got: Values = {p: [] for p in ends}
    left, deadline = set(ends), time.monotonic() + CALL_S
    while left:
        assert time.monotonic() < deadline, f"no end of partitions {left}"
        for message in consumer.consume(500, 0.1):
            error, partition = message.error(), message.partition() or 0
            if error is None:
                got[partition].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(partition)
    consumer.close()
    return got


def _kafka_python(bootstrap: str, topic: str, ends: Mapping[int, int], isolation: Isolation) -> Values:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation, fetch_max_wait_ms=50
    )
    places = [kafka.TopicPartition(topic, p) for p in ends]
    consumer.assign(places)
    got: Values = {p: [] for p in ends}
    deadline = time.monotonic() + CALL_S
    while any(consumer.position(place) < ends[place.partition] for place in places):
        assert time.monotonic() < deadline, f"stands at {[consumer.position(place) for place in places]} of {ends}"
        for partition, messages in consumer.poll(timeout_ms=100).items():
            got[partition.partition] += [message.value for message in messages]
    consumer.close()
    return got


def _aiokafka(bootstrap: str, topic: str, ends: Mapping[int, int], isolation: Isolation) -> Values:
    got: Values = {p: [] for p in ends}

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            fetch_max_wait_ms=50,
        )
        places = [aiokafka.TopicPartition(topic, p) for p in ends]
        consumer.assign(places)
        async with consumer:
            deadline = time.monotonic() + CALL_S
            while any([await consumer.position(place) < ends[place.partition] for place in places]):
                assert time.monotonic() < deadline, "it does not come to the end"
                for partition, messages in (await consumer.getmany(timeout_ms=100)).items():
                    got[partition.partition] += [message.value for message in messages]

    asyncio.run(run())
    return got


def _kcat(bootstrap: str, topic: str, ends: Mapping[int, int], isolation: Isolation) -> Values:
    got: Values = {}
    for partition in ends:
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning", "-q", "-e"]
        command += ["-X", f"isolation.level={isolation}", "-X", "fetch.wait.max.ms=50", "-f", "%s\n"]
        output = subprocess.run(command, check=True, timeout=CALL_S, capture_output=True).stdout
        got[partition] = output.splitlines()
    return got


READERS: dict[str, Callable[[str, str, Mapping[int, int], Isolation], Values]] = {
    "confluent": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "kcat": _kcat,
}


def until_over(bootstrap: str, topic: str, partitions: Sequence[int] = (0,)) -> None:
    """Waits for the markers. A client's commit returns once it is decided, and readers hear of it a moment later."""
    for partition in partitions:
        wait_for(
            lambda partition=partition: (  # type: ignore[misc]
                end_offset(bootstrap, topic, partition, "read_committed")
                == end_offset(bootstrap, topic, partition, "read_uncommitted")
            ),
            f"the end of every transaction in {topic}-{partition}",
        )


def read(
    bootstrap: str,
    topic: str,
    isolation: Isolation = "read_committed",
    *,
    reader: str = "confluent",
    partitions: Sequence[int] = (0,),
    over: bool = False,
) -> Values:
    """Everything there is for such a reader by now; or once all transactions are `over`."""
    if over:
        until_over(bootstrap, topic, partitions)
    ends = {partition: end_offset(bootstrap, topic, partition, isolation) for partition in partitions}
    return READERS[reader](bootstrap, topic, ends, isolation)
