"""Who keeps the metadata, changed while the cluster runs: AddRaftVoter 0, RemoveRaftVoter 0. Decided by the leader of
the quorum, to which the others pass the question on.

A vote that was given or taken away by request is a fact of the metadata, so that the list of voters that a broker was
started with does not undo it. Voters change one at a time. A vote is given to a broker that has caught up, and taken
away only if those that are left, and there, are a majority of themselves. Not done: `listeners` is not read, since a
broker tells the others itself where it listens; there is no UpdateRaftVoter.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tidelog.broker.peers.links import Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.broker.peers.quorum_metadata import QuorumMetadata
from tidelog.broker.requests import Context, Endpoint
from tidelog.clock import Clock
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord, VoterRecord
from tidelog.consensus.errors import DuplicateVoter, NotLeader, VoterNotFound
from tidelog.consensus.raft import Raft
from tidelog.consensus.voters import ANY_DIRECTORY, ReplicaKey
from tidelog.errors import ErrorCode, InvalidRequest, KafkaError
from tidelog.storage.checkpoints import encode_uuid
from tidelog.wire.messages.clusters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tidelog.wire.primitives import NO_UUID

LOOK_SECONDS: Final = 0.02
REMOVE_SECONDS: Final = 10.0
"""RemoveRaftVoter does not say how long it waits."""
ADD_SECONDS_MAX: Final = 60.0
BEYOND_SECONDS: Final = 2.0
"""That whoever passes a question on waits longer for the answer than the one that looks for it."""

Request = TypeVar("Request", AddRaftVoterRequest, RemoveRaftVoterRequest)


class VotersHandler:
    def __init__(self, quorum: Quorum, metadata: QuorumMetadata, clock: Clock, *, for_brokers: bool = False) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._clock = clock
        self._for_brokers = for_brokers

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(80, 0, 0, self.add), Endpoint(81, 0, 0, self.remove)]

    async def add(self, context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        try:
            patience = min(max(request.timeout_ms / 1000, 0), ADD_SECONDS_MAX)
            if self._passes_on():
                answer: AddRaftVoterResponse = await self._pass_on(request, patience)
                return answer
            async with asyncio.timeout(patience):
                await self._add(request)
        except TimeoutError:
            text = f"broker {request.voter_id} does not follow the metadata closely enough to vote: does it run?"
            return AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
        except Unreachable as error:
            return AddRaftVoterResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=str(error))
        except KafkaError as error:
            return AddRaftVoterResponse(error_code=error.code, error_message=str(error))
        return AddRaftVoterResponse()

    async def remove(self, context: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        try:
            if self._passes_on():
                answer: RemoveRaftVoterResponse = await self._pass_on(request, REMOVE_SECONDS)
                return answer
            async with asyncio.timeout(REMOVE_SECONDS):
                await self._remove(request)
        except TimeoutError:
            text = "the vote is taken away as soon as the others can do without it"
            return RemoveRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
        except Unreachable as error:
            return RemoveRaftVoterResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=str(error))
        except KafkaError as error:
            return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
        return RemoveRaftVoterResponse()

    def _passes_on(self) -> bool:
        return not self._quorum.leads and not self._for_brokers

    async def _pass_on(self, request: AddRaftVoterRequest | RemoveRaftVoterRequest, patience: float) -> Any:
        """By a connection of its own: answers come in order, and heartbeats must not wait behind this one."""
        leader_id = self._quorum.leader_id
        if leader_id < 0:
            raise Unreachable("there is no leader of the quorum")
        link = self._quorum.link(leader_id)
        try:
            return await link.call(request, timeout=patience + BEYOND_SECONDS)
        finally:
            link.close()

    # -- as the leader ----------------------------------------------------------------------------------------------

    async def _add(self, request: AddRaftVoterRequest) -> None:
        raft, node_id = self._check(request), request.voter_id
        if raft.voters.has_id(node_id):
            raise DuplicateVoter(node_id)
        asked = _key_of(request)

        def follows() -> bool:
            found = [state.key for state in raft.status().observers if _matches(asked, state.key)]
            return any(map(raft.is_followed_by, found))

        await self._until(follows)
        await self._metadata.change(lambda image: _wish(image, node_id, votes=True))
        await self._until(lambda: raft.voters.has_id(node_id))
        await self._committed()

    async def _remove(self, request: RemoveRaftVoterRequest) -> None:
        raft, asked = self._check(request), _key_of(request)
        key = next((each.key for each in raft.voters if _matches(asked, each.key)), None)
        if key is None:
            raise VoterNotFound(asked)
        try:
            async with asyncio.timeout(2 * raft.settings.election_timeout_ms / 1000):
                asked_ms = self._clock.monotonic_ms()
                await self._until(lambda: raft.bears_loss_of(key, asked_ms))
        except TimeoutError:
            raise InvalidRequest(
                f"without broker {key.id} those voters that are there would be no majority: "
                f"start the others, or add a voter first"
            ) from None
        await self._metadata.change(lambda image: _wish(image, key.id, votes=False))
        # A leader that removed itself leads until that is committed.
        await self._until(lambda: key not in raft.voters)
        await self._committed()

    def _check(self, request: Request) -> Raft:
        cluster_id = self._quorum.machine.image.cluster_id
        if request.cluster_id not in (None, cluster_id):
            raise KafkaError(f"this is cluster {cluster_id}", ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not self._quorum.leads:
            raise NotLeader(self._quorum.leader_id)
        return self._quorum.raft

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(LOOK_SECONDS)

    async def _committed(self) -> None:
        end = self._quorum.raft.log.end
        await self._until(lambda: self._quorum.raft.commit >= end)


def _key_of(request: Request) -> ReplicaKey:
    """Without a directory id, whatever disk that broker has."""
    directory = request.voter_directory_id
    return ReplicaKey(request.voter_id, ANY_DIRECTORY if directory == NO_UUID else encode_uuid(directory))


def _matches(asked: ReplicaKey, key: ReplicaKey) -> bool:
    return asked.id == key.id and asked.directory_id in (ANY_DIRECTORY, key.directory_id)


def _wish(image: MetadataImage, node_id: int, *, votes: bool) -> list[AnyRecord]:
    return [] if image.voters.get(node_id) is votes else [VoterRecord(node_id, votes)]
