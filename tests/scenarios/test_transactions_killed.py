"""The broker is killed by SIGKILL at one particular write of a transaction: after the restart the same decision holds
everywhere (invariant 31)."""

import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.chaos.server import Server
from tests.tools import need

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode

from . import kit
from .transactions import (
    FIRST,
    GROUP,
    SECOND,
    Protocol,
    Txn,
    committed_offset,
    find_coordinator,
    read_committed,
    stable_offset,
    until_over,
)

OK = ErrorCode.NONE
ONE = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
STATE, ORDERS, SECOND_ORDERS, OFFSETS = "__transaction_state-0", "orders-0", "orders-1", "__consumer_offsets-0"
NAME, TOPIC, READERS = "pays", "orders", "readers"


class Moment(NamedTuple):
    """The write to this partition's log that never happens, counted from the end of the transaction on."""

    partition: str
    write: int
    decided: bool
    """Whether the decision is in the log by then, so that it holds even if its producer is never heard of again."""


MOMENTS = {
    "at the decision": Moment(STATE, 1, decided=False),
    "at the first marker": Moment(ORDERS, 1, decided=True),
    "at the second marker": Moment(SECOND_ORDERS, 1, decided=True),
    "at the marker of the offsets": Moment(OFFSETS, 1, decided=True),
    "at the record that all markers are written": Moment(STATE, 2, decided=True),
}

CASES = [
    ("at the decision", FIRST, True),
    ("at the decision", SECOND, False),
    ("at the first marker", FIRST, True),
    ("at the second marker", SECOND, True),
    ("at the second marker", FIRST, False),
    ("at the marker of the offsets", SECOND, False),
    ("at the marker of the offsets", FIRST, True),
    ("at the record that all markers are written", SECOND, True),
]


@pytest.mark.parametrize(("moment", "protocol", "committed"), CASES)
def test_killed(tmp_path: Path, moment: str, protocol: Protocol, committed: bool) -> None:
    killed_at(tmp_path, MOMENTS[moment], protocol, committed)


def killed_at(tmp_path: Path, moment: Moment, protocol: Protocol, committed: bool) -> None:
    with Server(tmp_path / "data", settings=ONE) as server:
        with server.connect() as connection:
            kit.create_topic(connection, TOPIC, 2)
            find_coordinator(connection, READERS, GROUP)
            txn = Txn(connection, NAME, protocol)
            assert txn.init() == OK
            txn.write(TOPIC, b"left", partition=0)
            txn.write(TOPIC, b"right", partition=1)
            txn.write_offset(READERS, TOPIC, 42)
            tracer = kill_at_write(server, moment)
            try:
                with pytest.raises((ConnectionError, TimeoutError)):
                    end_and_wait(txn, committed)
                kit.eventually(lambda: not server.alive, "the kill")
            finally:
                tracer.kill()
                tracer.wait()
        server.start()
        with server.connect() as connection:
            txn.connection = connection
            find_coordinator(connection, NAME)
            if not moment.decided:
                # Nothing was decided, so nobody may see anything; its producer asks again.
                assert stable_offset(connection, TOPIC) == 0
                assert committed_offset(connection, READERS, TOPIC)[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
                assert txn.end(committed) == OK
            until_over(connection, NAME)
            check(connection, committed)


def end_and_wait(txn: Txn, committed: bool) -> None:
    """And go on looking: that it is over is seen before it is written down."""
    txn.end(committed)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        until_over(txn.connection, txn.name)
        time.sleep(0.005)


def check(connection: Connection, committed: bool) -> None:
    for partition, value in enumerate((b"left", b"right")):
        assert read_committed(connection, TOPIC, partition) == ([value] if committed else [])
        end = kit.offset_at(connection, TOPIC, kit.LATEST, partition)
        assert stable_offset(connection, TOPIC, partition) == end
    assert committed_offset(connection, READERS, TOPIC) == ((42, OK) if committed else (-1, OK))


def kill_at_write(server: Server, moment: Moment) -> "subprocess.Popen[bytes]":
    """From now on, SIGKILL as the broker enters its nth write to that log."""
    path = server.data_dir / moment.partition / "00000000000000000000.log"
    calls = "write,pwrite64,writev,pwritev,pwritev2"
    command = [need("strace", "strace"), "-f", "-qq", "-o", "/dev/null", "-P", str(path), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:signal=KILL:when={moment.write}", "-p", str(server.pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    status = Path(f"/proc/{server.pid}/status")
    kit.eventually(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text(), "the tracer")
    return tracer
