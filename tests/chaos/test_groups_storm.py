"""Many joins and leaves in a short time, with real clients: nothing is ever owned twice, and peace returns.

Clients give up a partition before they ask to join again or leave, so what two members say they own must not overlap in
time at all. What the coordinator wrote down is checked as well: no generation assigns a partition twice.
"""

import itertools
import random
import time
from collections.abc import Iterator, Sequence

import pytest
from tests.compat.group_members import AioKafkaMember, ConfluentMember, Member, Options, Place, settle, wait_for
from tests.compat.group_traffic import numbers, send

from tidelog.client.connection import Connection
from tidelog.groups.embedded import assigned_partitions
from tidelog.groups.records import GroupMetadataKey, GroupMetadataValue, decode_record
from tidelog.testing import Broker
from tidelog.wire.messages.data import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.record_batch import iter_batches, iter_records

PARTITIONS = 12
SECONDS = 6.0
CHANGES = 24  # joins and leaves: 240 a minute
MEMBERS_MAX = 5

# librdkafka does not say that it leaves when it is closed before it got its first partition of a cooperative group: the
# others wait until its session is over, so that is short there.
KINDS: dict[str, tuple[Sequence[type[Member]], Options]] = {
    # Not kafka-python, which can lose the answer to SyncGroup and is then dead (see Options.long_poll_ms).
    "eager": ((ConfluentMember, AioKafkaMember), Options(assignor="range", session_ms=20_000)),
    "cooperative": ((ConfluentMember,), Options(assignor="cooperative-sticky", session_ms=2000)),
    "consumer": ((ConfluentMember,), Options(protocol="consumer")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_of_joins_and_leaves(kind: str) -> None:
    clients, options = KINDS[kind]
    dice = random.Random(kind)
    settings = {
        "group.min.session.timeout.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 20_000,
        "offsets.topic.num.partitions": 1,
        "num.partitions": PARTITIONS,
    }
    with Broker(settings) as broker:
        bootstrap = broker.bootstrap_servers
        send(bootstrap, "storm", PARTITIONS, range(PARTITIONS))
        every: list[Member] = []
        living: list[Member] = []
        try:
            for _ in range(CHANGES):
                if len(living) < 2 or (len(living) < MEMBERS_MAX and dice.random() < 0.5):
                    member = dice.choice(clients)(bootstrap, "storm", ["storm"], options).start()
                    living.append(member)
                    every.append(member)
                else:
                    living.pop(dice.randrange(len(living))).close()
                time.sleep(SECONDS / CHANGES)
            settle(living, PARTITIONS)
            send(bootstrap, "storm", PARTITIONS, range(PARTITIONS, 2 * PARTITIONS))
            expected = set(range(PARTITIONS, 2 * PARTITIONS))
            wait_for(lambda: expected <= set(numbers(living)), "those who stayed read on")
        finally:
            for member in living:
                member.close()
        assert not list(overlaps(every))
        if options.protocol == "classic":
            generations = list(assignments_written(broker, "storm"))
            assert len(generations) > 3
            for generation, assigned in generations:
                assert len(assigned) == len(set(assigned)), f"generation {generation} owns a partition twice"
        assert not [error for member in every for error in member.errors]


def overlaps(members: Sequence[Member]) -> Iterator[tuple[Place, float]]:
    """Places that two members owned at one time."""
    spans: dict[Place, list[tuple[float, float]]] = {}
    for member in members:
        since: dict[Place, float] = {}
        for change in member.changes:
            for place in change.places:
                if change.kind == "assigned":
                    since.setdefault(place, change.at)
                elif place in since:
                    spans.setdefault(place, []).append((since.pop(place), change.at))
        assert not since, "every member has left by now"
    for place, owned in spans.items():
        for (_, until), (begins, _) in itertools.pairwise(sorted(owned)):
            if begins < until:
                yield place, until - begins


def assignments_written(broker: Broker, group: str) -> Iterator[tuple[int, list[Place]]]:
    """Every generation of a classic group as __consumer_offsets tells it."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=(FetchTopic(topic="__consumer_offsets", partitions=(asked,)),)
    )
    with Connection("127.0.0.1", broker.port) as connection:
        partition = connection.call(request, 12).responses[0].partitions[0]
    assert partition.error_code == 0
    for _, batch in iter_batches(partition.records):
        for record in iter_records(batch):
            key, value = decode_record(bytes(record.key or b""), record.value and bytes(record.value)) or (None, None)
            if isinstance(key, GroupMetadataKey) and key.group == group and isinstance(value, GroupMetadataValue):
                owned = [assigned_partitions(bytes(member.assignment)) or frozenset() for member in value.members]
                yield value.generation, [Place(*place) for each in owned for place in each]
