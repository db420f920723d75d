"""Every message table, one file per subject. Importing this package fills the registry.

Names are Kafka's in snake_case. Where Kafka uses one name for structs of different messages, ours begins with the name
of its message.
"""

from tidelog.wire.messages import admin, clusters, configs, data, groups, offsets, peers, transactions
from tidelog.wire.schema import API

__all__ = ["API", "admin", "clusters", "configs", "data", "groups", "offsets", "peers", "transactions"]
