"""Kafka's own kafka-dump-log on files that Tidelog wrote: segments, both indexes, producer snapshots."""

import re
import shutil
from pathlib import Path

import pytest
from tests.peers.kafka_server import kafka_tool

from tidelog.cli import run
from tidelog.testing import Broker

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORDS = 3000


@pytest.fixture(scope="module", params=["none", "gzip", "snappy", "lz4", "zstd"])
def partition(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition directory with several segments, from a broker that has stopped."""
    from confluent_kafka import Producer

    data_dir = tmp_path_factory.mktemp("data")
    settings = {"log.segment.bytes": 100_000, "log.index.interval.bytes": 1000}
    with Broker(settings, data_dir=data_dir) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "compression.type": request.param,
                "batch.num.messages": 100,
            }
        )
        for number in range(RECORDS):
            producer.produce("orders", f"value {number:064}".encode(), f"key {number}".encode(), headers={"h": b"1"})
        assert producer.flush(30) == 0
    return data_dir / "orders-0"


def test_every_record_is_read(partition: Path) -> None:
    files = sorted(partition.glob("*.log"))
    out = kafka_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    read = re.findall(r"offset: (\d+) .* keySize: \d+ .*headerKeys: \[h\] key: key (\d+) payload: value (\d+)", out)
    assert [(int(offset), int(key), int(value)) for offset, key, value in read] == [(i, i, i) for i in range(RECORDS)]
    assert "isvalid: false" not in out
    assert out.count("isvalid: true") >= len(files)


def test_indexes_match_the_log(partition: Path) -> None:
    indexes = sorted(path for path in partition.iterdir() if path.suffix in (".index", ".timeindex"))
    assert indexes
    for path in indexes:
        assert complaints(path) == [], path


@pytest.mark.parametrize(("suffix", "byte"), [(".index", 3), (".timeindex", 7)])
def test_a_damaged_index_would_be_seen(partition: Path, tmp_path: Path, suffix: str, byte: int) -> None:
    """The check above is worth something only if it can fail."""
    copy = shutil.copytree(partition, tmp_path / "orders-0")
    index = copy / f"{0:020d}{suffix}"
    damaged = bytearray(index.read_bytes())
    damaged[byte] ^= 1
    index.write_bytes(damaged)
    assert complaints(index)


def complaints(index: Path) -> list[str]:
    out = kafka_tool(DUMP, "--files", str(index))
    return [words for words in ("Mismatches in", "Found timestamp mismatch", "out of order") if words in out]


def test_producer_snapshots_are_read(partition: Path) -> None:
    snapshots = sorted(partition.glob("*.snapshot"))
    assert snapshots
    out = kafka_tool(DUMP, "--files", str(snapshots[-1]))
    assert re.search(r"producerId: \d+ producerEpoch: 0", out), out


def test_we_find_it_sound_too(partition: Path) -> None:
    assert run(["log", "verify", str(partition)]) == 0
