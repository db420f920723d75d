"""Connections from this broker to the others: requests out, answers in, many under way at once.

A link connects when it is first used and again after it broke. What was under way then fails, and whoever asked decides
whether to ask again.
"""

import asyncio
from asyncio import AbstractEventLoop, Future, StreamReader, StreamWriter, Task
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidelog.errors import MalformedMessage
from tidelog.wire.frames import LENGTH_SIZE, decode_response_header, encode_request, frame_length
from tidelog.wire.schema import ApiSpec, Message, decode, encode, spec_of

Address = tuple[str, int]

FETCHES, MARKERS, VERIFICATIONS, PROBES = "fetches", "markers", "verifications", "probes"
"""What links are for."""

CONNECT_SECONDS: Final = 1.0
READ_AHEAD: Final = 4 * 1024 * 1024
CORRELATION_ID_MAX: Final = 2**31 - 1


class Unreachable(ConnectionError):
    """The other broker cannot be reached, or hung up. `refused`: nothing listens there, so its process is gone."""

    def __init__(self, what: str, *, refused: bool = False) -> None:
        super().__init__(what)
        self.refused = refused


class _Expected(NamedTuple):
    correlation_id: int
    spec: ApiSpec
    version: int
    answer: "Future[Any]"


class PeerLink:
    def __init__(self, loop: AbstractEventLoop, address: Callable[[], Address | None], client_id: str) -> None:
        self._loop = loop
        self._address = address
        """Where it is now; None if nobody knows."""
        self._client_id = client_id
        self._writer: StreamWriter | None = None
        self._reading: Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._expected: deque[_Expected] = deque()
        self._correlation_id = 0
        self._closed = False

    async def call(self, request: Message, version: int | None = None, *, timeout: float) -> Any:
        """Its answer. Raises Unreachable, also when the answer does not come in time: the link begins anew then, since
        nothing is known about what is behind an answer that is missing."""
        try:
            async with asyncio.timeout(timeout):
                if self._writer is None:
                    await self._connect()
                return await self._send(request, version)
        except TimeoutError as error:
            self.reset("no answer in time")
            raise Unreachable(f"no answer in {timeout:g} s") from error

    def _send(self, request: Message, version: int | None) -> "Future[Any]":
        spec = spec_of(type(request))
        version = spec.max if version is None else version
        self._correlation_id = correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        frame = encode_request(spec.key, version, correlation_id, self._client_id, encode(request, version))
        answer: Future[Any] = self._loop.create_future()
        if self._writer is None or self._writer.is_closing():  # known here before whoever reads is told
            raise Unreachable("the connection broke")
        self._writer.write(frame)
        self._expected.append(_Expected(correlation_id, spec, version, answer))
        return answer

    async def _connect(self) -> None:
        async with self._connecting:
            if self._writer is not None:
                return
            address = self._address()
            if address is None or self._closed:
                raise Unreachable("its address is not known")
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*address, limit=READ_AHEAD)
            except ConnectionRefusedError as error:
                raise Unreachable(f"nothing listens at {address[0]}:{address[1]}", refused=True) from error
            except (OSError, TimeoutError) as error:
                raise Unreachable(f"{address[0]}:{address[1]}: {error or 'no answer'}") from error
            if self._closed:
                writer.close()
                raise Unreachable("this broker stops")
            self._writer = writer
            self._reading = self._loop.create_task(self._read(reader, writer))

    async def _read(self, reader: StreamReader, writer: StreamWriter) -> None:
        reason = "the other side hung up"
        try:
            while True:
                length = frame_length(await reader.readexactly(LENGTH_SIZE))
                frame = memoryview(await reader.readexactly(length))
                expected = self._expected.popleft()
                answered, body = decode_response_header(expected.spec.key, expected.version, frame)
                if answered != expected.correlation_id:
                    raise MalformedMessage(f"answer to {answered} where {expected.correlation_id} was expected")
                message = decode(expected.spec.response, expected.version, frame, body)
                if not expected.answer.done():
                    expected.answer.set_result(message)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (MalformedMessage, IndexError) as error:
            reason = f"unreadable answer: {error}"
        if self._writer is writer:
            self.reset(reason)

    def reset(self, reason: str) -> None:
        """Hang up; the next request connects anew."""
        writer, self._writer = self._writer, None
        expected, self._expected = self._expected, deque()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        if writer is not None:
            with suppress(OSError, RuntimeError):
                writer.close()
        for each in expected:
            if not each.answer.done():
                each.answer.set_exception(Unreachable(reason))
                each.answer.exception()  # seen: whoever waited may be gone

    @property
    def connected(self) -> bool:
        return self._writer is not None

    def close(self) -> None:
        self._closed = True
        self.reset("this broker stops")
