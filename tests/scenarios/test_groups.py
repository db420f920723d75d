"""Consumer groups over raw connections: what no client library lets one say."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tidelog.testing import Broker
from tidelog.wire.messages.groups import FindCoordinatorRequest, HeartbeatRequest

from .kit import connect


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"group.min.session.timeout.ms": 100}) as running:
        yield running


def test_a_coordinator_that_was_found_answers(broker: Broker) -> None:
    """Also to those who asked while the first question was still creating the topic."""
    answers: list[tuple[int, int]] = []

    def ask(number: int) -> None:
        group = f"group-{number}"
        with connect(broker) as connection:
            found = connection.call(FindCoordinatorRequest(coordinator_keys=(group,)), 4).coordinators[0]
            beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
            answers.append((found.error_code, connection.call(beat, 4).error_code))

    with ExitStack() as stack:
        for number in range(8):
            thread = threading.Thread(target=ask, args=(number,))
            thread.start()
            stack.callback(thread.join)
    assert answers == [(0, 25)] * 8  # UNKNOWN_MEMBER_ID: a coordinator's word
