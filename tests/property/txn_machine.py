"""A whole broker in a world where time, threads and the disk are simulated: every part of it is the production code but
the event loop, the threads that sync, and the file system under it.

`Machine.spin` lets it work until it waits for something. `Machine.dead` says that the power went in the middle.
"""

import asyncio
import heapq
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "storage"))

from sim_disk import PowerLost, SimDisk

from tidelog.broker.background import Background
from tidelog.broker.connection import Answer
from tidelog.broker.flusher import Flusher, _run
from tidelog.broker.node import Node
from tidelog.config import BrokerConfig, load
from tidelog.errors import StorageOffline

START_MS = 1_700_000_000_000
ROOT = "/data"

CONFIG: BrokerConfig = load(
    flags={
        "log.dirs": ROOT,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.segment.bytes": "2000",
        "transaction.state.log.segment.bytes": "2000",
        "auto.create.topics.enable": "false",
    },
    environment={},
)


class _Nothing:
    def select(self, timeout: float | None) -> list[Any]:
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's loop without sockets and threads. Its time is what it is told."""

    def __init__(self, now: float, dice: Random) -> None:
        super().__init__()
        self.now = now
        self._dice = dice
        self._selector = _Nothing()
        self.errors: list[BaseException] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _check_closed(self) -> None:
        """What is left of a life that ended may still be cleared away."""

    def _note(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context.get("message"))
        if not isinstance(error, PowerLost):
            self.errors.append(error)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()

        def work() -> None:
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._dice.choice((0, 0.001, 0.01)), work)
        return future

    @property
    def next_time(self) -> float | None:
        while self._scheduled and self._scheduled[0]._cancelled:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
        return self._scheduled[0]._when if self._scheduled else None

    def spin(self) -> None:
        events._set_running_loop(self)
        try:
            while self._ready or ((when := self.next_time) is not None and when <= self.now):
                self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)


class VirtualClock:
    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return START_MS + int(self._loop.now * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.now * 1000)


class MachineDisk(SimDisk):
    """Once the power is gone nothing is written any more, whoever tries."""

    def __init__(self, before: SimDisk | None = None) -> None:
        super().__init__()
        self.dead = False
        if before is not None:
            self.names, self._durable_names = before.names, before._durable_names
            self._pending, self.directories = before._pending, before.directories
            self._numbers = before._numbers

    def before(self, operation: str, path: str) -> None:
        if self.dead:
            raise PowerLost(operation)
        try:
            super().before(operation, path)
        except PowerLost:
            self.dead = True
            raise


class StepwiseFlusher(Flusher):
    """The threads' work as events of the loop, each sync taking its own time."""

    def __init__(self, loop: VirtualLoop, on_error: Any, dice: Random) -> None:
        super().__init__(loop, on_error)
        self._dice = dice

    def _start_thread(self) -> None:
        self._threads.append(None)  # type: ignore[arg-type]

    def _hand_over(self) -> None:
        before = len(self._jobs)
        super()._hand_over()
        for _ in range(len(self._jobs) - before):
            self._loop.call_later(self._dice.choice((0, 0.0005, 0.003, 0.02)), self._sync_one)

    def _sync_one(self) -> None:
        job = self._next()
        if job is not None:
            self._done.append(_run(job))
            self._collect()


class NoListeners:
    """Nobody comes by a socket here."""

    def __init__(self, *parts: Any) -> None:
        self.connections: tuple[Any, ...] = ()

    def bind(self, addresses: Any) -> list[tuple[str, int]]:
        return [("sim", 9092)]

    def start(self) -> None:
        pass


class ByHand(Background):
    """What a broker does by the clock, it does here when it is told to."""

    def start(self) -> None:
        pass


class Machine(Node):
    """One life of the broker, from power on to power off."""

    def __init__(self, disk: MachineDisk, now: float, dice: Random) -> None:
        self.loop = VirtualLoop(now, dice)
        super().__init__(CONFIG, VirtualClock(self.loop))
        self.disk = disk
        self._accepted = 0
        self._running: set[Any] = set()
        # The production wiring, with other words for what reaches outside the process.
        words = {
            **Node.start.__globals__,
            "RealDisk": lambda: disk,
            "Flusher": lambda loop, on_error: StepwiseFlusher(loop, on_error, dice),
            "Listeners": NoListeners,
            "Background": ByHand,
        }
        start = FunctionType(Node.start.__code__, words)
        self._starting = self.loop.create_task(start(self))

    @property
    def ready(self) -> bool:
        return self._starting.done() and self._starting.exception() is None

    @property
    def dead(self) -> bool:
        return self.disk.dead

    def spin(self, now: float) -> None:
        self.loop.now = now
        self.loop.spin()
        if self.dead:
            return
        if self._starting.done():
            self._starting.result()
        if self.loop.errors:
            raise self.loop.errors[0]

    def background_work(self, work: Any) -> None:
        """One of the things that a broker does by the clock, now."""

        async def guarded() -> None:
            try:
                await work
            except (OSError, StorageOffline):
                pass  # the next round may find the disk well again
            except Exception as error:
                if not self.dead:
                    self.loop.errors.append(error)

        self._running.add(self.loop.create_task(guarded()))

    def accept(self, heard: Callable[[bytes], None]) -> "ServerSide":
        self._accepted += 1
        return ServerSide(self, self._accepted, heard)

    def power_off(self) -> MachineDisk:
        """Nothing of this life runs any more; the disk as the next one finds it, with its page cache."""
        self.disk.dead = True
        for task in asyncio.all_tasks(self.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.loop.set_exception_handler(lambda loop, context: None)
        return MachineDisk(self.disk)


class ServerSide:
    """A connection as the dispatcher knows it: frames in, answers out in the order of the frames."""

    def __init__(self, machine: Machine, number: int, heard: Callable[[bytes], None]) -> None:
        self.number = number
        self.peer = f"client-{number}"
        self.host, self.port = "sim", 9092
        self.parked: dict[object, Callable[[], None]] = {}
        self.closed = False
        self._machine = machine
        self._heard = heard
        self._frames: deque[bytes] = deque()
        self._answers: deque[Answer] = deque()
        self._exclusive = False
        self._pumping = False

    def receive(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._pump()

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        while self._frames and not (self._exclusive or self.closed or self._machine.dead):
            self._machine.dispatcher(self, memoryview(bytearray(self._frames.popleft())))  # type: ignore[arg-type]
        self._pumping = False

    def begin_exclusive(self) -> None:
        self._exclusive = True

    def end_exclusive(self) -> None:
        self._exclusive = False
        if not self._machine.dead:
            self._machine.loop.call_soon(self._pump)

    def answer(self, parts: Sequence[Any]) -> None:
        self._answers.append(Answer(parts))
        self._send()

    def promise(self) -> Answer:
        answer = Answer()
        self._answers.append(answer)
        return answer

    def fulfil(self, answer: Answer, parts: Sequence[Any]) -> None:
        answer.parts = parts
        self._send()

    def _send(self) -> None:
        while self._answers and self._answers[0].parts is not None:
            parts = self._answers.popleft().parts or ()
            if not (self.closed or self._machine.dead):
                self._heard(b"".join(_bytes(part) for part in parts))

    def close(self, reason: str) -> None:
        self.closed = True
        if reason == "internal error" and not self._machine.dead:
            self._machine.loop.errors.append(AssertionError("a request failed inside the broker; see the log"))
        for end in list(self.parked.values()):
            end()


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else bytes(part.file.read(part.position, part.length))
