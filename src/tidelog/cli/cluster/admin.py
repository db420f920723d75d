"""What an administrator asks a cluster and tells it to do, on any Kafka: who is there, elections, reassignments.

confluent-kafka knows neither the quorum nor reassignments, so these are asked with our own small client, which speaks
PLAINTEXT only. Over TLS the picture of a cluster is what confluent-kafka knows of it.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from tidelog.cli.cluster.moves import Plan
from tidelog.cli.cluster.picture import BrokerSeen, PartitionSeen, Picture, QuorumMember, QuorumSeen, picture
from tidelog.cli.connecting import TIMEOUT_SECONDS
from tidelog.cli.connecting import Cluster as Kafka
from tidelog.cli.problems import Problem
from tidelog.client.cluster import Cluster, raise_for
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.observe.clients import speaks_plainly
from tidelog.wire.messages.admin import MetadataRequest
from tidelog.wire.messages.clusters import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
    QuorumReplicaState,
    ReassignablePartition,
    ReassignableTopic,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
)
from tidelog.wire.primitives import NO_UUID
from tidelog.wire.schema import UnsupportedVersion

_METADATA_TOPIC: Final = "__cluster_metadata"
_PREFERRED, _UNCLEAN = 0, 1
_CATCH_UP_MS: Final = 5_000
"""How long a broker may take to follow the metadata closely enough to get a vote."""
Refusals = dict[TopicPartition, KafkaError]


class Administration:
    """Used by one command, for as long as it runs."""

    def __init__(self, cluster: Cluster, bootstrap: str) -> None:
        self._cluster = cluster
        self.bootstrap = bootstrap

    @classmethod
    def of(cls, kafka: Kafka, *, timeout_s: float = TIMEOUT_SECONDS) -> "Administration":
        if not speaks_plainly(kafka):
            raise Problem(
                "replicas and leaders can be moved over PLAINTEXT connections only",
                "name a listener without TLS and passwords with -b HOST:PORT",
            )
        return cls(Cluster(kafka.bootstrap, client_id="tidelog-cli", timeout_s=timeout_s), kafka.bootstrap)

    @classmethod
    def at(cls, bootstrap: str, *, timeout_s: float) -> "Administration":
        return cls(Cluster(bootstrap, client_id="tidelog-cli", timeout_s=timeout_s), bootstrap)

    def close(self) -> None:
        self._cluster.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> Picture:
        return self._cluster.retry(self.look_once)

    def look_once(self) -> Picture:
        answer = self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return picture(
            cluster_id=answer.cluster_id,
            controller=answer.controller_id,
            brokers=[BrokerSeen(id=b.node_id, host=b.host, port=b.port, rack=b.rack) for b in answer.brokers],
            partitions=[
                PartitionSeen(
                    topic=topic.name,
                    partition=part.partition_index,
                    leader=part.leader_id,
                    replicas=part.replica_nodes,
                    in_sync=part.isr_nodes,
                )
                for topic in answer.topics
                for part in topic.partitions
            ],
            quorum=self._quorum(),
            reassigning=len(self.moving_once() or {}),
        )

    def _describe_quorum(self) -> DescribeQuorumResponse | None:
        """None of a broker that is alone, of a Kafka older than its quorum, and while the quorum has no leader."""
        asked = DescribeQuorumTopic(
            topic_name=_METADATA_TOPIC, partitions=(DescribeQuorumPartition(partition_index=0),)
        )
        try:
            answer: DescribeQuorumResponse = self._ask(DescribeQuorumRequest(topics=(asked,)))
        except UnsupportedVersion:
            return None
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return None
        return answer

    def _quorum(self) -> QuorumSeen | None:
        answer = self._describe_quorum()
        if answer is None:
            return None
        seen = answer.topics[0].partitions[0]
        ends = [each.log_end_offset for each in seen.current_voters if each.replica_id == seen.leader_id]
        end, now_ms = ends[0] if ends else seen.high_watermark, time.time_ns() // 1_000_000
        addresses = {node.node_id: f"{each.host}:{each.port}" for node in answer.nodes for each in node.listeners}

        def member(state: QuorumReplicaState) -> QuorumMember:
            return _member(state, end, now_ms, seen.leader_id, addresses.get(state.replica_id))

        return QuorumSeen(
            leader=seen.leader_id,
            epoch=seen.leader_epoch,
            high_watermark=seen.high_watermark,
            voters=tuple(map(member, seen.current_voters)),
            observers=tuple(map(member, seen.observers)),
        )

    def moving(self) -> dict[TopicPartition, OngoingPartitionReassignment]:
        """Reassignments under way."""
        found = self._cluster.retry(self.moving_once)
        if found is None:
            raise _not_here("reassign partitions")
        return found

    def moving_once(self) -> dict[TopicPartition, OngoingPartitionReassignment] | None:
        """None where nobody can be asked."""
        try:
            answer = self._ask(ListPartitionReassignmentsRequest())
        except UnsupportedVersion:
            return None
        raise_for(answer.error_code, "reassignments under way")
        return {
            TopicPartition(topic.name, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
        }

    # -- doing --------------------------------------------------------------------------------------------------------

    def reassign(self, plan: Plan | Mapping[TopicPartition, None]) -> Refusals:
        """Begins to move replicas, and takes back what is under way where the plan says None. What was refused."""
        topics: dict[str, list[ReassignablePartition]] = {}
        for place, replicas in sorted(plan.items(), key=lambda each: each[0]):
            wanted = ReassignablePartition(partition_index=place.partition, replicas=replicas)
            topics.setdefault(place.topic, []).append(wanted)
        request = AlterPartitionReassignmentsRequest(
            topics=tuple(ReassignableTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items())
        )
        answer = self._tell(request, "reassign partitions")
        return {
            TopicPartition(topic.name, part.partition_index): _refusal(part)
            for topic in answer.responses
            for part in topic.partitions
            if part.error_code
        }

    def elect(self, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> tuple[int, Refusals]:
        """Elections held, and refused; None is every partition that needs one."""
        wanted: tuple[ElectLeadersTopicPartitions, ...] | None = None
        if partitions is not None:
            topics: dict[str, list[int]] = {}
            for place in sorted(partitions):
                topics.setdefault(place.topic, []).append(place.partition)
            wanted = tuple(
                ElectLeadersTopicPartitions(topic=name, partitions=tuple(numbers)) for name, numbers in topics.items()
            )
        request = ElectLeadersRequest(election_type=_UNCLEAN if unclean else _PREFERRED, topic_partitions=wanted)
        answer = self._tell(request, "elect leaders")
        results = {
            TopicPartition(topic.topic, part.partition_id): part
            for topic in answer.replica_election_results
            for part in topic.partition_result
        }
        refused = {place: _refusal(part) for place, part in results.items() if part.error_code}
        return len(results) - len(refused), refused

    def unregister(self, node: int) -> None:
        self._tell(UnregisterBrokerRequest(broker_id=node), "unregister a broker")

    def add_voter(self, node: int) -> None:
        """A broker that runs gets a vote in the metadata quorum."""
        disk = self._disk_of(node)
        request = AddRaftVoterRequest(timeout_ms=_CATCH_UP_MS, voter_id=node, voter_directory_id=disk)
        self._change_voters(request, ErrorCode.DUPLICATE_VOTER)

    def remove_voter(self, node: int) -> None:
        request = RemoveRaftVoterRequest(voter_id=node, voter_directory_id=self._disk_of(node))
        self._change_voters(request, ErrorCode.VOTER_NOT_FOUND)

    def _change_voters(self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, done: ErrorCode) -> None:
        """`done`: what is said when it is so already. It may be asked twice, if an answer was lost."""
        try:
            self._tell(request, "change who votes")
        except KafkaError as error:
            if error.code is not done:
                raise

    def _disk_of(self, node: int) -> UUID:
        """A vote belongs to a broker and the disk it votes from."""
        answer = self._cluster.retry(self._describe_quorum)
        if answer is None:
            raise _not_here("change who votes")
        part = answer.topics[0].partitions[0]
        known = {each.replica_id: each.replica_directory_id for each in (*part.observers, *part.current_voters)}
        return known.get(node, NO_UUID)

    def _ask(self, request: Any) -> Any:
        return self._cluster.anyone().ask(request)

    def _tell(self, request: Any, what: str) -> Any:
        def tell() -> Any:
            answer = self._ask(request)
            if answer.error_code:
                raise _refusal(answer)
            return answer

        try:
            return self._cluster.retry(tell)
        except UnsupportedVersion:
            raise _not_here(what) from None


def look_over_tls(kafka: Kafka) -> Picture:
    """What confluent-kafka knows of a cluster that our own client cannot talk to."""
    metadata = kafka.topics()
    return picture(
        cluster_id=metadata.cluster_id,
        controller=metadata.controller_id,
        brokers=[BrokerSeen(id=b.id, host=b.host, port=b.port) for b in metadata.brokers.values()],
        partitions=[
            PartitionSeen(
                topic=topic.topic,
                partition=part.id,
                leader=part.leader,
                replicas=tuple(part.replicas),
                in_sync=tuple(part.isrs),
            )
            for topic in metadata.topics.values()
            for part in topic.partitions.values()
        ],
        quorum=None,
    )


def _member(state: QuorumReplicaState, end: int, now_ms: int, leader: int, address: str | None) -> QuorumMember:
    at = state.last_caught_up_timestamp
    ago = 0 if state.replica_id == leader else max(now_ms - at, 0)
    return QuorumMember(
        id=state.replica_id,
        log_end_offset=state.log_end_offset,
        lag=max(end - state.log_end_offset, 0) if state.log_end_offset >= 0 else end,
        caught_up_ms_ago=ago if at > 0 or state.replica_id == leader else None,
        address=address,
        directory_id=str(state.replica_directory_id) if state.replica_directory_id.int else None,
    )


def _refusal(answer: Any) -> KafkaError:
    code = ErrorCode(answer.error_code)
    return KafkaError(getattr(answer, "error_message", None) or code.name, code)


def _not_here(what: str) -> Problem:
    return Problem(f"this broker cannot {what}: it is alone", "a cluster is started with `tidelog serve --voters ...`")
