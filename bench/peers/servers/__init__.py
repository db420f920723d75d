"""How each peer is fetched, started on ports of its own, and made to give a stated guarantee."""

from bench.peers.servers.broker import Launcher
from bench.peers.servers.kafka import Kafka
from bench.peers.servers.others import ActiveMq, Nats, RabbitMq, Redis
from bench.peers.servers.tidelog import Tidelog

LAUNCHERS: tuple[Launcher, ...] = (
    Tidelog(),
    Kafka(),
    Nats(),
    Redis(),
    RabbitMq("stream"),
    RabbitMq("quorum"),
    ActiveMq(),
)
