"""Many logs marked at once: each is acknowledged after its own sync, and one that fails takes no other with it."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

from tidelog.broker.flusher import REPORT, THREADS, Flusher
from tidelog.cluster.replica import Replica
from tidelog.config import TopicConfig
from tidelog.ids import NO_TOPIC_ID, TopicPartition
from tidelog.storage.disk import RealDisk, RealFile
from tidelog.storage.log import Log
from tidelog.wire.record_batch import build_pairs

NOW = 1_700_000_000_000
MANY = THREADS * REPORT * 2 + 3


class GuardedFile(RealFile):
    """Syncs wait for `gate`, are written down, and fail where that was arranged."""

    def __init__(self, path: str, fd: int, disk: "GuardedDisk") -> None:
        super().__init__(path, fd)
        self._disk = disk

    def sync(self) -> None:
        self._disk.entered += 1
        assert self._disk.gate.wait(60)
        code = self._disk.failing.pop(Path(self.path).parent.name, None)
        if code is not None:
            raise OSError(code, "injected", self.path)
        super().sync()
        self._disk.synced.append(Path(self.path).parent.name)


class GuardedDisk(RealDisk):
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = 0
        self.failing: dict[str, int] = {}
        self.synced: list[str] = []

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        return GuardedFile(path, os.dup(file.fileno()), self) if path.endswith(".log") else file


class Bench:
    """A flusher on the running loop, and logs that remember what was visible when."""

    def __init__(self, directory: Path, count: int) -> None:
        self.disk = GuardedDisk()
        self.errors: list[Replica] = []
        self.visible: list[str] = []
        self.flusher = Flusher(asyncio.get_running_loop(), lambda replica, error: self.errors.append(replica))
        self.replicas = [self._replica(directory, number) for number in range(count)]
        self.disk.synced.clear()
        self.disk.entered = 0

    def _replica(self, directory: Path, number: int) -> Replica:
        place = TopicPartition("t", number)
        path = directory / str(place)
        path.mkdir()
        replica = Replica(Log.create(self.disk, str(path), place, TopicConfig(), now_ms=NOW), NO_TOPIC_ID, 0)
        replica.on_watermark = self._on_watermark
        return replica

    def _on_watermark(self, replica: Replica) -> None:
        assert str(replica.partition) in self.disk.synced, "visible before its sync"
        self.visible.append(str(replica.partition))

    def append(self, replica: Replica) -> None:
        replica.append(bytearray(build_pairs([(b"k", b"v")], NOW)), acks=-1, now_ms=NOW, prepared=True)
        self.flusher.mark(replica)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


def test_many_logs_of_one_turn_are_each_visible_after_their_own_sync(tmp_path):
    async def test() -> None:
        bench = Bench(tmp_path, MANY)
        for replica in bench.replicas:
            bench.append(replica)
        assert bench.disk.synced == []  # handed over when the turn ends, not while requests are still being read
        await bench.until(lambda: bench.flusher.idle)
        assert sorted(bench.visible) == sorted(str(replica.partition) for replica in bench.replicas)
        assert all(replica.high_watermark == 1 for replica in bench.replicas)
        bench.flusher.stop()

    run(test)


def test_appends_of_one_turn_share_a_sync_and_what_follows_gets_its_own(tmp_path):
    async def test() -> None:
        bench = Bench(tmp_path, 1)
        (replica,) = bench.replicas
        bench.disk.gate.clear()
        for _ in range(5):
            bench.append(replica)
        await bench.until(lambda: bench.disk.entered == 1)
        bench.append(replica)  # while the first sync runs
        assert replica.high_watermark == 0
        bench.disk.gate.set()
        await bench.until(lambda: bench.flusher.idle)
        assert replica.high_watermark == 6
        assert len(bench.disk.synced) == 2
        bench.flusher.stop()

    run(test)


def test_a_failed_sync_is_told_and_the_others_of_its_turn_are_served(tmp_path):
    async def test() -> None:
        bench = Bench(tmp_path, MANY)
        broken = bench.replicas[MANY // 2]
        bench.disk.failing[str(broken.partition)] = errno.EIO
        for replica in bench.replicas:
            bench.append(replica)
        await bench.until(lambda: bench.flusher.idle)
        assert bench.errors == [broken]
        assert broken.log.failed
        assert broken.high_watermark == 0
        assert len(bench.visible) == MANY - 1
        bench.flusher.mark(broken)
        await asyncio.sleep(0.02)
        assert str(broken.partition) not in bench.disk.synced  # never again
        assert bench.flusher.idle
        bench.flusher.stop()

    run(test)


def test_without_a_descriptor_it_is_tried_again(tmp_path):
    async def test() -> None:
        bench = Bench(tmp_path, 1)
        (replica,) = bench.replicas
        bench.disk.failing["t-0"] = errno.EMFILE
        bench.append(replica)
        await bench.until(lambda: replica.high_watermark == 1)
        assert bench.errors == []
        bench.flusher.stop()

    run(test)


def test_what_one_watermark_breaks_keeps_nobody_else_waiting(tmp_path):
    async def test() -> None:
        told: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        bench = Bench(tmp_path, MANY)

        def explode(replica: Replica) -> None:
            raise RuntimeError("a bug above")

        bench.replicas[0].on_watermark = explode
        for replica in bench.replicas:
            bench.append(replica)
        await bench.until(lambda: bench.flusher.idle)
        assert len(bench.visible) == MANY - 1
        assert [str(context["exception"]) for context in told] == ["a bug above"]
        bench.flusher.stop()

    run(test)


def test_a_log_deleted_meanwhile_is_nobodys_business(tmp_path):
    async def test() -> None:
        bench = Bench(tmp_path, 2)
        bench.disk.gate.clear()
        for replica in bench.replicas:
            bench.append(replica)
        await bench.until(lambda: bench.disk.entered > 0)
        bench.replicas[0].log.abandon("deleted")
        bench.append(bench.replicas[1])
        bench.disk.gate.set()
        await bench.until(lambda: bench.flusher.idle)
        assert bench.errors == []
        assert bench.replicas[1].high_watermark == 2
        bench.flusher.stop()

    run(test)
