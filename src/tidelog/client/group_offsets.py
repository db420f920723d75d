"""Positions published to a consumer group by someone who is not a member of it."""

from collections.abc import Mapping
from typing import Final

from tidelog.client.cluster import Cluster, raise_for
from tidelog.client.negotiated import NegotiatedConnection
from tidelog.ids import TopicPartition
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

_MANY_KEYS_SINCE: Final = 4
_NAMES_UNTIL: Final = 9  # later versions want topic ids


def commit_offsets(
    cluster: Cluster, group_id: str, places: Mapping[TopicPartition, tuple[int, int]], metadata: str = ""
) -> None:
    """`places` are offset and leader epoch (-1 if unknown). Refused by the coordinator while the group has members."""
    if not places:
        return
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), (offset, epoch) in sorted(places.items()):
        row = OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=tuple(OffsetCommitRequestTopic(name=name, partitions=tuple(rows)) for name, rows in topics.items()),
    )
    cluster.retry(lambda: _commit_once(cluster, request))


def _commit_once(cluster: Cluster, request: OffsetCommitRequest) -> None:
    connection = _coordinator(cluster, request.group_id)
    answer = connection.call(request, min(_NAMES_UNTIL, connection.version_of(OffsetCommitRequest)))
    for topic in answer.topics:
        for part in topic.partitions:
            raise_for(part.error_code, f"commit of {topic.name}-{part.partition_index} to group {request.group_id}")


def _coordinator(cluster: Cluster, group_id: str) -> NegotiatedConnection:
    connection = cluster.anyone()
    version = connection.version_of(FindCoordinatorRequest)
    if version >= _MANY_KEYS_SINCE:
        answer = connection.call(FindCoordinatorRequest(coordinator_keys=(group_id,)), version)
        found = answer.coordinators[0]
    else:
        found = connection.call(FindCoordinatorRequest(key=group_id), version)
    raise_for(found.error_code, f"coordinator of group {group_id}")
    cluster.remember(found.node_id, found.host, found.port)
    return cluster.node(found.node_id)
