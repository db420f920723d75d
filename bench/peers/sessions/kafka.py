"""Kafka's protocol: a Produce request with one batch."""

from confluent_kafka import TopicPartition

from bench.peers import raw
from bench.peers.servers.broker import ADMIN
from bench.peers.sessions.session import Session, open_socket


def connect(_side: str, host: str, port: int, where: str, record: bytes, records: int) -> Session:
    def stored() -> int:
        admin = ADMIN.AdminClient({"bootstrap.servers": f"{host}:{port}", "log_level": 0})
        place = TopicPartition(where, 0)
        offset: int = admin.list_offsets({place: ADMIN.OffsetSpec.latest()})[place].result(60).offset
        return offset

    request = raw.produce(where, raw.batch(records, len(record)), acks=-1)
    return Session(sock=open_socket(host, port), kind="frame", request=request, per_request=records, stored=stored)
