"""Long answers in short turns: one request may ask a hundred thousand questions, and others are waiting."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

TURN_SECONDS: Final = 0.01


class Turn:
    """How long one request has held up the others. It is one for all parts of the request."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + TURN_SECONDS

    async def give_way(self) -> None:
        """Let the rest of the broker go on, if it has waited for a few milliseconds."""
        if self._now() > self._until:
            await asyncio.sleep(0)
            self._until = self._now() + TURN_SECONDS

    async def finish(self, steps: Generator[None, None, Answered]) -> Answered:
        """Work that pauses by itself, and may be left alone for a while then."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answer: Answered = end.value
                return answer
            await self.give_way()


async def in_turns(
    answer: Callable[[Asked], Answered], asked: Iterable[Asked], turn: Turn | None = None
) -> tuple[Answered, ...]:
    """`map`, letting the rest of the broker go on every few milliseconds."""
    turn = turn or Turn()
    answered = []
    for each in asked:
        answered.append(answer(each))
        await turn.give_way()
    return tuple(answered)
