"""Tidelog for tests: a real broker inside the test process, ready in milliseconds, gone without a trace.

with tidelog.testing.Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    # Late: pytest loads this package in every run of everybody who has Tidelog installed.
    if name == "Broker":
        from tidelog.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
