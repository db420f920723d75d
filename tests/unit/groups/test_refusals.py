"""Every request can be refused, in every version, in a way its client can read and react to."""

import pytest
from sim import GROUP, commit, heartbeat, join, leave, sync

from tidelog.errors import ErrorCode
from tidelog.groups.refusals import refuse
from tidelog.wire.messages import groups, offsets, transactions
from tidelog.wire.schema import Message, decode, encode, spec_of

REQUESTS: list[Message] = [
    join("m"),
    sync("m", 1),
    heartbeat("m", 1),
    leave("m", "n"),
    commit({("t", 0): 1}),
    groups.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1),
    groups.ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False),
    groups.DescribeGroupsRequest(groups=(GROUP,)),
    groups.ListGroupsRequest(),
    groups.DeleteGroupsRequest(groups_names=(GROUP,)),
    offsets.OffsetFetchRequest(
        group_id=GROUP,
        topics=(offsets.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
        groups=(offsets.OffsetFetchRequestGroup(group_id=GROUP, topics=None),),
    ),
    offsets.OffsetDeleteRequest(group_id=GROUP, topics=()),
    transactions.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        topics=(
            transactions.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=(
                    transactions.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    ),
                ),
            ),
        ),
    ),
]
CASES = [
    (request, version)
    for request in REQUESTS
    for version in range(spec_of(type(request)).min, spec_of(type(request)).max + 1)
]


@pytest.mark.parametrize(
    ("request_", "version"), CASES, ids=[f"{type(request).__name__} {version}" for request, version in CASES]
)
def test_the_code_reaches_the_client(request_: Message, version: int) -> None:
    response = refuse(request_, ErrorCode.NOT_COORDINATOR, version)
    kind = spec_of(type(request_)).response
    told = str(decode(kind, version, encode(response, version)))
    assert "error_code=16" in told


def test_while_the_coordinator_loads() -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert refuse(heartbeat("m", 1), loading, 4).error_code == 0  # type: ignore[attr-defined]
    assert refuse(sync("m", 1), loading, 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS  # type: ignore[attr-defined]
    assert refuse(join("m"), loading, 9).error_code == loading  # type: ignore[attr-defined]


def test_nobody_can_leave_a_group_that_is_not_there() -> None:
    response = refuse(leave("m", "n"), ErrorCode.UNKNOWN_MEMBER_ID, 5)
    assert isinstance(response, groups.LeaveGroupResponse)
    assert [(member.member_id, member.error_code) for member in response.members] == [("m", 25), ("n", 25)]
    assert response.error_code == 0


def test_people_are_told_why() -> None:
    request = groups.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1)
    response = refuse(request, ErrorCode.FENCED_MEMBER_EPOCH, 1, "epoch 1 is older than 2")
    assert isinstance(response, groups.ConsumerGroupHeartbeatResponse)
    assert response.error_message == "epoch 1 is older than 2"
