"""Values that somebody wrote down, and where."""

from enum import IntEnum

import msgspec


class Source(IntEnum):
    """Where a value comes from; Kafka's numbers, as DescribeConfigs sends them."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class Given(msgspec.Struct, frozen=True):
    """A value somebody wrote down, and where."""

    text: str
    source: Source
    where: str  # for people: "flag --set", "TIDELOG_NODE_ID", "server.properties line 3"
