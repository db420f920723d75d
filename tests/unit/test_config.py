"""Settings: sources and their order, refusals that help, inheritance, and what DescribeConfigs is told."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tidelog.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigType,
    GroupConfig,
    Listener,
    Source,
    TopicConfig,
    describe_broker,
    describe_topic,
    inherited_text,
    load,
    parse_assignments,
    render,
    validate_broker_configs,
    validate_topic_configs,
)
from tidelog.config.properties import parse_properties
from tidelog.errors import InvalidConfig


def refused(**sources: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(**sources)  # type: ignore[arg-type]
    return str(caught.value)


class TestSources:
    def test_nothing_given_is_all_defaults(self) -> None:
        assert load() == BrokerConfig()

    def test_flag_beats_environment_beats_file_beats_default(self) -> None:
        file = "log.segment.bytes=100\nlog.roll.ms=100\nnum.partitions=100\n"
        environment = {"TIDELOG_LOG_SEGMENT_BYTES": "200", "TIDELOG_LOG_ROLL_MS": "200", "PATH": "/bin"}
        config = load(flags={"log.segment.bytes": "300"}, environment=environment, properties=file)
        assert (config.log_segment_bytes, config.log_roll_ms, config.num_partitions, config.node_id) == (
            300,
            200,
            100,
            1,
        )
        assert [each.text for each in config.given["log.segment.bytes"]] == ["300", "200", "100"]
        assert config.given["num.partitions"][0].where == "server.properties line 3"
        assert config.given["log.roll.ms"][0].where == "TIDELOG_LOG_ROLL_MS"
        assert config.source_of("log.roll.ms") is Source.STATIC_BROKER_CONFIG
        assert config.source_of("node.id") is Source.DEFAULT_CONFIG

    def test_unknown_names_are_refused_with_the_nearest(self) -> None:
        assert "did you mean log.retention.ms?" in refused(flags={"log.retension.ms": "1"})
        assert refused(properties="\nnod.id=1").startswith("server.properties line 2: unknown broker setting nod.id")
        assert "did you mean node.id?" in refused(environment={"TIDELOG_NOD_ID": "1"})
        assert "tidelog config list" in refused(flags={"zzzzzz": "1"})

    def test_a_topics_name_for_a_broker_setting_is_told_apart(self) -> None:
        assert "for a broker it is called log.retention.ms" in refused(flags={"retention.ms": "1"})
        with pytest.raises(InvalidConfig, match=r"for a topic it is called retention\.ms"):
            validate_topic_configs({"log.retention.hours": "1"})

    def test_every_mistake_is_reported_at_once(self) -> None:
        assert len(refused(flags={"a.b": "1", "node.id": "x"}).splitlines()) == 2

    def test_variables_of_others_are_left_alone(self) -> None:
        kubernetes = {"TIDELOG_PORT": "tcp://10.0.0.1:9092", "TIDELOG_SERVICE_HOST": "10.0.0.1"}
        more = {"TIDELOG_PORT_9092_TCP": "tcp://10.0.0.1:9092", "TIDELOG_BOOTSTRAP": "localhost:9092"}
        assert load(environment=kubernetes | more) == BrokerConfig()

    def test_assignments(self) -> None:
        assert parse_assignments(["a=b", " c = d=e "]) == {"a": "b", "c": "d=e"}
        with pytest.raises(InvalidConfig, match="name=value"):
            parse_assignments(["retention.ms"])


class TestValidity:
    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("num.partitions", "0", "a whole number at least 1"),
            ("num.partitions", "1_0", "a whole number at least 1"),
            ("num.partitions", "2147483648", "a whole number at least 1"),
            ("auto.create.topics.enable", "yes", "true or false"),
            ("compression.type", "brotli", "text one of uncompressed, zstd, lz4, snappy, gzip, producer"),
            ("log.cleanup.policy", "", "a comma-separated list of compact, delete"),
            ("log.cleaner.min.cleanable.ratio", "nan", "a number between 0 and 1"),
            ("compression.gzip.level", "0", "between 1 and 9, or -1"),
            ("listeners", "SASL_SSL://a:1", "such as PLAINTEXT://127.0.0.1:9092"),
            ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:1", "each on its own port"),
            ("listeners", "PLAINTEXT://a:70000", "such as"),
            ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "with a real host and port"),
            ("advertised.listeners", "nonsense", "with a real host and port"),
        ],
    )
    def test_what_is_valid_is_said(self, name: str, text: str, words: str) -> None:
        message = refused(flags={name: text})
        assert message.startswith(f"{name}={text!r} is not valid: expected ")
        assert words in message

    def test_lags_must_agree(self) -> None:
        with pytest.raises(InvalidConfig, match="must not exceed"):
            validate_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
        assert "must not exceed" in refused(
            flags={"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}
        )

    def test_only_dynamic_settings_change_at_run_time(self) -> None:
        with pytest.raises(InvalidConfig, match="restart"):
            validate_broker_configs({"node.id": "2"})
        with pytest.raises(InvalidConfig, match="did you mean"):
            validate_broker_configs({"log.retention.m": "2"})

    def test_listeners(self) -> None:
        config = load(flags={"listeners": "PLAINTEXT://[::1]:9092, plaintext://:0"})
        assert config.listener_addresses == (Listener("PLAINTEXT", "::1", 9092), Listener("PLAINTEXT", "", 0))
        assert str(config.listener_addresses[0]) == "PLAINTEXT://[::1]:9092"
        assert config.advertised_addresses is None
        advertised = load(flags={"advertised.listeners": "PLAINTEXT://db.example:19092"}).advertised_addresses
        assert advertised == (Listener("PLAINTEXT", "db.example", 19092),)


class TestTables:
    def test_every_attribute_is_a_documented_row(self) -> None:
        assert {each.name for each in fields(TopicConfig)} == {each.attribute for each in TOPIC_SETTINGS.values()}
        assert {each.name for each in fields(BrokerConfig)} - {"given"} == {
            each.attribute for each in BROKER_SETTINGS.values()
        }
        assert {each.name for each in fields(GroupConfig)} == {each.attribute for each in GROUP_SETTINGS.values()}
        for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values(), *GROUP_SETTINGS.values()):
            assert setting.doc.endswith("."), setting.name

    def test_a_setting_that_nothing_reads_says_so(self) -> None:
        rooms = Path(tidelog.__file__).parent
        source = "\n".join(path.read_text() for path in rooms.rglob("*.py") if path.parent.name != "config")
        for setting in TOPIC_SETTINGS.values():
            read = re.search(rf"\.{setting.attribute}\b", source) is not None
            for each in (setting, *(BROKER_SETTINGS[name] for name in setting.inherits)):
                assert ("without effect" not in each.doc) == read, each.name
        inherited = {name for setting in TOPIC_SETTINGS.values() for name in setting.inherits}
        addresses = {"listeners": "listener_addresses", "advertised.listeners": "advertised_addresses"}
        bounds = {name for name in BROKER_SETTINGS if re.match(r"group\.consumer\.(min|max)\..*\.ms$", name)}
        assert len(bounds) == 2 * len(GROUP_SETTINGS)  # of a group's own settings, read where those are
        for setting in (BROKER_SETTINGS[name] for name in BROKER_SETTINGS.keys() - inherited - bounds):
            attribute = addresses.get(setting.name, setting.attribute)
            assert re.search(rf"\.{attribute}\b", source), setting.name

    def test_defaults_are_valid_and_survive_text(self) -> None:
        for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
            text = render(setting.default)
            if text is not None:
                assert setting.parse(text) == setting.default, setting.name

    def test_topic_settings_inherit_from_broker_settings_of_their_kind_and_default(self) -> None:
        for setting in TOPIC_SETTINGS.values():
            if setting.name.endswith(".throttled.replicas"):
                assert not setting.inherits, "it names a topic's own partitions"
                continue
            assert setting.inherits, setting.name
            first = BROKER_SETTINGS[setting.inherits[0]]
            assert (first.type, first.valid and first.valid.words) == (
                setting.type,
                setting.valid and setting.valid.words,
            )
        assert TopicConfig.resolve(BrokerConfig(), {}) == TopicConfig()


class TestTopics:
    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ({}, 604_800_000),
            ({"log.retention.hours": "2"}, 7_200_000),
            ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
            ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
            ({"log.retention.hours": "-1"}, -1),
            ({"log.retention.ms": "-1"}, -1),
        ],
    )
    def test_the_finest_unit_of_retention_rules(self, flags: dict[str, str], expected: int) -> None:
        broker = load(flags=flags)
        assert TopicConfig.resolve(broker, {}).retention_ms == expected
        assert inherited_text("retention.ms", broker) == str(expected)
        assert TopicConfig.resolve(broker, {"retention.ms": "9"}).retention_ms == 9

    def test_topic_overrides(self) -> None:
        config = TopicConfig.resolve(BrokerConfig(), {"cleanup.policy": "delete, compact", "flush.on.ack": "False"})
        assert config.compacted
        assert config.cleanup_policy == {"compact", "delete"}
        assert config.flush_on_ack is False

    @pytest.mark.parametrize("overrides", [{"retenton.ms": "1"}, {"retention.ms": ""}, {"cleanup.policy": "none"}])
    def test_refusals(self, overrides: dict[str, str]) -> None:
        with pytest.raises(InvalidConfig):
            validate_topic_configs(overrides)


class TestDescribe:
    def test_a_topics_chain_runs_through_every_unit(self) -> None:
        broker = load(flags={"log.retention.minutes": "5"}).with_dynamic({"log.retention.ms": "7"})
        described = {each.name: each for each in describe_topic(broker, {"retention.ms": "9"})}
        retention = described["retention.ms"]
        assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
            ("retention.ms", "9", Source.DYNAMIC_TOPIC_CONFIG),
            ("log.retention.ms", "7", Source.DYNAMIC_BROKER_CONFIG),
            ("log.retention.minutes", "5", Source.STATIC_BROKER_CONFIG),
            ("log.retention.hours", "168", Source.DEFAULT_CONFIG),
        ]
        assert (retention.value, retention.source, retention.type) == (
            "9",
            Source.DYNAMIC_TOPIC_CONFIG,
            ConfigType.LONG,
        )
        assert described["segment.ms"].is_default
        assert described["cleanup.policy"].value == "delete"

    def test_an_inherited_value_is_told_in_the_topics_unit(self) -> None:
        described = {each.name: each for each in describe_topic(load(flags={"log.retention.hours": "1"}), {})}
        assert described["retention.ms"].value == "3600000"
        assert described["retention.ms"].source is Source.STATIC_BROKER_CONFIG

    def test_broker(self) -> None:
        described = {each.name: each for each in describe_broker(load(environment={"TIDELOG_NODE_ID": "3"}))}
        assert described.keys() == BROKER_SETTINGS.keys()
        assert (described["node.id"].value, described["node.id"].read_only) == ("3", True)
        assert [each.value for each in described["node.id"].synonyms] == ["3", "1"]
        assert described["log.retention.ms"].value is None
        assert described["log.retention.ms"].synonyms == ()
        assert not described["log.retention.ms"].read_only

    def test_run_time_changes_replace_earlier_ones_and_uncover_the_file(self) -> None:
        started = load(properties="log.segment.bytes=100")
        changed = started.with_dynamic({"log.segment.bytes": "200", "log.roll.ms": "5"})
        assert (changed.log_segment_bytes, changed.log_roll_ms) == (200, 5)
        assert changed.with_dynamic({}) == started


class TestProperties:
    def test_javas_own_examples(self) -> None:
        fruits = "fruits   apple, banana, \\\n    pear, \\\n    kiwi"
        text = f"! comment\n# comment\n\n{fruits}\nTruth = Beauty\nTruth:Beauty\ncheeses\n"
        assert parse_properties(text) == [
            ("fruits", "apple, banana, pear, kiwi", 4),
            ("Truth", "Beauty", 7),
            ("Truth", "Beauty", 8),
            ("cheeses", "", 9),
        ]

    @pytest.mark.parametrize(
        ("text", "name", "value"),
        [
            ("a\\ b\\=c=d", "a b=c", "d"),
            ("a=b\\\\", "a", "b\\"),
            ("a=\\u0041\\tx", "a", "A\tx"),
            ("a=x # not a comment", "a", "x # not a comment"),
            ("a=b\\\r\n  c\r\n", "a", "bc"),
            ("a = b ", "a", "b "),
            ("a=\\u00", "a", "u00"),
            ("a=c:\\dir", "a", "c:dir"),
            ("a=b\\", "a", "b"),
        ],
    )
    def test_escapes(self, text: str, name: str, value: str) -> None:
        assert [(each.name, each.value) for each in parse_properties(text)] == [(name, value)]

    @given(st.text(max_size=200))
    def test_any_text_is_parsed_or_ignored(self, text: str) -> None:
        parse_properties(text)

    @given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=5))
    def test_escaped_text_comes_back(self, properties: dict[str, str]) -> None:
        def escaped(text: str) -> str:
            return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)

        text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in properties.items())
        assert {each.name: each.value for each in parse_properties(text)} == properties
