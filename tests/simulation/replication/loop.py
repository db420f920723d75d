"""What production code asks of an event loop, a clock and a link to another broker, in the time of the world."""

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from batches import NOW

from tidelog.broker.peers.links import Unreachable
from tidelog.wire.schema import Message

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

LINK_MS = 250
"""In which a broken connection is noticed, whatever a caller's patience."""


class Handle:
    """Of a timer."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Answered:
    """Something to wait for, once."""

    def __init__(self) -> None:
        self._result: Any = None
        self.done = False
        self.then: Callable[[], None] | None = None

    def set(self, result: Any) -> None:
        if not self.done:
            self._result = result
            self.done = True
            if self.then is not None:
                self.then()

    def __await__(self) -> Generator["Answered", None, Any]:
        if not self.done:
            yield self
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Task:
    """A coroutine of one process, that ends with it."""

    def __init__(self, loop: "Loop", coroutine: Coroutine[Any, None, None]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._done: list[Callable[[Task], object]] = []
        loop.call_soon(self._step)

    def add_done_callback(self, action: "Callable[[Task], object]") -> None:
        self._done.append(action)

    def __del__(self) -> None:
        self._coroutine.close()

    def _step(self) -> None:
        try:
            awaited = self._coroutine.send(None)
        except StopIteration:
            for action in self._done:
                action(self)
            return
        if awaited is None:
            self._loop.call_soon(self._step)
        else:
            awaited.then = self._step


class Loop:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def time(self) -> float:
        return self._broker.world.now / 1000

    def call_later(self, seconds: float, action: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle()

        def ring() -> None:
            if not handle.cancelled:
                action(*arguments)

        self._broker.world.timer(self._broker, int(seconds * 1000), ring)
        return handle

    def call_soon(self, action: Callable[..., object], *arguments: Any) -> Handle:
        return self.call_later(0, action, *arguments)

    def run_in_executor(self, executor: None, action: Callable[..., Any], *arguments: Any) -> Answered:
        answer = Answered()
        self.call_soon(lambda: answer.set(action(*arguments)))
        return answer

    def create_task(self, coroutine: Coroutine[Any, None, None]) -> Task:
        return Task(self, coroutine)


class BrokerClock:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def now_ms(self) -> int:
        return NOW + self._broker.world.now + self._broker.skew_ms

    def monotonic_ms(self) -> int:
        return self._broker.world.now


class Link:
    """From one broker to another. A request is not received any more once its sender has given it up, with the
    connection it was on."""

    def __init__(self, sender: "Broker", receiver: "Broker") -> None:
        self._sender = sender
        self._receiver = receiver

    async def call(self, request: Message, version: int | None = None, *, timeout: float) -> Any:
        sender, receiver, world = self._sender, self._receiver, self._sender.world
        answer = Answered()

        def arrives() -> None:
            if not answer.done:
                rooms = receiver.rooms
                assert rooms is not None
                rooms.handle(request, version, 0, lambda reply: world.send(receiver.id, sender.id, lambda: told(reply)))

        def told(reply: Any) -> None:
            answer.set(reply)

        for delay in world.network.delays(sender.id, receiver.id)[:1]:
            world.deliver(receiver, delay, arrives)
        patience_ms = min(int(timeout * 1000), LINK_MS)
        world.timer(sender, patience_ms, lambda: answer.set(Unreachable("no answer")))
        return await answer
