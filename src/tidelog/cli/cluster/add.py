"""A broker that joins: the command that starts it, and the plan that gives it its share."""

from collections.abc import Iterator
from typing import Final

from tidelog.cli.cluster.admin import Administration
from tidelog.cli.cluster.leave import told_of_voters
from tidelog.cli.cluster.moves import Plan, balanced
from tidelog.cli.cluster.picture import Picture
from tidelog.cli.problems import Problem
from tidelog.errors import KafkaError
from tidelog.ids import TopicPartition

_FIRST_PORT: Final = 9092


def command_for(seen: Picture, node: int | None, bootstrap: str) -> Iterator[str]:
    """What to type where the new broker should run, and what to do then."""
    if seen.quorum is None:
        raise _alone()
    known = {each.id for each in seen.brokers} | set(seen.absent)
    if node in known:
        raise Problem(f"there is a broker {node} already", f"the next free id is {max(known) + 1}")
    chosen = max(known) + 1 if node is None else node
    ports = {each.port for each in seen.brokers}
    port = max(ports | {_FIRST_PORT}) + 1
    addresses = [f"{each.id}@{each.address}" for each in seen.quorum.voters if each.address is not None]
    voters = ",".join(addresses) or "(as the others have it)"
    yield "start the new broker with:"
    yield ""
    yield f"  tidelog serve --node-id {chosen} --port {port} --controller-port {port + 100} \\"
    yield f"    --voters {voters} \\"
    yield f"    --set cluster.id={seen.cluster_id} --data-dir ./n{chosen}"
    yield ""
    yield "it joins without a vote and holds only partitions that are created from then on;"
    yield f"to give it its share of the others: tidelog cluster add {chosen} --rebalance -b {bootstrap}"
    yield f"to give it a vote: tidelog cluster add {chosen} --voter -b {bootstrap}"


def _alone() -> Problem:
    return Problem(
        "this broker is alone, and a broker is added to a cluster",
        "start it as one of several, with --voters and on its --data-dir: docs/how-to/run-a-cluster.md",
    )


def give_vote(admin: Administration, seen: Picture, node: int | None) -> str:
    if seen.quorum is None:
        raise _alone()
    if node is None:
        raise Problem("--voter gives one broker a vote", "say which: `tidelog cluster add NODE --voter`")
    voters = [each.id for each in seen.quorum.voters]
    if node in voters:
        return f"broker {node} votes already; {told_of_voters(len(voters))}"
    try:
        admin.add_voter(node)
    except KafkaError as error:
        raise Problem(f"broker {node} gets no vote: {error}", "`tidelog cluster status` shows who is there") from None
    return f"broker {node} votes; {told_of_voters(len(voters) + 1)}"


def evened_out(seen: Picture) -> Plan:
    if seen.absent:
        gone = ", ".join(map(str, seen.absent))
        raise Problem(f"broker {gone} is down", "wait until every broker is there: what it holds could not be moved")
    placement = {TopicPartition(each.topic, each.partition): each.replicas for each in seen.partitions}
    return balanced(placement, {each.id: each.rack for each in seen.brokers})
