"""What a broker says to the leader of the quorum does not wait for something else that it said, and whatever breaks,
it hears that it was not heard."""

import asyncio
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from batches import create_log
from pictures import TOPIC_ID, picture
from sim_disk import SimDisk

from tidelog.broker.partitions import Partitions
from tidelog.broker.peers.links import FETCHES, MARKERS, PROBES, VERIFICATIONS, PeerLink, Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import CHANGES, HEARTBEATS, QuorumMetadata
from tidelog.broker.peers.side import ClusterSide
from tidelog.clock import SystemClock
from tidelog.cluster.metadata_log import METADATA_CONFIG, METADATA_PARTITION
from tidelog.cluster.metadata_machine import MetadataMachine
from tidelog.cluster.quorum_store import QuorumStore, open_log
from tidelog.cluster.replica import Replica
from tidelog.config import Given, Source, TopicConfig
from tidelog.config.broker import from_layers
from tidelog.consensus.settings import DEFAULTS
from tidelog.consensus.voters import ReplicaKey
from tidelog.storage.log_dir import LogDir
from tidelog.wire.messages.peers import QuorumStateRequest


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


def cluster_side() -> ClusterSide:
    config = from_layers(
        {
            name: (Given(text, Source.STATIC_BROKER_CONFIG, "a test"),)
            for name, text in {"node.id": "1", "controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2"}.items()
        }
    )
    directory = LogDir.open(SimDisk(), "/data", cluster_id=None, node_id=1, new_id=lambda: UUID(int=1))
    clock, loop = SystemClock(), asyncio.get_running_loop()
    return ClusterSide(config, directory, Partitions(directory, config, clock), clock, loop, lambda reason: None)


def test_a_fetch_waits_behind_nothing_that_may_wait_for_it() -> None:
    """The end of a transaction is answered when its followers have it. Asked for by one of them on the connection by
    which it fetches, the answer that brings it there would wait behind, until the fetch is given up; and an idle fetch
    kept verifications waiting, and made the controller believe that a broker does not answer."""

    async def look() -> None:
        side = cluster_side()
        links = [side.links_for(purpose)(2) for purpose in (FETCHES, MARKERS, VERIFICATIONS, PROBES)]
        assert len(set(links)) == 4
        assert side.replication.link_to(2) is links[0]
        assert side.links_for(MARKERS)(3) is not side.links_for(MARKERS)(2) is links[1]

    asyncio.run(look())


def test_an_heir_is_known_also_to_who_has_not_begun_to_lead() -> None:
    """It was elected, and its disk is full: who else is in sync is told by the metadata."""

    async def look() -> None:
        side = cluster_side()
        replica = Replica(create_log(SimDisk(), "/data/orders-0", TopicConfig()), TOPIC_ID, -1, 0)
        replica.follow(2, 3, 10)
        for isr, has_heir in (((1, 2), True), ((1,), False)):
            side.metadata.image = picture(1, 2, isr=isr)
            assert side.has_heir(replica) == has_heir
        side.metadata.image = picture(1, 2, away=(2,))
        assert not side.has_heir(replica)

    asyncio.run(look())


ABORT = struct.pack("ii", 1, 0)
"""As SO_LINGER: hanging up sends a reset, as a process does that is killed before it has read everything."""


def test_what_is_sent_in_the_moment_of_a_reset_is_unreachable_like_the_rest() -> None:
    """uvloop knows it a turn before whoever reads does. Were another error told then, the end of a transaction would
    never be sent again, and a broker never say again that it is there."""

    async def look() -> None:
        accepted: asyncio.Queue[StreamWriter] = asyncio.Queue()

        async def accept(reader: StreamReader, writer: StreamWriter) -> None:
            accepted.put_nowait(writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        link = PeerLink(loop, lambda: address, "test")
        request = QuorumStateRequest(cluster_id="test-cluster", node_id=1)
        calls = [loop.create_task(link.call(request, timeout=5))]
        there = await accepted.get()
        there.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        there.transport.abort()
        while link.connected:  # one in every turn of the loop
            calls.append(loop.create_task(link.call(request, timeout=5)))
            await asyncio.sleep(0)
        link.close()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        server.close()
        assert {type(error) for error in errors} == {Unreachable}, errors

    uvloop.run(look())
