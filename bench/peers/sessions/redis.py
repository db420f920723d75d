"""Redis: XADD to a stream, one entry each; many may be on their way."""

from bench.peers.sessions.session import Session, open_socket, until


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def connect(_side: str, host: str, port: int, where: str, record: bytes, _records: int) -> Session:
    sock = open_socket(host, port)
    key = where.encode()

    def stored() -> int:
        with open_socket(host, port) as asking:
            asking.sendall(command(b"XLEN", key))
            return int(until(asking, b"\r\n")[1:])

    return Session(
        sock=sock, kind="lines", request=command(b"XADD", key, b"*", b"v", record), per_request=1, stored=stored
    )
