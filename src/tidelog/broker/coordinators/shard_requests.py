"""Carries requests to a coordinator's shards and their answers back, in the order of the connection's requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple

from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.shard_host import Rec, S, ShardHost
from tidelog.broker.requests import Context, Later, frame_of
from tidelog.coordination import Outcome
from tidelog.errors import KafkaError
from tidelog.storage.log import Verification
from tidelog.wire.schema import Message


class Ask(NamedTuple):
    """A part of a request that is one shard's to answer."""

    where: str | ShardHost[Any, Any]  # a key (a group, a transactional id), or a shard
    request: Message
    verification: Verification | None = None


class ShardRequests(ABC, Generic[S, Rec]):
    def __init__(self, coordinator: Coordinator[S, Rec]) -> None:
        self.coordinator = coordinator

    @abstractmethod
    def decide(self, shard: S, request: Message, context: Context, waiter: int, now_ms: int) -> Outcome[Any, Rec]: ...

    def _decide(self, request: Message, context: Context, shard: S, waiter: int, now_ms: int) -> Outcome[Any, Rec]:
        return self.decide(shard, request, context, waiter, now_ms)

    @abstractmethod
    def refuse(self, request: Message, error: KafkaError, version: int) -> Message:
        """The answer when there is no shard to ask, or its log refused."""

    def ask(self, context: Context, asks: Sequence[Ask], combine: Callable[[list[Any]], Message]) -> None:
        """Answers when every shard has: `combine` gets their responses in the order of `asks`."""
        later = Later(context.connection)
        answers: list[Any] = [None] * len(asks)
        missing = len(asks)
        if not asks:
            later.fulfil([frame_of(context, combine([]))])
            return

        def arrived(position: int, answer: Message) -> None:
            nonlocal missing
            answers[position] = answer
            missing -= 1
            if missing == 0:
                later.fulfil([frame_of(context, combine(answers))])

        for position, ask in enumerate(asks):
            self.submit(context, ask, lambda answer, at=position: arrived(at, answer))  # type: ignore[misc]

    def ask_one(self, context: Context, key: str, request: Message) -> None:
        self.ask(context, [Ask(key, request)], lambda answers: answers[0])

    def submit(self, context: Context, ask: Ask, done: Callable[[Message], None]) -> None:
        request = ask.request

        def answered(answer: Any) -> None:
            done(self.refuse(request, answer, context.version) if isinstance(answer, KafkaError) else answer)

        decide = partial(self._decide, request, context)
        if isinstance(ask.where, str):
            self.coordinator.submit(ask.where, decide, answered, ask.verification)
        else:
            ask.where.submit(decide, answered, ask.verification)
