"""Ports of this machine: which are taken, and keeping free ones for brokers that are still to start."""

import socket
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

HERE: Final = "127.0.0.1"


class HeldPort:
    """A free port that nobody else is given, not even between two lives of a broker.

    It is bound, and not listened on: whoever sets SO_REUSEADDR, as brokers do, may listen there all the same. Only
    Linux sees it that way; elsewhere the port was free a moment ago, and no more is known.
    """

    def __init__(self, host: str = HERE) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.port = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def hold_ports(count: int) -> list[HeldPort]:
    return [HeldPort() for _ in range(count)]


def taken(ports: Iterable[int], host: str = HERE) -> list[int]:
    """Those of these ports that somebody listens on."""
    found = []
    for port in ports:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((host, port))
            except OSError:
                found.append(port)
    return found
