"""A broker that takes much has little to read again when it is killed: recovery points move with what is written."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tidelog.broker import recovery_points
from tidelog.testing import Broker


def recovery_point(data_dir: Path, topic: str) -> int:
    path = data_dir / "recovery-point-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


@pytest.mark.parametrize("synced", ["true", "false"])
def test_they_move_when_much_was_written_and_not_before(
    tmp_path: Path, synced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_points, "FAR_BYTES", 5_000_000)
    settings = {"flush.on.ack": synced, "log.segment.bytes": 1_000_000}
    with Broker(settings, data_dir=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})

        def write(count: int) -> None:
            for _ in range(count):
                producer.produce("much", bytes(1000), partition=0)
            assert producer.flush(30) == 0

        write(3000)
        time.sleep(2.5)
        assert recovery_point(tmp_path, "much") == 0
        write(3000)
        deadline = time.monotonic() + 20
        while recovery_point(tmp_path, "much") <= 3000:
            assert time.monotonic() < deadline, "the recovery point stays behind"
            time.sleep(0.05)
        time.sleep(1)
        reached = recovery_point(tmp_path, "much")
        write(100)
        time.sleep(2.5)
        assert recovery_point(tmp_path, "much") == reached
