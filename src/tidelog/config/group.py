"""What one group runs with that is not the broker's: settings of Kafka's resource type GROUP, by the consumer protocol.

Members of classic groups bring their own timeouts along; here the broker has them, for all groups or for one by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.setting import Setting, Value, at_least, integer, table, unknown
from tidelog.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """After the group's own settings and the broker's are resolved."""

    consumer_session_timeout_ms: int = integer(
        45_000,
        "A member of this group that is silent for this long is removed.",
        at_least(1),
        inherits=("group.consumer.session.timeout.ms",),
    )
    consumer_heartbeat_interval_ms: int = integer(
        5_000,
        "The longest time between heartbeats that members of this group are asked for.",
        at_least(1),
        inherits=("group.consumer.heartbeat.interval.ms",),
    )

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> "GroupConfig":
        """The group's own settings, then the broker's. Raises `InvalidConfig` for overrides nobody may set."""
        values: dict[str, Value] = {
            setting.attribute: getattr(broker, BROKER_SETTINGS[setting.inherits[0]].attribute)
            for setting in GROUP_SETTINGS.values()
        }
        for name, text in overrides.items():
            if name not in GROUP_SETTINGS:
                raise unknown(name, GROUP_SETTINGS, "group")
            values[GROUP_SETTINGS[name].attribute] = _bounded(GROUP_SETTINGS[name], text, broker)
        config = replace(cls(), **values)  # type: ignore[arg-type]
        if overrides and config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
            raise InvalidConfig(
                f"consumer.session.timeout.ms={config.consumer_session_timeout_ms} must be greater than "
                f"consumer.heartbeat.interval.ms={config.consumer_heartbeat_interval_ms}"
            )
        return config


GROUP_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(table(GroupConfig))


def _bounded(setting: Setting, text: str, broker: BrokerConfig) -> Value:
    """Within what the broker allows any group: group.consumer.min.… and group.consumer.max.…"""
    value = setting.parse(text)
    for bound, word in (("min", "at least"), ("max", "at most")):
        name = f"group.{setting.name}".replace("consumer.", f"consumer.{bound}.")
        limit: int = getattr(broker, BROKER_SETTINGS[name].attribute)
        if isinstance(value, int) and (value < limit if bound == "min" else value > limit):
            raise InvalidConfig(f"{setting.name}={value} must be {word} {name}={limit}")
    return value
