"""`tidelog group …` on Apache Kafka: every command works from what clients can see, and says what it cannot."""

from collections.abc import Iterator

import pytest
from tests.peers.cli_cases import Cli
from tests.peers.commit_epoch_cases import CommitEpochCases
from tests.peers.group_cli_cases import GroupCliCases
from tests.peers.kafka_server import KafkaServer

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with KafkaServer(settings=settings) as kafka:
        yield kafka.bootstrap_servers


class TestGroupCliOnKafka(GroupCliCases):
    def test_it_says_that_there_is_no_history(self, cli: Cli, read: str) -> None:
        refused = cli("group", "timeline", read)
        assert (refused.code, "only Tidelog's does" in refused.err) == (1, True)
        told = cli("group", "diagnose", read, "--seconds", "0", "-o", "json").json
        assert (told["history"], "only Tidelog's does" in told["history_missing_because"]) == (False, True)
        assert "judged without history" in cli("group", "diagnose", read, "--seconds", "0").out


class TestCommitEpochsOnKafka(CommitEpochCases):
    """What Tidelog is held to as well."""
