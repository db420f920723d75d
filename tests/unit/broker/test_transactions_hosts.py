"""A coordinator's partition that begins anew, in a newer epoch, while there is work to do: the successor does it, and
only the successor."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "property"))

import txn_machine  # noqa: F401  # where the disk and its helpers are found
from txn_client import Client, Life
from txn_machine import Machine
from txn_world_whole import World

from tidelog.broker import flusher
from tidelog.errors import ErrorCode, KafkaError
from tidelog.transactions.state import State
from tidelog.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tidelog.wire.messages.transactions import DescribeTransactionsRequest
from tidelog.wire.record_batch import CONTROL, iter_batches

TOPIC = 2
RESIGNED = KafkaError("another broker leads", ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def world() -> World:
    """One in which nothing goes wrong by itself."""
    worlds = (World(seed) for seed in range(1000))
    return next(
        each for each in worlds if each.trouble == 0 and not (each.sticky or each.crashes_at_ends) and each.machine
    )


def machine_of(world: World) -> Machine:
    assert world.machine is not None
    return world.machine


def ask_for_replicas(world: World, count: int) -> None:
    config = IncrementalAlterableConfig(name="min.insync.replicas", config_operation=0, value=str(count))
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    assert world.ask(request, 1).responses[0].error_code == 0


def write_and_end(world: World) -> None:
    """Between the two the log becomes one that takes no markers."""
    client: Any = Client(world, 0, "alpha", second=False)

    def life() -> Life:
        yield from client.init(keep=False)
        txn = world.begin(client)
        yield from client.write(txn, ("t", 0))
        yield 1.0
        yield from client.end(txn, True)

    client.ticket, client.running = 0, life()
    world.after(0, lambda: world.resume(client, 0, None))
    world.run_until(world.now + 0.8)
    ask_for_replicas(world, 2)
    world.run_until(world.now + 1)


def markers_in_the_log(world: World) -> int:
    log = machine_of(world).partitions.get("t", 0).log
    piece = log.read(0, 1 << 20, upper=log.end_offset)
    headers = [header for header, _ in iter_batches(piece.file.read(piece.position, piece.length))]
    return sum(bool(header.attributes & CONTROL) for header in headers)


def test_markers_that_are_tried_again_and_again_are_the_successors_to_write(world: World) -> None:
    write_and_end(world)
    coordinator = machine_of(world).transactions.coordinator
    (before,) = coordinator.hosts
    assert before.shard.find("alpha").state is State.PREPARE_COMMIT
    coordinator.adopt(before.replica)
    world.run_until(world.now + 0.5)
    (successor,) = coordinator.hosts
    assert successor is not before
    ask_for_replicas(world, 1)
    world.run_until(world.now + 5)
    assert successor.shard.find("alpha").state is State.COMPLETE_COMMIT
    assert before.shard.find("alpha").state is State.PREPARE_COMMIT
    assert markers_in_the_log(world) == 1


def test_one_that_is_replaced_while_it_loads_never_begins(world: World) -> None:
    write_and_end(world)
    coordinator = machine_of(world).transactions.coordinator
    (first,) = coordinator.hosts
    coordinator.adopt(first.replica)
    (loading,) = coordinator.hosts
    coordinator.adopt(first.replica)
    ask_for_replicas(world, 1)
    world.run_until(world.now + 5)
    heard: list[Any] = []
    loading.submit(lambda shard, waiter, now_ms: shard.handle(None, None, now_ms), heard.append)
    assert heard[0].code == ErrorCode.NOT_COORDINATOR
    assert markers_in_the_log(world) == 1


def commit(world: World, count: int, *, second: bool = False) -> list[float]:
    """By a producer of its own, one transaction after another. When it was told of each."""
    client: Any = Client(world, 0, "alpha", second=second)
    told: list[float] = []

    def life() -> Life:
        yield from client.init(keep=False)
        for _ in range(count):
            txn, client.added = world.begin(client), set()
            yield from client.write(txn, ("t", 0))
            yield from client.end(txn, True)
            told.append(world.now)

    client.ticket, client.running = 0, life()
    world.after(0, lambda: world.resume(client, 0, None))
    world.run_until(world.now + 1)
    return told


@pytest.mark.parametrize("second", [False, True])
def test_what_completes_a_transaction_is_synced_with_what_follows(
    world: World, monkeypatch: pytest.MonkeyPatch, second: bool
) -> None:
    monkeypatch.setattr(flusher, "LAZY_SECONDS", 1000.0)
    commit(world, 1, second=second)
    (host,) = machine_of(world).transactions.coordinator.hosts
    log = host.replica.log
    assert host.shard.find("alpha").state is State.COMPLETE_COMMIT
    assert log.flushed_offset == log.end_offset - 1
    # Nobody who follows is held up by it: each of these waits for everything that is in the log before it.
    assert len(commit(world, 5, second=second)) == 5
    assert log.flushed_offset == log.end_offset - 1


def test_whoever_asks_for_it_need_not_wait_for_company(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "LAZY_SECONDS", 1000.0)
    commit(world, 1)
    (host,) = machine_of(world).transactions.coordinator.hosts
    assert host.replica.log.flushed_offset < host.replica.log.end_offset
    answer = world.ask(DescribeTransactionsRequest(transactional_ids=("alpha",)), 0)
    assert answer.transaction_states[0].transaction_state == "CompleteCommit"
    assert host.replica.log.flushed_offset == host.replica.log.end_offset


def test_it_is_synced_soon_also_if_nothing_follows(world: World) -> None:
    commit(world, 1)
    (host,) = machine_of(world).transactions.coordinator.hosts
    assert host.shard.find("alpha").state is State.COMPLETE_COMMIT
    assert host.replica.log.flushed_offset == host.replica.log.end_offset
