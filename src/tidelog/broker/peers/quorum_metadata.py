"""Cluster metadata as the quorum keeps it. Any broker may decide a change, on the picture it has; the leader of the
quorum takes it if that is still the newest, and otherwise the broker decides again.

So every decision is made by the same pure functions, wherever it is made, and only their order is the quorum's.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from tidelog.broker.logs import get_logger
from tidelog.broker.metadata import Decide, Metadata
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.broker.peers.quorum import Conflict, Quorum
from tidelog.cluster.image import MetadataImage
from tidelog.cluster.records import AnyRecord, encode_record
from tidelog.consensus.errors import HandingOver, NotLeader
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.peers import ProposeRequest, ProposeResponse

CHANGE_SECONDS: Final = 15.0
"""After which whoever wants a change is told that there is nobody to make it."""
PAUSE_SECONDS: Final = 0.03
ANSWER_SECONDS: Final = 5.0

CHANGES: Final = "changes"
HEARTBEATS: Final = "heartbeats"

log = get_logger("metadata")


class QuorumMetadata(Metadata):
    def __init__(self, quorum: Quorum) -> None:
        super().__init__(quorum.machine.image)
        self._quorum = quorum
        self._lock = asyncio.Lock()
        self._following = asyncio.Lock()
        self._followed = 0
        """Everything before it has been followed by all listeners here."""
        self._news = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._links: dict[str, tuple[int, PeerLink]] = {}
        self.broker_epoch = -1
        quorum.on_applied = self._news.set

    @property
    def offset(self) -> int:
        return self._followed

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow_news())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for _, link in self._links.values():
            link.close()

    # -- following --------------------------------------------------------------------------------------------------

    async def _follow_news(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            async with self._following:
                machine = self._quorum.machine
                before, after, offset = self.image, machine.image, machine.offset
                self.image = after
                if after is not before:
                    try:
                        await self._follow(before, after)
                    except KafkaError as error:
                        # What could not be done is tried again by `settle`; the cluster goes on meanwhile.
                        log.warning("metadata not followed in full", error=str(error))
                    except Exception:
                        # Who no longer follows leads on what others lead by now, and still says that it is there.
                        log.exception("metadata not followed in full")
            async with self._progress:
                self._followed = offset
                self._progress.notify_all()

    async def settle(self) -> None:
        async with self._following:
            await self._follow(self.image, self.image)

    async def followed(self, offset: int) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: self._followed >= offset)

    async def catch_up(self) -> None:
        """Until everything that is committed as far as this broker knows has been followed."""
        await self.followed(self._quorum.machine.offset)

    # -- changing ---------------------------------------------------------------------------------------------------

    async def change(self, decide: Decide) -> MetadataImage:
        try:
            async with asyncio.timeout(CHANGE_SECONDS), self._lock:
                return await self._change(decide)
        except TimeoutError as error:
            raise KafkaError("the quorum did not take the change in time", ErrorCode.REQUEST_TIMED_OUT) from error

    async def _change(self, decide: Decide) -> MetadataImage:
        machine = self._quorum.machine
        while True:
            image, offset = machine.image, machine.offset
            records = list(decide(image))
            if not records:
                return image
            try:
                end = await self._propose(records, offset)
            except Conflict as conflict:
                await self._quorum.reached(conflict.offset)
            except (NotLeader, HandingOver, Unreachable):
                # What was proposed may have been taken or not: the next look at the image tells.
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                await self.followed(end)
                return self.image

    async def _propose(self, records: Sequence[AnyRecord], offset: int) -> int:
        leader = self._quorum.leader_id
        if leader == self._quorum.node_id:
            return await self._quorum.propose(records, offset)
        request = ProposeRequest(
            node_id=self._quorum.node_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=offset,
            records=tuple(encode_record(record) for record in records),
        )
        response: ProposeResponse = await self.link_to_leader().call(request, timeout=ANSWER_SECONDS)
        if response.error_code == ErrorCode.INVALID_UPDATE_VERSION:
            raise Conflict(response.metadata_offset)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            raise NotLeader(response.leader_id)
        if response.error_code:
            raise KafkaError(response.error_message or "the change was refused", ErrorCode(response.error_code))
        return response.metadata_offset

    def link_to_leader(self, purpose: str = CHANGES) -> PeerLink:
        """One for each purpose: answers come in order, and a heartbeat must not wait until a change is committed."""
        leader = self._quorum.leader_id
        if leader < 0:
            raise Unreachable("there is no leader of the quorum")
        known = self._links.get(purpose)
        if known is None or known[0] != leader:
            if known is not None:
                known[1].close()
            known = self._links[purpose] = (leader, self._quorum.link(leader))
        return known[1]
