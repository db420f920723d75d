"""From a frame to its handler and back. Errors are translated here, once."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Coroutine, Iterable
from struct import Struct
from typing import Any, Final

import msgspec

from tidelog.broker.connection import Connection
from tidelog.broker.logs import get_logger
from tidelog.broker.requests import Context, Endpoint, RawReply, frame_of
from tidelog.errors import ErrorCode, MalformedMessage
from tidelog.wire.frames import decode_request_header
from tidelog.wire.messages import API
from tidelog.wire.schema import Message, decode

API_VERSIONS: Final = 18

_UNSUPPORTED: Final = Struct(">iih")
_QUICK_HEADER: Final = Struct(">iih")  # api key and version as one number, correlation id, client id length
_CLIENT_ID: Final = _QUICK_HEADER.size

_new = tuple.__new__

log = get_logger("broker")


class Dispatcher:
    def __init__(self, endpoints: Iterable[Endpoint], loop: AbstractEventLoop) -> None:
        self.endpoints = {endpoint.api_key: endpoint for endpoint in endpoints}
        self._routes = {
            endpoint.api_key << 16 | version: (version, version >= API[endpoint.api_key].flexible, endpoint)
            for endpoint in self.endpoints.values()
            for version in range(endpoint.lowest, endpoint.max_version + 1)
        }
        """Where requests go, by the first four bytes."""
        self._loop = loop
        self._running: set[asyncio.Task[None]] = set()

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        try:
            if not self._dispatch_quickly(connection, frame):
                self._dispatch_any(connection, frame)
        except MalformedMessage as error:
            log.warning("malformed request", peer=connection.peer, error=str(error))
            connection.close("malformed request")
        except Exception:
            # Ours, not the client's: say so loudly, cost nobody else anything.
            log.exception("request failed", peer=connection.peer)
            connection.close("internal error")

    def _dispatch_quickly(self, connection: Connection, frame: memoryview) -> bool:
        """The short way, for what is served here with a header as nearly every client sends it; False for others."""
        if len(frame) <= _CLIENT_ID:
            return False
        route, correlation_id, length = _QUICK_HEADER.unpack_from(frame)
        known = self._routes.get(route)
        body = _CLIENT_ID + length
        if known is None or length < 0 or body >= len(frame):
            return False
        version, flexible, endpoint = known
        try:
            client_id = str(frame[_CLIENT_ID:body], "utf-8")
        except UnicodeDecodeError:
            return False
        if flexible:
            if frame[body] != 0:
                return False  # tagged fields
            body += 1
        context = _new(Context, (connection, endpoint.api_key, version, correlation_id, client_id))
        if endpoint.handle_raw is not None:
            self._answer(context, endpoint.handle_raw(context, frame, body))
        else:
            self._call(context, endpoint, frame, body)
        return True

    def _dispatch_any(self, connection: Connection, frame: memoryview) -> None:
        api_key, version, correlation_id, client_id, body = decode_request_header(frame)
        context = Context(connection, api_key, version, correlation_id, client_id)
        endpoint = self.endpoints.get(api_key)
        if endpoint is None or not endpoint.lowest <= version <= endpoint.max_version:
            self._refuse(context, endpoint)
        elif endpoint.handle_raw is not None:
            self._answer(context, endpoint.handle_raw(context, frame, body))
        else:
            self._call(context, endpoint, frame, body)

    def _answer(self, context: Context, parts: RawReply) -> None:
        if isinstance(parts, list):
            context.connection.answer(parts)
        elif parts is not None:
            self._run_exclusively(context, parts)

    def _call(self, context: Context, endpoint: Endpoint, frame: memoryview, body: int) -> None:
        assert endpoint.handle is not None
        # A copy: the coroutine outlives the connection's buffer, and these requests are small and rare.
        request = decode(API[endpoint.api_key].request, context.version, memoryview(bytes(frame)), body)
        reply = endpoint.handle(context, request)
        if isinstance(reply, Message | bytes):
            context.connection.answer([frame_of(context, reply)])
        elif reply is not None:
            self._run_exclusively(context, self._answer_when_done(context, reply))

    async def _answer_when_done(self, context: Context, reply: Coroutine[Any, Any, Message | bytes]) -> None:
        message = await reply
        if not context.connection.closed:
            context.connection.answer([frame_of(context, message)])

    def _run_exclusively(self, context: Context, work: Coroutine[Any, Any, None]) -> None:
        context.connection.begin_exclusive()
        task = self._loop.create_task(self._guard(context, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _guard(self, context: Context, work: Coroutine[Any, Any, None]) -> None:
        connection = context.connection
        try:
            await work
        except MalformedMessage as error:
            log.warning("malformed request", peer=connection.peer, error=str(error))
            connection.close("malformed request")
        except Exception:
            log.exception("request failed", peer=connection.peer, api_key=context.api_key)
            connection.close("internal error")
        finally:
            if not connection.closed:
                connection.end_exclusive()

    def _refuse(self, context: Context, endpoint: Endpoint | None) -> None:
        """ApiVersions is answered in version 0, which every client can read; anything else ends the connection."""
        connection = context.connection
        if endpoint is not None and context.api_key == API_VERSIONS and endpoint.handle is not None:
            request = API[API_VERSIONS].request()
            readable = context._replace(version=0)
            reply = endpoint.handle(readable, request)
            assert isinstance(reply, Message)
            refusal = msgspec.structs.replace(reply, error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            connection.answer([frame_of(readable, refusal)])
            return
        log.warning(
            "unsupported request", peer=connection.peer, api_key=context.api_key, version=context.version,
            client_id=context.client_id,
        )  # fmt: skip
        # No schema is known for the answer, so it is just the error: correlation id and code, then the end.
        connection.answer([_UNSUPPORTED.pack(6, context.correlation_id, ErrorCode.UNSUPPORTED_VERSION)])
        connection.close_after_sending()
