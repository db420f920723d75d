"""The CLI on Apache Kafka: every command that talks to a cluster."""

from collections.abc import Iterator

import pytest
from tests.peers.cli_cases import CliCases
from tests.peers.kafka_server import KafkaServer

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with KafkaServer() as kafka:
        yield kafka.bootstrap_servers


class TestCliOnKafka(CliCases):
    pass
