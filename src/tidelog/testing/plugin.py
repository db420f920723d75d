"""Fixtures for tests that need a broker: installed with Tidelog, loaded by pytest, free until used.

    def test_orders(tidelog_broker, tidelog_topic):
        producer = confluent_kafka.Producer({"bootstrap.servers": tidelog_broker.bootstrap_servers})
        producer.produce(tidelog_topic, b"hello")

Imports are inside the fixtures: pytest loads this file in every run of everybody who has Tidelog installed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.testing import Broker

MARKER = "tidelog_partitions(count): how many partitions the topic of the tidelog_topic fixture has; 1 if not said"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def tidelog_broker() -> "Iterator[Broker]":
    """A broker for the whole test run: `.bootstrap_servers`, `.port`, `.data_dir`."""
    from tidelog.testing import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def tidelog_topic(tidelog_broker: "Broker", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that exists for one test.

    `@pytest.mark.tidelog_partitions(3)`, or an indirect parameter, says how many partitions it has.
    """
    from uuid import uuid4

    import confluent_kafka.admin as kafka

    admin = kafka.AdminClient({"bootstrap.servers": tidelog_broker.bootstrap_servers})
    topic = f"test-{uuid4().hex[:12]}"
    new = kafka.NewTopic(topic, num_partitions=_partitions(request), replication_factor=1)  # type: ignore[attr-defined]
    admin.create_topics([new])[topic].result(15)
    yield topic
    # The test may have deleted it; that is its business.
    admin.delete_topics([topic])[topic].exception(15)


def _partitions(request: pytest.FixtureRequest) -> int:
    marker = request.node.get_closest_marker("tidelog_partitions")
    wanted = getattr(request, "param", None) or (marker.args[0] if marker else 1)
    return int(wanted)
