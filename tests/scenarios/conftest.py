"""A broker for all tests of a file, and a connection of the wire client for each. A file may have its own instead."""

from collections.abc import Iterator

import pytest

from tidelog.client.connection import Connection
from tidelog.testing import Broker

from . import kit


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with kit.connect(broker) as connected:
        yield connected
