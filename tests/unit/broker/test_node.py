"""A broker that cannot become one says so, instead of waiting."""

import asyncio
from pathlib import Path

import pytest

from tidelog.broker.node import Node
from tidelog.cli.cluster.ports import HeldPort
from tidelog.config import Given, Source
from tidelog.config.broker import from_layers
from tidelog.errors import StorageOffline


def test_a_disk_given_up_before_there_is_a_majority_ends_the_start(tmp_path: Path) -> None:
    """It has left the cluster then, before it was in it. Nobody would have started it again."""

    async def story(own: int, other: int) -> None:
        settings = {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "controller.quorum.voters": f"1@127.0.0.1:{own},2@127.0.0.1:{other}",
        }
        layers = {name: (Given(text, Source.STATIC_BROKER_CONFIG, "a test"),) for name, text in settings.items()}
        node = Node(from_layers(layers))
        starting = asyncio.get_running_loop().create_task(node.start())
        await asyncio.sleep(0.2)
        assert not starting.done()
        node._give_up_directory("cannot sync")
        with pytest.raises(StorageOffline, match="cannot sync"):
            await asyncio.wait_for(starting, 10)

    with HeldPort() as own, HeldPort() as other:
        asyncio.run(story(own.port, other.port))
