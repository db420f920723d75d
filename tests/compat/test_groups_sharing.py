"""Members of every client library share partitions, alone and together, and hand them over when one comes or goes."""

import signal
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from .conftest import MakeTopic
from .group_members import ASSIGNORS, MEMBERS, Options, settle, wait_for
from .group_traffic import numbers, send

PARTITIONS = 6
SOON_S = 10.0
"""Half a session: nobody was waited for who had left. The bar is one second, and `python -m bench` measures it where
nothing else runs."""


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(
    ("client", "assignor"), [(client, assignor) for client, names in ASSIGNORS.items() for assignor in names]
)
def test_two_members_share_and_one_leaves(groups: str, make_group_topic: MakeTopic, client: str, assignor: str) -> None:
    topic, group = make_group_topic("shared", PARTITIONS), new_group()
    options = Options(assignor=assignor)
    with MEMBERS[client](groups, group, [topic], options) as first:
        settle([first], PARTITIONS)
        with MEMBERS[client](groups, group, [topic], options) as second:
            joined_s = settle([first, second], PARTITIONS)
            send(groups, topic, PARTITIONS, range(60))
            wait_for(lambda: numbers([first, second]) == list(range(60)), "every record, once")
            assert first.reads
            assert second.reads
            assert {read.place for read in first.reads} == first.owned
        left_s = settle([first], PARTITIONS)
        send(groups, topic, PARTITIONS, range(60, 90))
        wait_for(lambda: set(range(60, 90)) <= set(numbers([first])), "the rest by the one that stayed")
    assert joined_s < SOON_S
    assert left_s < SOON_S


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_three_libraries_in_one_group(groups: str, make_group_topic: MakeTopic, assignor: str) -> None:
    topic, group, options = make_group_topic("mixed", PARTITIONS), new_group(), Options(assignor=assignor)
    with ExitStack() as stack:
        members = [stack.enter_context(MEMBERS[client](groups, group, [topic], options)) for client in MEMBERS]
        settle(members, PARTITIONS)
        send(groups, topic, PARTITIONS, range(60))
        wait_for(lambda: set(numbers(members)) == set(range(60)), "every record")
        assert {len(member.owned) for member in members} == {2}
        members.pop(0).close()
        settle(members, PARTITIONS)


def test_sticky_members_keep_what_they_had(groups: str, make_group_topic: MakeTopic) -> None:
    """Not with aiokafka: its assignor remembers in the class, so two members in one process remember the same."""
    client = "kafka-python"
    topic, group, options = make_group_topic("sticky", PARTITIONS), new_group(), Options(assignor="sticky")
    with (
        MEMBERS[client](groups, group, [topic], options) as first,
        MEMBERS[client](groups, group, [topic], options) as second,
    ):
        settle([first, second], PARTITIONS)
        before = first.owned, second.owned
        with MEMBERS[client](groups, group, [topic], options) as third:
            settle([first, second, third], PARTITIONS)
            assert first.owned < before[0]
            assert second.owned < before[1]


@pytest.mark.parametrize("clients", [("confluent",) * 3, ("kafka-python",) * 3, ("confluent", "kafka-python") * 2])
def test_a_newcomer_takes_only_what_it_must(groups: str, make_group_topic: MakeTopic, clients: tuple[str, ...]) -> None:
    """Cooperative: whoever keeps a partition is not told of its loss, and reads on while the others move theirs."""
    partitions = 12
    topic, group = make_group_topic("cooperative", partitions), new_group()
    # librdkafka looks for heartbeats twice a second: polls of that length would meet its rebalances again and again.
    options = Options(assignor="cooperative-sticky", long_poll_ms=1730)
    *settled, newcomer = (MEMBERS[client](groups, group, [topic], options) for client in clients)
    with ExitStack() as stack:
        for member in settled:
            stack.enter_context(member)
        settle(settled, partitions)
        before = {member: member.owned for member in settled}
        noted = {member: len(member.changes) for member in settled}
        with newcomer:
            taken_s = settle([*settled, newcomer], partitions)
            send(groups, topic, partitions, range(120))
            wait_for(lambda: numbers([*settled, newcomer]) == list(range(120)), "every record, once")
        for member in settled:
            during = [change for change in member.changes[noted[member] :] if change.at < newcomer.changes[-1].at]
            lost = frozenset().union(*(change.places for change in during if change.kind != "assigned"))
            gained = frozenset().union(*(change.places for change in during if change.kind == "assigned"))
            assert not gained
            assert len(lost) == len(before[member]) - partitions // len(clients)
    assert taken_s < SOON_S


@pytest.mark.parametrize("client", MEMBERS)
def test_new_partitions_are_found(groups: str, make_group_topic: MakeTopic, client: str) -> None:
    topic, group = make_group_topic("growing", 2), new_group()
    with MEMBERS[client](groups, group, [topic]) as member:
        settle([member], 2)
        admin = AdminClient({"bootstrap.servers": groups})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
        settle([member], 4)


def test_kcat_shares_with_others(groups: str, make_group_topic: MakeTopic, tmp_path: Path) -> None:
    topic, group = make_group_topic("kcat", 4), new_group()
    command = ["kcat", "-b", groups, "-G", group, "-q", "-u", "-X", "auto.offset.reset=earliest"]
    command += ["-X", "partition.assignment.strategy=range", "-X", "session.timeout.ms=20000"]
    command += ["-X", "heartbeat.interval.ms=60", "-f", "%s\n", topic]
    said = tmp_path / "said"
    with MEMBERS["confluent"](groups, group, [topic]) as member, said.open("wb") as output:
        settle([member], 4)
        kcat = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(member.owned) == 2, "kcat's half")
            send(groups, topic, 4, range(40))
            wait_for(lambda: len(numbers([member])) == 20, "our half")
            wait_for(lambda: len(said.read_text().splitlines()) == 20, "kcat has read its own")
            kcat.send_signal(signal.SIGINT)
            kcat.wait(30)
        finally:
            kcat.kill()
        heard = [int(line) for line in said.read_text().split()]
        assert sorted(numbers([member]) + heard) == list(range(40))
        settle([member], 4)
