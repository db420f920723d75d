"""Groups while things die: brokers and members are killed, and offsets never go back, work is never left undone."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.compat.group_members import ConfluentMember, Member, Options, settle, wait_for
from tests.compat.group_traffic import numbers, send

from tidelog.client.connection import Connection
from tidelog.wire.messages.groups import FindCoordinatorRequest
from tidelog.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tidelog.wire.record_batch import iter_batches

from .load import Load
from .server import Server

SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "5000",
    "offsets.topic.num.partitions": "4",
    "num.partitions": "4",
}


# -- commits -----------------------------------------------------------------------------------------------------------


class Committer:
    """Commits 1, 2, 3, … for one group and remembers what was tried and what was promised."""

    def __init__(self, server: Server, group: str, topic: str, before: int) -> None:
        self.group = group
        self.tried = self.promised = before
        self.refused: set[int] = set()
        self.failure: BaseException | None = None
        self._server, self._topic = server, topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._commit_on()
        except BaseException as failure:
            self.failure = failure

    def _commit_on(self) -> None:
        while not self._ending.is_set():
            try:
                with self._server.connect(timeout=5) as connection:
                    connection.call(FindCoordinatorRequest(key=self.group), 2)
                    while not self._ending.is_set():
                        self._commit_next(connection)
            except OSError:
                time.sleep(0.01)  # it is dead or not there yet

    def _commit_next(self, connection: Connection) -> None:
        self.tried += 1
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=p, committed_offset=self.tried, committed_metadata="")
            for p in range(4)
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id="",
            topics=(OffsetCommitRequestTopic(name=self._topic, partitions=partitions),),
        )
        codes = {each.error_code for each in connection.call(request, 7).topics[0].partitions}
        if codes == {0}:
            self.promised = self.tried
        else:
            self.refused |= codes

    def end(self) -> None:
        self._ending.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def stored(self, connection: Connection) -> list[int]:
        wanted = (OffsetFetchRequestTopic(name=self._topic, partition_indexes=(0, 1, 2, 3)),)
        connection.call(FindCoordinatorRequest(key=self.group), 2)
        answer = connection.call(OffsetFetchRequest(group_id=self.group, topics=wanted), 5)
        assert answer.error_code == 0
        return [each.committed_offset for each in answer.topics[0].partitions]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_committed_is_there_after_kill_9(tmp_path: Path, seed: int) -> None:
    """Also while old segments of the offsets topic are closed and compacted underneath."""
    dice = random.Random(seed)
    settings = {**SETTINGS, "offsets.topic.segment.bytes": "5000", "log.cleaner.backoff.ms": "100"}
    with Server(tmp_path / "data", settings=settings) as server:
        Load(server.bootstrap, "work", partitions=4).create_topic()
        seen = [0] * 6
        for _ in range(5):
            committers = [Committer(server, f"group-{i}", "work", before) for i, before in enumerate(seen)]
            wait_for(
                lambda: all(each.promised >= before + 2 for each, before in zip(committers, seen, strict=True)),  # noqa: B023
                "every group commits",
            )
            time.sleep(dice.uniform(0, 0.6))
            server.kill()
            for committer in committers:
                committer.end()  # before anybody can commit anew, which would hide what was lost
            server.start()
            for number, committer in enumerate(committers):
                with server.connect() as connection:
                    offsets = committer.stored(connection)
                assert len(set(offsets)) == 1, "half a commit"
                assert max(committer.promised, seen[number]) <= max(offsets[0], 0) <= committer.tried
                assert not committer.refused
                seen[number] = offsets[0]
        assert min(seen) > 5
        offsets_dirs = tmp_path / "data"
        wait_for(lambda: any(map(has_gap, offsets_dirs.glob("__consumer_offsets-*/*.log"))), "a compacted segment")


def has_gap(path: Path) -> bool:
    """Offsets are missing in it, which only compaction does."""
    expected = int(path.stem)
    try:
        batches = path.read_bytes()
    except FileNotFoundError:  # compacted away since it was listed
        return False
    for header, _ in iter_batches(batches):
        if header.base_offset != expected:
            return True
        expected = header.last_offset + 1
    return False


# -- members -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_after_the_broker_came_back(tmp_path: Path, protocol: str, end: str) -> None:
    """The coordinator knows them from its log: nobody is told to give anything up, and commits still count."""
    options = Options(protocol=protocol, session_ms=10_000, auto_commit=True)
    with Server(tmp_path / "data", settings=SETTINGS) as server:
        send(server.bootstrap, "work", 4, range(40))
        with (
            ConfluentMember(server.bootstrap, "team", ["work"], options) as one,
            ConfluentMember(server.bootstrap, "team", ["work"], options) as two,
        ):
            members: list[Member] = [one, two]
            settle(members, 4)
            wait_for(lambda: numbers(members) == list(range(40)), "every record")
            noted = [len(member.changes) for member in members]
            for round_number in range(2):
                if end == "kill":
                    server.kill()
                else:
                    assert server.stop() == 0
                server.start()
                values = range(40 + 40 * round_number, 80 + 40 * round_number)
                send(server.bootstrap, "work", 4, values)
                wait_for(lambda: set(values) <= set(numbers(members)), "every new record")  # noqa: B023
            assert [len(member.changes) for member in members] == noted
            assert numbers(members) == list(range(120)), "what was read is not read again"
            for member in members:
                answers = member.do(lambda c: c.commit(offsets=c.position(c.assignment()), asynchronous=False))
                assert [each.error for each in answers] == [None, None]


# -- at least once -----------------------------------------------------------------------------------------------------

_WORKER = """
import os, sys
from confluent_kafka import Consumer
bootstrap, group, topic, protocol, journal = sys.argv[1:]
settings = {
    "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "reconnect.backoff.max.ms": 100, "fetch.wait.max.ms": 50, "log_level": 0,
}
if protocol == "classic":
    settings.update({"session.timeout.ms": 1000, "heartbeat.interval.ms": 100})
consumer = Consumer(settings)
consumer.subscribe([topic])
done = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    messages = [m for m in consumer.consume(50, 0.1) if m.error() is None]
    if not messages:
        continue
    os.write(done, b"".join(b"%s\\n" % m.value() for m in messages))  # the work
    try:
        consumer.commit(asynchronous=False)
    except Exception:
        pass  # somebody else has it now, or the broker is away: it will be done again
"""


class Workers:
    """Processes that do the work and note it; each may be killed, and another takes its place."""

    def __init__(self, count: int, directory: Path, *arguments: str) -> None:
        self._directory, self._arguments = directory, arguments
        self._started = 0
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._started += 1
        journal = self._directory / f"journal-{self._started}"
        return subprocess.Popen([sys.executable, "-c", _WORKER, *self._arguments, str(journal)])

    def kill_one(self, dice: random.Random) -> None:
        victim = dice.randrange(len(self._processes))
        self._processes[victim].send_signal(signal.SIGKILL)
        self._processes[victim].wait()
        self._processes[victim] = self._start()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def done(self) -> set[bytes]:
        return {line for journal in self._directory.glob("journal-*") for line in journal.read_bytes().split()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_is_worked_on_at_least_once(tmp_path: Path, protocol: str) -> None:
    dice = random.Random(7)
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "1000"}
    with Server(tmp_path / "data", settings=settings) as server:
        load = Load(server.bootstrap, "work", partitions=4)
        load.create_topic()
        workers = Workers(2, tmp_path, server.bootstrap, "team", "work", protocol)
        try:

            def kill_broker() -> None:
                server.kill()
                server.start()

            accidents: Sequence[Callable[[], None]] = (lambda: workers.kill_one(dice), kill_broker)
            for accident in (*accidents, *dice.choices(accidents, k=4)):
                load.run(dice.uniform(0.3, 0.9), pause_s=0.002)
                accident()
            load.run(0.3)
            load.finish()
            expected = set(load.promised.values())
            wait_for(lambda: expected <= workers.done(), lambda: f"{len(expected - workers.done())} undone")
        finally:
            workers.end()
