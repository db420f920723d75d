"""Topics merged by Spark against what the library says of the same stamps, pair by pair."""

import json
import os
import random
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.spark.kit import Topics, read_all, until_decided
from tests.spark.pages import blocks, follow

from tidelog.causality import HEADER, Clock, Order, Stamp, read_stamp
from tidelog.spark.bounds import InvalidOption
from tidelog.spark.causal import CONCURRENT_HEADER, Wanted, to_directory, to_topic
from tidelog.spark.causal_checks import Causal

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
START = 1_726_000_000_000
KEPT = {"retention_ms": "-1"}  # the records are years old


class World:
    """Services that send to topics and read each other's records; time goes on by itself."""

    def __init__(self, topics: Topics, names: list[str], *services: str) -> None:
        self._topics, self.names = topics, names
        self._now = START
        self.clocks = {name: Clock(name, self._tick) for name in services}
        self.stamps: dict[str, Stamp] = {}
        self.causes: dict[str, set[str]] = {}
        self._known: dict[str, set[str]] = {name: set() for name in services}
        self._pending: dict[tuple[str, int], list[tuple[str, Any]]] = {}

    def _tick(self) -> int:
        self._now += 7
        return self._now

    def send(self, service: str, topic: str, partition: int = 0, *, lose: bool = False) -> str:
        headers = self.clocks[service].send_headers([("trace", b"t")])
        stamp = read_stamp(headers)
        assert stamp is not None
        name = f"{service}:{stamp.count}"
        self.stamps[name], self.causes[name] = stamp, set(self._known[service])
        self._known[service].add(name)
        if not lose:
            self._pending.setdefault((topic, partition), []).append((name, headers))
        return name

    def hear(self, service: str, name: str) -> None:
        self.clocks[service].hear(self.stamps[name])
        self._known[service] |= {name} | self.causes[name]

    def flush(self, *, reverse: bool = False) -> None:
        for (topic, partition), records in self._pending.items():
            for name, headers in reversed(records) if reverse else records:
                self._topics.fill(topic, [name], partition, headers=headers, timestamp=START)
        self._pending.clear()

    def wanted(self, **more: Any) -> Wanted:
        return Wanted(topics=tuple(self.names), bootstrap_servers=self._topics.bootstrap, **more)


def test_a_merged_history_is_what_happened(spark: Any, topics: Topics, tmp_path: Path) -> None:
    dice = random.Random(7)
    names = [topics.make(2, **KEPT), topics.make(1, **KEPT), topics.make(1, **KEPT)]
    world = World(topics, names, "checkout", "payment", "mail", "fraud")
    services, sent = list(world.clocks), []
    for _ in range(120):
        service = dice.choice(services)
        if sent and dice.random() < 0.5:
            world.hear(service, dice.choice(sent))
        else:
            topic = dice.choice(names)
            sent.append(world.send(service, topic, dice.randrange(2) if topic == names[0] else 0))
    world.flush()
    topics.fill(names[1], ["bare"], timestamp=START)
    topics.fill(names[1], ["odd"], timestamp=START + 10_000_000, headers={HEADER: b"nonsense"})
    with Causal(spark, world.wanted()) as merge:
        summary = merge.summary()
        merged = merge.merged()
        to_directory(merged, tmp_path / "history")
        target = topics.make(1, **KEPT)
        to_topic(merged, target, topics.bootstrap)
    rows = duckdb.sql(
        f"select value::varchar v, concurrent, event from '{tmp_path}/history/*.parquet' order by position"
    ).fetchall()
    order = [value for value, *_ in rows]
    assert (order[0], order[-1], len(order)) == ("bare", "odd", len(sent) + 2)
    seen: set[str] = set()
    for name in order[1:-1]:
        assert world.causes[name] <= seen
        seen.add(name)
    expected = dict.fromkeys(sent, 0)
    for one, other in combinations(sent, 2):
        if world.stamps[one].compare(world.stamps[other]) is Order.CONCURRENT:
            expected[one] += 1
            expected[other] += 1
    assert {value: number for value, number, event in rows if event} == expected
    assert (summary.records, summary.stamped, summary.unstamped, summary.unreadable) == (len(sent) + 2, len(sent), 1, 1)
    assert (summary.nodes, summary.pairs) == (4, sum(expected.values()) // 2)
    assert summary.concurrent == sum(1 for number in expected.values() if number)
    assert (summary.violations, summary.repeated, summary.older, summary.examples) == (0, 0, 0, {})

    until_decided(topics.bootstrap)
    copied = read_all(topics.options(target, includeHeaders=True, **{"isolation.level": "read_committed"}))
    assert [row["value"].decode() for row in copied] == order
    headers = {header["key"]: header["value"] for header in copied[1]["headers"]}
    assert read_stamp(headers) == world.stamps[order[1]]
    assert headers["tidelog.source.topic"].decode() in names
    assert int(headers[CONCURRENT_HEADER]) == expected[order[1]]
    with pytest.raises(InvalidOption, match="exists already"):
        to_directory(merged, tmp_path / "history")


def test_every_violation_is_found_and_placed(spark: Any, topics: Topics) -> None:
    orders, payments = topics.make(1, **KEPT), topics.make(1, **KEPT)
    world = World(topics, [orders, payments], "checkout", "payment", "mail")
    world.send("checkout", orders)
    lost = world.send("checkout", orders, lose=True)
    world.hear("payment", lost)
    world.send("payment", payments)
    world.flush()
    # An effect that stands before its cause, in one partition.
    cause = world.send("mail", payments)
    world.hear("payment", cause)
    world.send("payment", payments)
    world.flush(reverse=True)
    # A stamp that is used twice, and one that says it is older than what it knows.
    again = [(HEADER, world.stamps[cause].encode())]
    topics.fill(orders, ["again"], headers=again)
    topics.fill(orders, ["wrong"], headers=[(HEADER, b"0000000000000001;clock;clock=1,checkout=1")])
    with Causal(spark, world.wanted()) as merge:
        found = merge.summary()
    assert (found.missing, found.inverted, found.clock, found.repeated, found.older) == (1, 1, 1, 1, 0)
    assert found.examples["missing"] == [
        f"{payments}-0@0  payment:1 knows checkout:2, which is in none of these topics",
        f"{payments}-0@1  payment:2 knows checkout:2, which is in none of these topics",
    ]
    assert found.examples["inverted"] == [f"{payments}-0@1  payment:2 stands before its cause mail:1 at offset 2"]
    assert found.examples["clock"] == [f"{orders}-0@2  clock:1 knows checkout:1, whose time is not before its own"]
    assert [each.split("  ")[1] for each in found.examples["repeated"]] == ["mail:1 2 times"]

    # Read from behind the beginning, what lies before is not missed.
    start = {"startingOffsets": json.dumps({orders: {"0": 1}, payments: {"0": 1}})}
    with Causal(spark, world.wanted(start=start)) as merge:
        found = merge.summary()
    assert found.missing == 0
    assert found.older == 3


def test_the_page_is_true(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", topics.bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (program,) = blocks("causal-order.md", "py")
    (tmp_path / "services.py").write_text(program.replace("localhost:9092", topics.bootstrap))
    follow("causal-order.md", os.environ, tmp_path, capsys)
    spark.sparkContext.setLogLevel("ERROR")
