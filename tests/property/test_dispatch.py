"""The short way to a handler gives it what the long way gives it, and leaves the rest to that one."""

import asyncio
import socket
from random import Random
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.buffers import BufferPool
from tidelog.broker.connection import Connection
from tidelog.broker.dispatch import Dispatcher
from tidelog.broker.outbox import Outbox
from tidelog.broker.requests import Context, Endpoint, RawReply
from tidelog.wire.messages.transactions import EndTxnRequest
from tidelog.wire.schema import Message, encode

CLIENT_IDS = (b"", b"bench", "übung".encode(), b"\xff\xfe", b"c" * 300)
TAGS = (b"\0", b"\1\0\0", b"\1\5\2ab", b"\2\0\0", b"\xff\xff\xff\xff\xff", b"")

END = EndTxnRequest(transactional_id="billing", producer_id=7, producer_epoch=1, committed=True)

Seen = list[tuple[int, int, int, str | None, bytes]]


class Recorder:
    """Both APIs that are handled undecoded and one that is not, and what their handlers were given."""

    def __init__(self) -> None:
        self.seen: Seen = []

    def handle(self, context: Context, frame: memoryview, body: int) -> RawReply:
        self.seen.append((*context[1:], bytes(frame[body:])))
        return [b"answer"]

    def handle_decoded(self, context: Context, request: Message) -> bytes:
        self.seen.append((*context[1:], encode(request, context.version)))
        return b"answer"

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(0, 0, 13, handle_raw=self.handle, min_accepted=3),
            Endpoint(1, 4, 18, handle_raw=self.handle),
            Endpoint(26, 0, 5, self.handle_decoded),
        ]


def outcome(frame: bytes, *, short: bool) -> tuple[Seen, list[str], bytes]:
    """What the handler saw, why the connection was closed, and what the client was sent."""
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    ours.setblocking(False)
    client.settimeout(5)
    recorder, closed = Recorder(), []
    dispatcher = Dispatcher(recorder.endpoints(), loop)
    if not short:
        dispatcher._routes.clear()
    connection = Connection(
        ours,
        loop,
        dispatcher,
        BufferPool(),
        Outbox(loop),
        max_frame=1 << 20,
        max_in_flight=10,
        on_close=lambda connection, reason: closed.append(reason),
    )
    try:
        dispatcher(connection, memoryview(bytearray(frame)))
        connection.close("the end")
        return recorder.seen, closed, client.recv(1000)
    finally:
        client.close()
        listener.close()
        loop.close()


@settings(max_examples=150, deadline=None)
@given(
    key=st.sampled_from([0, 0, 1, 1, 26, 26, 2, 18, -1, 32767]),
    version=st.integers(-2, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.sampled_from(CLIENT_IDS),
    length=st.none() | st.integers(-3, 400),
    tags=st.sampled_from(TAGS),
    body=st.binary(max_size=20) | st.just(encode(END, 0)) | st.just(encode(END, 3)),
    cut=st.none() | st.integers(8, 60),
)
def test_any_header(
    key: int,
    version: int,
    correlation_id: int,
    client_id: bytes,
    length: int | None,
    tags: bytes,
    body: bytes,
    cut: int | None,
) -> None:
    said = len(client_id) if length is None else length
    frame = (pack(">hhih", key, version, correlation_id, said) + client_id + tags + body)[:cut]
    assert outcome(frame, short=True) == outcome(frame, short=False)


def test_usual_headers_take_the_short_way() -> None:
    dice = Random(1)
    for key, lowest, highest, flexible in ((0, 3, 13, 9), (1, 4, 18, 12)):
        for version in range(lowest, highest + 1):
            body = dice.randbytes(dice.randrange(1, 50))
            head = pack(">hhih", key, version, 7, 5) + b"bench" + (b"\0" if version >= flexible else b"")
            seen, closed, sent = outcome(head + body, short=True)
            assert seen == [(key, version, 7, "bench", body)]
            assert (closed, sent) == (["the end"], b"answer")
