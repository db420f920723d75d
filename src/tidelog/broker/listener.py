"""Accepting connections, and keeping their number and idleness within limits."""

import errno
import resource
import socket
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from typing import Final

from tidelog.broker.buffers import BufferPool
from tidelog.broker.connection import Connection, FrameHandler
from tidelog.broker.logs import get_logger
from tidelog.broker.outbox import Outbox
from tidelog.config import BrokerConfig

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
OUT_OF_DESCRIPTORS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
ADDRESS_NOT_HERE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
ACCEPT_PAUSE_SECONDS: Final = 1.0
RESERVED_DESCRIPTORS: Final = 64
"""Kept back from clients for segments, indexes and checkpoints: a log must be able to roll under a flood of
connections.
"""

log = get_logger("broker")


class Listeners:
    def __init__(self, loop: AbstractEventLoop, config: BrokerConfig, dispatch: FrameHandler) -> None:
        self._loop = loop
        self._config = config
        self._dispatch = dispatch
        self._pool = BufferPool()
        self._outbox = Outbox(loop)
        self._sockets: list[socket.socket] = []
        self._accepted = 0
        self._refusing = False
        self.connections: set[Connection] = set()

    def bind(self, addresses: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Bind them all; returns the addresses really bound (port 0 asks for a free one)."""
        bound: list[tuple[str, int]] = []
        try:
            for host, port in addresses:
                bound += self._bind_name(host, port)
        except OSError:
            self.close()
            raise
        return bound

    def _bind_name(self, name: str, port: int) -> list[tuple[str, int]]:
        """Every address of one name, on one port: the first picks it if any will do."""
        bound: list[tuple[str, int]] = []
        missing: OSError | None = None
        try:
            families = _families(name)
        except OSError as error:
            error.strerror = f"cannot listen on {name}:{port}: {error.strerror}"
            raise
        for family, host in families:
            try:
                sock = self._bind(family, host, port)
            except OSError as error:
                error.strerror = f"cannot listen on {host or '*'}:{port}: {error.strerror}"
                if error.errno not in ADDRESS_NOT_HERE:
                    raise
                missing = error  # localhost has an IPv6 address in /etc/hosts of many machines that have no IPv6
                continue
            port = int(sock.getsockname()[1])
            bound.append((host or "::", port))
        if not bound and missing is not None:
            raise missing
        return bound

    def _bind(self, family: int, host: str, port: int) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "" else 1)
            sock.setblocking(False)
            sock.bind((host, port))
        except OSError:
            sock.close()
            raise
        self._sockets.append(sock)
        return sock

    def start(self) -> None:
        for sock in self._sockets:
            sock.listen(BACKLOG)
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self._pause_accepting(listener, error)
                return
            self._admit(sock)

    def _pause_accepting(self, listener: socket.socket, error: OSError) -> None:
        """Those who are connected go on being served; newcomers wait in the backlog."""
        log.error("cannot accept connections", error=str(error), connections=len(self.connections))
        self._loop.remove_reader(listener.fileno())
        self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, listener)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _admit(self, sock: socket.socket) -> None:
        full = self._full(sock)
        if full:
            if not self._refusing:  # once, however many try
                log.warning("connections are refused", reason=full, connections=len(self.connections))
            self._refusing = True
            sock.close()
            return
        self._refusing = False
        self._accepted += 1
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection = Connection(
                sock,
                self._loop,
                self._dispatch,
                self._pool,
                self._outbox,
                max_frame=self._config.socket_request_max_bytes,
                max_in_flight=self._config.queued_max_requests,
                on_close=self._forget,
                number=self._accepted,
            )
        except OSError:  # gone before we looked
            sock.close()
            return
        self.connections.add(connection)

    def _full(self, sock: socket.socket) -> str | None:
        """Why this connection is one too many, if it is."""
        if len(self.connections) >= self._config.max_connections:
            return f"max.connections={self._config.max_connections} reached"
        # Descriptors are given out lowest first, so the number of a new one tells how many are in use.
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if sock.fileno() >= descriptors - min(RESERVED_DESCRIPTORS, descriptors // 4):
            return f"of {descriptors} descriptors the last are kept for the log: raise `ulimit -n`"
        return None

    def _forget(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        log.debug("connection closed", peer=connection.peer, reason=reason)

    def close_idle(self) -> None:
        horizon = self._loop.time() - self._config.connections_max_idle_ms / 1000
        for connection in [each for each in self.connections if each.last_active < horizon and not each.busy]:
            connection.close("idle longer than connections.max.idle.ms")

    def stop_accepting(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock.fileno())
        self.close()

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def close_connections(self, reason: str) -> None:
        for connection in list(self.connections):
            connection.close(reason)


def _families(host: str) -> list[tuple[int, str]]:
    """`localhost` is two addresses on most machines, and clients try either first."""
    if host in ("", "::"):
        return [(socket.AF_INET6, "")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "")]
    # Plain bytes are not prepared as an international name, which reads tables that nothing else needs.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: it is the address people expect to be told.
    return sorted(dict.fromkeys((info[0], str(info[4][0])) for info in found))
