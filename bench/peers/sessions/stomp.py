"""ActiveMQ over STOMP: a persistent SEND to a queue with a receipt."""

from bench.peers.sessions.session import Session, open_socket, until


def connect(_side: str, host: str, port: int, where: str, record: bytes, _records: int) -> Session:
    sock = open_socket(host, port)
    sock.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\0")
    greeting = until(sock, b"\0")
    if not greeting.lstrip().startswith(b"CONNECTED"):
        raise RuntimeError(f"ActiveMQ did not take the connection: {greeting!r}")
    sent = [0]

    def stored() -> int:
        return sent[0]  # every SEND had its RECEIPT, or the load failed

    head = b"SEND\ndestination:/queue/%s\npersistent:true\nreceipt:r\ncontent-length:%d\n\n"
    request = head % (where.encode(), len(record)) + record + b"\0"
    return Session(sock=sock, kind="stomp", request=request, per_request=1, stored=stored)
