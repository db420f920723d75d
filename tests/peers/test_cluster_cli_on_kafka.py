"""`tidelog cluster status`, `topic reassign` and `topic elect` on Apache Kafka."""

import json
from collections.abc import Iterator

import pytest
from tests.peers.kafka_server import KafkaServer

from tidelog.cli import run

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

Said = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with KafkaServer() as kafka:
        yield kafka.bootstrap_servers


def test_status(bootstrap: str, capfd: Said) -> None:
    assert run(["topic", "create", "seen", "-p", "3", "-r", "1", "-b", bootstrap]) == 0
    capfd.readouterr()
    assert run(["cluster", "status", "-b", bootstrap]) == 0
    out = capfd.readouterr().out
    assert "1 broker" in out
    assert "all replicas in sync" in out
    assert "leads, epoch" in out
    assert run(["cluster", "status", "-o", "json", "-b", bootstrap]) == 0
    told = json.loads(capfd.readouterr().out)
    (broker,) = told["brokers"]
    assert broker["leaders"] >= 3
    assert [each["lag"] for each in told["quorum"]["voters"]] == [0]


def test_reassign_and_elect(bootstrap: str, capfd: Said) -> None:
    assert run(["topic", "create", "moved", "-p", "2", "-r", "1", "-b", bootstrap]) == 0
    run(["cluster", "status", "-o", "json", "-b", bootstrap])
    node = json.loads(capfd.readouterr().out.splitlines()[-1])["brokers"][0]["id"]
    assert run(["topic", "reassign", "moved", "--to", str(node), "-b", bootstrap]) == 0
    assert "2 partitions moved" in capfd.readouterr().out
    assert run(["topic", "reassign", "moved", "--cancel", "-b", bootstrap]) == 0
    assert "nothing is being moved" in capfd.readouterr().out
    assert run(["topic", "elect", "moved", "-b", bootstrap]) == 0
    assert "led by its preferred replica" in capfd.readouterr().out
    assert run(["cluster", "decommission", str(node), "--dry-run", "-b", bootstrap]) == 1
    assert "is the only one there" in capfd.readouterr().err
