"""How a new cluster begins: by the first of its voters, once all of them have said that they belong to none.

A voter that is not reached could be one that knows of a cluster, so it is waited for. Later starts need only a
majority.
"""

import asyncio
from typing import Final

from tidelog.broker.logs import get_logger
from tidelog.broker.peers.links import PeerLink, Unreachable
from tidelog.broker.peers.quorum import Quorum
from tidelog.wire.messages.peers import QuorumStateRequest, QuorumStateResponse

ASK_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05
TELL_SECONDS: Final = 5.0

log = get_logger("quorum")


async def form_if_new(quorum: Quorum, cluster_id: str, voters: dict[int, tuple[str, int]]) -> None:
    if not quorum.is_new or quorum.node_id != min(voters):
        return
    others = {node_id: quorum.link(node_id) for node_id in voters if node_id != quorum.node_id}
    request = QuorumStateRequest(cluster_id=cluster_id, node_id=quorum.node_id)
    told = asyncio.get_running_loop().time() + TELL_SECONDS
    try:
        while quorum.is_new:
            states = await asyncio.gather(*(_state(link, request) for link in others.values()))
            if all(state is not None and state.is_new for state in states):
                quorum.form()
                return
            if any(state is not None and not state.is_new for state in states):
                return  # there is a cluster, and its leader will find us
            missing = [node for node, state in zip(others, states, strict=True) if state is None]
            if asyncio.get_running_loop().time() > told:
                log.warning("a new cluster begins when all its voters are there", missing=missing)
                told += TELL_SECONDS
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        for link in others.values():
            link.close()


async def _state(link: PeerLink, request: QuorumStateRequest) -> QuorumStateResponse | None:
    try:
        answer: QuorumStateResponse = await link.call(request, timeout=ASK_SECONDS)
    except Unreachable:
        return None
    return answer
