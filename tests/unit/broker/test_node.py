"""A broker that cannot become one, or must not go on being one, says so and ends."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tidelog.broker.node import Node
from tidelog.cli.cluster.ports import HeldPort
from tidelog.config import Given, Source
from tidelog.config.broker import from_layers
from tidelog.errors import InvariantViolated, StorageOffline, invariant
from tidelog.testing import Broker


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("where", ["a callback", "a task", "a thread"])
def test_what_must_not_be_ends_the_process(run: Callable[[Coroutine[Any, Any, None]], None], where: str) -> None:
    """An event loop tells of what its callbacks and tasks raise, and goes on; the broker would go on acknowledging."""

    tasks: list[asyncio.Task[None]] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()

        async def work() -> None:
            if where == "a thread":
                await loop.run_in_executor(None, invariant, False, "the watermark passed the end")
            invariant(False, "the watermark passed the end")

        if where == "a callback":
            loop.call_soon(invariant, False, "the watermark passed the end")
        else:
            tasks.append(loop.create_task(work()))
        await asyncio.sleep(1)

    with pytest.raises(InvariantViolated, match="watermark"):
        run(serve())
    assert all(isinstance(task.exception(), InvariantViolated) for task in tasks)


def test_whoever_tests_with_a_broker_is_told_that_it_has_ended() -> None:
    """It runs in a thread, and Python says nothing of a thread that ends so."""
    broker = Broker().start()
    assert broker._loop is not None
    assert broker._thread is not None
    broker._loop.call_soon_threadsafe(invariant, False, "the watermark passed the end")
    broker._thread.join(30)
    with pytest.raises(RuntimeError, match="ended by itself: the watermark passed the end"):
        broker.stop()
    assert not broker.data_dir.exists()


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
