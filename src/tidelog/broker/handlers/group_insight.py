"""Tidelog's own: what the coordinator knows about a group's members, past and progress. Version 0, not advertised.

`tidelog group diagnose` and `timeline` ask this. Nothing waits: it is what is in memory.
"""

import msgspec

from tidelog.broker.coordinators.groups import GroupRoom
from tidelog.broker.requests import Context, Endpoint
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.insight import FIRST_OWN_KEY, GroupInsightRequest, GroupInsightResponse


class GroupInsightHandler:
    def __init__(self, groups: GroupRoom) -> None:
        self._groups = groups

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(FIRST_OWN_KEY, 0, 0, self.group_insight, advertised=False)]

    def group_insight(self, context: Context, request: GroupInsightRequest) -> GroupInsightResponse:
        try:
            found = self._groups.insight(self._groups.coordinator.host_for(request.group_id).shard, request.group_id)
        except KafkaError as error:
            return GroupInsightResponse(error_code=error.code, error_message=str(error))
        if found is None:
            missing = f"there is no group {request.group_id!r}"
            return GroupInsightResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=missing)
        return GroupInsightResponse(insight=msgspec.json.encode(found))
