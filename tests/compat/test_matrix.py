"""Every producer with every codec, read by every consumer: keys, values, headers, timestamps and offsets agree."""

from collections.abc import Callable
from functools import cache

import pytest

from .clients import CLIENTS
from .conftest import MakeTopic
from .records import CODECS, RECORDS, Received, Record

Consume = Callable[[str, str], dict[int, list[Received]]]


def sent_by(producer: str) -> list[Record]:
    return [record for record in RECORDS if CLIENTS[producer].can_send(record)]


@pytest.fixture(scope="module")
def consumed(bootstrap: str, make_topic: MakeTopic) -> Consume:
    """A topic per producer with a partition per codec, and one consumer per pair: 16 clients instead of 80."""

    @cache
    def topic_of(producer: str) -> str:
        topic = make_topic(f"matrix-{producer}", partitions=len(CODECS))
        for partition, codec in enumerate(CODECS):
            CLIENTS[producer].produce(bootstrap, topic, partition, sent_by(producer), codec)
        return topic

    @cache
    def consume(producer: str, consumer: str) -> dict[int, list[Received]]:
        counts = dict.fromkeys(range(len(CODECS)), len(sent_by(producer)))
        return CLIENTS[consumer].consume(bootstrap, topic_of(producer), counts)

    return consume


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("consumer", CLIENTS)
@pytest.mark.parametrize("producer", CLIENTS)
def test_what_one_client_writes_every_client_reads(consumed: Consume, producer: str, consumer: str, codec: str) -> None:
    sent = sent_by(producer)
    got = consumed(producer, consumer)[CODECS.index(codec)]

    assert [r.offset for r in got] == list(range(len(sent)))
    assert [(r.key, r.value) for r in got] == [(r.key, r.value) for r in sent]
    assert [r.headers for r in got] == [r.headers for r in sent]
    if CLIENTS[producer].sets_timestamps:
        assert [r.timestamp_ms for r in got] == [r.timestamp_ms for r in sent]
    else:
        assert all(r.timestamp_ms > 0 for r in got)
