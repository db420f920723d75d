"""When a broker that speaks Kafka's protocol is ready: it answers Metadata with every node that should be there."""

from functools import partial

from bench.peers.servers.broker import HOST, Node, wait_until
from tidelog.client.connection import Connection
from tidelog.wire.messages.admin import MetadataRequest

_METADATA_VERSION = 5


def wait_ready(nodes: list[Node], timeout_s: float = 90) -> None:
    """A bound port is not enough: Apache Kafka lists a broker only once it may be used."""
    for node in nodes:
        wait_until(partial(_lists, node.port, len(nodes)), nodes, timeout_s)


def _lists(port: int, brokers: int) -> bool:
    try:
        with Connection(HOST, port, timeout=5) as connection:
            answer = connection.call(MetadataRequest(topics=()), version=_METADATA_VERSION)
    except (OSError, EOFError):
        return False
    return len(answer.brokers) == brokers
