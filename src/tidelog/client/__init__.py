"""The small raw client: sockets, Kafka's framing, our own message tables.

`Connection` says exactly what it is told and retries nothing. `Cluster` negotiates versions, follows leaders and waits
out restarts; `PartitionFetcher` reads a range of a partition as raw batches.
"""

from tidelog.client.cluster import Cluster, NoBroker
from tidelog.client.connection import Connection, ConnectionClosed
from tidelog.client.fetcher import DataLost, FetchRange, PartitionFetcher, TopicGone
from tidelog.client.negotiated import NegotiatedConnection

__all__ = [
    "Cluster",
    "Connection",
    "ConnectionClosed",
    "DataLost",
    "FetchRange",
    "NegotiatedConnection",
    "NoBroker",
    "PartitionFetcher",
    "TopicGone",
]
