"""A broker in a thread of this process, on a free port and a temporary directory."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from tidelog.broker.node import Node
from tidelog.config import load

READY_SECONDS = 30.0


class Broker:
    """`Broker({"num.partitions": 4})`; `with` starts and stops it. Settings have Kafka's names, values may be plain."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, *, data_dir: str | Path | None = None, port: int = 0
    ) -> None:
        self._settings = {key: as_text(value) for key, value in (settings or {}).items()}
        self._own_dir = data_dir is None
        self.data_dir = Path(data_dir) if data_dir is not None else Path()
        self.port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> "Broker":
        if self._own_dir:
            self.data_dir = Path(tempfile.mkdtemp(prefix="tidelog-"))
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="tidelog-broker", daemon=True)
        self._thread.start()
        ready.wait(READY_SECONDS)
        if self._failure is not None:
            self._thread.join()
            if self._own_dir:
                shutil.rmtree(self.data_dir, ignore_errors=True)
            raise self._failure
        return self

    def stop(self) -> None:
        """Clean: everything is flushed, and a broker on the same directory opens without scanning."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            with suppress(RuntimeError):  # its loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._loop = self._thread = self._stop = None
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if self._failure is not None:
            # Not as it is: a bug of the broker's ends its own thread, and not the process that tests with it.
            raise RuntimeError(f"the broker has ended by itself: {self._failure}") from self._failure

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, ready: threading.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(ready))
        except BaseException as failure:
            self._failure = failure
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        given = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": str(self.data_dir), **self._settings}
        node = Node(load(flags=given, environment={}))
        await node.start()
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.port = node.addresses[0][1]
        ready.set()
        await self._stop.wait()
        await node.stop()


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
