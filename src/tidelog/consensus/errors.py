"""Why a replica does not do what it was asked. Codes are Kafka's."""

from tidelog.consensus.voters import NOBODY, ReplicaKey
from tidelog.errors import ErrorCode, KafkaError


class NotLeader(KafkaError):
    """Ask `leader_id`, if it is not -1. Nothing was appended."""

    code = ErrorCode.NOT_CONTROLLER

    def __init__(self, leader_id: int = NOBODY) -> None:
        self.leader_id = leader_id
        super().__init__("there is no leader" if leader_id == NOBODY else f"the leader is {leader_id}")


class HandingOver(KafkaError):
    """Leadership is on its way to another replica. Nothing was appended; try again soon."""

    code = ErrorCode.NOT_CONTROLLER


class Overloaded(KafkaError):
    """Too much waits to be committed. Nothing was appended."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class ChangeInProgress(KafkaError):
    """Voters change one at a time, each change committed before the next, by a leader with a commit of its own."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class DuplicateVoter(KafkaError):
    code = ErrorCode.DUPLICATE_VOTER

    def __init__(self, node_id: int) -> None:
        super().__init__(f"node {node_id} is a voter already; remove its old disk first")


class VoterNotFound(KafkaError):
    code = ErrorCode.VOTER_NOT_FOUND

    def __init__(self, key: ReplicaKey) -> None:
        super().__init__(f"{key} is not a voter")


class NotCaughtUp(KafkaError):
    """A voter that lacks history would only make the majority larger."""

    code = ErrorCode.REQUEST_TIMED_OUT


class LastVoter(KafkaError):
    code = ErrorCode.INVALID_REQUEST

    def __init__(self) -> None:
        super().__init__("the last voter cannot be removed")
