"""One broker and, for the tests that want it, one Spark for the whole run."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext
from tests.spark.kit import QUICK_JAVA, Topics

from tidelog.testing import Broker


@pytest.fixture(autouse=True)
def nobody_stays_a_task() -> Iterator[None]:
    """A test that was a task (`be_task`) leaves a process in which no Spark can be started otherwise."""
    yield
    TaskContext._taskContext = None


@pytest.fixture(scope="session")
def spark_broker() -> Iterator[Broker]:
    settings = {
        "log.retention.check.interval.ms": 200,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    with Broker(settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def topics(spark_broker: Broker) -> Topics:
    return Topics(spark_broker.bootstrap_servers)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Marked tests share it on one xdist worker: `pytestmark = pytest.mark.xdist_group("spark")`."""
    from tidelog.spark import session

    if request.config.getoption("loadgroup", False):  # set in workers
        with (tmp_path_factory.getbasetemp().parent / "spark").open("x"):
            pass  # it is there already if another worker has a session: groups are not kept together
    found = session(
        "tests",
        "local[2]",
        **{
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 1,
            "spark.python.authenticate.socketTimeout": "120s",  # a busy machine starts Python slowly
            "spark.driver.extraJavaOptions": QUICK_JAVA,
        },
    )
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()
