"""How long a group stands still: a member joins, leaves, or is killed. With real clients, whose heartbeats tell the
others of it, so no group can be faster than its heartbeat interval.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection as Pipe
from statistics import median
from typing import Any

from confluent_kafka import Consumer

from bench import cooperative
from bench.results import Limits, Result
from bench.target import Target

PARTITIONS = 12
HEARTBEAT_MS = 300
SESSION_MS = 6000  # the shortest that brokers allow by default
BAR_S = 1.0
CLIENT_S = {"third member joins (classic, cooperative)": 2.0}
"""What librdkafka itself takes. It joins at most once a second, looks whether it may at most a second later, and a
cooperative join needs the newcomer twice: Apache Kafka gets the same times from it. `bench.cooperative` holds the
broker to the bar with members that do not hesitate."""
KINDS: dict[str, dict[str, Any]] = {
    "classic, range": {"partition.assignment.strategy": "range"},
    "classic, cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


def measure(target: Target, _limits: Limits) -> list[Result]:
    topic = target.make_topic("rebalance", partitions=PARTITIONS)
    assert topic is not None
    results = []
    for kind in KINDS:
        results += _joins_and_leaves(target, topic, kind, 2 if target.quick else 5)
    results.append(
        cooperative.measure(target, partitions=PARTITIONS, heartbeat_ms=HEARTBEAT_MS, rounds=2 if target.quick else 5)
    )
    results.append(_takeover(target, topic))
    target.delete_topic(topic)
    return results


class Member:
    """A consumer in a process of its own, which tells how many partitions it has whenever that changes."""

    def __init__(self, target: Target, group: str, topic: str, kind: str) -> None:
        settings = {"bootstrap.servers": target.bootstrap, "group.id": group, "log_level": 0, **KINDS[kind]}
        if kind != "consumer":  # whose broker says how often
            settings["session.timeout.ms"] = SESSION_MS
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_consume, args=(settings, topic, theirs), daemon=True
        )
        self._process.start()
        theirs.close()
        self.owned = 0

    def look(self) -> int:
        while self._ours.poll():
            self.owned = self._ours.recv()
        return self.owned

    def subscribe(self) -> None:
        """Only now: starting Python is not what is measured."""
        self._ours.send("subscribe")

    def leave(self) -> None:
        self._ours.send("leave")

    def kill(self) -> None:
        os.kill(self._process.pid or 0, signal.SIGKILL)

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _consume(settings: dict[str, Any], topic: str, pipe: Pipe) -> None:
    consumer = Consumer(settings)
    consumer.list_topics(topic, timeout=30)  # connected, as a member in a running program would be
    pipe.send(-1)
    pipe.recv()
    owned = 0

    def changed(by: int) -> None:
        nonlocal owned
        owned += by
        pipe.send(owned)

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: changed(len(partitions)),
        on_revoke=lambda _, partitions: changed(-len(partitions)),
        on_lost=lambda _, partitions: changed(-len(partitions)),
    )
    while not pipe.poll():
        consumer.poll(0.01)
    consumer.close()


def _until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> float:
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > seconds:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.001)
    return time.perf_counter() - began


def _settle(members: Sequence[Member]) -> float:
    share = PARTITIONS // len(members)
    return _until(lambda: all(member.look() == share for member in members), f"{share} partitions for each")


def _group(target: Target, topic: str, kind: str, count: int) -> list[Member]:
    group = f"bench-{time.time_ns()}"
    members = [Member(target, group, topic, kind) for _ in range(count)]
    _until(lambda: all(member.look() == -1 for member in members), "members that are connected")
    return members


def _joins_and_leaves(target: Target, topic: str, kind: str, rounds: int) -> list[Result]:
    joins: list[float] = []
    leaves: list[float] = []
    for number in range(rounds):
        *first, third = members = _group(target, topic, kind, 3)
        try:
            for member in first:
                member.subscribe()
            _settle(first)
            time.sleep(0.5 + number * 0.13)  # always the same would always meet the same moment between two heartbeats
            third.subscribe()
            joins.append(_settle(members))
            time.sleep(0.5 + number * 0.13)
            third.leave()
            leaves.append(_settle(first))
        finally:
            for member in members:
                member.end()
    return [
        _result(f"third member joins ({kind}), balanced again", joins),
        _result(f"third member leaves ({kind}), balanced again", leaves),
    ]


def _takeover(target: Target, topic: str) -> Result:
    """It may come out below zero: the session began with the victim's last heartbeat, not with its death."""
    beyond = []
    for _ in range(1 if target.quick else 3):
        survivor, victim = members = _group(target, topic, "classic, range", 2)
        try:
            for member in members:
                member.subscribe()
            _settle(members)
            time.sleep(1)
            victim.kill()
            beyond.append(_settle([survivor]) - SESSION_MS / 1000)
        finally:
            for member in members:
                member.end()
    return _result("takeover after kill -9, beyond the session timeout", beyond)


def _result(name: str, seconds: list[float]) -> Result:
    worst = max(seconds)
    bar = next((client for what, client in CLIENT_S.items() if name.startswith(what)), BAR_S)
    return Result(
        name=name,
        value=median(seconds),
        unit="s p50",
        target=f"all < {bar:.0f} s" + (", the client's own" if bar != BAR_S else ""),
        ok=worst < bar,
        detail={"worst": worst, "heartbeat_ms": HEARTBEAT_MS} if "consumer" not in name else {"worst": worst},
    )
