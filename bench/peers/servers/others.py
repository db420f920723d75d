"""NATS, Redis, RabbitMQ and ActiveMQ, from Debian's packages, each on a port of its own and with files of its own."""

import os
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from bench.peers.servers import debian
from bench.peers.servers.broker import HOST, Broker, Node, free_ports, wait_until


class _Packaged(ABC):
    """Started by `_node`, ready when its port takes a connection."""

    side: str
    title: str
    package: str

    def version(self) -> str:
        debian.unpacked(self.package)
        return f"{self.title} {debian.version(self.package)}"

    @abstractmethod
    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node: ...

    def prepare(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        home = directory / self.side
        home.mkdir(parents=True, exist_ok=True)
        node = self._node(home, debian.unpacked(self.package), free_ports(1)[0], settings)
        return Broker(side=self.side, nodes=[node], work_dir=directory, quick=quick)

    def launch(self, directory: Path, *, nodes: int, quick: bool, settings: Mapping[str, str]) -> Broker:
        broker = self.prepare(directory, nodes=nodes, quick=quick, settings=settings)
        broker.nodes[0].start()
        wait_until(lambda: _listens(broker.port), broker.nodes, timeout_s=90, pause_s=0.05)
        return broker


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5):
            return True
    except OSError:
        return False


class Nats(_Packaged):
    side, title, package = "nats", "NATS JetStream", "nats-server"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        command = [f"{root}/usr/sbin/nats-server", "-a", HOST, "-p", str(port), "-js", "-sd", str(home / "data")]
        return Node(command=command, log=home / "server.log", data_dir=home / "data", port=port)


class Redis(_Packaged):
    side, title, package = "redis", "Redis Streams", "redis-server"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        (home / "data").mkdir(exist_ok=True)
        given = {"appendonly": "yes", "appendfsync": "no", "save": "", **settings}
        command = [f"{root}/usr/bin/redis-server", "--port", str(port), "--bind", HOST, "--dir", str(home / "data")]
        for name, value in given.items():
            command += [f"--{name}", value]
        return Node(
            command=command, log=home / "server.log", data_dir=home / "data", port=port,
            environment=debian.environment(root),
        )  # fmt: skip


class RabbitMq(_Packaged):
    title, package = "RabbitMQ", "rabbitmq-server"

    def __init__(self, kind: str) -> None:
        self.side = f"rabbitmq-{kind}"
        self.title = f"RabbitMQ {kind}s over AMQP" if kind == "stream" else f"RabbitMQ {kind} queues"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        (home / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {HOST}:{port}\nlog.console = true\nlog.console.level = warning\n"
        )
        (home / "enabled_plugins").write_text("[].\n")
        (home / "bin").mkdir(exist_ok=True)
        erl = home / "bin" / "erl"
        erl.write_text(_ERL.format(root=f"{root}/usr/lib/erlang"))
        erl.chmod(0o755)
        start = home / "bin" / "start"
        erts = next(root.glob("usr/lib/erlang/erts-*/bin"))
        names_port = str(free_ports(1)[0])
        server = next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        # Its name server as a process of this one's, which ends with it: RabbitMQ would leave one behind.
        start.write_text(f"#!/bin/sh\n{erts}/epmd -port {names_port} &\nexec {server}/sbin/rabbitmq-server\n")
        start.chmod(0o755)
        environment = {
            **debian.environment(root),
            "PATH": f"{home}/bin:{erts}:{os.environ['PATH']}",
            "HOME": str(home),  # where Erlang keeps its cookie
            "RABBITMQ_HOME": str(server),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none.conf"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_ports(1)[0]),
            "ERL_EPMD_PORT": names_port,
        }
        return Node(
            command=[str(start)],
            log=home / "server.log",
            data_dir=home / "data",
            port=port,
            environment=environment,
        )


# Debian's own `erl` insists on /usr/lib/erlang.
_ERL = """#!/bin/sh
export ROOTDIR={root} EMU=beam PROGNAME=erl
export BINDIR=$(echo $ROOTDIR/erts-*/bin)
exec "$BINDIR/erlexec" ${{1+"$@"}}
"""


class ActiveMq(_Packaged):
    side, title, package = "activemq", "ActiveMQ", "activemq"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        # Links to jars of packages that are installed already lead nowhere in the unpacked directory.
        links = (root / "usr/share/activemq/lib").rglob("*.jar")
        jars = (link if link.exists() else Path("/usr/share/java") / link.name for link in sorted(links))
        classpath = ":".join(map(str, jars))
        if not (root / "ActiveMqBroker.class").exists():
            source = Path(__file__).parents[1] / "native" / "ActiveMqBroker.java"
            subprocess.run(["javac", "-cp", classpath, "-d", str(root), str(source)], check=True)
        command = [
            "java", "-Xms1G", "-Xmx1G", "-cp", f"{root}:{classpath}", "ActiveMqBroker",
            f"stomp+nio://{HOST}:{port}", str(home / "data"), settings.get("journalDiskSyncStrategy", "never"),
        ]  # fmt: skip
        return Node(command=command, log=home / "server.log", data_dir=home / "data", port=port)
