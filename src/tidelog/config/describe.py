"""Settings as DescribeConfigs tells them: the value in force, where it comes from, and what it would fall back to."""

from collections.abc import Iterator, Mapping

import msgspec

from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.given import Source
from tidelog.config.group import GROUP_SETTINGS, GroupConfig
from tidelog.config.setting import ConfigType, Setting, render
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig, inherited


class Synonym(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: Source


class Described(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None  # None when unset, and always when sensitive
    source: Source
    type: ConfigType
    doc: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]  # strongest first; the first is the value in force

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT_CONFIG


def describe_broker(broker: BrokerConfig) -> tuple[Described, ...]:
    return tuple(
        _described(setting, getattr_text(broker, setting), tuple(_broker_chain(setting, broker)), not setting.dynamic)
        for setting in BROKER_SETTINGS.values()
    )


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[Described, ...]:
    config = TopicConfig.resolve(broker, overrides)
    return tuple(
        _described(
            setting,
            getattr_text(config, setting),
            tuple(_chain(setting, broker, overrides, Source.DYNAMIC_TOPIC_CONFIG)),
            False,
        )
        for setting in TOPIC_SETTINGS.values()
    )


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> tuple[Described, ...]:
    config = GroupConfig.resolve(broker, overrides)
    return tuple(
        _described(
            setting,
            getattr_text(config, setting),
            tuple(_chain(setting, broker, overrides, Source.DYNAMIC_GROUP_CONFIG)),
            False,
        )
        for setting in GROUP_SETTINGS.values()
    )


def getattr_text(config: BrokerConfig | TopicConfig | GroupConfig, setting: Setting) -> str | None:
    return render(getattr(config, setting.attribute))


def _described(setting: Setting, value: str | None, chain: tuple[Synonym, ...], read_only: bool) -> Described:
    return Described(
        name=setting.name,
        value=None if setting.sensitive else value,
        source=chain[0].source if chain else Source.DEFAULT_CONFIG,
        type=setting.type,
        doc=setting.doc,
        read_only=read_only,
        sensitive=setting.sensitive,
        synonyms=chain,
    )


def _chain(setting: Setting, broker: BrokerConfig, overrides: Mapping[str, str], source: Source) -> Iterator[Synonym]:
    if setting.name in overrides:
        yield Synonym(setting.name, overrides[setting.name], source)
    for name in setting.inherits:
        yield from _broker_chain(BROKER_SETTINGS[name], broker)


def _broker_chain(setting: Setting, broker: BrokerConfig) -> Iterator[Synonym]:
    """What was written down for a setting, strongest first, then its default. A default of nothing is not told."""
    hidden = setting.sensitive
    for given in broker.given.get(setting.name, ()):
        yield Synonym(setting.name, None if hidden else given.text, given.source)
    if setting.default is not None:
        yield Synonym(setting.name, None if hidden else render(setting.default), Source.DEFAULT_CONFIG)


def inherited_text(name: str, broker: BrokerConfig) -> str | None:
    """The text of what a topic would have if it said nothing about `name`."""
    return render(inherited(TOPIC_SETTINGS[name], broker))
