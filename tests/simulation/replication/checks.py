"""What must hold after every step, whatever was broken."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.replication.looking import NOTHING, Found, look

from tidelog.cluster.image import NO_LEADER, MetadataImage, PartitionImage
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.replication.seat import Seat


class Violation(AssertionError):
    """A promise was broken."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise Violation(what)


def partition_of(image: MetadataImage, place: TopicPartition) -> PartitionImage:
    return image.topics[place.topic].partitions[place.partition]


class Checks:
    """Of one partition."""

    def __init__(self, number: int, place: TopicPartition, *, compacted: bool = False) -> None:
        self.compacted = compacted
        """So that of every key only the last record has to be there, which may be a tombstone: none is old enough to
        be dropped."""
        self.number = number
        self.place = place
        self.brokers: dict[int, Seat] = {}
        self.image: MetadataImage | None = None
        self.truth: dict[int, bytes] = {}
        """What any reader could have seen at an offset: for ever, and for every other reader."""
        self.keys: dict[int, bytes] = {}
        """Of what is known to be at an offset."""
        self.fate: Callable[[int], bool | None] = lambda offset: None
        """Whether what is there is shown to readers of committed records, if that is decided."""
        self.leaders: dict[int, int] = {}
        """Leader epoch to who led it, as the controller decided."""
        self.newest: Seat | None = None
        """Who began to lead last."""
        self.newest_epoch = -1
        self.deleted_below = 0
        self.acked = 0
        self.acked_values: set[bytes] = set()

    # -- what the controller decides --------------------------------------------------------------------------------

    def image_changed(self, before: MetadataImage | None, after: MetadataImage) -> None:
        self.image = after
        if self.place.topic not in after.topics:
            return
        now = partition_of(after, self.place)
        led_by = self.leaders.setdefault(now.leader_epoch, now.leader)
        require(led_by == now.leader, f"epoch {now.leader_epoch} is led by {led_by} and by {now.leader}")
        require(now.leader == NO_LEADER or now.leader in now.isr, f"leader {now.leader} is not in sync: {now.isr}")
        require(set(now.isr) <= set(now.replicas), f"in sync without a replica: {now}")
        require(now.isr, "nobody is in sync any more")
        require(len(set(now.replicas)) == len(now.replicas), f"a replica is named twice: {now}")
        if before is None or self.place.topic not in before.topics:
            return
        then = partition_of(before, self.place)
        require(now.leader_epoch >= then.leader_epoch, "the leader epoch went back")
        require(now == then or now.partition_epoch == then.partition_epoch + 1, f"versions skip: {then} {now}")
        for node in set(now.isr) - set(then.isr):
            broker = self.brokers[node]
            require(after.is_available(node), f"{node} joins the in-sync set, but is fenced or stopping")
            if broker.replica is not None:
                self._has_everything(broker, "joins the in-sync set")

    def _is_wiped(self, broker: "Seat") -> bool:
        """On a disk that the controller has not heard of yet."""
        assert self.image is not None
        return self.image.brokers[broker.id].directory_id != broker.directory_id

    # -- what brokers do --------------------------------------------------------------------------------------------

    def role_changed(self, broker: "Seat") -> None:
        replica = broker.replica
        assert replica is not None
        if not replica.is_leader:
            return
        decided = self.leaders.get(replica.leader_epoch)
        require(decided == broker.id, f"{broker.id} leads epoch {replica.leader_epoch}, which is led by {decided}")
        if self.newest is None or replica.leader_epoch >= self.newest_epoch:
            self.newest = broker
            self.newest_epoch = replica.leader_epoch
            self._has_everything(broker, "begins to lead")

    def _has_everything(self, broker: "Seat", doing: str) -> None:
        replica = broker.replica
        assert replica is not None
        log = replica.log
        who = f"{broker.id} {doing} (epoch {replica.leader_epoch})"
        require(log.start_offset <= self.deleted_below, f"{who} with nothing before {log.start_offset}")
        found = self._look(broker)
        held = dict(found.values)
        gone = self._compacted_away(held) | found.damaged
        for offset, value in self.truth.items():
            if offset >= log.start_offset and offset not in gone:
                require(held.get(offset) == value, f"{who}, but at {offset} has {held.get(offset)!r}, not {value!r}")

    def _compacted_away(self, held: dict[int, bytes]) -> set[int]:
        """What is not there, and need not be: of its key something later is known, or its transaction was aborted."""
        if not self.compacted:
            return set()
        aborted = {offset for offset in self.truth if self.fate(offset) is False}
        last = {self.keys[offset]: offset for offset in sorted(self.truth.keys() - aborted)}
        return {
            offset
            for offset in self.truth.keys() - held.keys()
            if offset in aborted or last[self.keys[offset]] > offset
        }

    def _look(self, broker: "Seat", low: int | None = None, high: int | None = None) -> Found:
        """Damage stays where it happened."""
        found = look(broker, low, high)
        require(
            not found.damaged or broker.broker.disk.flips,
            f"{broker.id} has damage at {sorted(found.damaged)}, and its disk is good",
        )
        return found

    def opened(self, broker: "Seat") -> None:
        """What a broker claimed to have is what its disk gives back, or it is found to be damaged."""
        log, replica = broker.log, broker.replica
        assert replica is not None
        if broker.broker.disk.flips and (log.recovery.corrupt or replica.is_damaged):
            broker.world.found += 1
            broker.claimed = min(broker.claimed, log.end_offset)
        require(log.end_offset >= broker.claimed, f"{broker.id} ends at {log.end_offset}, but claimed {broker.claimed}")

    def visible(self, broker: "Seat") -> None:
        """Everything below a replica's watermark may have been read there."""
        replica = broker.replica
        if replica is None or replica.high_watermark <= broker.checked:
            return
        log = replica.log
        low, high = max(broker.checked, log.start_offset), replica.high_watermark
        who = f"{broker.id} (epoch {replica.leader_epoch})"
        end = max(log.start_offset, log.flushed_offset) if log.config.flush_on_ack else log.end_offset
        require(high <= end, f"{who} shows {high}, but is safe only up to {end}")
        found = self._look(broker, low, high) if low < high else NOTHING
        values = found.values
        # A log may begin inside a batch, and its watermark then be there: a batch is shown as a whole or not at all.
        broker.checked = max(
            (offset + 1 for offset in (*found.damaged, *(offset for offset, _ in values))), default=low
        )
        away = {offset for offset in self._compacted_away(dict(values)) if low <= offset < broker.checked}
        shown = sorted({offset for offset, _ in values} | found.damaged | away)
        require(shown == list(range(low, broker.checked)), f"{who} has a hole in {low}..{high}: {shown}")
        for offset, value in values:
            self.keys.setdefault(offset, found.keys[offset])
            known = self.truth.setdefault(offset, value)
            require(known == value, f"{who} shows {value!r} at {offset}, where {known!r} was seen")
        if replica.is_leader:
            self._contained(broker, values, high)

    def raised(self, broker: "Seat") -> None:
        """A leader's watermark has moved."""
        replica = broker.replica
        assert replica is not None
        if replica.is_leader and replica.followers is not None:
            needed = min(replica.config.min_insync_replicas, replica.followers.replica_count)
            require(replica.in_sync >= needed, f"{broker.id} shows more with {replica.in_sync} of {needed} in sync")

    def _contained(self, leader: "Seat", values: list[tuple[int, bytes]], high: int) -> None:
        """What a leader shows is on every member of the in-sync set, and on every later leader."""
        assert self.image is not None
        assert leader.replica is not None
        epoch = leader.replica.leader_epoch
        partition = partition_of(self.image, self.place)
        members = [self.brokers[node] for node in partition.isr] if partition.leader_epoch == epoch else []
        if self.newest is not None and self.newest_epoch > epoch:
            members.append(self.newest)
        for member in members:
            replica = member.replica
            if replica is None or member is leader or self._is_wiped(member):
                continue
            log = replica.log
            reached = log.flushed_offset if log.config.flush_on_ack else log.end_offset
            if replica.is_leader:
                reached = log.end_offset
            who = f"{leader.id} shows {high} in epoch {epoch}, but {member.id}"
            require(reached >= high, f"{who} is safe only up to {reached}")
            expected = [each for each in values if each[0] >= log.start_offset]
            found = self._look(member, expected[0][0], high) if expected else NOTHING
            held = dict(found.values)
            gone = self._compacted_away(held) | found.damaged
            for offset, value in expected:
                if offset not in gone:
                    require(held.get(offset) == value, f"{who} has {held.get(offset)!r} at {offset}, not {value!r}")

    def believed(self, leader: "Seat") -> None:
        """What a leader believes of those who follow it in its epoch is true, though it may be old."""
        replica = leader.replica
        assert replica is not None
        if replica.followers is None:
            return
        for member in self.brokers.values():
            follows = member.replica
            if follows is None or member is leader or follows.leader_epoch != replica.leader_epoch:
                continue
            if replica.followers.broker_epoch_of(member.id) != member.broker_epoch:
                continue
            log = follows.log
            reached = max(log.start_offset, log.flushed_offset if log.config.flush_on_ack else log.end_offset)
            end = replica.followers.end_offset_of(member.id)
            who = f"{leader.id} believes in epoch {replica.leader_epoch} that {member.id}"
            require(
                end <= max(reached, replica.log.start_offset),
                f"{who} has everything before {end}, but that is {reached}",
            )

    def acknowledged(self, broker: "Seat", base: int, values: list[bytes], minimum: int) -> None:
        replica = broker.replica
        assert replica is not None
        self.acked += 1
        self.acked_values.update(values)
        require(replica.is_leader, f"{broker.id} acknowledges without leading")
        require(replica.in_sync >= minimum, f"{broker.id} acknowledges with {replica.in_sync} in sync")
        for offset, value in enumerate(values, base):
            require(
                self.truth.get(offset) == value,
                f"{broker.id} acknowledges {value!r} at {offset}: {self.truth.get(offset)!r}",
            )

    # -- in the end -------------------------------------------------------------------------------------------------

    def converged(self) -> str:
        """What is still missing, or nothing."""
        assert self.image is not None
        partition = partition_of(self.image, self.place)
        away = [node for node, broker in self.brokers.items() if broker.is_away]
        if away or len(self.image.available) < len(self.brokers):
            return f"{away} are away, {self.image.available} are available"
        if partition.leader == NO_LEADER:
            return f"no leader: {partition}"
        leader = self.brokers[partition.leader].replica
        if leader is None or not leader.is_leader or leader.leader_epoch != partition.leader_epoch:
            return f"{partition.leader} does not lead"
        if set(partition.isr) != set(partition.replicas) or partition.adding or partition.removing:
            return f"not all are in sync: {partition}"
        if leader.high_watermark != leader.log.end_offset:
            return f"watermark {leader.high_watermark} of {leader.log.end_offset}"
        for node in partition.replicas:
            replica = self.brokers[node].replica
            if replica is None or replica.log.end_offset != leader.log.end_offset:
                return f"{node} is behind"
            if replica.high_watermark != leader.high_watermark:
                return f"{node} does not know the watermark"
        return ""

    def in_the_end(self) -> None:
        assert self.image is not None
        partition = partition_of(self.image, self.place)
        for node in partition.replicas:
            self._has_everything(self.brokers[node], "has converged")
        logs = [look(self.brokers[node], self.deleted_below) for node in partition.replicas]
        require(self.compacted or all(log == logs[0] for log in logs), "the logs differ")
