"""Tests of one `xdist_group` run on one worker, whichever pytest there is; and Ctrl-C reaches what tests start."""

import signal
from typing import Any

import pytest

for _shared in ("cli_cases", "commit_epoch_cases", "group_cli_cases", "txn_cli_cases"):
    pytest.register_assert_rewrite(f"tests.peers.{_shared}")  # no test files by their names, and yet full of asserts

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell without job control starts what runs in the background. Every process that a test starts, and
    # interrupts, would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A group travels from xdist's workers to its scheduler at the end of a test's id. pytest 9.2 keeps ids in another
    attribute than the one that xdist 3.8 writes, which would share groups out test by test without a word."""
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
        suffix = f"@{'_'.join(sorted(groups))}"
        node: Any = item
        if groups and not item.nodeid.endswith(suffix):
            node._id = type(node._id).parse(item.nodeid + suffix)
