"""One broker for the session, a fresh topic on demand, and kcat installed when the machine lacks it."""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.tools import need

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The broker under test: ours, unless `COMPAT_BOOTSTRAP` names another one."""
    given = os.environ.get("COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    from tidelog.testing import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def make_topic(admin: AdminClient) -> MakeTopic:
    """`make_topic("name", partitions=3, **{"retention.ms": "1"})` creates a topic with a unique name."""
    return _topic_maker(admin)


def _topic_maker(admin: AdminClient) -> MakeTopic:
    def make(name: str, partitions: int = 1, **config: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[topic].result(20)
        return topic

    return make


@pytest.fixture(scope="session")
def groups() -> Iterator[str]:
    """A broker that allows sessions short enough to wait for; `GROUPS_BOOTSTRAP` may name another such broker."""
    given = os.environ.get("GROUPS_BOOTSTRAP")
    if given:
        yield given
        return
    from tidelog.testing import Broker

    settings = {
        "group.min.session.timeout.ms": 100,
        "group.consumer.session.timeout.ms": 20_000,
        "group.consumer.heartbeat.interval.ms": 100,
        "offsets.topic.num.partitions": 3,
    }
    with Broker(settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def make_group_topic(groups: str) -> MakeTopic:
    return _topic_maker(AdminClient({"bootstrap.servers": groups}))


@pytest.fixture(scope="session", autouse=True)
def kcat() -> str:
    return need("kcat", "kcat")
