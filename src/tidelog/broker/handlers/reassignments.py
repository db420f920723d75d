"""Who leads and where replicas are, by request: ElectLeaders 0-2, AlterPartitionReassignments 0-1,
ListPartitionReassignments 0, UnregisterBroker 0. Decided by `cluster.elections` and `cluster.brokers`.

Not done: `timeout_ms` is ignored, since a change is committed or refused at once.
"""

from collections.abc import Callable
from uuid import UUID

from tidelog.broker.metadata import Metadata
from tidelog.broker.requests import Context, Endpoint
from tidelog.cluster import brokers, elections
from tidelog.cluster.controller import known_topic
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord
from tidelog.errors import ErrorCode, InvalidReplicaAssignment, InvalidRequest, KafkaError, UnknownTopicOrPartition
from tidelog.wire.messages import clusters as messages

PREFERRED, UNCLEAN = 0, 1

Elect = Callable[[MetadataImage, UUID, int], list[AnyRecord]]


class ReassignmentsHandler:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(43, 0, 2, self.elect),
            Endpoint(45, 0, 1, self.alter),
            Endpoint(46, 0, 0, self.list),
            Endpoint(64, 0, 0, self.unregister),
        ]

    # -- elections --------------------------------------------------------------------------------------------------

    async def elect(self, context: Context, request: messages.ElectLeadersRequest) -> messages.ElectLeadersResponse:
        kinds: dict[int, Elect] = {PREFERRED: elections.elect_preferred, UNCLEAN: elections.elect_unclean}
        kind = kinds.get(request.election_type)
        if kind is None:
            return messages.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=())
        everything = request.topic_partitions is None
        asked = self._all() if request.topic_partitions is None else request.topic_partitions
        results = []
        for topic in asked:
            answered = []
            for number in topic.partitions:
                result = await self._elect(kind, topic.topic, number)
                # Of all partitions, those that need nothing are not worth a word.
                if not (everything and result.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                    answered.append(result)
            if answered:
                results.append(messages.ReplicaElectionResult(topic=topic.topic, partition_result=tuple(answered)))
        return messages.ElectLeadersResponse(replica_election_results=tuple(results))

    def _all(self) -> tuple[messages.ElectLeadersTopicPartitions, ...]:
        return tuple(
            messages.ElectLeadersTopicPartitions(topic=topic.name, partitions=tuple(range(len(topic.partitions))))
            for topic in self._metadata.image.topics.values()
        )

    async def _elect(self, kind: Elect, topic: str, number: int) -> messages.ElectLeadersPartitionResult:
        try:
            await self._metadata.change(lambda image: kind(image, known_topic(image, topic).topic_id, number))
        except KafkaError as error:
            return messages.ElectLeadersPartitionResult(
                partition_id=number, error_code=error.code, error_message=str(error)
            )
        return messages.ElectLeadersPartitionResult(partition_id=number)

    # -- reassignments ----------------------------------------------------------------------------------------------

    async def alter(
        self, context: Context, request: messages.AlterPartitionReassignmentsRequest
    ) -> messages.AlterPartitionReassignmentsResponse:
        responses = []
        for topic in request.topics:
            answered = []
            for partition in topic.partitions:
                code, text = ErrorCode.NONE, None
                try:
                    await self._alter(topic.name, partition, request.allow_replication_factor_change)
                except KafkaError as error:
                    code, text = error.code, str(error)
                answered.append(
                    messages.ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=text
                    )
                )
            responses.append(messages.ReassignableTopicResponse(name=topic.name, partitions=tuple(answered)))
        return messages.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change, responses=tuple(responses)
        )

    async def _alter(self, topic: str, asked: messages.ReassignablePartition, may_change_factor: bool) -> None:
        number, target = asked.partition_index, asked.replicas

        def decide(image: MetadataImage) -> list[AnyRecord]:
            found = known_topic(image, topic)
            if not 0 <= number < len(found.partitions):
                raise UnknownTopicOrPartition(f"there is no partition {topic}-{number}")
            partition = found.partitions[number]
            if target is None:
                if not (partition.adding or partition.removing):
                    text = f"no reassignment of {topic}-{number} is in progress"
                    raise KafkaError(text, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
                return elections.cancel_reassignment(image, found.topic_id, number)
            if not may_change_factor and len(target) != len(elections.stable_replicas(partition)):
                raise InvalidReplicaAssignment("the number of replicas must stay what it is")
            return elections.reassign(image, found.topic_id, number, target)

        await self._metadata.change(decide)

    def list(
        self, context: Context, request: messages.ListPartitionReassignmentsRequest
    ) -> messages.ListPartitionReassignmentsResponse:
        image = self._metadata.image
        wanted = None
        if request.topics is not None:
            wanted = {topic.name: set(topic.partition_indexes) for topic in request.topics}
        topics = []
        for topic in image.topics.values():
            if wanted is not None and topic.name not in wanted:
                continue
            moving = tuple(
                messages.OngoingPartitionReassignment(
                    partition_index=each.partition,
                    replicas=each.replicas,
                    adding_replicas=each.adding,
                    removing_replicas=each.removing,
                )
                for each in topic.partitions
                if (each.adding or each.removing) and (wanted is None or each.partition in wanted[topic.name])
            )
            if moving:
                topics.append(messages.OngoingTopicReassignment(name=topic.name, partitions=moving))
        return messages.ListPartitionReassignmentsResponse(topics=tuple(topics))

    # -- brokers that leave for good --------------------------------------------------------------------------------

    async def unregister(
        self, context: Context, request: messages.UnregisterBrokerRequest
    ) -> messages.UnregisterBrokerResponse:
        try:
            if self._metadata.image.is_available(request.broker_id):
                raise InvalidRequest(f"broker {request.broker_id} is running: stop it first")
            await self._metadata.change(lambda image: brokers.unregister(image, request.broker_id))
        except KafkaError as error:
            return messages.UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
        return messages.UnregisterBrokerResponse()
