"""Audits of topics with planted faults: each is found, named and placed; topics without any are clean."""

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.scenarios import kit
from tests.spark.kit import Topics
from tests.spark.pages import blocks, follow

from tidelog.client.connection import Connection
from tidelog.partitioning import partition_for
from tidelog.spark.audit import Check, Report, Verdict, Wanted, audit, skeleton
from tidelog.spark.audit.page import page
from tidelog.spark.audit.scope import find_scope
from tidelog.spark.bounds import InvalidOption
from tidelog.testing import Broker
from tidelog.wire.record_batch import iter_batches, patch, read_header

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
START = 1_700_000_000_000
PARTITIONS = 3


def event(number: int, **more: Any) -> bytes:
    """The number-th event; one a second, keys in turn, versions rising within a key."""
    fields = {"id": f"e{number}", "version": number // 10 + 1, "at": START + 1000 * number, **more}
    return json.dumps(fields).encode()


def key(number: int) -> bytes:
    return b"key-%d" % (number % 10)


def check(report: Report, name: str) -> Check:
    return next(each for each in report.checks if each.name == name)


def verdicts(report: Report) -> dict[str, str]:
    return {each.name: each.verdict.value for each in report.checks}


CLEAN = dict.fromkeys(
    ["offsets", "integrity", "retries", "delivery", "duplicates", "order", "placement", "load", "lateness"], "ok"
)


class Log:
    """A topic written batch by batch over a raw connection, by an idempotent producer."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection, self.topic = connection, topic
        self.producer_id = kit.new_producer_id(connection)
        self._sequences: dict[int, int] = {}

    def write(self, *records: tuple[bytes, bytes], partition: int | None = None) -> None:
        for name, value in records:
            number = partition_for(name, PARTITIONS) if partition is None else partition
            sequence = self._sequences.get(number, 0)
            kit.store(
                self.connection,
                self.topic,
                (name, value),
                partition=number,
                producer=(self.producer_id, 0, sequence),
            )
            self._sequences[number] = sequence + 1


def planted(connection: Connection) -> dict[str, tuple[int, int]]:
    """Writes the topic `faulty` with a fault for each check of records; where they are."""
    kit.create_topic(connection, "faulty", PARTITIONS)
    log = Log(connection, "faulty")
    log.write(*((key(n), event(n)) for n in range(60)))
    home = partition_for(key(3), PARTITIONS)
    ends = [kit.offset_at(connection, "faulty", kit.LATEST, number) for number in range(PARTITIONS)]
    stray, back, twice, old = (home + 1) % PARTITIONS, *(partition_for(key(n), PARTITIONS) for n in (4, 7, 8))
    log.write((key(3), event(63)), partition=stray)
    places = {"placement": (stray, ends[stray])}
    ends[stray] += 1
    for name, number, record in (
        ("order", back, (key(4), event(64, version=2))),
        ("duplicates", twice, (key(7), event(67, id="e7"))),
        ("lateness", old, (key(8), event(68, at="2023-11-14T22:03:20Z"))),
    ):
        log.write(record)
        places[name] = number, ends[number]
        ends[number] += 1
    return places


def damage(directory: Path) -> tuple[int, int]:
    """Takes the third batch out of the log in `directory` and puts the first behind the last once more, as no broker
    would do it. Offsets of the missing and of the second copy."""
    (segment,) = directory.glob("*.log")
    batches = [bytearray(batch) for _, batch in iter_batches(segment.read_bytes())]
    missing = read_header(batches.pop(2)).base_offset
    again = bytearray(batches[0])
    end = read_header(batches[-1]).last_offset + 1
    patch(again, base_offset=end, leader_epoch=read_header(again).partition_leader_epoch)
    segment.write_bytes(b"".join([*batches, again]))
    for name in ("*.index", "*.timeindex", "*.snapshot"):
        for path in directory.glob(name):
            path.unlink()
    (directory.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return missing, end


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, dict[str, tuple[int, int]]]]:
    """A broker with the topic `faulty`, and where its faults are."""
    directory = tmp_path_factory.mktemp("damaged")
    with Broker(data_dir=directory) as broker, kit.connect(broker) as connection:
        places = planted(connection)
    missing, again = damage(directory / "faulty-0")
    places |= {"offsets": (0, missing), "retries": (0, again)}
    with Broker({"log.cleaner.backoff.ms": 20, "log.retention.check.interval.ms": 50}, data_dir=directory) as broker:
        yield broker, places


def test_every_fault_is_found_and_placed(spark: Any, damaged: tuple[Broker, dict[str, tuple[int, int]]]) -> None:
    broker, places = damaged
    wanted = Wanted(
        topic="faulty",
        bootstrap_servers=broker.bootstrap_servers,
        event_time="at",
        sequence="version",
        event_id="id",
        late_ms=120_000,
    )
    report = audit(spark, wanted)
    bad = dict.fromkeys(("offsets", "retries", "duplicates", "order", "placement"), "violation")
    assert verdicts(report) == CLEAN | bad | {"lateness": "warning"}
    assert report.verdict is Verdict.VIOLATION
    for name, (number, offset) in places.items():
        found = check(report, name)
        assert any(each.startswith(f"faulty-{number}@{offset}  ") for each in found.examples), (name, offset, found)
    said = {name: " / ".join(check(report, name).examples) for name in places}
    assert "key 'key-4': 2 after 6" in said["order"]
    assert "id 'e7' 2 times" in said["duplicates"]
    assert f"offset {places['offsets'][1]} is missing, without compaction" in said["offsets"]
    assert f"sequence 0 again, {places['retries'][1]} was next" in said["retries"]
    numbers = check(report, "placement").numbers
    assert (numbers["several"], numbers["neither"], numbers["keys"]) == (1, 0, 10)
    assert numbers["murmur2"] + numbers["both"] == 9
    assert (check(report, "offsets").numbers["lost"], check(report, "retries").numbers["repeated"]) == (1, 1)
    drawn = page(report)
    assert drawn.count('<svg class="plot"') == 4
    number, offset = places["order"]
    assert f"faulty-{number}@{offset}" in drawn


def test_a_clean_topic_of_transactions_behind_what_retention_took(spark: Any, topics: Topics) -> None:
    """Markers are no gaps, what was aborted and written again is no duplicate, a batch may begin before the start."""
    topic = topics.make(PARTITIONS)
    settings = {"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2_random", "linger.ms": 50}
    producer = Producer({**settings, "transactional.id": f"audit-{topic}", "compression.type": "zstd", "log_level": 0})
    producer.init_transactions(30)
    for first, commits in ((0, True), (150, False), (150, True)):
        producer.begin_transaction()
        for number in range(first, first + 150):
            at = datetime.fromtimestamp(START / 1000 + number, UTC).isoformat()
            headers = {"id": b"%d" % number, "version": b"%d" % number}
            producer.produce(topic, event(number, meta={"at": at}), key(number), headers=headers)
        assert producer.flush(30) == 0
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    with kit.connect(int(topics.bootstrap.rpartition(":")[2])) as connection:
        assert kit.delete_records(connection, topic, 5).error_code == 0
        ends = [kit.offset_at(connection, topic, kit.LATEST, number) for number in range(PARTITIONS)]
    wanted = Wanted(
        topic=topic,
        bootstrap_servers=topics.bootstrap,
        start={"startingOffsets": json.dumps({topic: {"0": -2, "1": 7, "2": 0}})},
        event_time="meta.at",
        sequence="header:version",
        event_id="header:id",
    )
    report = audit(spark, wanted)
    assert verdicts(report) == CLEAN, report.checks
    assert [(each.start, each.end) for each in report.partitions] == list(zip((5, 7, 0), ends, strict=True))
    found = check(report, "offsets").numbers
    counted = {name: found[name] for name in ("records", "aborted", "markers", "lost", "undecided", "retention")}
    assert counted == {
        "records": 300 - 5 - 7, "aborted": 150, "markers": 9, "lost": 0, "undecided": 0, "retention": 5
    }  # fmt: skip
    assert (report.records, report.verdict) == (288, Verdict.OK)


def test_a_compacted_topic_has_holes_that_are_no_loss(
    spark: Any, damaged: tuple[Broker, dict[str, tuple[int, int]]]
) -> None:
    broker, _ = damaged
    small = {"cleanup_policy": "compact", "segment_bytes": 2000, "min_cleanable_dirty_ratio": 0.01}
    with kit.connect(broker) as connection:
        kit.create_topic(connection, "table", **small)
        for number in range(60):
            pairs = [(key(number + n), b"%d" % number * 20) for n in range(3)]
            once = [(b"once-%d" % number, b"x")] if number % 2 else []  # batches without one vanish as a whole
            kit.store(connection, "table", *pairs, *once)
        kit.eventually(lambda: len(kit.read_all(connection, "table")) < 100, "compaction")
        end = kit.offset_at(connection, "table", kit.LATEST)
    report = audit(spark, Wanted(topic="table", bootstrap_servers=broker.bootstrap_servers))
    offsets = check(report, "offsets")
    assert offsets.verdict is Verdict.OK, offsets
    assert (offsets.numbers["lost"], report.partitions[0].end) == (0, end)
    assert offsets.numbers["compacted"] > 60
    assert offsets.numbers["records"] + offsets.numbers["compacted"] == end
    assert report.verdict in (Verdict.OK, Verdict.WARNING)
    # Without the policy the log's own traces still tell: batches with holes.
    with kit.connect(broker) as connection:
        kit.alter_config(connection, kit.TOPIC, "table", {"cleanup.policy": "delete"})
    scope = find_scope(Wanted(topic="table", bootstrap_servers=broker.bootstrap_servers))
    offsets = skeleton.checks(scope, skeleton.look(spark, scope))[0]
    assert (offsets.verdict, offsets.numbers["lost"]) == (Verdict.WARNING, 0)


@pytest.mark.parametrize("wrong", ["", "header:", "it's"])
def test_a_field_that_cannot_be_meant_is_refused(spark: Any, wrong: str) -> None:
    with pytest.raises(InvalidOption, match="expected a field such as id"):
        audit(spark, Wanted(topic="t", bootstrap_servers="127.0.0.1:1", event_id=wrong))


def test_the_page_is_true(
    spark: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", topics.bootstrap)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    follow("audit-a-topic.md", os.environ, tmp_path, capsys)
    assert "trades" in (tmp_path / "audit.html").read_text()
    (code,) = blocks("audit-a-topic.md", "py")
    exec(code.replace("localhost:9092", topics.bootstrap), {})
    assert "v goes back once" in capsys.readouterr().out
    spark.sparkContext.setLogLevel("ERROR")
