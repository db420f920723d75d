"""DescribeQuorum 0-2: who keeps the metadata, and how far each has got. Only the leader of the quorum can say, so the
others pass the question on to it."""

from typing import Final
from uuid import UUID

from tidelog.broker.peers.links import Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.broker.requests import Context, Endpoint
from tidelog.clock import Clock
from tidelog.cluster.metadata_log import METADATA_PARTITION
from tidelog.consensus.raft import ReplicaState
from tidelog.errors import ErrorCode
from tidelog.storage.checkpoints import decode_uuid
from tidelog.wire.messages.clusters import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumTopicData,
)

ANSWER_SECONDS: Final = 2.0
QUESTIONS: Final = "questions"


class QuorumHandler:
    def __init__(self, quorum: Quorum, metadata: QuorumMetadata, clock: Clock, *, for_brokers: bool = False) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._clock = clock
        self._for_brokers = for_brokers

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(55, 0, 2, self.describe)]

    async def describe(self, context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        if not self._quorum.leads and not self._for_brokers:
            try:
                link = self._metadata.link_to_leader(QUESTIONS)
                answer: DescribeQuorumResponse = await link.call(request, context.version, timeout=ANSWER_SECONDS)
            except Unreachable as error:
                return DescribeQuorumResponse(
                    error_code=ErrorCode.BROKER_NOT_AVAILABLE, error_message=str(error), topics=()
                )
            return answer
        return DescribeQuorumResponse(
            topics=tuple(
                QuorumTopicData(
                    topic_name=topic.topic_name,
                    partitions=tuple(
                        self._partition(topic.topic_name, each.partition_index) for each in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
            nodes=tuple(
                QuorumNode(
                    node_id=voter.id,
                    listeners=tuple(QuorumListener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints),
                )
                for voter in self._quorum.raft.voters
            ),
        )

    def _partition(self, topic: str, number: int) -> QuorumPartitionData:
        code = ErrorCode.NONE
        if (topic, number) != METADATA_PARTITION:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not self._quorum.leads:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code:
            return QuorumPartitionData(
                partition_index=number,
                error_code=code,
                leader_id=-1,
                leader_epoch=-1,
                high_watermark=-1,
                current_voters=(),
                observers=(),
            )
        status = self._quorum.raft.status()
        return QuorumPartitionData(
            partition_index=number,
            leader_id=status.leader_id,
            leader_epoch=status.epoch,
            high_watermark=status.high_watermark,
            current_voters=tuple(self._state(each) for each in status.voters),
            observers=tuple(self._state(each) for each in status.observers),
        )

    def _state(self, state: ReplicaState) -> QuorumReplicaState:
        return QuorumReplicaState(
            replica_id=state.key.id,
            replica_directory_id=_uuid(state.key.directory_id),
            log_end_offset=state.log_end_offset,
            last_fetch_timestamp=self._wall(state.last_fetch_ms),
            last_caught_up_timestamp=self._wall(state.last_caught_up_ms),
        )

    def _wall(self, monotonic_ms: int) -> int:
        if monotonic_ms < 0:
            return -1
        return self._clock.now_ms() - (self._clock.monotonic_ms() - monotonic_ms)


def _uuid(text: str) -> UUID:
    try:
        return decode_uuid(text)
    except ValueError:
        return UUID(int=0)
