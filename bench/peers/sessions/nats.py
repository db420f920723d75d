"""NATS JetStream: PUB with a reply subject; the stream's acknowledgement comes back as a message to it."""

import json
import socket

from bench.peers.sessions.session import Session, exactly, open_socket, until

_CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"c","version":"1","protocol":1}\r\nPING\r\n'
)
_INBOX = b"_INBOX.bench"


def _greet(host: str, port: int) -> socket.socket:
    sock = open_socket(host, port)
    until(sock, b"\r\n")  # INFO
    sock.sendall(_CONNECT)
    until(sock, b"PONG\r\n")
    return sock


def ask(host: str, port: int, subject: str, body: dict[str, object] | None = None) -> dict[str, object]:
    """A request to JetStream's API."""
    with _greet(host, port) as sock:
        data = json.dumps(body).encode() if body else b""
        sock.sendall(b"SUB _INBOX.ask 1\r\nPUB %s _INBOX.ask %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        while not (line := until(sock, b"\r\n")).startswith(b"MSG"):
            continue
        answer: dict[str, object] = json.loads(exactly(sock, int(line.split()[-1])))
    if "error" in answer:
        raise RuntimeError(f"{subject}: {answer['error']}")
    return answer


def connect(_side: str, host: str, port: int, where: str, record: bytes, _records: int) -> Session:
    config: dict[str, object] = {
        "name": where, "subjects": [where], "storage": "file", "retention": "limits", "num_replicas": 1,
        "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "old",
    }  # fmt: skip
    ask(host, port, f"$JS.API.STREAM.CREATE.{where}", config)

    def stored() -> int:
        state = ask(host, port, f"$JS.API.STREAM.INFO.{where}")["state"]
        assert isinstance(state, dict)
        return int(state["messages"])

    sock = _greet(host, port)
    sock.sendall(b"SUB %s 1\r\n" % _INBOX)
    request = b"PUB %s %s %d\r\n%s\r\n" % (where.encode(), _INBOX, len(record), record)
    return Session(sock=sock, kind="lines", request=request, per_request=1, stored=stored)
