"""Transactions of Java clients of both protocols, Kafka's own transactions tool, and Kafka's reading of our files."""

import re
import time
import uuid
from pathlib import Path

import pytest
from tests.compat.transaction_clients import ConfluentProducer, Fenced
from tests.compat.transaction_readers import end_offset, until_over
from tests.compat.transaction_wire import SECOND, WireProducer

from tidelog.cli import run
from tidelog.testing import Broker

from .conftest import Program
from .kafka_server import VERSION, kafka_tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]

PROGRAM = "TransactionCheck"
VERSIONS = {"3.9.1": "first", VERSION: "second"}
STEPS = ("visible", "fence", "timeout", "offsets", "loop", "administer")
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_java_clients(bootstrap: str, java_program: Program, version: str, step: str) -> None:
    topic = f"java-{step}-{uuid.uuid4().hex[:8]}"
    assert f"ok {step}" in java_program(version, bootstrap, topic, step, VERSIONS[version])


def test_kafkas_transactions_tool(bootstrap: str) -> None:
    name, topic = f"tool-{uuid.uuid4().hex[:8]}", f"tool-{uuid.uuid4().hex[:8]}"

    def tool(*arguments: str) -> str:
        return kafka_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, *arguments)

    with ConfluentProducer(bootstrap, name, timeout_ms=100_000) as producer:
        producer.begin()
        producer.send(topic, 0, b"hangs")
        assert re.search(rf"{name}\s+\S+\s+\d+\s+Ongoing", tool("list"))
        assert name not in tool("list", "--duration-filter", "3600000")
        told = tool("describe", "--transactional-id", name)
        assert re.search(rf"\d+\s+{name}\s+\d+\s+0\s+Ongoing\s+100000\s+\d+\s+\d+\s+{topic}-0", told), told
        where = ("--topic", topic, "--partition", "0")
        told = tool("describe-producers", *where)
        assert re.search(r"\d+\s+0\s+\S+\s+0\s+\d+\s+0", told), told
        assert topic not in tool("find-hanging", *where, "--max-transaction-timeout", "0")  # its coordinator knows it
        tool("abort", *where, "--start-offset", "0")
        assert end_offset(bootstrap, topic, 0, "read_committed") == 2
        tool("forceTerminateTransaction", "--transactionalId", name)
        with pytest.raises(Fenced):
            producer.commit()


def _decisions(life: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """How it began, what was decided, and how it ended."""
    return [*life[:2], *(each for each in life if each[0] in (2, 3)), life[-1]]


def test_kafka_reads_our_files(tmp_path: Path) -> None:
    """Control batches, the index of aborted transactions, producer snapshots and the coordinator's own topic."""
    settings = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with Broker(settings, data_dir=tmp_path) as broker:
        bootstrap = broker.bootstrap_servers
        with ConfluentProducer(bootstrap, "first-protocol") as producer:
            producer.transact("orders", 0, b"kept")
            producer.transact("orders", 0, b"lost", commit=False)
            producer.begin()
            producer.send("orders", 0, b"with offsets")
            producer.send_offsets({("orders", 0): 7}, "billing")
            producer.commit()
        with WireProducer(bootstrap, "second-protocol", SECOND) as wire:
            wire.init()
            for commit in (True, False):
                wire.write("orders", 0, b"x")
                wire.end(commit)
        until_over(bootstrap, "orders")
        time.sleep(0.2)  # the coordinator's own record of it comes after the last marker
    partition = tmp_path / "orders-0"
    log = partition / f"{0:020d}.log"
    out = kafka_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", str(log))
    assert "isvalid: false" not in out
    assert re.findall(r"endTxnMarker: (\w+)", out) == ["COMMIT", "ABORT", "COMMIT", "COMMIT", "ABORT"]
    assert len(re.findall(r"isTransactional: true isControl: false", out)) == 5
    index = kafka_tool(DUMP, "--files", str(partition / f"{0:020d}.txnindex"))
    aborted = [tuple(map(int, each)) for each in re.findall(r"firstOffset: (\d+) lastOffset: (\d+)", index)]
    assert aborted == [(2, 3), (8, 9)], index
    snapshots = sorted(partition.glob("*.snapshot"))
    told = kafka_tool(DUMP, "--files", str(snapshots[-1]))
    assert (
        len(re.findall(r"producerId: \d+ producerEpoch: \d+ .*currentTxnFirstOffset: OptionalLong.empty", told)) == 2
    ), told

    state = tmp_path / "__transaction_state-0" / f"{0:020d}.log"
    told = kafka_tool(DUMP, "--transaction-log-decoder", "--files", str(state))
    assert "isvalid: false" not in told
    written = re.findall(r'"transactionalId":"(\w+)-protocol"\}.*"producerEpoch":(\d+).*"transactionStatus":(\d)', told)
    lives: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
    for protocol, epoch, status in written:
        lives[protocol].append((int(status), int(epoch)))
    # 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort. What is over is written
    # down for itself only if the producer takes its time, and so is what begins.
    assert _decisions(lives["first"]) == [(0, 0), (1, 0), (2, 0), (3, 0), (2, 0), (4, 0)]
    assert _decisions(lives["second"]) == [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2)]
    offsets = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    told = kafka_tool(DUMP, "--offsets-decoder", "--files", str(offsets))
    assert "endTxnMarker: COMMIT" in told
    assert re.search(r'"group":"billing","topic":"orders","partition":0.*"offset":7', told), told
    assert run(["log", "verify", str(partition)]) == 0
