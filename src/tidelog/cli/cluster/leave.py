"""A broker that leaves its cluster for good: emptied while it runs, forgotten when it is stopped."""

from collections.abc import Iterator

from tidelog.cli.cluster.admin import Administration
from tidelog.cli.cluster.moves import Plan, emptied
from tidelog.cli.cluster.picture import Picture
from tidelog.cli.cluster.progress import carry_out
from tidelog.cli.output import count
from tidelog.cli.problems import Problem
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition


def told_of_voters(voters: int) -> str:
    spare = (voters - 1) // 2
    return f"{count(voters, 'voter')} {'bears' if voters == 1 else 'bear'} " + (
        f"the loss of {spare}" if spare else "no loss"
    )


class Leaving:
    def __init__(self, admin: Administration, node: int, *, may_shrink: bool) -> None:
        self._admin = admin
        self._node = node
        self._may_shrink = may_shrink

    def plan(self) -> Plan:
        """What is to be moved. Raises a Problem if there is no room for it."""
        seen = self._admin.look()
        self._check_known(seen)
        placement = {TopicPartition(each.topic, each.partition): each.replicas for each in seen.partitions}
        racks = {each.id: each.rack for each in seen.brokers}
        return emptied(placement, racks, self._node, may_shrink=self._may_shrink)

    def _check_known(self, seen: Picture) -> None:
        if self._node in {each.id for each in seen.brokers} and len(seen.brokers) == 1:
            raise Problem(
                f"broker {self._node} is the only one there", "start another one first: `tidelog cluster add`"
            )

    def _take_vote(self, seen: Picture) -> Iterator[str]:
        """Before it is stopped: a voter that is stopped and still counts is one that is down."""
        voters = [] if seen.quorum is None else [each.id for each in seen.quorum.voters]
        if self._node not in voters:
            return
        try:
            self._admin.remove_voter(self._node)
        except KafkaError as error:
            hint = "`tidelog cluster status` shows the voters, and `tidelog cluster add NODE --voter` makes another one"
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # a Kafka whose voters are what it was started with
                hint = "let it run, without partitions: stopped, it counts as a voter that is down"
            raise Problem(f"broker {self._node} keeps its vote: {error}", hint) from None
        yield f"broker {self._node} votes no more; {told_of_voters(len(voters) - 1)}"

    def carry_out(self, plan: Plan, at_once: int) -> Iterator[str]:
        if plan:
            carry_out(self._admin, plan, at_once=at_once)
            yield f"{count(len(plan), 'replica')} moved away from broker {self._node}"
        seen = self._admin.look()
        left = sum(1 for each in seen.partitions if self._node in each.replicas)
        if left:
            raise Problem(
                f"broker {self._node} holds {count(left, 'replica')} that came while others were moved",
                f"run `tidelog cluster decommission {self._node}` again",
            )
        yield from self._take_vote(seen)
        if self._node in {each.id for each in seen.brokers}:
            yield f"broker {self._node} holds nothing any more: stop it, then run this again to forget it"
            return
        try:
            self._admin.unregister(self._node)
        except KafkaError as error:
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
            raise Problem(
                f"there is no broker {self._node}", "`tidelog cluster status` shows those there are"
            ) from None
        yield f"broker {self._node} is forgotten"
