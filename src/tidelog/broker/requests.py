"""What a handler is given besides the request, and the ways it may answer."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from tidelog.broker.connection import Answer, Connection, Part
from tidelog.wire.frames import encode_response
from tidelog.wire.schema import Message, encode


class Context(NamedTuple):
    """Who asks, and how the answer must be written."""

    connection: Connection
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


class Later:
    """An answer that is still to come. The request has had its effect, so the requests behind it go on meanwhile."""

    __slots__ = ("_answer", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._answer: Answer = connection.promise()

    def fulfil(self, parts: Sequence[Part]) -> None:
        if not self.connection.closed:
            self.connection.fulfil(self._answer, parts)


def frame_of(context: Context, message: Message | bytes) -> bytes:
    """The whole answer, header and length included."""
    body = message if isinstance(message, bytes) else encode(message, context.version)
    return encode_response(context.api_key, context.version, context.correlation_id, body)


Reply = Message | bytes | None | Coroutine[Any, Any, Message | bytes]
Handle = Callable[[Context, Any], Reply]
"""Decoded request in, message out (as bytes if it was encoded before). A coroutine holds back the requests behind it
until it is done. None: it answers by itself, through `Later`, and the requests behind it go on meanwhile."""

RawReply = list[Part] | None | Coroutine[Any, Any, None]
HandleRaw = Callable[[Context, memoryview, int], RawReply]
"""For Produce and Fetch: undecoded frame in (valid only during the call), ready parts out. None: it answers by itself
through `Later`, or not at all."""


class Endpoint(NamedTuple):
    """One API as this broker serves it. Nothing is advertised that is not in this table."""

    api_key: int
    min_version: int
    max_version: int
    handle: Handle | None = None
    handle_raw: HandleRaw | None = None
    min_accepted: int | None = None
    """Where the lowest version that works is above the lowest that must be advertised."""

    advertised: bool = True
    """False for Tidelog's own questions, which no Kafka client should be told of."""

    @property
    def lowest(self) -> int:
        return self.min_version if self.min_accepted is None else self.min_accepted
