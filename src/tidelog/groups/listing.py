"""DescribeGroups 0-6 and ListGroups 0-5: groups as administrators see them."""

from collections.abc import Iterable
from typing import Final

from tidelog.errors import ErrorCode
from tidelog.groups.classic_group import ClassicGroup, State
from tidelog.groups.group import Group
from tidelog.wire.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

NOT_FOUND_SINCE: Final = 6


def describe(group_id: str, group: ClassicGroup | None, version: int) -> DescribedGroup:
    """What members say about themselves is shown only while it is in force."""
    if group is None:
        # Clients before version 6 know a group that does not exist as a dead one.
        not_found = version >= NOT_FOUND_SINCE
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if not_found else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if not_found else None,
            group_id=group_id,
            group_state=State.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ),
    )


def list_groups(groups: Iterable[Group], request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    return ListGroupsResponse(
        groups=tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in groups
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        )
    )
