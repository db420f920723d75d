"""What the load needs of a connection, whatever the protocol."""

import socket
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Session:
    sock: socket.socket
    kind: str  # of answer, as `native/answers.c` knows it
    request: bytes
    per_request: int  # records in one request: more than one where the protocol has batches
    stored: Callable[[], int]  # records that the peer has now

    def close(self) -> None:
        self.sock.close()


Open = Callable[[str, str, int, str, bytes, int], Session]


def open_socket(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def until(sock: socket.socket, mark: bytes) -> bytes:
    """Reads up to and with the mark, and not one byte more."""
    got = bytearray()
    while not got.endswith(mark):
        piece = sock.recv(1)
        if not piece:
            raise ConnectionError(f"closed after {bytes(got[-300:])!r}")
        got += piece
    return bytes(got)


def exactly(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = sock.recv(size - len(got))
        if not piece:
            raise ConnectionError("closed within a frame")
        got += piece
    return bytes(got)
