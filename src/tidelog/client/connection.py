"""One blocking connection to one broker: messages out, messages in, in order.

It negotiates nothing and retries nothing: the caller names the version, or gets the newest that the tables know. That
makes it the tool for tests, benchmarks and the CLI's own questions, where a real client would hide what is looked for.
"""

import contextlib
import socket
from collections import deque
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tidelog.errors import MalformedMessage
from tidelog.wire.frames import (
    FRAME_BYTES_MAX,
    LENGTH_SIZE,
    decode_response_header,
    encode_request,
    frame_length,
)
from tidelog.wire.messages.data import ProduceRequest
from tidelog.wire.schema import ApiSpec, Message, decode, encode, spec_of

CORRELATION_ID_MAX: Final = 2**31 - 1


class ConnectionClosed(ConnectionError):
    """The broker hung up, between frames or within one."""


def _fresh(size: int) -> memoryview:
    return memoryview(bytearray(size))


class _Expected(NamedTuple):
    correlation_id: int
    spec: ApiSpec
    version: int


class Connection:
    def __init__(
        self,
        host: str,
        port: int,
        timeout: float = 10.0,
        *,
        client_id: str | None = "tidelog",
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout)
        # Requests are small and someone waits for the answer: Nagle's delay would only add to that.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._correlation_id = 0
        self.allocate = _fresh
        self._expected: deque[_Expected] = deque()

    @property
    def in_flight(self) -> int:
        """Requests sent whose answers have not been received."""
        return len(self._expected)

    def call(self, request: Message, version: int | None = None) -> Any:
        """Sends a request and waits for its answer, an instance of the response class paired with it.

        None for what Kafka never answers: a Produce with acks=0.
        """
        if self._expected:
            raise RuntimeError(f"{len(self._expected)} answers are still to be received before this one")
        self.send(request, version)
        return self.receive() if self._expected else None

    def send(self, request: Message, version: int | None = None) -> int:
        """Sends without waiting; answers come by `receive` in the same order. Returns the correlation id."""
        spec = spec_of(type(request))
        if version is None:
            version = spec.max
        body = encode(request, version)
        self._correlation_id = correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        self.send_raw(encode_request(spec.key, version, correlation_id, self._client_id, body))
        if not (isinstance(request, ProduceRequest) and request.acks == 0):
            self._expected.append(_Expected(correlation_id, spec, version))
        return correlation_id

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        if not self._expected:
            raise RuntimeError("no request is waiting for an answer")
        frame = self.recv_frame()
        correlation_id, spec, version = self._expected.popleft()
        answered, body = decode_response_header(spec.key, version, frame)
        if answered != correlation_id:
            raise MalformedMessage(f"answer to request {answered}, but request {correlation_id} comes first")
        return decode(spec.response, version, frame, body)

    def send_raw(self, data: bytes | memoryview) -> None:
        """Any bytes, framed or not."""
        self._socket.sendall(data)

    def recv_frame(self) -> memoryview:
        """The next frame without its length, undecoded, in what `allocate` gave for it."""
        length = frame_length(self._recv(_fresh(LENGTH_SIZE)), limit=self._frame_bytes_max)
        return self._recv(self.allocate(length))

    def _recv(self, buffer: memoryview) -> memoryview:
        filled, size = 0, len(buffer)
        while filled < size:
            received = self._socket.recv_into(buffer[filled:])
            if not received:
                raise ConnectionClosed(f"the broker closed the connection after {filled} of {size} bytes")
            filled += received
        return buffer

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Ends a call that another thread is waiting in: closing alone would not wake it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
