"""From flags, environment and server.properties to a BrokerConfig: flag > environment > file > default.

The caller reads the file and the environment; this only decides. Anything unknown is refused, because a setting with a
spelling mistake that is quietly ignored is found out on the day it was needed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig, from_layers
from tidelog.config.given import Given, Source
from tidelog.config.properties import parse_properties
from tidelog.config.setting import unknown
from tidelog.config.topic import TOPIC_SETTINGS
from tidelog.errors import InvalidConfig

CLIENT_ENVIRONMENT: Final = frozenset({"TIDELOG_BOOTSTRAP", "TIDELOG_CONFIG", "TIDELOG_DEBUG"})

# Kubernetes describes a service called "tidelog" to every pod in variables of these shapes.
_KUBERNETES: Final = re.compile(r"^TIDELOG_(SERVICE_.*|PORT|PORT_\d+_.*)$")


def load(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    properties: str = "",
    properties_name: str = "server.properties",
) -> BrokerConfig:
    """Raises `InvalidConfig` whose message has one line for each thing that is wrong."""
    layers: dict[str, tuple[Given, ...]] = {}
    problems: list[str] = []
    for name, given in (
        *((name, Given(text, Source.STATIC_BROKER_CONFIG, "flag")) for name, text in (flags or {}).items()),
        *_from_environment(environment or {}),
        *_from_properties(properties, properties_name),
    ):
        problem = _problem(name, given)
        if problem:
            problems.append(f"{given.where}: {problem}" if given.where != "flag" else problem)
        layers[name] = (*layers.get(name, ()), given)
    if problems:
        raise InvalidConfig("\n".join(problems))
    return from_layers(layers)


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    by_variable = {setting.environment: setting.name for setting in BROKER_SETTINGS.values()}
    for variable, text in sorted(environment.items()):
        if not variable.startswith("TIDELOG_") or variable in CLIENT_ENVIRONMENT or _KUBERNETES.match(variable):
            continue
        name = by_variable.get(variable, variable.removeprefix("TIDELOG_").lower().replace("_", "."))
        yield name, Given(text, Source.STATIC_BROKER_CONFIG, variable)


def _from_properties(text: str, file_name: str) -> Iterator[tuple[str, Given]]:
    last = {each.name: each for each in parse_properties(text)}
    for each in last.values():
        yield each.name, Given(each.value, Source.STATIC_BROKER_CONFIG, f"{file_name} line {each.line}")


def _problem(name: str, given: Given) -> str | None:
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        topic_setting = TOPIC_SETTINGS.get(name)
        if topic_setting is not None:
            return f"unknown broker setting {name}: for a broker it is called {topic_setting.inherits[0]}"
        return str(unknown(name, BROKER_SETTINGS, "broker"))
    try:
        setting.parse(given.text)
    except InvalidConfig as refused:
        return str(refused)
    return None


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` as people type them after --set or --config."""
    assignments = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"{pair!r} is not of the form name=value")
        assignments[name.strip()] = value.strip()
    return assignments
