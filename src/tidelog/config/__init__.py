"""Settings: Kafka's own names, types, defaults and docs, in one table that feeds parsing, DescribeConfigs and the docs.

`load` makes a `BrokerConfig` from flags, environment and server.properties; `TopicConfig.resolve` makes a topic's
settings from its own and its broker's, `GroupConfig.resolve` a group's; `describe_*` tell them to clients. Nothing here
reads a file or a clock.
"""

from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig, validate_broker_configs
from tidelog.config.describe import Described, Synonym, describe_broker, describe_group, describe_topic, inherited_text
from tidelog.config.given import Given, Source
from tidelog.config.group import GROUP_SETTINGS, GroupConfig
from tidelog.config.listeners import Listener
from tidelog.config.setting import ConfigType, Setting, render
from tidelog.config.sources import load, parse_assignments
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig, validate_topic_configs

__all__ = [
    "BROKER_SETTINGS",
    "GROUP_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigType",
    "Described",
    "Given",
    "GroupConfig",
    "Listener",
    "Setting",
    "Source",
    "Synonym",
    "TopicConfig",
    "describe_broker",
    "describe_group",
    "describe_topic",
    "inherited_text",
    "load",
    "parse_assignments",
    "render",
    "validate_broker_configs",
    "validate_topic_configs",
]
