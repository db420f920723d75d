"""Absurd requests, failing disks and many transactional ids: they cost nobody else anything."""

import os
import subprocess
from pathlib import Path

from tests.chaos.server import Server
from tests.tools import need

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import InitProducerIdRequest
from tidelog.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
)

from . import kit
from .transactions import (
    FIRST,
    SECOND,
    Txn,
    find_coordinator,
    is_in,
    listed,
    read_committed,
    stable_offset,
    until_over,
    write_marker,
)

OK = ErrorCode.NONE


def test_requests_of_nobody(connection: Connection) -> None:
    """Ids that were never given, empty names, partitions that are none: an error each, and the log stays as it is."""
    kit.create_topic(connection, "untouched")
    find_coordinator(connection, "owner")
    owner = Txn(connection, "owner", SECOND)
    assert owner.init() == OK
    for name, producer_id, epoch in (
        ("", -1, -1),
        ("", 0, 0),
        ("owner", -1, -1),
        ("owner", 2**62, 0),
        ("x" * 249, 1, 1),
    ):
        for protocol in (FIRST, SECOND):
            nobody = Txn(connection, name, protocol, producer_id, epoch)
            assert nobody.add("untouched", 0) != OK
            assert nobody.end(True) != OK
            assert nobody.add_offsets("group") != OK
            assert nobody.produce("untouched", b"x").error_code != OK
            assert nobody.commit_offset("group", "untouched", 1) != OK
    assert owner.add("untouched", -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert owner.add("untouched", 2**31 - 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert owner.add("", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert kit.offset_at(connection, "untouched", kit.LATEST) == 0
    assert is_in(connection, "owner", "Empty")


def test_markers_of_nobody(connection: Connection) -> None:
    """Whoever may write markers may end any transaction, but not write what no producer could have begun."""
    kit.create_topic(connection, "unmarked")
    place = ("unmarked", 0)
    for producer_id, epoch in ((-1, 0), (-(2**63), 0), (5, -1)):
        assert write_marker(connection, producer_id, epoch, True, place) == {place: ErrorCode.INVALID_REQUEST}
    assert kit.offset_at(connection, "unmarked", kit.LATEST) == 0
    assert write_marker(connection, 5, 0, True, ("unmarked", -1)) == {
        ("unmarked", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def test_timeouts_are_bounded(connection: Connection) -> None:
    find_coordinator(connection, "bounded")
    for timeout_ms in (0, -1, -(2**31), 2**31 - 1):
        request = InitProducerIdRequest(transactional_id="bounded", transaction_timeout_ms=timeout_ms)
        assert connection.call(request).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_the_same_again_and_again_in_one_request(connection: Connection) -> None:
    find_coordinator(connection, "again")
    kit.create_topic(connection, "again")
    txn = Txn(connection, "again", SECOND)
    assert txn.init() == OK
    topic = AddPartitionsToTxnTopic(name="again", partitions=(0,) * 10_000)
    request = AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id="again", producer_id=txn.producer_id, producer_epoch=txn.epoch, topics=(topic,) * 5
            ),
        )
        * 3
    )
    answer = connection.call(request, 5)
    assert len(answer.results_by_transaction) == 3
    assert len(connection.call(DescribeTransactionsRequest(transactional_ids=("again",) * 5_000)).transaction_states)
    assert txn.abort() == OK
    until_over(connection, "again")


def test_ten_thousand_transactional_ids(tmp_path: Path) -> None:
    """Each costs well under 4 KB, and all are there after a kill."""
    count = 10_000
    with Server(tmp_path / "data") as server:
        with server.connect(timeout=30) as connection:
            find_coordinator(connection, "any")
            before = server.rss_mb
            for start in range(0, count, 500):
                for number in range(start, start + 500):
                    request = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000)
                    connection.send(request, 4)
                for _ in range(500):
                    assert connection.receive().error_code == 0
            assert server.rss_mb - before < count * 4 / 1000
        server.kill()
        server.start()
        with server.connect(timeout=30) as connection:

            def all_there() -> bool:
                answer = listed(connection)
                return answer.error_code == 0 and len(answer.transaction_states) == count

            kit.eventually(all_there, "all transactional ids")


def test_a_disk_that_fails_at_the_markers(tmp_path: Path) -> None:
    """The sync of a marker fails: whoever waits is told or waits on, nobody sees half, and the next start ends it."""
    with Server(tmp_path / "data", settings={"transaction.state.log.num.partitions": "1"}) as server:
        with server.connect() as connection:
            kit.create_topic(connection, "torn", 2)
            txn = Txn(connection, "torn", FIRST)
            assert txn.init() == OK
            txn.write("torn", b"left", partition=0)
            txn.write("torn", b"right", partition=1)
            path = server.data_dir / "torn-1" / "00000000000000000000.log"
            command = [
                need("strace", "strace"),
                "-f",
                "-qq",
                "-o",
                os.devnull,
                "-P",
                str(path),
                "-e",
                "trace=fdatasync",
            ]
            command += ["-e", "inject=fdatasync:error=EIO:when=1", "-p", str(server.pid)]
            tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                status = Path(f"/proc/{server.pid}/status")
                kit.eventually(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text(), "the tracer")
                assert txn.commit() == OK
                failed = ErrorCode.KAFKA_STORAGE_ERROR
                kit.eventually(lambda: kit.fetch(connection, "torn", 0, 1).error_code == failed, "the failure")
                assert txn.produce("torn", b"more").error_code != OK
            finally:
                tracer.kill()
                tracer.wait()
            assert server.alive
        server.kill()
        server.start()
        with server.connect() as connection:
            find_coordinator(connection, "torn")
            until_over(connection, "torn")
            for partition, value in enumerate((b"left", b"right")):
                assert read_committed(connection, "torn", partition) == [value]
                assert stable_offset(connection, "torn", partition) == kit.offset_at(
                    connection, "torn", kit.LATEST, partition
                )
