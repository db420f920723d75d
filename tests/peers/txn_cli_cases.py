"""Every `tidelog txn` command, as cases for whichever Kafka the `bootstrap` fixture names.

`hang()` is the broker's own: it leaves a transaction open in partition 0 of a topic that no coordinator knows.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.compat.transaction_clients import ConfluentProducer, Fenced
from tests.compat.transaction_readers import end_offset, read, until_over
from tests.peers.cli_cases import Cli, CliCases


class Hung(NamedTuple):
    topic: str
    producer_id: int
    start_offset: int


Hang = Callable[[], Hung]


class TxnCliCases:
    cli = CliCases.cli
    topic = CliCases.topic

    @pytest.fixture
    def name(self) -> str:
        return f"txn-{uuid4().hex[:10]}"

    @pytest.fixture
    def producer(self, bootstrap: str, name: str) -> Iterator[ConfluentProducer]:
        with ConfluentProducer(bootstrap, name, timeout_ms=50_000) as producer:
            yield producer

    @pytest.fixture
    def busy(self, producer: ConfluentProducer, topic: str) -> ConfluentProducer:
        """With an open transaction: three records in partition 0, one in partition 2."""
        producer.begin()
        producer.send(topic, 0, b"a", b"b", b"c")
        producer.send(topic, 2, b"d")
        return producer

    def listed(self, cli: Cli, *options: str) -> list[str]:
        return [each["transactional_id"] for each in cli("txn", "list", *options, "-o", "json").json]

    # -- looking ------------------------------------------------------------------------------------------------------

    def test_list(self, cli: Cli, busy: ConfluentProducer, name: str) -> None:
        (row,) = [each for each in cli("txn", "list", "-o", "json").json if each["transactional_id"] == name]
        assert (row["state"], row["timeout_ms"], row["coordinator"]) == ("Ongoing", 50_000, 1)
        assert 0 <= row["duration_ms"] < 60_000
        assert [each[1] for each in row["partitions"]] == [0, 2]
        assert any(line.split()[:2] == [name, "Ongoing"] for line in cli("txn", "list").lines)
        time.sleep(0.02)
        for options, found in [
            (("--state", "ongoing"), True),
            (("--state", "Empty"), False),
            (("--state", "Empty", "--state", "Ongoing"), True),
            (("--producer-id", str(row["producer_id"])), True),
            (("--producer-id", str(row["producer_id"] + 1_000_000)), False),
            (("--longer-than", "10ms"), True),
            (("--longer-than", "1h"), False),
            (("--match", f"{name[:8]}.*"), True),
            (("--match", name[:8]), False),
        ]:
            assert (name in self.listed(cli, *options)) is found, options

    def test_list_when_it_is_over(
        self, cli: Cli, busy: ConfluentProducer, name: str, topic: str, bootstrap: str
    ) -> None:
        busy.commit()
        until_over(bootstrap, topic, [0, 2])
        (row,) = cli("txn", "list", "--match", name, "-o", "json").json
        assert (row["duration_ms"], row["partitions"]) == (None, [])
        assert name not in self.listed(cli, "--longer-than", "0s")
        assert cli("txn", "list", "--match", f"no-{name}").out == "no transactions of that kind\n"

    def test_what_list_does_not_understand(self, cli: Cli) -> None:
        assert cli("txn", "list", "--state", "Asleep").code == 2
        assert cli("txn", "list", "--match", "(").code == 2
        assert cli("txn", "list", "--longer-than", "soon").code == 2

    def test_describe(self, cli: Cli, busy: ConfluentProducer, name: str, topic: str) -> None:
        told = cli("txn", "describe", name, "-o", "json").json
        assert told["transaction"]["state"] == "Ongoing"
        rows = [(each["partition"], each["start_offset"], each["held_back"]) for each in told["partitions"]]
        assert rows == [(0, 0, 3), (2, 0, 1)]
        assert all(abs(each["last_write_ms"] - time.time() * 1000) < 20_000 for each in told["partitions"])
        text = cli("txn", "describe", name)
        assert text.lines[0] == f"{name}: Ongoing, in 2 partitions"
        assert "(timeout 50s)" in text.out
        assert any(line.split()[:3] == [topic, "0", "0"] for line in text.lines)
        busy.abort()

    def test_describe_what_is_over_or_not_there(self, cli: Cli, producer: ConfluentProducer, name: str) -> None:
        assert cli("txn", "describe", name).lines[0] == f"{name}: Empty, no open transaction"
        missing = cli("txn", "describe", f"no-{name}")
        assert (missing.code, missing.err.splitlines()) == (
            1,
            [f"error: there is no transactional id no-{name}", "  next: `tidelog txn list` shows those there are"],
        )
        assert f"no-{name}" not in self.listed(cli)  # asking made none

    # -- ending one that is known -------------------------------------------------------------------------------------

    def test_abort(self, cli: Cli, busy: ConfluentProducer, name: str, topic: str, bootstrap: str) -> None:
        Producer({"bootstrap.servers": bootstrap}).produce(topic, b"behind", partition=0)
        ended = cli("txn", "abort", name, "--yes")
        assert (ended.code, ended.out) == (
            0,
            f"aborted the transaction of {name} in 2 partitions; its producer is fenced\n",
        )
        with pytest.raises(Fenced):
            busy.commit()
        until_over(bootstrap, topic, [0, 2])
        again = cli("txn", "abort", name)
        assert (again.code, "has no open transaction" in again.err, "find-hanging" in again.err) == (1, True, True)
        assert cli("txn", "describe", name, "-o", "json").json["transaction"]["timeout_ms"] == 50_000
        assert cli("txn", "abort", f"no-{name}").code == 1
        assert f"no-{name}" not in self.listed(cli)

    def test_abort_as_json(self, cli: Cli, busy: ConfluentProducer, name: str) -> None:
        told = cli("txn", "abort", name, "-o", "json").json["aborted"]
        assert (told["transactional_id"], told["state"], len(told["partitions"])) == (name, "Ongoing", 2)

    def test_abort_needs_one_way_to_say_which(self, cli: Cli, topic: str) -> None:
        assert cli("txn", "abort").code == 2
        assert cli("txn", "abort", "id", "--topic", topic).code == 2
        assert cli("txn", "abort", "--topic", topic).code == 2
        assert cli("txn", "abort", "id", "--force").code == 2

    # -- ending one that hangs ----------------------------------------------------------------------------------------

    def test_a_hanging_transaction_is_found_and_ended(self, cli: Cli, hang: Hang, bootstrap: str) -> None:
        topic, producer_id, start = hang()
        plain = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        plain.produce(topic, b"waits behind it", partition=0)
        assert plain.flush(10) == 0
        assert end_offset(bootstrap, topic, 0, "read_committed") == start

        found = cli("txn", "find-hanging", "--topic", topic, "--idle", "0s", "-o", "json")
        assert found.code == 1
        (row,) = found.json
        assert (row["topic"], row["partition"], row["start_offset"]) == (topic, 0, start)
        assert (row["producer_id"], row["transactional_id"], row["held_back"]) == (producer_id, None, 2)
        assert row["reason"] == f"no coordinator knows producer id {producer_id}"

        text = cli("txn", "find-hanging", "--topic", topic, "--partition", "0", "--idle", "0s")
        command = f"tidelog txn abort --topic {topic} --partition 0 --start-offset {start}"
        assert text.lines[-1] == f"to end the first: {command}"
        ended = cli(*command.split()[1:])
        assert (ended.code, f"producer id {producer_id} in {topic}-0" in ended.out) == (0, True)
        assert read(bootstrap, topic, over=True)[0][-1] == b"waits behind it"
        nothing = cli("txn", "find-hanging", "--topic", topic, "--idle", "0s")
        assert (nothing.code, nothing.out) == (0, "no hanging transactions in 1 partition\n")
        missing = cli(*command.split()[1:])
        assert (missing.code, "no open transaction begins at offset" in missing.err) == (1, True)

    def test_young_ones_are_left_alone(self, cli: Cli, hang: Hang) -> None:
        assert cli("txn", "find-hanging", "--topic", hang().topic, "--idle", "1h").code == 0

    def test_what_is_open_does_not_hang(self, cli: Cli, busy: ConfluentProducer, name: str, topic: str) -> None:
        assert cli("txn", "find-hanging", "--topic", topic, "--idle", "0s").code == 0
        where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
        refused = cli("txn", "abort", *where)
        assert (refused.code, f"`tidelog txn abort {name}`" in refused.err) == (1, True)
        assert cli("txn", "abort", *where, "--force", "-o", "json").json["aborted"]["start_offset"] == 0
        assert cli("txn", "describe", name, "-o", "json").json["partitions"][0]["start_offset"] is None
        busy.abort()

    def test_finding_where_there_is_nothing(self, cli: Cli, topic: str) -> None:
        missing = cli("txn", "find-hanging", "--topic", f"{topic}x")
        assert (missing.code, f"did you mean {topic}?" in missing.err) == (1, True)
        assert "has no partition 9" in cli("txn", "find-hanging", "--topic", topic, "--partition", "9").err
        assert cli("txn", "find-hanging", "--partition", "0").code == 2
        where = ("--partition", "9", "--start-offset", "0")
        assert "has no partition 9" in cli("txn", "abort", "--topic", topic, *where).err

    def test_names_that_would_steer_the_terminal(self, cli: Cli, bootstrap: str, topic: str, name: str) -> None:
        evil = f"{name}\x1b[31m"
        with ConfluentProducer(bootstrap, evil) as producer:
            producer.begin()
            producer.send(topic, 0, b"x")
            for command in (("list",), ("describe", evil), ("abort", evil)):
                told = cli("txn", *command)
                assert (told.code, "\x1b" in told.out, "\\x1b" in told.out) == (0, False, True)

    def test_only_plaintext(self, cli: Cli) -> None:
        refused = cli("txn", "list", "-X", "security.protocol=SSL")
        assert (refused.code, "PLAINTEXT" in refused.err) == (1, True)
