"""What a member of a consumer group may be told."""

from tidelog.errors import ErrorCode, KafkaError


class UnknownMemberId(KafkaError):
    code = ErrorCode.UNKNOWN_MEMBER_ID

    def __init__(self, group_id: str, member_id: str) -> None:
        super().__init__(f"member {member_id!r} is not in group {group_id!r}")


class UnknownInstanceId(KafkaError):
    code = ErrorCode.UNKNOWN_MEMBER_ID

    def __init__(self, group_id: str, instance_id: str) -> None:
        super().__init__(f"no member of group {group_id!r} has group.instance.id {instance_id!r}")


class FencedMemberEpoch(KafkaError):
    code = ErrorCode.FENCED_MEMBER_EPOCH

    def __init__(self, member_id: str, current: int, got: int) -> None:
        super().__init__(f"member {member_id!r} is at epoch {current}, not {got}: give up all partitions and rejoin")


class StaleMemberEpoch(KafkaError):
    code = ErrorCode.STALE_MEMBER_EPOCH

    def __init__(self, member_id: str, current: int, got: int) -> None:
        super().__init__(f"member {member_id!r} is at epoch {current}, not {got}")


class IllegalGeneration(KafkaError):
    code = ErrorCode.ILLEGAL_GENERATION

    def __init__(self, member_id: str, current: int, got: int) -> None:
        super().__init__(f"member {member_id!r} is in generation {current}, not {got}")


class UnreleasedInstanceId(KafkaError):
    code = ErrorCode.UNRELEASED_INSTANCE_ID

    def __init__(self, instance_id: str, owner: str) -> None:
        super().__init__(f"group.instance.id {instance_id!r} is in use by member {owner!r}, which has not left")


class FencedInstanceId(KafkaError):
    code = ErrorCode.FENCED_INSTANCE_ID

    def __init__(self, instance_id: str, owner: str) -> None:
        super().__init__(f"group.instance.id {instance_id!r} was taken over by member {owner!r}")


class UnsupportedAssignor(KafkaError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR

    def __init__(self, asked: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no server assignor {asked!r}; there are: {', '.join(known)}")


class GroupMaxSizeReached(KafkaError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED

    def __init__(self, group_id: str, size: int) -> None:
        super().__init__(f"group {group_id!r} already has group.consumer.max.size={size} members")


class GroupIdNotFound(KafkaError):
    code = ErrorCode.GROUP_ID_NOT_FOUND

    def __init__(self, group_id: str) -> None:
        super().__init__(f"there is no consumer group {group_id!r}")


class InvalidRegularExpression(KafkaError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION

    def __init__(self, pattern: str, why: str) -> None:
        super().__init__(f"SubscribedTopicRegex {pattern!r}: {why}")
