"""One greeted connection per protocol: the request that stores records, what its answer looks like, what is stored."""

from bench.peers.sessions import amqp, kafka, nats, redis, stomp
from bench.peers.sessions.session import Open, Session

__all__ = ["Session", "connect"]

_OPEN: dict[str, Open] = {
    "tidelog": kafka.connect,
    "kafka": kafka.connect,
    "nats": nats.connect,
    "redis": redis.connect,
    "rabbitmq-quorum": amqp.connect,
    "rabbitmq-stream": amqp.connect,
    "activemq": stomp.connect,
}


def connect(side: str, host: str, port: int, where: str, record: bytes, records: int) -> Session:
    """A session that stores `record` in the stream, queue or topic `where`, `records` at a time where that exists."""
    return _OPEN[side](side, host, port, where, record, records)
