"""Consume, transform, produce with transactions, while workers and the broker are killed with -9: all comes out once.

The workers are `examples/exactly_once.py` as it is. The judge is held against workers without transactions as well.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .keyed import KeyedLoad, Output, judge
from .server import Server

PARTITIONS, KEYS, WORKERS = 4, 20, 2
NOTHING_WRONG = {"lost": 0, "doubled": 0, "disordered": 0, "strange": 0}
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
QUICK = {
    "session.timeout.ms": "1000",
    "heartbeat.interval.ms": "100",
    "transaction.timeout.ms": "10000",
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "50",
    "log_level": "0",
}
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once.py"

_AT_LEAST_ONCE = """
import sys
from confluent_kafka import Consumer, Producer
bootstrap, source, target = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0}
consumer = Consumer({**common, "group.id": "shouters", "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "session.timeout.ms": 1000, "heartbeat.interval.ms": 100})
producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
consumer.subscribe([source])
while True:
    messages = [m for m in consumer.consume(100, 0.2) if m.error() is None]
    for m in messages:
        producer.produce(target, m.value().upper(), m.key())
    producer.flush()
    if messages:
        consumer.commit(asynchronous=False)
"""


class Workers:
    """Processes that are killed, and started again; also those that end by themselves, as a supervisor would."""

    def __init__(self, command: Callable[[int], Sequence[str]], environment: dict[str, str], log: Path) -> None:
        self.killed = self.ended = 0
        self._command, self._environment = command, environment
        self._log: IO[bytes] = log.open("ab")
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._processes = [self._start(number) for number in range(WORKERS)]
        self._watch = threading.Thread(target=self._supervise, daemon=True)
        self._watch.start()

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command(number), env=self._environment, stderr=self._log)

    def kill(self, number: int) -> None:
        with self._lock:
            process = self._processes[number]
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._processes[number] = self._start(number)
            self.killed += 1

    def _supervise(self) -> None:
        while not self._ending.wait(0.1):
            with self._lock:
                for number, process in enumerate(self._processes):
                    if process.poll() is not None:
                        self.ended += 1
                        self._processes[number] = self._start(number)

    def end(self) -> None:
        self._ending.set()
        self._watch.join()
        for process in self._processes:
            process.kill()
            process.wait()
        self._log.close()


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("in", "out")]
    for future in admin.create_topics(topics).values():
        future.result(20)


def transactional(number: int) -> list[str]:
    settings = [part for name, value in QUICK.items() for part in ("-X", f"{name}={value}")]
    return [sys.executable, str(EXAMPLE), "in", "out", "--name", f"worker-{number}", *settings]


def stand(bootstrap: str) -> str:
    """For whoever has to find out why something is missing."""
    commands = (("txn", "list"), ("txn", "find-hanging", "--idle", "0s"), ("group", "describe", "shouters"))
    return "".join(
        subprocess.run(
            [sys.executable, "-m", "tidelog", *command, "-b", bootstrap], capture_output=True, text=True, check=False
        ).stdout
        for command in commands
    )


@pytest.mark.slow
def test_exactly_once_through_twenty_killed_workers_and_five_killed_brokers(tmp_path: Path) -> None:
    dice = random.Random(20)
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topics(server.bootstrap)
        log = tmp_path / "workers.log"
        workers = Workers(transactional, {"TIDELOG_BOOTSTRAP": server.bootstrap}, log)
        load = KeyedLoad(server.bootstrap, "in", KEYS)
        output = Output(server.bootstrap, "out", PARTITIONS)

        def kill_broker() -> None:
            server.kill()
            time.sleep(dice.uniform(0, 0.3))
            server.start()

        accidents = [*(lambda: workers.kill(dice.randrange(WORKERS)) for _ in range(20)), *(kill_broker,) * 5]
        dice.shuffle(accidents)
        try:
            for accident in accidents:
                output.read(dice.choice((0.2, 0.6, 1.2, 2.0)))
                accident()
            expected = load.finish()
            while_dying = output.count
            output.read_until(expected, 120)
            told = f"{output.count} of {expected}, {while_dying} in time, {workers.ended} gave up\n"
            told += log.read_text()[-3000:]
            if output.count != expected:
                told += stand(server.bootstrap)
        finally:
            workers.end()
            output.close()
        assert judge(load.sent, output.numbers) == NOTHING_WRONG, told
        assert while_dying > expected / 10, f"too little happened while things died: {told}"
        assert workers.killed == 20


def test_without_transactions_the_judge_finds_something(tmp_path: Path) -> None:
    """Or it would prove nothing above. Only workers die; each kill between the output and the commit repeats work."""
    dice = random.Random(3)
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        make_topics(server.bootstrap)
        command = [sys.executable, "-c", _AT_LEAST_ONCE, server.bootstrap, "in", "out"]
        workers = Workers(lambda _: command, {}, tmp_path / "workers.log")
        load = KeyedLoad(server.bootstrap, "in", KEYS)
        output = Output(server.bootstrap, "out", PARTITIONS)
        try:
            for _ in range(30):
                output.read(dice.uniform(0.3, 1.5))
                workers.kill(dice.randrange(WORKERS))
                if judge(load.sent, output.numbers)["doubled"]:
                    break
            output.read_until(load.finish(), 60)
        finally:
            workers.end()
            output.close()
        wrong = judge(load.sent, output.numbers)
        assert wrong["doubled"] > 0
        assert wrong["lost"] == 0
