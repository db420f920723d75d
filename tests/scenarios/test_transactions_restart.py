"""A decision that was taken is carried out, whatever happens to the broker that took it (invariants 29-31)."""

from pathlib import Path

import pytest

from tidelog.errors import ErrorCode

from . import kit
from .transactions import (
    FIRST,
    SECOND,
    Protocol,
    Txn,
    hold_markers,
    is_in,
    let_markers_go,
    read_committed,
    stable_offset,
    until_over,
)

both = pytest.mark.parametrize("protocol", [FIRST, SECOND], ids=["first", "second"])
OK = ErrorCode.NONE


@both
@pytest.mark.parametrize("committed", [True, False])
def test_what_was_decided_is_carried_out_after_a_restart(tmp_path: Path, protocol: Protocol, committed: bool) -> None:
    """Its coordinator may be loaded before the logs it has to write to are open: it waits for them."""
    with kit.broker_at(tmp_path) as connection:
        txn = Txn(connection, "pays", protocol)
        assert txn.init() == OK
        kit.create_topic(connection, "orders", 3)
        for partition in range(3):
            txn.write("orders", b"%d" % partition, partition=partition)
        hold_markers(connection, "orders")
        assert txn.end(committed) == OK
        assert is_in(connection, "pays", "PrepareCommit" if committed else "PrepareAbort")
        assert stable_offset(connection, "orders") == 0
    with kit.broker_at(tmp_path) as connection:
        assert is_in(connection, "pays", "PrepareCommit" if committed else "PrepareAbort")
        let_markers_go(connection, "orders")
        until_over(connection, "pays")
        for partition in range(3):
            assert stable_offset(connection, "orders", partition) == 2
            assert read_committed(connection, "orders", partition) == ([b"%d" % partition] if committed else [])
