"""RabbitMQ over AMQP 0-9-1: Basic.Publish on a channel in confirm mode, to a quorum queue or a stream."""

import socket
import struct

from bench.peers.sessions.session import Session, exactly, open_socket

METHOD, HEADER, BODY = 1, 2, 3
_BASIC = 60
_CONNECTION_START, _CONNECTION_START_OK = (10, 10), (10, 11)
_TUNE, _TUNE_OK, _OPEN, _OPEN_OK = (10, 30), (10, 31), (10, 40), (10, 41)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK = (50, 10), (50, 11)
_CONFIRM, _CONFIRM_OK = (85, 10), (85, 11)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *name) + arguments)


def publish(queue: str, record: bytes) -> bytes:
    """Method, header (persistent) and body, to the default exchange."""
    call = method(1, (_BASIC, 40), struct.pack(">H", 0) + short("") + short(queue) + b"\0")
    header = struct.pack(">HHQHB", _BASIC, 0, len(record), 0x1000, 2)
    return call + frame(HEADER, 1, header) + frame(BODY, 1, record)


def _expect(sock: socket.socket, name: tuple[int, int]) -> bytes:
    _, _, size = struct.unpack(">BHI", exactly(sock, 7))
    payload = exactly(sock, size + 1)[:-1]
    got = struct.unpack_from(">HH", payload)
    if got != name:
        raise RuntimeError(f"RabbitMQ answered {got} where {name} was expected: {payload[:200]!r}")
    return payload[4:]


def _channel(host: str, port: int) -> socket.socket:
    sock = open_socket(host, port)
    sock.sendall(b"AMQP\0\0\x09\x01")
    _expect(sock, _CONNECTION_START)
    sock.sendall(method(0, _CONNECTION_START_OK, long(b"") + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")))
    tuned = _expect(sock, _TUNE)
    sock.sendall(method(0, _TUNE_OK, tuned[:6] + b"\0\0") + method(0, _OPEN, short("/") + short("") + b"\0"))
    _expect(sock, _OPEN_OK)
    sock.sendall(method(1, _CHANNEL_OPEN, short("")))
    _expect(sock, _CHANNEL_OPEN_OK)
    return sock


def _declare(sock: socket.socket, queue: str, kind: str, *, passive: bool = False) -> int:
    """Returns how many messages are ready in it."""
    arguments = short("x-queue-type") + b"S" + long(kind.encode())
    flags = b"\x01" if passive else b"\x02"  # or durable
    sock.sendall(method(1, _DECLARE, b"\0\0" + short(queue) + flags + long(b"" if passive else arguments)))
    answer = _expect(sock, _DECLARE_OK)
    count: int = struct.unpack_from(">I", answer, 1 + answer[0])[0]
    return count


def connect(side: str, host: str, port: int, where: str, record: bytes, _records: int) -> Session:
    sock = _channel(host, port)
    _declare(sock, where, side.removeprefix("rabbitmq-"))
    sock.sendall(method(1, _CONFIRM, b"\0"))
    _expect(sock, _CONFIRM_OK)

    def stored() -> int:
        with _channel(host, port) as asking:
            return _declare(asking, where, "", passive=True)

    return Session(sock=sock, kind="amqp", request=publish(where, record), per_request=1, stored=stored)
