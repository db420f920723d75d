"""NATS, Redis, RabbitMQ and ActiveMQ, from Debian's packages, each on a port of its own and with files of its own."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from bench.peers.servers import debian
from bench.peers.servers.broker import HOST, Broker, Node, free_ports, wait_until


class _Packaged:
    """Started by `_node`, ready when its port takes a connection."""

    side: str
    title: str
    package: str

    def version(self) -> str:
        debian.unpacked(self.package)
        return f"{self.title} {debian.version(self.package)}"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        raise AssertionError("every peer has its own")

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
        distribution = free_ports(1)[0]
        (home / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {HOST}:{port}\nlog.console = true\nlog.console.level = warning\n"
        )
        (home / "enabled_plugins").write_text("[].\n")
        server = next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        environment = {
            **debian.environment(root),
            "ERL_ROOTDIR": f"{root}/usr/lib/erlang",
            "PATH": f"{root}/usr/lib/erlang/bin:{os.environ['PATH']}",
            "HOME": str(home),  # where Erlang keeps its cookie
            "RABBITMQ_HOME": str(server),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none.conf"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(free_ports(1)[0]),
        }
        command = [str(server / "sbin" / "rabbitmq-server")]
        return Node(
            command=command, log=home / "server.log", data_dir=home / "data", port=port, environment=environment
        )


_ACTIVEMQ_XML = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
 http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
 <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" dataDirectory="{data}" useJmx="false"
  schedulePeriodForDestinationPurge="0">
  <persistenceAdapter><kahaDB directory="{data}/kahadb" journalDiskSyncStrategy="{sync}"/></persistenceAdapter>
  <transportConnectors><transportConnector name="stomp" uri="stomp+nio://{host}:{port}"/></transportConnectors>
 </broker>
</beans>
"""


class ActiveMq(_Packaged):
    side, title, package = "activemq", "ActiveMQ", "activemq"

    def _node(self, home: Path, root: Path, port: int, settings: Mapping[str, str]) -> Node:
        sync = settings.get("journalDiskSyncStrategy", "never")
        config = home / "activemq.xml"
        config.write_text(_ACTIVEMQ_XML.format(data=home / "data", host=HOST, port=port, sync=sync))
        command = [
            "java", "-Xms1G", "-Xmx1G", f"-Dactivemq.home={root}/usr/share/activemq", f"-Dactivemq.base={home}",
            f"-Dactivemq.data={home}/data", "-cp", f"{root}/usr/share/activemq/lib/*:{root}/usr/share/java/*",
            "org.apache.activemq.console.Main", "start", f"xbean:file:{config}",
        ]  # fmt: skip
        return Node(command=command, log=home / "server.log", data_dir=home / "data", port=port)
