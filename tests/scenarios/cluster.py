"""A cluster under test: clients that hide nothing, a load that remembers every promise, and ways to wait."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tidelog.cli.cluster.admin import Administration
from tidelog.cli.cluster.picture import PartitionSeen, Picture
from tidelog.errors import KafkaError as TidelogError
from tidelog.testing import Cluster

PATIENCE_S = 60.0
"""For what must happen at all; how soon is the business of the benchmarks."""
QUICK_TO_RETURN = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 0,
}


def wait(holds: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> float:
    """Polls. How long it took, in seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


# -- looking at it -----------------------------------------------------------------------------------------------------


def look(cluster: Cluster, *nodes: int) -> Picture | None:
    """As these nodes see it, or whichever runs; None if nobody answers."""
    for node in nodes or cluster.nodes:
        if cluster.is_running(node):
            admin = Administration.at(cluster.address_of(node), timeout_s=2)
            try:
                return admin.look_once()
            except (OSError, TidelogError):
                continue
            finally:
                admin.close()
    return None


def seen(cluster: Cluster, *nodes: int) -> Picture:
    found: list[Picture] = []

    def looked() -> bool:
        picture = look(cluster, *nodes)
        if picture is not None:
            found.append(picture)
        return picture is not None

    wait(looked, "a node that answers")
    return found[-1]


def partition(cluster: Cluster, topic: str, number: int = 0, *nodes: int) -> PartitionSeen:
    found: list[PartitionSeen] = []

    def looked() -> bool:
        picture = look(cluster, *nodes)
        here = (
            [each for each in picture.partitions if (each.topic, each.partition) == (topic, number)] if picture else []
        )
        found.extend(here)
        return bool(here)

    wait(looked, f"{topic}-{number} is known")
    return found[-1]


def leader_of(cluster: Cluster, topic: str, number: int = 0, *nodes: int) -> int:
    found: list[int] = []

    def looked() -> bool:
        leader = partition(cluster, topic, number, *nodes).leader
        found.append(leader)
        return leader >= 0

    wait(looked, f"a leader of {topic}-{number}")
    return found[-1]


def make_whole(cluster: Cluster) -> None:
    """Every node there and every replica in sync."""
    for node in cluster.nodes:
        if cluster.is_running(node):
            cluster.resume(node)
        else:
            cluster.start_node(node)
    for node in cluster.nodes:
        cluster.wait_ready(node)

    def whole() -> bool:
        pictures = [look(cluster, node) for node in cluster.nodes]
        return all(
            each is not None and each.is_healthy and len(each.brokers) == len(cluster.nodes) for each in pictures
        )

    wait(whole, "the cluster is whole again")


def create_topic(cluster: Cluster, topic: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
    """`min_insync_replicas="2"` is min.insync.replicas=2. Returns when every node knows of it."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUICK_TO_RETURN})

    def created() -> bool:
        """On a machine that is too busy for heartbeats a broker may be away for a moment, and is missed here."""
        error = admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].exception(
            PATIENCE_S
        )
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        assert error is None or code == KafkaError.INVALID_REPLICATION_FACTOR, error
        return error is None

    wait(created, f"enough brokers for {replicas} replicas")
    for node in cluster.nodes:
        if cluster.is_running(node):
            leader_of(cluster, topic, partitions - 1, node)


# -- writing and reading -----------------------------------------------------------------------------------------------


def producer(cluster: Cluster, **settings: Any) -> Producer:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "linger.ms": 1,
            **QUICK_TO_RETURN,
            **given,
        }
    )


class Load:
    """Writes 0, 1, 2, … to the partitions in turn from a thread, idempotently and with acks=all, and remembers where it
    was told that each of them is."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int = 1,
        *,
        pause_s: float = 0.01,
        request_timeout_ms: int = 2000,
        timed: int | None = None,
    ) -> None:
        """`timed`: the one partition whose acknowledgements are timed."""
        self.topic, self.partitions = topic, partitions
        self._timed = timed
        self.sent = 0
        self.promised: dict[tuple[int, int], int] = {}
        self.promised_somewhere: list[tuple[int, int]] = []
        """Partition and number: when the answer to a batch is lost and the next one is acknowledged, the library knows
        that the first was written too, but not where."""
        self.failed: list[KafkaError] = []
        self.promised_at: list[float] = []
        self._bootstrap = bootstrap
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(2 * PATIENCE_S * 1000),
                # A paused broker says nothing: give up waiting for it soon, or the rest waits behind it.
                "request.timeout.ms": request_timeout_ms,
                "socket.timeout.ms": request_timeout_ms,
                "linger.ms": 1,
                "batch.num.messages": 50,
                **QUICK_TO_RETURN,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(4 * PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                for number in range(self.partitions):
                    self._producer.produce(self.topic, b"%d" % self.sent, partition=number, on_delivery=self._delivered)
                    self.sent += 1
                self._producer.poll(self._pause_s)
            self._producer.flush(3 * PATIENCE_S)
        except (
            KafkaException
        ) as fatal:  # such as records that were acknowledged and are gone: their numbers are missing
            self.failed.append(fatal.args[0])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        number, offset, value = message.partition() or 0, message.offset(), int(message.value() or b"-1")
        if self._timed is None or number == self._timed:
            self.promised_at.append(time.monotonic())
        if offset is None or offset < 0:
            self.promised_somewhere.append((number, value))
            return
        assert (number, offset) not in self.promised, f"{number}@{offset} was promised twice"
        self.promised[number, offset] = value

    def await_more(self, count: int = 20, seconds: float = PATIENCE_S) -> float:
        """Until so many more were acknowledged. How long it took."""
        before = len(self.promised)
        took = wait(lambda: len(self.promised) >= before + count or self.failed, f"{count} more acknowledged", seconds)
        assert not self.failed, self.failed[0]
        return took

    @property
    def longest_pause_s(self) -> float:
        return max((b - a for a, b in zip(self.promised_at, self.promised_at[1:], strict=False)), default=0.0)

    def check(self) -> None:
        """Once the block is over: nothing failed, everything is where it was promised to be, once, and in order."""
        assert not self._thread.is_alive(), "still sending"
        assert not self.failed, f"{len(self.failed)} errors, such as {self.failed[0]}"
        acknowledged = len(self.promised) + len(self.promised_somewhere)
        assert acknowledged == self.sent, "some were neither acknowledged nor refused"
        found = read_all(self._bootstrap, self.topic, self.partitions)
        judge(self.promised, found)
        held = {number: set(values) for number, values in found.items()}
        lost = [(number, value) for number, value in self.promised_somewhere if value not in held[number]]
        assert not lost, f"{len(lost)} acknowledged records are lost, such as {lost[0]}"


def judge(promised: dict[tuple[int, int], int], found: dict[int, list[int]]) -> None:
    lost = {
        place: value
        for place, value in promised.items()
        if len(found[place[0]]) <= place[1] or found[place[0]][place[1]] != value
    }
    assert not lost, f"{len(lost)} acknowledged records are lost or elsewhere, such as {next(iter(lost.items()))}"
    for number, values in found.items():
        assert values == sorted(set(values)), f"partition {number} holds a record twice or out of order"


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_uncommitted"
) -> dict[int, list[int]]:
    """The numbers in every partition, offset for offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_TO_RETURN})
    places = [TopicPartition(topic, number, 0) for number in range(partitions)]
    ends = admin.list_offsets({place: OffsetSpec.latest() for place in places})
    left = {place.partition: answer.result(PATIENCE_S).offset for place, answer in ends.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            **QUICK_TO_RETURN,
        }
    )
    consumer.assign(places)
    found: dict[int, list[int]] = defaultdict(list)
    deadline = time.monotonic() + PATIENCE_S
    done = {number for number, end in left.items() if end == 0}
    while len(done) < partitions:
        assert time.monotonic() < deadline, f"read {[len(found[n]) for n in left]} of {left}"
        for message in consumer.consume(2000, 0.2):
            number = message.partition() or 0
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF or error.retriable(), error
                if error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= left[number]:
                    done.add(number)
                continue
            if isolation == "read_uncommitted":
                assert message.offset() == len(found[number]), "a gap or a repetition in the offsets"
            found[number].append(int(message.value() or b"-1"))
    consumer.close()
    return found
