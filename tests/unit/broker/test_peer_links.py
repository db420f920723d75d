"""What a broker says to the leader of the quorum does not wait for something else that it said."""

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))

from sim_disk import SimDisk

from tidelog.broker.peers.links import Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import CHANGES, HEARTBEATS, QuorumMetadata
from tidelog.clock import SystemClock
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION
from tidelog.cluster.metadata_machine import MetadataMachine
from tidelog.cluster.quorum_store import QuorumStore, open_log
from tidelog.consensus.settings import DEFAULTS
from tidelog.consensus.voters import ReplicaKey


def quorum() -> Quorum:
    stored = open_log(SimDisk(), "/data/metadata", METADATA_PARTITION, METADATA_CONFIG, now_ms=0)
    return Quorum(
        QuorumStore.open(stored, 1, new_directory_id="AAAAAAAAAAAAAAAAAAAAAQ"),
        MetadataMachine("test-cluster"),
        cluster_id="test-cluster",
        own_address=("127.0.0.1", 1),
        voters={1: ("127.0.0.1", 1), 2: ("127.0.0.1", 2), 3: ("127.0.0.1", 3)},
        settings=DEFAULTS,
        snapshot_bytes=1 << 20,
        dice=Random(0),
        clock=SystemClock(),
        loop=asyncio.get_running_loop(),
        on_failure=lambda reason: None,
    )


def test_heartbeats_have_a_connection_of_their_own() -> None:
    """Answers come in order: behind a change that waits for the disks of others a heartbeat would come too late."""

    async def look() -> None:
        replica = quorum()
        metadata = QuorumMetadata(replica)
        with pytest.raises(Unreachable):
            metadata.link_to_leader(HEARTBEATS)
        replica.raft.leader = ReplicaKey(2, "disk-2")
        beats = metadata.link_to_leader(HEARTBEATS)
        assert metadata.link_to_leader(HEARTBEATS) is beats
        assert metadata.link_to_leader(CHANGES) is not beats
        replica.raft.leader = ReplicaKey(3, "disk-3")
        assert metadata.link_to_leader(HEARTBEATS) is not beats
        await metadata.stop()

    asyncio.run(look())
