"""Carries requests to a coordinator's shards and their answers back, in the order of the connection's requests."""

from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple

from tidelog.broker.coordinators.coordinator import Coordinator
from tidelog.broker.coordinators.shard_host import Rec, S, ShardHost
from tidelog.broker.requests import Context, Later, Reply, frame_of
from tidelog.broker.turns import in_turns
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
    def __init__(self, coordinator: Coordinator[S, Rec], expect: Callable[[], None] = lambda: None) -> None:
        """`expect`: told of answers to clients that will ask for more at once."""
        self.coordinator = coordinator
        self._expect = expect

    @abstractmethod
    def decide(self, shard: S, request: Message, context: Context, waiter: int, now_ms: int) -> Outcome[Any, Rec]: ...

    def _decide(self, request: Message, context: Context, shard: S, waiter: int, now_ms: int) -> Outcome[Any, Rec]:
        return self.decide(shard, request, context, waiter, now_ms)

    @abstractmethod
    def refuse(self, request: Message, error: KafkaError, version: int) -> Message:
        """The answer when there is no shard to ask, or its log refused."""

    def ask(self, context: Context, asks: Sequence[Ask], combine: Callable[[list[Any]], Message]) -> Reply:
        """Answers when every shard has: `combine` gets their responses in the order of `asks`."""
        if len(asks) != 1:
            return self._ask_in_turns(context, asks, combine)
        later = Later(context.connection)
        self.submit(context, asks[0], lambda answer: later.fulfil([frame_of(context, combine([answer]))]))
        return None

    async def _ask_in_turns(
        self, context: Context, asks: Sequence[Ask], combine: Callable[[list[Any]], Message]
    ) -> Message:
        """One request may name a hundred thousand groups, and others are waiting."""
        asked = await in_turns(partial(self.asked, context), asks)
        return combine([await answer for answer in asked])

    def ask_one(self, context: Context, key: str, request: Message) -> None:
        """For a request that is one shard's to answer as a whole."""
        later = Later(context.connection)

        def done(answer: Message) -> None:
            later.fulfil([frame_of(context, answer)])
            self._expect()

        self.submit(context, Ask(key, request), done)

    def asked(self, context: Context, ask: Ask) -> Future[Message]:
        answer: Future[Message] = self.coordinator.loop.create_future()
        self.submit(context, ask, answer.set_result)
        return answer

    def submit(self, context: Context, ask: Ask, done: Callable[[Message], None]) -> None:
        request = ask.request

        def answered(answer: Any) -> None:
            done(self.refuse(request, answer, context.version) if isinstance(answer, KafkaError) else answer)

        decide = partial(self._decide, request, context)
        if isinstance(ask.where, str):
            self.coordinator.submit(ask.where, decide, answered, ask.verification)
        else:
            ask.where.submit(decide, answered, ask.verification)
