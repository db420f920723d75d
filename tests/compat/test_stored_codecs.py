"""The broker keeps the batches as they came: what a client compressed is stored and sent compressed, with its codec.

That includes LZ4 from librdkafka, which takes a broker without FindCoordinator for one that is too old to know it, and
then silently sends plain batches.
"""

import pytest

from tidelog.client.connection import Connection
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.record_batch import iter_batches

from .clients import CLIENTS
from .conftest import MakeTopic
from .records import BASE_TIME_MS, CODECS, Record


@pytest.mark.parametrize("producer", CLIENTS)
def test_batches_keep_their_codec(bootstrap: str, make_topic: MakeTopic, producer: str) -> None:
    topic = make_topic("codecs", partitions=len(CODECS))
    record = Record(key=b"key", value=b"ebb and flow " * 500, timestamp_ms=BASE_TIME_MS)
    for partition, codec in enumerate(CODECS):
        CLIENTS[producer].produce(bootstrap, topic, partition, [record] * 20, codec)

    host, port = bootstrap.rsplit(":", 1)
    with Connection(host, int(port)) as connection:
        for partition, codec in enumerate(CODECS):
            asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=10_000_000)
            topics = (FetchTopic(topic=topic, partitions=(asked,)),)
            answer = connection.call(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), version=10)
            headers = [header for header, _ in iter_batches(answer.responses[0].partitions[0].records)]
            assert {header.codec for header in headers} == {CODECS.index(codec)}, codec
            assert sum(header.records_count for header in headers) == 20
            if codec != "none":
                assert sum(header.size for header in headers) < 20 * 6500 / 4
