"""Running a broker as a process: event loop, signals, logs, limits."""

import asyncio
import errno
import gc
import logging
import resource
import signal
import sys
import traceback

import uvloop

from tidelog import __version__
from tidelog.broker.logs import show
from tidelog.broker.node import Node
from tidelog.config import BrokerConfig
from tidelog.errors import InvariantViolated, KafkaError
from tidelog.storage.disk import DiskLocked
from tidelog.storage.log_dir import WrongDirectory


def run(config: BrokerConfig) -> int:
    """Serve until SIGINT or SIGTERM. The exit code: 0 after a clean stop, 1 if it could not start."""
    show(logging.INFO)
    raise_descriptor_limit()
    try:
        failure = uvloop.run(_serve(config))
    except DiskLocked as error:
        print(f"tidelog: {error}. Stop that broker, or give this one another --data-dir.", file=sys.stderr)
        return 1
    except OSError as error:
        what = error.strerror or str(error)
        print(f"tidelog: cannot start: {f'{error.filename}: {what}' if error.filename else what}", file=sys.stderr)
        if error.errno == errno.EADDRINUSE:
            print("  next: a broker may be running there already; --port takes another, and 0 any", file=sys.stderr)
        return 1
    except (KafkaError, WrongDirectory) as error:
        print(f"tidelog: cannot start: {error}", file=sys.stderr)
        return 1
    except InvariantViolated as error:
        traceback.print_exc()
        print(
            f"tidelog: stopped by a bug of its own, before it could do harm: {error}. Please report it with what is "
            f"above; what was acknowledged is on disk.",
            file=sys.stderr,
        )
        return 1
    if failure is not None:
        print(
            f"tidelog: left the cluster, which goes on without it: {failure}. Repair or replace the disk and start "
            f"again: what this broker had is copied from the others.",
            file=sys.stderr,
        )
        return 1
    return 0


async def _serve(config: BrokerConfig) -> str | None:
    """Why it had to leave; None if it was asked to."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    node = Node(config, owns_process=True)
    starting = loop.create_task(node.start())
    stopping = loop.create_task(stopped.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # In a cluster that has no majority yet, starting takes until it has one.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return None
    await starting
    # What is here now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    announce(node)
    await asyncio.wait((stopping, node.failed), return_when=asyncio.FIRST_COMPLETED)
    if node.failed.done():
        return node.failed.result()
    print("stopping ...", flush=True)
    await node.stop()
    return None


def announce(node: Node) -> None:
    host, port = node.addresses[0]
    shown = f"[{host}]" if ":" in host else host
    topics = len(node.metadata.image.topics)
    print(
        f"tidelog {__version__} is ready on {shown}:{port}  (node {node.config.node_id}, {topics} topics, "
        f"data in {node.directory.path})\n"
        f"\n"
        f"  try:  echo 'hello' | tidelog produce greetings -b {shown}:{port}\n"
        f"        tidelog consume greetings --from-beginning -b {shown}:{port}\n"
        f"        tidelog topic describe greetings -b {shown}:{port}\n"
        f"  stop: Ctrl-C",
        flush=True,
    )


def raise_descriptor_limit() -> None:
    """A log is three files a segment and a client one socket; the usual soft limit of 1,024 is soon too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
