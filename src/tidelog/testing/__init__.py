"""Tidelog for tests: a real broker inside the test process, ready in milliseconds, gone without a trace.

    with tidelog.testing.Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from tidelog.testing.broker import Broker

__all__ = ["Broker"]
