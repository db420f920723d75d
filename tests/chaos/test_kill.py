"""kill -9 at random moments under acknowledged load: nothing promised is lost, doubled or moved."""

import random
from pathlib import Path

import pytest

from .load import Load
from .server import Server


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_again_and_again(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    server = Server(tmp_path / "data", settings={"log.segment.bytes": "200000"})
    with server:
        load = Load(server.bootstrap, "survives", partitions=3)
        load.create_topic()
        for _ in range(6):
            load.run(dice.uniform(0.1, 0.7))
            server.kill()
            server.start()
        load.run(0.2)
        load.finish()
        assert not load.failed
        assert len(load.promised) + len(load.promised_somewhere) == load.sent
        load.check()


def test_kill_9_while_starting(tmp_path: Path) -> None:
    """A crash during recovery must leave a log that recovers as well as the first time."""
    dice = random.Random(3)
    server = Server(tmp_path / "data")
    with server:
        load = Load(server.bootstrap, "twice", partitions=1)
        load.create_topic()
        load.run(0.5)
        load.finish()
        for _ in range(4):
            server.kill()
            server.start_and_kill_after(dice.uniform(0.05, 0.5))
        server.start()
        load.run(0.2)
        load.finish()
        load.check()


def test_a_clean_stop_and_a_second_broker_on_the_same_directory(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    with server:
        load = Load(server.bootstrap, "clean", partitions=2)
        load.create_topic()
        load.run(0.3)
        load.finish()
        second = Server(tmp_path / "data")
        with pytest.raises(AssertionError, match="ended while starting"):
            second.start()
        second.kill()
        assert server.stop() == 0
        server.start()
        load.run(0.2)
        load.finish()
        load.check()
