"""Options of the sink: Spark's names, the producer's settings, and refusals that say what to write instead."""

import pytest

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, parse_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_a_stream_is_exactly_once_and_a_frame_at_least_once_unless_told() -> None:
    assert parse_options(SERVERS, streaming=True).delivery == EXACTLY_ONCE
    assert parse_options(SERVERS, streaming=False).delivery == AT_LEAST_ONCE
    assert parse_options({**SERVERS, "Delivery": "At-Least-Once"}, streaming=True).delivery == AT_LEAST_ONCE


def test_settings_of_the_producer() -> None:
    given = {
        "kafka.compression.type": "zstd",
        "kafka.acks": "1",
        "kafka.batch.size": "1000",
        "kafka.max.request.size": "5000",
        "kafka.linger.ms": "5",
        "kafka.transaction.timeout.ms": "60000",
    }
    options = parse_options({**SERVERS, **given}, streaming=False)
    assert (options.codec, options.acks, options.batch_bytes, options.bytes_max) == (4, 1, 1000, 5000)
    assert options.transaction_timeout_ms == 60_000


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "kafka.bootstrap.servers is not set"),
        ({"kafka.bootstrap.servers": "nowhere"}, "kafka.bootstrap.servers: "),
        ({**SERVERS, "bootstrap.servers": "x:1"}, "write kafka.bootstrap.servers"),
        ({**SERVERS, "topik": "x"}, "topik is not an option of the tidelog sink; did you mean topic"),
        ({**SERVERS, "delivery": "twice"}, "delivery is 'twice'"),
        ({**SERVERS, "delivery": "exactly-once", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({**SERVERS, "kafka.compression.type": "rar"}, "kafka.compression.type is 'rar'"),
        ({**SERVERS, "kafka.batch.size": "0"}, "kafka.batch.size is '0'"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer is not supported: keys are"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "names its transactions itself"),
        ({**SERVERS, "kafka.security.protocol": "SSL"}, "PLAINTEXT only"),
        ({**SERVERS, "kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism is not a setting of this sink"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        parse_options(given, streaming=False)
