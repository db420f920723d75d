"""Disks that lie, fill up or lose power. The broker may refuse; it may never promise what it cannot keep."""

import os
from pathlib import Path

import pytest

from tidelog.errors import ErrorCode

from .conftest import Mount
from .load import Load
from .power import needs_root, new_disk, plug_in_again, pull_the_plug
from .server import Server, produce


def test_after_a_failed_fdatasync_nothing_is_acknowledged_ever_again(tmp_path: Path, strace: str) -> None:
    """Only the sixth fdatasync fails, as on Linux: the ones after it say "ok" about pages that were thrown away."""
    trace = [strace, "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    server = Server(tmp_path / "data", prefix=[*trace, "-e", "inject=fdatasync:error=EIO:when=6"])
    promised: dict[int, bytes] = {}
    refused: list[int] = []
    with server:
        Load(server.bootstrap, "faulty", partitions=1).create_topic()
        Load(server.bootstrap, "neighbour", partitions=1).create_topic()
        with server.connect(timeout=20) as connection:
            for i in range(40):
                answer = produce(connection, "faulty", b"%d" % i)
                if answer.error_code == ErrorCode.NONE:
                    assert not refused, "an acknowledgement after the disk had failed"
                    promised[answer.base_offset] = b"%d" % i
                else:
                    refused.append(answer.error_code)
            assert promised
            assert refused
            assert set(refused) == {ErrorCode.KAFKA_STORAGE_ERROR}
            # The pages of the whole directory are in doubt, not only those of one partition.
            assert produce(connection, "neighbour", b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert server.alive
        server.kill()

        server.start(prefix=[])
        load = Load(server.bootstrap, "faulty", partitions=1)
        values = load.read_back()[0]
        assert {offset: values[offset] for offset in promised} == promised
        with server.connect() as connection:
            assert produce(connection, "faulty", b"after").error_code == ErrorCode.NONE


@needs_root
def test_a_full_disk_refuses_and_works_again_when_there_is_space(mount: Mount) -> None:
    disk = mount("-t", "tmpfs", "-o", "size=24m", "tmpfs")
    filler = disk / "filler"
    filler.write_bytes(bytes(12 << 20))
    promised: dict[int, bytes] = {}
    with Server(disk / "data") as server:
        Load(server.bootstrap, "full", partitions=1).create_topic()
        with server.connect() as connection:
            for i in range(40):
                value = b"%d:" % i + os.urandom(500_000)
                answer = produce(connection, "full", value)
                if answer.error_code == ErrorCode.NONE:
                    promised[answer.base_offset] = value
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "the disk should be full by now"
            assert server.alive

            filler.unlink()
            for i in range(3):
                value = b"space again %d" % i
                answer = produce(connection, "full", value)
                assert answer.error_code == ErrorCode.NONE
                promised[answer.base_offset] = value
        values = Load(server.bootstrap, "full", partitions=1).read_back()[0]
        assert {offset: values[offset] for offset in promised} == promised
        server.kill()
        server.start()
        values = Load(server.bootstrap, "full", partitions=1).read_back()[0]
        assert {offset: values[offset] for offset in promised} == promised


@needs_root
def test_power_loss_keeps_every_acknowledged_record(tmp_path: Path, mount: Mount) -> None:
    """The file system is shut down under load: what was not yet on the device is gone, as when the plug is pulled."""
    image, disk = new_disk(tmp_path, mount)
    server = Server(disk / "data", settings={"log.segment.bytes": "100000"})
    with server:
        load = Load(server.bootstrap, "plug", partitions=2)
        load.create_topic()
        for _ in range(3):
            load.run(0.5)
            _power_cycle(server, image, disk, load)
        load.run(0.2)
        load.finish()
        load.check()
        server.kill()


@needs_root
def test_without_flushing_the_same_power_loss_is_seen_to_lose_records(tmp_path: Path, mount: Mount) -> None:
    """What the test above proves depends on the plug really being pulled. Kafka's page-cache behaviour shows that."""
    image, disk = new_disk(tmp_path, mount)
    server = Server(disk / "data", settings={"flush.on.ack": "false"})
    with server:
        load = Load(server.bootstrap, "plug", partitions=1, message_timeout_ms=2000)
        load.create_topic()
        load.run_until_promised(100)
        _power_cycle(server, image, disk, load)
        with pytest.raises(AssertionError, match="lost or elsewhere"):
            load.check()
        server.kill()


def _power_cycle(server: Server, image: Path, disk: Path, load: Load) -> None:
    pull_the_plug(disk)
    load.run(0.1)  # whatever the broker answers now, it is held to it
    server.kill()
    plug_in_again(image, disk)
    server.start()
