"""Tidelog for tests: a real broker inside the test process, ready in milliseconds, gone without a trace.

with tidelog.testing.Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

`Cluster(3)` is three brokers in processes of their own, which a test may kill.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]


def __getattr__(name: str) -> Any:
    # Late: pytest loads this package in every run of everybody who has Tidelog installed.
    if name == "Broker":
        from tidelog.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from tidelog.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
