"""The small raw client: one socket, Kafka's framing, our own message tables."""

from tidelog.client.connection import Connection, ConnectionClosed

__all__ = ["Connection", "ConnectionClosed"]
