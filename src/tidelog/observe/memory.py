"""What a Tidelog coordinator remembers about a group: its events, and where it stood over the last minutes."""

from typing import Final, NamedTuple

import msgspec

from tidelog.client.connection import Connection
from tidelog.errors import ErrorCode, MalformedMessage
from tidelog.groups.insight import GroupInsight
from tidelog.observe.clients import Kafka, speaks_plainly
from tidelog.observe.group import Coordinator, GroupIdNotFound
from tidelog.wire.messages.insight import GroupInsightRequest, GroupInsightResponse

TIMEOUT_SECONDS: Final = 5.0
NOT_TIDELOG: Final = "this coordinator keeps no history (only Tidelog's does)"
NOT_PLAINLY: Final = "a coordinator's history is told over PLAINTEXT connections only"


class Memory(NamedTuple):
    insight: GroupInsight | None
    missing_because: str = ""


def ask(kafka: Kafka, coordinator: Coordinator, group_id: str) -> Memory:
    """Raises GroupIdNotFound if the coordinator knows no such group."""
    if not speaks_plainly(kafka):
        return Memory(None, NOT_PLAINLY)
    try:
        with Connection(coordinator.host, coordinator.port, TIMEOUT_SECONDS) as connection:
            answer: GroupInsightResponse = connection.call(GroupInsightRequest(group_id=group_id))
    except (OSError, MalformedMessage):
        return Memory(None, NOT_TIDELOG)  # Kafka hangs up on a question it does not know
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupIdNotFound(group_id)
    if answer.error_code:
        return Memory(None, answer.error_message or ErrorCode(answer.error_code).name)
    return Memory(msgspec.json.decode(answer.insight, type=GroupInsight))
